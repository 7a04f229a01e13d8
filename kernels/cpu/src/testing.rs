//! Runs the kernels of this crate in tests.

pub(crate) use anabranch_kernel_testing::{member, node, one_by_one, shape, spec, tensor};

use crate::prepare;
use anabranch_cpu_base::Team;
use anabranch_kernel_testing as testing;
use anabranch_op::op::NodeSpec;
use anabranch_op::{KernelError, Tensor};

pub(crate) fn run(node: &NodeSpec, inputs: &[Tensor]) -> Result<Vec<Tensor>, KernelError> {
    testing::run(prepare, node, inputs)
}

pub(crate) fn run_all_ways(node: &NodeSpec, inputs: &[Tensor]) -> Vec<Tensor> {
    testing::run_all_ways(prepare, node, inputs)
}

pub(crate) fn run_calls(
    node: &NodeSpec,
    inputs: &[Tensor],
    constants: &[Option<Tensor>],
    team: &Team,
    bounds: &[usize],
) -> Result<Vec<Tensor>, KernelError> {
    testing::run_calls(prepare, node, inputs, constants, team, bounds)
}
