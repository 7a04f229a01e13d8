//! Rows of a batch have the same bits in parts and together, if the keys of their sums are equal.

use super::summation;
use super::testing::{Run, tensor};
use anabranch_kernel_testing::rows::{check_all, on_gpus};
use anabranch_op::op::NodeSpec;
use anabranch_op::{KernelError, Tensor};

/// Computes the node; `None` if it needs constants that it does not have.
fn computed(node: &NodeSpec, inputs: &[Tensor], constants: &[bool]) -> Option<Tensor> {
    let run = Run { constants: constants.to_vec(), expected: None, ..Run::new(node) };
    match run.outputs(inputs) {
        Ok(made) => Some(tensor(node.outputs[0].shape.dims(), &made[0])),
        Err(KernelError::Unsupported { .. }) => None,
        Err(error) => panic!("{}: {error}", node.key()),
    }
}

#[test]
fn equal_keys_mean_equal_bits() {
    check_all(&on_gpus(), summation, computed);
}
