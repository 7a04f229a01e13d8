//! Scatter: slices of a tensor are replaced by, or combined with, slices of another, one update after the other.

use anabranch_cpu_base::convert::{from_f64, from_i64, to_f64, to_i64};
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::number::{greater, less};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Scatter, ScatterKind};
use bytemuck::Pod;
use std::ops::{Add, Mul};

/// Elements that are converted at a time.
const CHUNK: usize = 64;

/// Function of an old element and an update.
type Join<T> = fn(T, T) -> T;

struct ScatterKernel {
    kind: ScatterKind,
    /// Number of slices of the tensor.
    count: usize,
    /// Bytes of a slice.
    run: usize,
    dtype: DType,
}

/// Prepares a scatter.
pub(crate) fn prepare(node: &NodeSpec, op: &Scatter) -> Box<dyn CpuKernel> {
    let (input, count) = (&node.inputs[0], node.inputs[0].shape.dims()[0]);
    let run = input.bytes().checked_div(count).unwrap_or(0);
    Box::new(ScatterKernel { kind: op.kind, count, run, dtype: input.dtype })
}

impl CpuKernel for ScatterKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let [data, places, updates] = call.inputs else { unreachable!("three inputs, as was checked") };
        let target = &mut *call.outputs[0];
        target.copy_from_slice(data);
        let places = elements::<i64>(places);
        let outside = |place: &i64| *place as u64 >= self.count as u64;
        // A loop that may end early takes longer.
        if places.iter().fold(false, |any, place| any | outside(place)) {
            let at = places.iter().position(outside).unwrap_or(0);
            let reason = format!("place {} at position {at} is outside {} slices", places[at], self.count);
            return Err(KernelError::Value { op: "scatter", reason });
        }
        match (self.kind, self.dtype) {
            (_, DType::F32) => self.scatter_floats::<f32>(places, updates, target),
            (_, DType::F64) => self.scatter_floats::<f64>(places, updates, target),
            (ScatterKind::Replace, dtype) => match dtype.size() {
                1 => self.scatter(places, updates, target, |_, new: u8| new),
                2 => self.scatter(places, updates, target, |_, new: u16| new),
                4 => self.scatter(places, updates, target, |_, new: u32| new),
                _ => self.scatter(places, updates, target, |_, new: u64| new),
            },
            _ => {
                for (place, update) in places.iter().zip(updates.chunks_exact(self.run.max(1))) {
                    self.combine(&mut target[*place as usize * self.run..][..self.run], update);
                }
            }
        }
        Ok(())
    }
}

impl ScatterKernel {
    fn scatter_floats<T: Pod + PartialOrd + Add<Output = T> + Mul<Output = T>>(
        &self,
        places: &[i64],
        updates: &[u8],
        target: &mut [u8],
    ) {
        match self.kind {
            ScatterKind::Replace => self.scatter(places, updates, target, |_, new: T| new),
            ScatterKind::Add => self.scatter(places, updates, target, |old: T, new| old + new),
            ScatterKind::Multiply => self.scatter(places, updates, target, |old: T, new| old * new),
            ScatterKind::Min => self.scatter(places, updates, target, less::<T>),
            ScatterKind::Max => self.scatter(places, updates, target, greater::<T>),
        }
    }

    /// Joins each update with the slice at its place, in order.
    fn scatter<T: Pod>(&self, places: &[i64], updates: &[u8], target: &mut [u8], join: impl Fn(T, T) -> T) {
        let (updates, target) = (elements::<T>(updates), elements_mut::<T>(target));
        let width = self.run / size_of::<T>();
        if width == 1 {
            for (place, update) in places.iter().zip(updates) {
                let old = &mut target[*place as usize];
                *old = join(*old, *update);
            }
            return;
        }
        for (place, update) in places.iter().zip(updates.chunks_exact(width.max(1))) {
            let old = &mut target[*place as usize * width..][..width];
            old.iter_mut().zip(update).for_each(|(old, new)| *old = join(*old, *new));
        }
    }

    /// Combines a slice with an update by converting its elements.
    fn combine(&self, old: &mut [u8], new: &[u8]) {
        // `i64` carries the bits of `u64`; only comparisons need the difference.
        let unsigned = self.dtype == DType::U64;
        let (floats, integers): (Join<f64>, Join<i64>) = match self.kind {
            ScatterKind::Replace => (|_, new| new, |_, new| new),
            ScatterKind::Add => (|a, b| a + b, i64::wrapping_add),
            ScatterKind::Multiply => (|a, b| a * b, i64::wrapping_mul),
            ScatterKind::Min if unsigned => (less, |a, b| (a as u64).min(b as u64) as i64),
            ScatterKind::Max if unsigned => (greater, |a, b| (a as u64).max(b as u64) as i64),
            ScatterKind::Min => (less, i64::min),
            ScatterKind::Max => (greater, i64::max),
        };
        match self.dtype.is_float() {
            true => self.combine_as(old, new, to_f64, from_f64, floats),
            false => self.combine_as(old, new, to_i64, from_i64, integers),
        }
    }

