//! Kernels that move, select and reduce data: one file per kernel.
//!
//! This crate is a part of `anabranch-kernels`, not a public interface.

#![forbid(unsafe_code)]

mod append;
mod arg_reduce;
mod attention;
mod concat;
mod copy;
mod gather;
mod length;
mod pad;
pub mod pool;
pub mod reduce;
mod resize;
mod rotary;
mod running;
mod scatter;
mod slice;
mod softmax;
#[cfg(test)]
mod testing;
mod top;
mod transpose;
mod trees;

use anabranch_cpu_base::CpuKernel;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Op};

/// Builds the kernel for a node that fits its op's definition.
///
/// # Errors
/// If no kernel of this crate computes the node.
pub fn prepare(node: &NodeSpec) -> Result<Box<dyn CpuKernel>, KernelError> {
    Ok(match &node.op {
        Op::Pool(op) => pool::prepare(node, op)?,
        Op::Reduce(op) => reduce::prepare(node, op)?,
        Op::Softmax(op) => softmax::prepare(node, op),
        Op::ArgReduce(op) => arg_reduce::prepare(node, op),
        Op::TopK(op) => top::prepare(node, op),
        Op::Running(op) => running::prepare(node, op),
        Op::Scatter(op) => scatter::prepare(node, op),
        Op::Resize(op) => resize::prepare(node, op)?,
        Op::Transpose(op) => transpose::prepare(node, op),
        Op::Concat(op) => concat::prepare(node, op),
        Op::Slice(op) => slice::prepare(node, op),
        Op::Pad(op) => pad::prepare(node, op)?,
        Op::Gather(op) => gather::prepare(node, op),
        Op::Attention(op) => attention::prepare(node, op)?,
        Op::Append(op) => append::prepare(node, op),
        Op::Rotary(op) => rotary::prepare(node, op),
        Op::Length(op) => length::prepare(node, op),
        Op::Trees(op) => trees::prepare(node, op),
        _ => return Err(node.unsupported("it does not only move, select or reduce data")),
    })
}

/// Returns a key of the order in which the node's sums are computed: nodes that differ in their numbers of rows only
/// give the same bits for a row if they have the same key. `None` if no numbers of rows are known to do so.
pub fn summation(node: &NodeSpec) -> Option<Vec<usize>> {
    match &node.op {
        Op::Softmax(op) => Some(softmax::summation(node, op)),
        Op::Reduce(op) => reduce::summation(node, op),
        Op::Trees(op) => Some(trees::summation(node, op)),
        // Each result is computed by itself, in an order that its own elements decide.
        Op::Pool(_) | Op::ArgReduce(_) | Op::TopK(_) | Op::Running(_) | Op::Resize(_) | Op::Attention(_) => {
            Some(Vec::new())
        }
        // Elements are moved, or computed one by one.
        Op::Transpose(_)
        | Op::Concat(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Gather(_)
        | Op::Append(_)
        | Op::Rotary(_)
        | Op::Length(_) => Some(Vec::new()),
        _ => None,
    }
}
