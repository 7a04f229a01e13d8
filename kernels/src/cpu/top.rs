//! Top-k: the greatest or least elements along an axis, in order, with their indices.

use super::elements::elements_mut;
use super::{Call, CpuKernel, order};
use crate::dtype::DType;
use crate::error::KernelError;
use crate::op::{NodeSpec, TopK};

/// Selects along one axis of `count` elements the first `kept` in order.
struct TopKernel {
    largest: bool,
    count: usize,
    kept: usize,
    inner: usize,
    dtype: DType,
}

/// An element as a number of the same order, and its index.
type Keyed = [u64; 2];

/// Prepares a selection.
pub(crate) fn prepare(node: &NodeSpec, op: &TopK) -> Box<dyn CpuKernel> {
    let (dims, dtype) = (node.inputs[0].shape.dims(), node.inputs[0].dtype);
    let inner = dims[op.axis + 1..].iter().product();
    let kept = node.outputs[0].shape.dims()[op.axis];
    Box::new(TopKernel { largest: op.largest, count: dims[op.axis], kept, inner, dtype })
}

impl TopKernel {
    /// An element's place in the order that is asked for.
    fn key(&self, element: &[u8]) -> u64 {
        let ascending = order::key(self.dtype, element);
        if self.largest { !ascending } else { ascending }
    }
}

impl CpuKernel for TopKernel {
    fn scratch_bytes(&self) -> usize {
        self.count * size_of::<Keyed>()
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (size, source) = (self.dtype.size(), call.inputs[0]);
        let [values, indices] = call.outputs else { unreachable!("two outputs, as was checked") };
        let indices = elements_mut::<i64>(indices);
        let keyed = elements_mut::<Keyed>(&mut call.scratch[..self.scratch_bytes()]);
        let groups = indices.len().checked_div(self.kept).unwrap_or(0);
        for group in 0..groups {
            let (outer, inner) = (group / self.inner, group % self.inner);
            let from = |index: usize| (outer * self.count + index) * self.inner + inner;
            for (index, keyed) in keyed.iter_mut().enumerate() {
                *keyed = [self.key(&source[from(index) * size..][..size]), index as u64];
            }
            if self.kept < self.count {
                keyed.select_nth_unstable(self.kept - 1);
            }
            // The index makes every pair another, so that the order is one whatever the algorithm does.
            keyed[..self.kept].sort_unstable();
            for (place, [_, index]) in keyed[..self.kept].iter().enumerate() {
                let to = (outer * self.kept + place) * self.inner + inner;
                indices[to] = *index as i64;
                values[to * size..][..size].copy_from_slice(&source[from(*index as usize) * size..][..size]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::testing::{run_all_ways, shape, tensor};
    use crate::op::{NodeSpec, Op, TopK};
    use crate::{DType, Tensor, TensorSpec};

    fn top(input: &Tensor, axis: usize, largest: bool, dims: &[usize]) -> Vec<Tensor> {
        let outputs = [input.dtype(), DType::I64].map(|dtype| TensorSpec::new(dtype, shape(dims))).to_vec();
        let op = Op::TopK(TopK { axis, largest });
        run_all_ways(&NodeSpec { op, inputs: vec![input.spec().clone()], outputs }, std::slice::from_ref(input))
    }

    #[test]
    fn the_extremes_come_in_order_and_the_first_of_equals_first() {
        let values = [3.0, 7.0, -1.0, 7.0, 0.0, 2.0];
        for dtype in [DType::F32, DType::F64, DType::F16, DType::I8, DType::I64] {
            let made = top(&tensor(dtype, &[6], |i| values[i]), 0, true, &[4]);
            assert!(made[0].same_bits(&tensor(dtype, &[4], |i| [7.0, 7.0, 3.0, 2.0][i])), "{dtype}");
            assert_eq!(made[1].elements::<i64>(), Some(&[1, 3, 0, 5][..]), "{dtype}");
        }
        let made = top(&tensor(DType::F32, &[6], |i| values[i]), 0, false, &[6]);
        assert_eq!(made[1].elements::<i64>(), Some(&[2, 4, 5, 0, 1, 3][..]));
    }

    #[test]
    fn every_axis_of_random_shapes_agrees_with_a_stable_sort() {
        for (seed, dims) in [[1, 7, 5], [3, 1, 4], [2, 13, 1], [4, 5, 17]].into_iter().enumerate() {
            let value = |i: usize| ((i * 7919 + seed * 31) % 23) as f64 - 11.0;
            let input = tensor(DType::F32, &dims, value);
            let strides = [dims[1] * dims[2], dims[2], 1];
            for (axis, largest) in (0..3).flat_map(|axis| [(axis, true), (axis, false)]) {
                let kept = dims[axis].div_ceil(2);
                let mut made = dims;
                made[axis] = kept;
                let outputs = top(&input, axis, largest, &made);
                let indices = outputs[1].elements::<i64>().expect("indices");
                let own = [made[1] * made[2], made[2], 1];
                for at in 0..indices.len() {
                    let coordinate = |axis: usize| at / own[axis] % made[axis];
                    let place = |index| {
                        let other = |other: usize| if other == axis { index } else { coordinate(other) };
                        (0..3).map(|axis| other(axis) * strides[axis]).sum::<usize>()
                    };
                    let mut order: Vec<usize> = (0..dims[axis]).collect();
                    let number = |index: &usize| value(place(*index)) * if largest { -1.0 } else { 1.0 };
                    order.sort_by(|a, b| number(a).total_cmp(&number(b)));
                    assert_eq!(indices[at] as usize, order[coordinate(axis)], "{dims:?} along {axis}");
                }
            }
        }
    }

    #[test]
    fn nan_is_the_greatest_and_large_integers_are_told_apart() {
        let made = top(&tensor(DType::F32, &[3], |i| [1.0, f64::NAN, f64::INFINITY][i]), 0, true, &[3]);
        assert_eq!(made[1].elements::<i64>(), Some(&[1, 2, 0][..]));
        let made = top(&Tensor::from_i64s(&[1 << 60, (1 << 60) + 1, i64::MIN]), 0, true, &[2]);
        assert_eq!(made[1].elements::<i64>(), Some(&[1, 0][..]));
        let unsigned = Tensor::from_elements(shape(&[2]), &[1u64, u64::MAX]).expect("two");
        assert_eq!(top(&unsigned, 0, true, &[1])[1].elements::<i64>(), Some(&[1][..]));
    }
}