    /// Combines elements as numbers of one type. For narrower floats, sums and products in `f64` round to the same
    /// results as their own arithmetic.
    fn combine_as<T: Copy + Default>(
        &self,
        old: &mut [u8],
        new: &[u8],
        load: impl Fn(DType, &[u8], &mut [T]),
        store: impl Fn(&[T], DType, &mut [u8]),
        function: impl Fn(T, T) -> T,
    ) {
        let (mut a, mut b) = ([T::default(); CHUNK], [T::default(); CHUNK]);
        let bytes = CHUNK * self.dtype.size();
        for (old, new) in old.chunks_mut(bytes).zip(new.chunks(bytes)) {
            let count = old.len() / self.dtype.size();
            load(self.dtype, old, &mut a[..count]);
            load(self.dtype, new, &mut b[..count]);
            a[..count].iter_mut().zip(&b).for_each(|(a, b)| *a = function(*a, *b));
            store(&a[..count], self.dtype, old);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{computed, node, run, tensor};
    use anabranch_op::op::{Op, Scatter, ScatterKind};
    use anabranch_op::{DType, Tensor};

    const KINDS: [ScatterKind; 5] =
        [ScatterKind::Replace, ScatterKind::Add, ScatterKind::Multiply, ScatterKind::Min, ScatterKind::Max];

    fn combined(kind: ScatterKind, a: f64, b: f64) -> f64 {
        match kind {
            ScatterKind::Replace => b,
            ScatterKind::Add => a + b,
            ScatterKind::Multiply => a * b,
            ScatterKind::Min => a.min(b),
            ScatterKind::Max => a.max(b),
        }
    }

    #[test]
    fn updates_are_combined_one_after_the_other() {
        let places = [4i64, 0, 4, 2, 4];
        for (run, kind) in [1usize, 3, 64, 131].into_iter().flat_map(|run| KINDS.map(|kind| (run, kind))) {
            let data = |i: usize| ((i * 37) % 11) as f64 - 5.0;
            let update = |i: usize| ((i * 53) % 7) as f64 - 3.0;
            let mut want: Vec<f64> = (0..5 * run).map(data).collect();
            for (at, place) in places.iter().enumerate() {
                for offset in 0..run {
                    let slot = &mut want[*place as usize * run + offset];
                    *slot = combined(kind, *slot, update(at * run + offset));
                }
            }
            let inputs =
                |dtype| [tensor(dtype, &[5, run], data), Tensor::from_i64s(&places), tensor(dtype, &[5, run], update)];
            let op = || Op::Scatter(Scatter { kind });
            let floats = computed::<f32>(op(), &inputs(DType::F32), &[5, run]);
            assert!(floats.iter().zip(&want).all(|(got, want)| f64::from(*got) == *want), "{kind:?} of {run}");
            let doubles = computed::<f64>(op(), &inputs(DType::F64), &[5, run]);
            assert!(doubles == want, "{kind:?} of {run}");
            let narrow = computed::<half::f16>(op(), &inputs(DType::F16), &[5, run]);
            assert!(narrow.iter().zip(&want).all(|(got, want)| got.to_f64() == *want), "{kind:?} of {run}");
            let bytes = computed::<i8>(op(), &inputs(DType::I8), &[5, run]);
            assert!(bytes.iter().zip(&want).all(|(got, want)| f64::from(*got) == *want), "{kind:?} of {run}");
            let integers = computed::<i64>(op(), &inputs(DType::I64), &[5, run]);
            assert!(integers.iter().zip(&want).all(|(got, want)| *got as f64 == *want), "{kind:?} of {run}");
        }
    }

    #[test]
    fn a_place_outside_is_an_error_that_names_it() {
        for bad in [-1, 5, i64::MIN, i64::MAX] {
            let one = tensor(DType::F32, &[1, 2], |_| 0.0);
            let inputs = [tensor(DType::F32, &[5, 2], |i| i as f64), Tensor::from_i64s(&[bad]), one];
            let op = Op::Scatter(Scatter { kind: ScatterKind::Add });
            let error = run(&node(op, &inputs, DType::F32, &[5, 2]), &inputs).expect_err("outside");
            assert!(error.to_string().contains(&bad.to_string()), "{error}");
        }
    }

    #[test]
    fn nan_stays_and_large_unsigned_integers_are_in_order() {
        for (kind, want) in [(ScatterKind::Min, 1), (ScatterKind::Max, u64::MAX)] {
            let one = |x: u64| Tensor::from_elements(crate::testing::shape(&[1]), &[x]).expect("one");
            let inputs = [one(1), Tensor::from_i64s(&[0]), one(u64::MAX)];
            assert_eq!(computed::<u64>(Op::Scatter(Scatter { kind }), &inputs, &[1]), [want]);
            for (a, b) in [(f64::NAN, 1.0), (1.0, f64::NAN)] {
                let one = |x: f64| tensor(DType::F32, &[1], |_| x);
                let inputs = [one(a), Tensor::from_i64s(&[0]), one(b)];
                assert!(computed::<f32>(Op::Scatter(Scatter { kind }), &inputs, &[1])[0].is_nan());
            }
        }
    }
}
