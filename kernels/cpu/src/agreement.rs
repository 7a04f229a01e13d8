//! Compares every kernel with its op's definition. All configurations that must give the same bits run.

use crate::testing::{run, run_all_ways};
use anabranch_kernel_testing::agreement::{Side, all_agree};
use anabranch_op::Tensor;
use anabranch_op::op::{NodeSpec, Op};

fn computed(node: &NodeSpec, inputs: &[Tensor]) -> Option<Vec<f32>> {
    // Products of one row add up in another order where their matrix is constant; their own tests look at both.
    let made = match &node.op {
        Op::MatMul(_) => run(node, inputs).expect("a sound node"),
        _ => run_all_ways(node, inputs),
    };
    made[0].elements().map(<[f32]>::to_vec)
}

#[test]
fn cpu_kernels_agree_with_the_definitions() {
    all_agree(Side::Cpu, computed, 24);
}
