//! Slice: a strided copy that begins within the tensor.

use super::copy::StridedCopy;
use anabranch_cpu_base::CpuKernel;
use anabranch_op::op::{NodeSpec, Slice};

/// Prepares a slice.
pub(crate) fn prepare(node: &NodeSpec, op: &Slice) -> Box<dyn CpuKernel> {
    let (input, output) = (&node.inputs[0].shape, &node.outputs[0].shape);
    let (start, strides) = op.source(input, output);
    Box::new(StridedCopy::new(output.dims(), &strides, start, node.inputs[0].dtype.size()))
}

#[cfg(test)]
mod tests {
    use crate::testing::prepare;
    use crate::testing::{computed, node, tensor};
    use anabranch_op::DType;
    use anabranch_op::op::{Op, Slice};

    fn sliced(dims: &[usize], starts: &[usize], steps: &[isize], out: &[usize]) -> Vec<f32> {
        let op = Op::Slice(Slice { starts: starts.to_vec(), steps: steps.to_vec() });
        computed(op, &[tensor(DType::F32, dims, |i| i as f64)], out)
    }

    #[test]
    fn starts_and_steps_choose_elements() {
        assert_eq!(sliced(&[2, 5], &[0, 1], &[1, 2], &[2, 2]), [1.0, 3.0, 6.0, 8.0]);
        assert_eq!(sliced(&[2, 3], &[1, 2], &[-1, -1], &[2, 3]), [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]);
        assert_eq!(sliced(&[4, 2], &[1, 0], &[1, 1], &[2, 2]), [2.0, 3.0, 4.0, 5.0]);
        assert_eq!(sliced(&[4], &[0], &[1], &[0]), [0f32; 0]);
    }

    #[test]
    fn elements_at_every_distance_are_copied() {
        for step in 1..=9 {
            for (rows, columns) in [(1, 2800), (3, 257), (20, 40)] {
                let (start, count) = (step / 2, columns / step);
                let found = sliced(&[rows, columns], &[0, start], &[1, step as isize], &[rows, count]);
                let want =
                    (0..rows).flat_map(|row| (0..count).map(move |at| (row * columns + start + at * step) as f32));
                assert!(want.eq(found), "{rows} × {columns}, each {step}");
            }
        }
    }

    #[test]
    fn what_reaches_outside_is_refused() {
        let input = [tensor(DType::F32, &[5], |i| i as f64)];
        for (start, step, size) in
            [(2, 1, 4), (1, -1, 3), (0, isize::MAX, 3), (usize::MAX, 1, 1), (0, 1, 6), (5, 1, 1), (3, -2, 3)]
        {
            let op = Op::Slice(Slice { starts: vec![start], steps: vec![step] });
            let bad = node(op, &input, DType::F32, &[size]);
            assert!(prepare(&bad, &[false]).is_err(), "{bad:?}");
        }
    }
}
