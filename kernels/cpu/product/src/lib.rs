//! Matrix products of floats, narrow weights and integers, and the integer convolutions and recurrent layers on top.
//!
//! This crate is a part of `anabranch-kernels`, not a public interface.

mod integer;
mod matmul;
mod narrow;
mod recurrent;
#[cfg(test)]
mod testing;

pub use matmul::{Batches, Sizes, sizes};

use anabranch_cpu_base::CpuKernel;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Op};

/// Builds the kernel for a node that fits its op's definition.
///
/// # Errors
/// If no kernel of this crate computes the node.
pub fn prepare(node: &NodeSpec, constants: &[bool]) -> Result<Box<dyn CpuKernel>, KernelError> {
    match &node.op {
        Op::MatMul(op) => matmul::prepare(op, node, constants),
        Op::NarrowMatMul(op) => narrow::prepare(op, node, constants),
        Op::IntegerMatMul(op) => integer::prepare(op, node, constants),
        Op::IntegerConv(op) => integer::prepare_conv(op, node, constants),
        Op::Recurrent(op) => Ok(recurrent::prepare(node, op, constants)),
        _ => Err(node.unsupported("it is not a matrix product")),
    }
}

/// Returns a key of the order in which the node's sums are computed: nodes that differ in their numbers of rows only
/// give the same bits for a row if they have the same key. `None` if no numbers of rows are known to do so.
pub fn summation(node: &NodeSpec, constants: &[bool]) -> Option<Vec<usize>> {
    match &node.op {
        Op::MatMul(op) => matmul::summation(op, node, constants),
        Op::NarrowMatMul(_) => narrow::summation(node),
        // The last entry of an odd batch is computed alone, in other chains.
        Op::Recurrent(_) => {
            let ([_, batch, _], _) = node.recurrent_sizes()?;
            Some(if batch.is_multiple_of(2) { vec![0] } else { vec![1, batch] })
        }
        // Sums of integers are exact.
        Op::IntegerMatMul(_) | Op::IntegerConv(_) => Some(Vec::new()),
        _ => None,
    }
}
