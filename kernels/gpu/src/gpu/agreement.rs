//! Compares every kernel with its op's definition. Each node runs twice, with the same bits: once with integers as
//! constants, and once without constants.

use super::testing::Run;
use anabranch_kernel_testing::agreement::{Side, all_agree};
use anabranch_op::op::NodeSpec;
use anabranch_op::{DType, KernelError, Tensor};

/// Computes the node; `None` if it is left to CPUs.
fn computed(node: &NodeSpec, inputs: &[Tensor]) -> Option<Vec<f32>> {
    let constants: Vec<bool> = inputs.iter().map(|input| input.dtype() != DType::F32).collect();
    let made = |constants| Run { constants, ..Run::new(node) }.outputs(inputs).map(|mut made| made.remove(0));
    let first = match made(constants) {
        Ok(first) => first,
        Err(KernelError::Unsupported { .. }) => return None,
        Err(error) => panic!("{}: {error}", node.key()),
    };
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&first), bits(&made(vec![false; inputs.len()]).expect("as before")), "{}", node.key());
    Some(first)
}

#[test]
fn gpu_kernels_agree_with_the_definitions() {
    all_agree(Side::Gpu, computed, 12);
}
