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
