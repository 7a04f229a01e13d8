//! Rows of a batch have the same bits in parts and together, if the keys of their sums are equal.

use crate::testing::run_calls;
use anabranch_cpu_base::Team;
use anabranch_kernel_testing::rows::{check_all, on_cpus};
use anabranch_op::op::NodeSpec;
use anabranch_op::tensor::Tensor;

fn computed(node: &NodeSpec, inputs: &[Tensor], constants: &[bool]) -> Option<Tensor> {
    let constants: Vec<_> = inputs.iter().zip(constants).map(|(input, is)| is.then(|| input.clone())).collect();
    let rows = node.row_plan().map_or(1, |plan| plan.rows);
    let made = run_calls(node, inputs, &constants, &Team::solo(), &[0, rows]);
    Some(made.expect("a sound node").remove(0))
}

#[test]
fn equal_keys_mean_equal_bits() {
    check_all(&on_cpus(), crate::summation, computed);
}
