//! Running sums and products: each element along an axis is joined with all elements before it, in order.
//!
//! Floats are joined in `f64`, and each result is rounded to their type. A sum of many elements therefore loses little,
//! and a product that ends at zero does not overflow before. Integers wrap. The smallest part of the work is one line,
//! or up to [`CHUNK`] lines side by side. Lines side by side of elements of 32 or 64 bits are joined
//! [without conversions](direct).

mod direct;

use anabranch_cpu_base::convert::{from_f64, from_i64, to_f64, to_i64};
use anabranch_cpu_base::team::{Grid, Tile};
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Running};
use std::ops::Range;

/// Elements that are converted at a time: many, so that the call of a conversion takes little of its time.
const CHUNK: usize = 256;

/// Longest lines that are converted together with others.
const SHORT: usize = 32;

/// Bytes of data that are worth a part.
const PIECE: usize = 64 << 10;

struct RunningKernel {
    op: Running,
    count: usize,
    inner: usize,
    dtype: DType,
}

/// Functions that read, join and write elements as numbers of one type.
struct Numbers<T, J> {
    load: fn(DType, &[u8], &mut [T]),
    store: fn(&[T], DType, &mut [u8]),
    join: J,
    neutral: T,
}

/// Prepares a running sum or product.
pub(crate) fn prepare(node: &NodeSpec, op: &Running) -> Box<dyn CpuKernel> {
    let (dims, dtype) = (node.inputs[0].shape.dims(), node.inputs[0].dtype);
    Box::new(RunningKernel { op: op.clone(), count: dims[op.axis], inner: dims[op.axis + 1..].iter().product(), dtype })
}

impl CpuKernel for RunningKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (source, target) = (call.inputs[0], &mut *call.outputs[0]);
        let stack = self.count * self.inner * self.dtype.size();
        if stack == 0 || target.is_empty() {
            return Ok(());
        }
        let row = self.inner * self.dtype.size();
        if self.inner > CHUNK && stack > PIECE {
            let chunk = CHUNK * self.dtype.size();
            let tile_columns = (PIECE / self.count).next_multiple_of(chunk).max(chunk);
            let batch = target.len() / stack;
            let grid = Grid { batch, rows: self.count, columns: row, tile_rows: self.count, tile_columns };
            call.team.run_tiles(target, grid, &|tile| self.columns(&source[tile.matrix * stack..][..stack], tile));
            return Ok(());
        }
        let piece = (PIECE / stack).max(1) * stack;
        call.team.run_pieces(target, piece, &|at, target| {
            let source = &source[at * piece..][..target.len()];
            if self.inner == 1 && self.count <= SHORT {
                return self.columns(source, Tile::whole(target, row));
            }
            for (source, target) in source.chunks_exact(stack).zip(target.chunks_exact_mut(stack)) {
                self.columns(source, Tile::whole(target, row));
            }
        });
        Ok(())
    }
}

impl RunningKernel {
    /// Computes the lines along the columns of a tile, from its stack of slices.
    fn columns(&self, source: &[u8], target: Tile<'_, u8>) {
        let multiply = self.op.multiply;
        if self.inner > 1 && direct::suits(self.dtype) {
            return direct::join(self, source, target);
        }
        if self.dtype.is_float() {
            // A sum of −0 alone is −0, and a sum of nothing is 0.
            let zero = if self.op.exclusive { 0.0 } else { -0.0 };
            let (load, store) = (to_f64, from_f64);
            if multiply {
                self.run_as(source, target, &Numbers { load, store, join: |a, b| a * b, neutral: 1.0 });
            } else {
                self.run_as(source, target, &Numbers { load, store, join: |a, b| a + b, neutral: zero });
            }
        } else {
            let (load, store) = (to_i64, from_i64);
            if multiply {
                self.run_as(source, target, &Numbers { load, store, join: i64::wrapping_mul, neutral: 1 });
            } else {
                self.run_as(source, target, &Numbers { load, store, join: i64::wrapping_add, neutral: 0 });
            }
        }
    }

