//! Runs the kernels of this crate in tests.

pub(crate) use anabranch_kernel_testing::{shape, tensor};

use anabranch_cpu_base::CpuKernel;
use anabranch_kernel_testing as testing;
use anabranch_op::dtype::Element;
use anabranch_op::op::{NodeSpec, Op};
use anabranch_op::{KernelError, Tensor};

/// Builds the kernel for any node.
pub(crate) fn prepare(node: &NodeSpec, _: &[bool]) -> Result<Box<dyn CpuKernel>, KernelError> {
    node.check()?;
    crate::prepare(node)
}

pub(crate) fn computed<T: Element>(op: Op, inputs: &[Tensor], output: &[usize]) -> Vec<T> {
    testing::computed(prepare, op, inputs, output)
}

pub(crate) fn run(node: &NodeSpec, inputs: &[Tensor]) -> Result<Vec<Tensor>, KernelError> {
    testing::run(prepare, node, inputs)
}

pub(crate) fn run_all_ways(node: &NodeSpec, inputs: &[Tensor]) -> Vec<Tensor> {
    testing::run_all_ways(prepare, node, inputs)
}
