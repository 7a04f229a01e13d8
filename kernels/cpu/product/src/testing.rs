//! Runs the kernels of this crate in tests.

pub(crate) use anabranch_kernel_testing::{run_kernel, shape, tensor};

use anabranch_cpu_base::CpuKernel;
use anabranch_kernel_testing as testing;
use anabranch_op::op::NodeSpec;
use anabranch_op::{KernelError, Tensor};

/// Builds the kernel for any node.
pub(crate) fn prepare(node: &NodeSpec, constants: &[bool]) -> Result<Box<dyn CpuKernel>, KernelError> {
    node.check()?;
    crate::prepare(node, constants)
}

pub(crate) fn run_all_ways(node: &NodeSpec, inputs: &[Tensor]) -> Vec<Tensor> {
    testing::run_all_ways(prepare, node, inputs)
}

pub(crate) fn run_windows(
    node: &NodeSpec,
    inputs: &[Tensor],
    constants: &[Option<Tensor>],
    chunk: usize,
) -> Vec<Tensor> {
    testing::run_windows(prepare, node, inputs, constants, chunk)
}
