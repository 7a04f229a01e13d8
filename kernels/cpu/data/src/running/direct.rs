//! Lines side by side whose elements are read, joined and written in one pass, without chunks that are converted.

use super::RunningKernel;
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::team::Tile;
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_op::dtype::DType;
use bytemuck::Pod;

/// Lines that are joined side by side: their sums stay in the L1 cache.
const LINES: usize = 512;

/// Element with the type in which it is joined. Integers wrap, so that signed ones are joined like unsigned ones.
trait Element: Pod {
    type Sum: Copy;

    fn widened(self) -> Self::Sum;

    fn narrowed(sum: Self::Sum) -> Self;

    /// Returns the result of joining nothing.
    fn neutral(multiply: bool, exclusive: bool) -> Self::Sum;

    fn joined<const MULTIPLY: bool>(a: Self::Sum, b: Self::Sum) -> Self::Sum;
}

macro_rules! floats {
    ($($float:ty),*) => {$(
        impl Element for $float {
            type Sum = f64;

            #[inline(always)]
            fn widened(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn narrowed(sum: f64) -> Self {
                sum as Self
            }

            fn neutral(multiply: bool, exclusive: bool) -> f64 {
                match (multiply, exclusive) {
                    (true, _) => 1.0,
                    (false, true) => 0.0,
                    // A sum of −0 alone is −0.
                    (false, false) => -0.0,
                }
            }

            #[inline(always)]
            fn joined<const MULTIPLY: bool>(a: f64, b: f64) -> f64 {
                if MULTIPLY { a * b } else { a + b }
            }
        }
    )*};
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Element for $integer {
            type Sum = Self;

            #[inline(always)]
            fn widened(self) -> Self {
                self
            }

            #[inline(always)]
            fn narrowed(sum: Self) -> Self {
                sum
            }

            fn neutral(multiply: bool, _: bool) -> Self {
                Self::from(multiply)
            }

            #[inline(always)]
            fn joined<const MULTIPLY: bool>(a: Self, b: Self) -> Self {
                if MULTIPLY { a.wrapping_mul(b) } else { a.wrapping_add(b) }
            }
        }
    )*};
}

floats!(f32, f64);
integers!(u32, u64);

/// Whether elements of a type are joined without conversions.
pub(super) fn suits(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::I32 | DType::U32 | DType::I64 | DType::U64)
}

/// Computes the lines along the columns of a tile, from its stack of slices.
pub(super) fn join(kernel: &RunningKernel, source: &[u8], target: Tile<'_, u8>) {
    match kernel.dtype {
        DType::F32 => join_as::<f32>(kernel, source, target),
        DType::F64 => join_as::<f64>(kernel, source, target),
        DType::I32 | DType::U32 => join_as::<u32>(kernel, source, target),
        _ => join_as::<u64>(kernel, source, target),
    }
}

fn join_as<T: Element>(kernel: &RunningKernel, source: &[u8], mut target: Tile<'_, u8>) {
    let columns = target.columns.start / size_of::<T>()..target.columns.end / size_of::<T>();
    let source = elements::<T>(source);
    if matches!(kernel.inner, 2..=8 | 16) {
        let out = elements_mut(target.whole_rows());
        return match kernel.inner {
            2 => few::<T, 2>(kernel, source, out),
            3 => few::<T, 3>(kernel, source, out),
            4 => few::<T, 4>(kernel, source, out),
            5 => few::<T, 5>(kernel, source, out),
            6 => few::<T, 6>(kernel, source, out),
            7 => few::<T, 7>(kernel, source, out),
            8 => few::<T, 8>(kernel, source, out),
            _ => few::<T, 16>(kernel, source, out),
        };
    }
    for start in columns.clone().step_by(LINES) {
        let width = LINES.min(columns.end - start);
        let mut sums = [T::neutral(kernel.op.multiply, kernel.op.exclusive); LINES];
        let lines =
            Lines { kernel, source, target: &mut target, sums: &mut sums[..width], start, first: columns.start };
        match kernel.op.multiply {
            true => vectorised(Joining::<_, true>(lines)),
            false => vectorised(Joining::<_, false>(lines)),
        }
    }
}

/// Lines of a tile from a column of the stack on, one for each sum; the tile begins at the column `first`.
struct Lines<'a, 'b, T: Element> {
    kernel: &'a RunningKernel,
    source: &'a [T],
    target: &'a mut Tile<'b, u8>,
    sums: &'a mut [T::Sum],
    start: usize,
    first: usize,
}

struct Joining<L, const MULTIPLY: bool>(L);

impl<T: Element, const MULTIPLY: bool> Loop for Joining<Lines<'_, '_, T>, MULTIPLY> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Lines { kernel: RunningKernel { op, count, inner, .. }, source, target, sums, start, first } = self.0;
        for step in 0..*count {
            let step = if op.reverse { count - 1 - step } else { step };
            let from = &source[step * inner + start..][..sums.len()];
            let to = &mut elements_mut::<T>(target.row(step))[start - first..][..sums.len()];
            row::<T, MULTIPLY>(op.exclusive, from, sums, to);
        }
    }
}

/// Stack of a few lines, whose sums stay in registers.
struct Few<'a, T, const COUNT: usize> {
    kernel: &'a RunningKernel,
    source: &'a [T],
    target: &'a mut [T],
}

impl<T: Element, const COUNT: usize, const MULTIPLY: bool> Loop for Joining<Few<'_, T, COUNT>, MULTIPLY> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Few { kernel: RunningKernel { op, .. }, source, target } = self.0;
        let mut sums = [T::neutral(MULTIPLY, op.exclusive); COUNT];
        let (source, target) = (source.as_chunks::<COUNT>().0, target.as_chunks_mut::<COUNT>().0);
        for step in 0..target.len() {
            let step = if op.reverse { target.len() - 1 - step } else { step };
            // Copies, so that the compiler knows them apart from the target and makes vectors.
            let (from, mut made) = (source[step], source[step]);
            row::<T, MULTIPLY>(op.exclusive, &from, &mut sums, &mut made);
            target[step] = made;
        }
    }
}

fn few<T: Element, const COUNT: usize>(kernel: &RunningKernel, source: &[T], target: &mut [T]) {
    let few = Few::<T, COUNT> { kernel, source, target };
    match kernel.op.multiply {
        true => vectorised(Joining::<_, true>(few)),
        false => vectorised(Joining::<_, false>(few)),
    }
}

/// Joins a row with the rows before it.
#[inline(always)]
fn row<T: Element, const MULTIPLY: bool>(exclusive: bool, from: &[T], sums: &mut [T::Sum], to: &mut [T]) {
    let elements = from.iter().zip(sums).zip(to);
    match exclusive {
        true => elements.for_each(|((x, sum), to)| {
            *to = T::narrowed(*sum);
            *sum = T::joined::<MULTIPLY>(*sum, x.widened());
        }),
        false => elements.for_each(|((x, sum), to)| {
            *sum = T::joined::<MULTIPLY>(*sum, x.widened());
            *to = T::narrowed(*sum);
        }),
    }
}