    fn run_as<T: Copy + Default, J: Fn(T, T) -> T>(
        &self,
        source: &[u8],
        mut target: Tile<'_, u8>,
        numbers: &Numbers<T, J>,
    ) {
        if self.inner == 1 && self.count <= SHORT {
            return self.short_lines(source, target.whole_rows(), numbers);
        }
        if self.inner == 1 {
            return self.line(source, target.whole_rows(), numbers);
        }
        if self.inner <= CHUNK / 2 {
            return self.narrow_lines(source, target.whole_rows(), numbers);
        }
        let bytes = CHUNK * self.dtype.size();
        for start in (0..target.columns.len()).step_by(bytes) {
            let end = target.columns.len().min(start + bytes);
            self.lines(source, &mut target, start..end, numbers);
        }
    }

    /// Computes short lines, one after the other, whose elements are consecutive.
    fn short_lines<T: Copy + Default, J: Fn(T, T) -> T>(
        &self,
        source: &[u8],
        target: &mut [u8],
        numbers: &Numbers<T, J>,
    ) {
        self.chunks(source, target, self.count, numbers, |values| {
            for line in values.chunks_exact_mut(self.count) {
                let mut sum = numbers.neutral;
                let join = |value: &mut T| self.join(&mut sum, value, numbers);
                match self.op.reverse {
                    true => line.iter_mut().rev().for_each(join),
                    false => line.iter_mut().for_each(join),
                }
            }
        });
    }

    /// Computes one line whose elements are consecutive.
    fn line<T: Copy + Default, J: Fn(T, T) -> T>(&self, source: &[u8], target: &mut [u8], numbers: &Numbers<T, J>) {
        let mut sum = numbers.neutral;
        self.chunks(source, target, 1, numbers, |values| {
            let join = |value: &mut T| self.join(&mut sum, value, numbers);
            match self.op.reverse {
                true => values.iter_mut().rev().for_each(join),
                false => values.iter_mut().for_each(join),
            }
        });
    }

    /// Computes all lines of a stack side by side, where several of its rows are converted together.
    fn narrow_lines<T: Copy + Default, J: Fn(T, T) -> T>(
        &self,
        source: &[u8],
        target: &mut [u8],
        numbers: &Numbers<T, J>,
    ) {
        let mut sums = [numbers.neutral; CHUNK];
        let sums = &mut sums[..self.inner];
        self.chunks(source, target, self.inner, numbers, |values| {
            vectorised(Rows { kernel: self, numbers, sums: &mut *sums, values });
        });
    }

    /// Converts as many whole rows of `row` consecutive elements at a time as fit into a chunk, and joins them with
    /// `join`; the last rows come first if results are joined from the end.
    #[inline(always)]
    fn chunks<T: Copy + Default, J: Fn(T, T) -> T>(
        &self,
        source: &[u8],
        target: &mut [u8],
        row: usize,
        numbers: &Numbers<T, J>,
        mut join: impl FnMut(&mut [T]),
    ) {
        let mut values = [T::default(); CHUNK];
        let bytes = CHUNK / row * row * self.dtype.size();
        let chunks = source.len().div_ceil(bytes);
        for chunk in 0..chunks {
            let start = bytes * if self.op.reverse { chunks - 1 - chunk } else { chunk };
            let range = start..source.len().min(start + bytes);
            let values = &mut values[..range.len() / self.dtype.size()];
            (numbers.load)(self.dtype, &source[range.clone()], values);
            join(values);
            (numbers.store)(values, self.dtype, &mut target[range]);
        }
    }

    /// Computes up to [`CHUNK`] lines side by side: these bytes of the tile's rows.
    fn lines<T: Copy + Default, J: Fn(T, T) -> T>(
        &self,
        source: &[u8],
        target: &mut Tile<'_, u8>,
        bytes: Range<usize>,
        numbers: &Numbers<T, J>,
    ) {
        let width = bytes.len() / self.dtype.size();
        let first = target.columns.start + bytes.start;
        let (mut values, mut sums) = ([T::default(); CHUNK], [numbers.neutral; CHUNK]);
        let values = &mut values[..width];
        for step in 0..self.count {
            let step = if self.op.reverse { self.count - 1 - step } else { step };
            let start = step * self.inner * self.dtype.size() + first;
            (numbers.load)(self.dtype, &source[start..][..bytes.len()], values);
            vectorised(Rows { kernel: self, numbers, sums: &mut sums[..width], values });
            (numbers.store)(values, self.dtype, &mut target.row(step)[bytes.clone()]);
        }
    }

