//! Arg-reduce: the index of the greatest or least element along an axis.

use anabranch_cpu_base::elements::elements_mut;
use anabranch_cpu_base::{Call, CpuKernel, order};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{ArgReduce, NodeSpec};

/// Kernel that searches along one axis of `count` elements.
struct ArgReduceKernel {
    op: ArgReduce,
    count: usize,
    inner: usize,
    dtype: DType,
}

/// Prepares a search.
pub(crate) fn prepare(node: &NodeSpec, op: &ArgReduce) -> Box<dyn CpuKernel> {
    let (dims, dtype) = (node.inputs[0].shape.dims(), node.inputs[0].dtype);
    let inner = dims[op.axis + 1..].iter().product();
    Box::new(ArgReduceKernel { op: op.clone(), count: dims[op.axis], inner, dtype })
}

impl ArgReduceKernel {
    /// Returns a number that is greater the better an element fits the search. A NaN fits best.
    fn key(&self, element: &[u8]) -> u64 {
        let key = order::key(self.dtype, element);
        match (self.op.greatest, order::of_nan(self.dtype) == Some(key)) {
            (true, _) => key,
            (false, true) => u64::MAX,
            (false, false) => !key,
        }
    }
}

impl CpuKernel for ArgReduceKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let size = self.dtype.size();
        let key = |flat: usize| self.key(&call.inputs[0][flat * size..][..size]);
        for (at, target) in elements_mut::<i64>(call.outputs[0]).iter_mut().enumerate() {
            let start = at / self.inner * self.inner * self.count + at % self.inner;
            let mut best = (0, key(start));
            for index in 1..self.count {
                let candidate = key(start + index * self.inner);
                if candidate > best.1 || (candidate == best.1 && self.op.last) {
                    best = (index, candidate);
                }
            }
            *target = best.0 as i64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{computed, shape, tensor};
    use anabranch_op::op::{ArgReduce, Op};
    use anabranch_op::{DType, Tensor};

    fn found(values: &[f64], dims: &[usize], axis: usize, greatest: bool, last: bool, out: &[usize]) -> Vec<i64> {
        let mut all = Vec::new();
        for dtype in [DType::F32, DType::F64] {
            let input = tensor(dtype, dims, |i| values[i]);
            all.push(computed(Op::ArgReduce(ArgReduce { axis, greatest, last }), &[input], out));
        }
        assert_eq!(all[0], all[1]);
        all.remove(0)
    }

    #[test]
    fn the_first_or_last_extreme_is_found() {
        let values = [1.0, 5.0, 5.0, -2.0, 7.0, -2.0];
        assert_eq!(found(&values, &[2, 3], 1, true, false, &[2]), [1, 1]);
        assert_eq!(found(&values, &[2, 3], 1, true, true, &[2]), [2, 1]);
        assert_eq!(found(&values, &[2, 3], 1, false, false, &[2]), [0, 0]);
        assert_eq!(found(&values, &[2, 3], 1, false, true, &[2]), [0, 2]);
        assert_eq!(found(&values, &[2, 3], 0, true, false, &[3]), [0, 1, 0]);
        for greatest in [true, false] {
            assert_eq!(found(&[1.0, f64::NAN, 3.0], &[3], 0, greatest, false, &[1]), [1]);
            assert_eq!(found(&[0.0, -0.0], &[2], 0, greatest, true, &[1]), [1]);
        }
    }

    #[test]
    fn integers_of_64_bits_are_told_apart() {
        let index = |input: Tensor, greatest| {
            computed::<i64>(Op::ArgReduce(ArgReduce { axis: 0, greatest, last: false }), &[input], &[1])[0]
        };
        let signed = || Tensor::from_i64s(&[1 << 60, i64::MIN + 1, (1 << 60) + 1, i64::MIN]);
        assert_eq!([index(signed(), true), index(signed(), false)], [2, 3]);
        let unsigned = || Tensor::from_elements(shape(&[3]), &[1, u64::MAX, u64::MAX - 1]).expect("three");
        assert_eq!([index(unsigned(), true), index(unsigned(), false)], [1, 0]);
    }
}
