//! Transpose: a strided copy with the strides permuted.

use super::copy::StridedCopy;
use anabranch_cpu_base::CpuKernel;
use anabranch_op::op::{NodeSpec, Transpose};

/// Prepares a transpose.
pub(crate) fn prepare(node: &NodeSpec, op: &Transpose) -> Box<dyn CpuKernel> {
    let strides = node.inputs[0].shape.strides();
    let strides: Vec<_> = op.permutation.iter().map(|axis| strides[*axis] as isize).collect();
    Box::new(StridedCopy::new(node.outputs[0].shape.dims(), &strides, 0, node.inputs[0].dtype.size()))
}

#[cfg(test)]
mod tests {
    use crate::testing::{node, run_all_ways, shape, tensor};
    use anabranch_op::DType;
    use anabranch_op::op::{Op, Transpose};

    #[test]
    fn every_element_goes_to_its_place() {
        for (dims, permutation) in [
            (vec![3, 5], vec![1, 0]),
            (vec![40, 37], vec![1, 0]),
            (vec![2, 3, 4, 5], vec![0, 2, 1, 3]),
            (vec![2, 3, 4, 5], vec![3, 1, 0, 2]),
            (vec![2, 17, 33], vec![0, 2, 1]),
            (vec![3, 130, 211], vec![0, 2, 1]),
            (vec![2, 67, 5, 129], vec![0, 2, 1, 3]),
            (vec![2, 67, 5, 129], vec![0, 2, 3, 1]),
            (vec![1, 7, 1], vec![2, 1, 0]),
            (vec![2, 1000, 2], vec![0, 2, 1]),
            (vec![700, 3], vec![1, 0]),
            (vec![2, 30, 40, 4], vec![0, 3, 1, 2]),
            (vec![2, 7, 333], vec![0, 2, 1]),
            (vec![8, 40_000], vec![1, 0]),
            (vec![5, 9], vec![1, 0]),
            (vec![0, 3], vec![1, 0]),
            (vec![], vec![]),
        ] {
            for dtype in [DType::U8, DType::F16, DType::F32, DType::I64] {
                let input = tensor(dtype, &dims, |i| (i % 251) as f64);
                let out: Vec<usize> = permutation.iter().map(|axis| dims[*axis]).collect();
                let (op, inputs) = (Transpose { permutation: permutation.clone() }, [input]);
                let got = run_all_ways(&node(Op::Transpose(op), &inputs, dtype, &out), &inputs).remove(0);
                let (from, to, size) = (shape(&dims).strides(), shape(&out).strides(), dtype.size());
                for flat in 0..shape(&out).elements() {
                    let index = |axis: usize| flat / to[axis] % out[axis];
                    let source: usize = (0..out.len()).map(|axis| index(axis) * from[permutation[axis]]).sum();
                    let (a, b) = (&got.bytes()[flat * size..][..size], &inputs[0].bytes()[source * size..][..size]);
                    assert_eq!(a, b, "{dims:?} {permutation:?} at {flat}");
                }
            }
        }
    }
}