    /// Joins an element with the elements before it, and replaces it by the result; an exclusive result leaves out the
    /// element itself.
    #[inline(always)]
    fn join<T: Copy, J: Fn(T, T) -> T>(&self, sum: &mut T, value: &mut T, numbers: &Numbers<T, J>) {
        let joined = (numbers.join)(*sum, *value);
        *value = if self.op.exclusive { *sum } else { joined };
        *sum = joined;
    }
}

/// Rows of lines side by side, each joined with the rows before it.
struct Rows<'a, T, J> {
    kernel: &'a RunningKernel,
    numbers: &'a Numbers<T, J>,
    sums: &'a mut [T],
    values: &'a mut [T],
}

impl<T: Copy, J: Fn(T, T) -> T> Loop for Rows<'_, T, J> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel, numbers, sums, values } = self;
        let rows = values.chunks_exact_mut(sums.len());
        let join = |row: &mut [T]| {
            sums.iter_mut().zip(row).for_each(|(sum, value)| kernel.join(sum, value, numbers));
        };
        match kernel.op.reverse {
            true => rows.rev().for_each(join),
            false => rows.for_each(join),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::prepare;
    use crate::testing::{computed, tensor};
    use anabranch_cpu_base::{Call, Team};
    use anabranch_op::op::{NodeSpec, Op, Running};
    use anabranch_op::{DType, Shape, Tensor, TensorSpec};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_axis_is_joined_from_either_end() {
        for (dims, axis) in [
            (vec![5], 0),
            (vec![3, 130], 1),
            (vec![130, 3], 0),
            (vec![2, 7, 70], 1),
            (vec![4, 1], 1),
            (vec![40, 9], 1),
            (vec![70, 32], 1),
            (vec![3, 33], 1),
            (vec![300, 7], 0),
            (vec![9, 128], 0),
            (vec![2, 5, 129], 1),
            (vec![3, 600], 0),
        ] {
            let x = tensor(DType::F32, &dims, |i| ((i * 7) % 5) as f64 - 2.0);
            let (count, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
            for (reverse, exclusive) in [(false, false), (true, false), (false, true), (true, true)] {
                let op = Op::Running(Running { axis, multiply: false, reverse, exclusive });
                let got: Vec<f32> = computed(op, std::slice::from_ref(&x), &dims);
                let x: &[f32] = x.elements().expect("f32");
                for (at, got) in got.iter().enumerate() {
                    let index = at / inner % count;
                    let joined = (0..count).filter(|other| match (reverse, exclusive) {
                        (false, false) => *other <= index,
                        (false, true) => *other < index,
                        (true, false) => *other >= index,
                        (true, true) => *other > index,
                    });
                    let line = at - index * inner;
                    let want: f32 = joined.map(|other| x[line + other * inner]).sum();
                    assert_eq!(*got, want, "{dims:?} along {axis}, {reverse} {exclusive}, at {at}");
                }
            }
        }
    }

    #[test]
    fn lines_side_by_side_are_joined_in_every_type() {
        for inner in (1..=18).chain([64, 129, 511, 512, 513, 1030]) {
            for (multiply, reverse, exclusive) in
                [(false, false, false), (false, true, true), (true, false, true), (true, true, false)]
            {
                let op = || Op::Running(Running { axis: 1, multiply, reverse, exclusive });
                let count = 5;
                let dims = [2, count, inner];
                let value = |i: usize| (i * 7 % 5) as f64 - 2.0;
                let want = |at: usize| {
                    let index = at / inner % count;
                    let joined = (0..count).filter(|other| match reverse {
                        false => *other < index + usize::from(!exclusive),
                        true => *other + usize::from(!exclusive) > index,
                    });
                    let values = joined.map(|other| value(at - index * inner + other * inner));
                    if multiply { values.product::<f64>() } else { values.sum::<f64>() }
                };
                macro_rules! check {
                    ($($dtype:ident $element:ty),*) => {$(
                        let got: Vec<$element> = computed(op(), &[tensor(DType::$dtype, &dims, value)], &dims);
                        for (at, got) in got.iter().enumerate() {
                            assert_eq!(*got, want(at) as $element, "{:?} of {inner} at {at}", DType::$dtype);
                        }
                    )*};
                }
                check!(F32 f32, F64 f64, I32 i32, I64 i64, I16 i16);
            }
        }
    }

    #[test]
    fn integers_wrap_and_products_do_not_overflow_before_a_zero() {
        let running = |multiply| Op::Running(Running { axis: 0, multiply, reverse: false, exclusive: false });
        let x = tensor(DType::I32, &[3, 2], |_| f64::from(i32::MAX));
        let (most, less) = (i32::MAX, i32::MAX - 2);
        assert_eq!(computed::<i32>(running(false), &[x], &[3, 2]), [most, most, -2, -2, less, less]);
        let x = tensor(DType::I32, &[3], |_| f64::from(i32::MAX));
        assert_eq!(computed::<i32>(running(false), &[x], &[3]), [i32::MAX, -2, i32::MAX - 2]);
        let x = tensor(DType::F32, &[4], |i| [1e30, 1e30, 0.0, 2.0][i]);
        assert_eq!(computed::<f32>(running(true), &[x], &[4]), [1e30, f32::INFINITY, 0.0, 0.0]);
    }

    #[test]
    fn sums_of_zeros_below_are_below() {
        let sums = |exclusive, reverse| {
            let x = tensor(DType::F32, &[3], |i| [-0.0, -0.0, 1.0][i]);
            let op = Op::Running(Running { axis: 0, multiply: false, reverse, exclusive });
            computed::<f32>(op, &[x], &[3]).into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let bits = |values: [f32; 3]| values.map(f32::to_bits);
        assert_eq!(sums(false, false), bits([-0.0, -0.0, 1.0]));
        assert_eq!(sums(true, false), bits([0.0, 0.0, 0.0]));
        assert_eq!(sums(false, true), bits([1.0, 1.0, 1.0]));
    }

    #[test]
    fn a_wide_stack_is_left_between_its_columns() {
        let (count, inner) = (100, 64 * 100);
        let x = Tensor::zeroed(TensorSpec::new(DType::F32, Shape::new([count, inner]).expect("small")));
        let op = Op::Running(Running { axis: 0, multiply: false, reverse: false, exclusive: false });
        let node = NodeSpec { op, inputs: vec![x.spec().clone()], outputs: vec![x.spec().clone()] };
        let kernel = prepare(&node, &[false]).expect("a sound node");
        let (team, asked) = (Team::solo(), Arc::new(AtomicUsize::new(0)));
        let asks = Arc::clone(&asked);
        let _watched = team.watch(Arc::new(move || asks.fetch_add(1, Ordering::Relaxed) >= 3));
        let mut made = vec![1u8; x.spec().bytes()];
        let (inputs, outputs) = ([x.bytes()], &mut [&mut made[..]][..]);
        kernel.run(Call { inputs: &inputs, outputs, rows: 0..1, scratch: &mut [], team: &team }).expect("left");
        let computed = made.iter().filter(|byte| **byte == 0).count();
        assert!(computed > 0 && computed < made.len() / 8, "{computed} of {} bytes", made.len());
    }

    #[test]
    fn long_sums_are_rounded_once() {
        let x = tensor(DType::F32, &[100_000], |_| f64::from(0.1f32));
        let op = Op::Running(Running { axis: 0, multiply: false, reverse: false, exclusive: false });
        let got: Vec<f32> = computed(op, &[x], &[100_000]);
        assert_eq!(got[99_999], (f64::from(0.1f32) * 100_000.0) as f32);
    }
}
