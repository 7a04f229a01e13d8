//! Lengths of caches, judged when they are known: a length that lies would read or write positions of no token.

use anabranch_cpu_base::elements::elements;
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{Length, NodeSpec};

struct LengthKernel {
    op: Length,
    /// Lengths of a row of the batch.
    each: usize,
}

/// Prepares the judgement of lengths.
pub(crate) fn prepare(node: &NodeSpec, op: &Length) -> Box<dyn CpuKernel> {
    let each = node.inputs[0].shape.dims().iter().skip(1).product::<usize>().max(1);
    Box::new(LengthKernel { op: op.clone(), each })
}

impl CpuKernel for LengthKernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let Length { name, least, most } = &self.op;
        let wrong = elements::<i64>(call.inputs[0]).iter().enumerate().find(|(_, own)| !(*least..=*most).contains(own));
        if let Some((row, own)) = wrong {
            let row = row / self.each;
            let reason = format!("{name} is {own} (row {row} of the batch); it must be from {least} to {most}");
            return Err(KernelError::Value { op: "length", reason });
        }
        call.outputs[0].copy_from_slice(call.inputs[0]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{computed, node, run, shape};
    use anabranch_op::op::{Length, Op};
    use anabranch_op::{DType, Tensor};

    #[test]
    fn lengths_in_range_pass_and_others_are_errors_that_name_them() {
        let op = || Op::Length(Length { name: "seqlens_k".into(), least: 1, most: 7 });
        assert_eq!(computed::<i64>(op(), &[Tensor::from_i64s(&[1, 7, 4])], &[3]), [1, 7, 4]);
        for bad in [0, 8, -1, i64::MIN, i64::MAX] {
            let inputs = [Tensor::from_i64s(&[2, bad])];
            let error = run(&node(op(), &inputs, DType::I64, &[2]), &inputs).expect_err("out of range").to_string();
            assert_eq!(error, format!("length: seqlens_k is {bad} (row 1 of the batch); it must be from 1 to 7"));
        }
        // Each row may have several.
        let inputs = [Tensor::from_elements(shape(&[2, 3]), &[1i64, 2, 3, 4, 5, 9]).expect("six")];
        let error = run(&node(op(), &inputs, DType::I64, &[2, 3]), &inputs).expect_err("out of range").to_string();
        assert!(error.contains("is 9 (row 1 of"), "{error}");
    }
}
