//! Gather: whole slices, or single elements, chosen by indices.

use anabranch_cpu_base::elements::elements;
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Gather, NodeSpec};

/// Kernel that gathers slices of one axis, chosen by a list of indices.
struct SliceGather {
    /// Number of slices along the axis.
    count: usize,
    /// Bytes of one slice for one index of the axes before.
    run: usize,
    indices: DType,
}

/// Kernel that gathers single elements along one axis.
struct ElementGather {
    input: Vec<usize>,
    strides: Vec<usize>,
    output: Vec<usize>,
    axis: usize,
    size: usize,
    indices: DType,
}

/// Prepares a gather.
pub(crate) fn prepare(node: &NodeSpec, op: &Gather) -> Box<dyn CpuKernel> {
    let (input, indices) = (&node.inputs[0], &node.inputs[1]);
    let (dims, size) = (input.shape.dims(), input.dtype.size());
    if op.elementwise {
        return Box::new(ElementGather {
            input: dims.to_vec(),
            strides: input.shape.strides(),
            output: indices.shape.dims().to_vec(),
            axis: op.axis,
            size,
            indices: indices.dtype,
        });
    }
    let inner: usize = dims[op.axis + 1..].iter().product();
    Box::new(SliceGather { count: dims[op.axis], run: inner * size, indices: indices.dtype })
}

/// Returns the index at a position, counted from the front.
fn index(indices: &[u8], dtype: DType, at: usize, count: usize) -> Result<usize, KernelError> {
    let given = match dtype {
        DType::I32 => i64::from(elements::<i32>(indices)[at]),
        _ => elements::<i64>(indices)[at],
    };
    let counted = if given < 0 { given.checked_add(count as i64) } else { Some(given) };
    counted.and_then(|i| usize::try_from(i).ok()).filter(|i| *i < count).ok_or_else(|| KernelError::Value {
        op: "gather",
        reason: format!("index {given} at position {at} is outside an axis of {count}"),
    })
}

impl CpuKernel for SliceGather {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (source, indices) = (call.inputs[0], call.inputs[1]);
        let number = indices.len() / self.indices.size();
        if self.run == 0 || number == 0 {
            return Ok(());
        }
        for (at, target) in call.outputs[0].chunks_exact_mut(self.run).enumerate() {
            let chosen = index(indices, self.indices, at % number, self.count)?;
            target.copy_from_slice(&source[(at / number * self.count + chosen) * self.run..][..self.run]);
        }
        Ok(())
    }
}

impl CpuKernel for ElementGather {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (source, indices) = (call.inputs[0], call.inputs[1]);
        for (at, target) in call.outputs[0].chunks_exact_mut(self.size).enumerate() {
            let mut rest = at;
            let mut offset = index(indices, self.indices, at, self.input[self.axis])? * self.strides[self.axis];
            for axis in (0..self.output.len()).rev() {
                if axis != self.axis {
                    offset += rest % self.output[axis] * self.strides[axis];
                }
                rest /= self.output[axis];
            }
            target.copy_from_slice(&source[offset * self.size..][..self.size]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{computed, node, run, tensor};
    use anabranch_op::op::{Gather, Op};
    use anabranch_op::{DType, Tensor};

    fn gathered(axis: usize, indices: &[i64], out: &[usize]) -> Vec<f32> {
        let input = tensor(DType::F32, &[2, 3, 2], |i| i as f64);
        computed(Op::Gather(Gather { axis, elementwise: false }), &[input, Tensor::from_i64s(indices)], out)
    }

    #[test]
    fn slices_are_chosen_along_the_axis() {
        assert_eq!(gathered(0, &[1], &[1, 3, 2]), [6.0, 7.0, 8.0, 9.0, 10.0, 11.0]);
        assert_eq!(gathered(1, &[2, -3], &[2, 2, 2]), [4.0, 5.0, 0.0, 1.0, 10.0, 11.0, 6.0, 7.0]);
        assert_eq!(gathered(2, &[1, 1], &[2, 3, 2])[..4], [1.0, 1.0, 3.0, 3.0]);
        assert!(gathered(1, &[], &[2, 0, 2]).is_empty());
    }

    #[test]
    fn elements_are_chosen_one_by_one() {
        let input = tensor(DType::F32, &[2, 3], |i| i as f64);
        let indices = tensor(DType::I64, &[2, 2], |i| [2.0, 0.0, -1.0, 1.0][i]);
        let op = Op::Gather(Gather { axis: 1, elementwise: true });
        assert_eq!(computed::<f32>(op, &[input, indices], &[2, 2]), [2.0, 0.0, 5.0, 4.0]);
    }

    #[test]
    fn an_index_outside_is_an_error_that_names_it() {
        let input = tensor(DType::F32, &[2, 3], |i| i as f64);
        for bad in [3, -4, i64::MIN, i64::MAX] {
            let inputs = [input.clone(), Tensor::from_i64s(&[bad])];
            let op = Op::Gather(Gather { axis: 1, elementwise: false });
            let error = run(&node(op, &inputs, DType::F32, &[2, 1]), &inputs).expect_err("outside");
            assert!(error.to_string().contains(&bad.to_string()), "{error}");
        }
    }
}
