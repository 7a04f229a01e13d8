//! Arg-reduce: the index of the greatest or least element along an axis.

use super::elements::elements_mut;
use super::{Call, CpuKernel};
use crate::dtype::DType;
use crate::error::KernelError;
use crate::op::{ArgReduce, NodeSpec};

/// Searches along one axis of `count` elements.
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
    /// Whether `candidate`, which comes later, replaces `best`. A NaN is the most extreme element.
    fn replaces(&self, candidate: f64, best: f64) -> bool {
        if candidate == best || (candidate.is_nan() && best.is_nan()) {
            return self.op.last;
        }
        !best.is_nan() && (candidate.is_nan() || (candidate > best) == self.op.greatest)
    }
}

impl CpuKernel for ArgReduceKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let size = self.dtype.size();
        let value = |flat: usize| {
            // 64-bit integers beyond 2⁵³ are compared as rounded numbers.
            let mut number = [0.0];
            super::map::to_f64(self.dtype, &call.inputs[0][flat * size..][..size], &mut number);
            number[0]
        };
        for (at, target) in elements_mut::<i64>(call.outputs[0]).iter_mut().enumerate() {
            let start = at / self.inner * self.inner * self.count + at % self.inner;
            let mut best = (0, value(start));
            for index in 1..self.count {
                let candidate = value(start + index * self.inner);
                if self.replaces(candidate, best.1) {
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
    use crate::DType;
    use crate::cpu::testing::{computed, tensor};
    use crate::op::{ArgReduce, Op};

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
        assert_eq!(found(&[1.0, f64::NAN, 3.0], &[3], 0, true, false, &[1]), [1]);
    }
}
