//! Kernel that does almost nothing, so that measurements show the runtime around it.

use crate::nodes;
use anabranch_kernels::cpu::{Call, CpuKernel};
use anabranch_kernels::{KernelError, TensorSpec};

/// Kernel of `max(x, 0)` without anything around it.
pub struct Tiny;

impl CpuKernel for Tiny {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (input, output) = (call.inputs[0], &mut *call.outputs[0]);
        let input: &[f32] = bytemuck::cast_slice(input);
        let output: &mut [f32] = bytemuck::cast_slice_mut(output);
        output.iter_mut().zip(input).for_each(|(out, x)| *out = x.max(0.0));
        Ok(())
    }
}

/// Returns the spec of such nodes' tensors: 16 elements.
pub fn spec() -> TensorSpec {
    nodes::spec(&[16])
}
