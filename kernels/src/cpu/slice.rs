//! Slice: a strided copy that begins within the tensor.

use super::CpuKernel;
use super::check::{require, require_copy};
use super::copy::StridedCopy;
use crate::error::KernelError;
use crate::op::{NodeSpec, Slice};

/// Prepares a slice.
pub(crate) fn prepare(node: &NodeSpec, op: &Slice) -> Result<Box<dyn CpuKernel>, KernelError> {
    require_copy(node)?;
    let (input, output) = (&node.inputs[0].shape, &node.outputs[0].shape);
    let rank = input.rank();
    require(
        op.starts.len() == rank && op.steps.len() == rank && output.rank() == rank,
        node,
        "one start and step an axis",
    )?;
    let mut start = 0;
    let mut strides = Vec::with_capacity(rank);
    for (axis, stride) in input.strides().into_iter().enumerate() {
        let (size, count) = (input.dims()[axis], output.dims()[axis]);
        let last = count.checked_sub(1).map(|steps| op.steps[axis].checked_mul(steps as isize));
        let inside = |index: isize| (0..size as isize).contains(&index);
        let within = match last {
            None => true,
            Some(None) => false,
            Some(Some(reach)) => {
                let first = isize::try_from(op.starts[axis]).unwrap_or(isize::MAX);
                inside(first) && first.checked_add(reach).is_some_and(inside)
            }
        };
        require(within, node, "every index read is within the input")?;
        if output.elements() > 0 {
            start += op.starts[axis] * stride;
        }
        // A single index makes no step; a step that is taken was found small enough above.
        strides.push(if count > 1 { op.steps[axis] * stride as isize } else { 0 });
    }
    Ok(Box::new(StridedCopy::new(output.dims(), &strides, start, node.inputs[0].dtype.size())))
}

#[cfg(test)]
mod tests {
    use crate::cpu::prepare;
    use crate::cpu::testing::{run_all_ways, shape, tensor};
    use crate::op::{NodeSpec, Op, Slice};
    use crate::{DType, TensorSpec};

    fn node(dims: &[usize], starts: &[usize], steps: &[isize], out: &[usize]) -> NodeSpec {
        NodeSpec {
            op: Op::Slice(Slice { starts: starts.to_vec(), steps: steps.to_vec() }),
            inputs: vec![TensorSpec::new(DType::F32, shape(dims))],
            outputs: vec![TensorSpec::new(DType::F32, shape(out))],
        }
    }

    fn sliced(node: &NodeSpec) -> Vec<f32> {
        let input = tensor(DType::F32, node.inputs[0].shape.dims(), |i| i as f64);
        run_all_ways(node, &[input]).remove(0).elements::<f32>().expect("f32").to_vec()
    }

    #[test]
    fn starts_and_steps_choose_elements() {
        assert_eq!(sliced(&node(&[2, 5], &[0, 1], &[1, 2], &[2, 2])), [1.0, 3.0, 6.0, 8.0]);
        assert_eq!(sliced(&node(&[2, 3], &[1, 2], &[-1, -1], &[2, 3])), [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]);
        assert_eq!(sliced(&node(&[4, 2], &[1, 0], &[1, 1], &[2, 2])), [2.0, 3.0, 4.0, 5.0]);
        assert_eq!(sliced(&node(&[4], &[0], &[1], &[0])), [0f32; 0]);
    }

    #[test]
    fn what_reaches_outside_is_refused() {
        for bad in [
            node(&[4], &[2], &[1], &[3]),
            node(&[4], &[1], &[-1], &[3]),
            node(&[4], &[0], &[isize::MAX], &[3]),
            node(&[4], &[usize::MAX], &[1], &[1]),
        ] {
            assert!(prepare(&bad, &[false]).is_err(), "{bad:?}");
        }
    }
}
