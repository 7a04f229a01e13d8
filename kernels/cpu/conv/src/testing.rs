//! Runs the kernels of this crate in tests.

pub(crate) use anabranch_kernel_testing::{node, shape, spec, tensor};

use anabranch_cpu_base::CpuKernel;
use anabranch_kernel_testing as testing;
use anabranch_op::dtype::Element;
use anabranch_op::op::{NodeSpec, Op};
use anabranch_op::{KernelError, Tensor};

/// Builds the kernel for any node.
pub(crate) fn prepare(node: &NodeSpec, constants: &[bool]) -> Result<Box<dyn CpuKernel>, KernelError> {
    node.check()?;
    crate::prepare(node, constants)
}

pub(crate) fn computed<T: Element>(op: Op, inputs: &[Tensor], output: &[usize]) -> Vec<T> {
    testing::computed(prepare, op, inputs, output)
}
