//! Kernels for CPUs: one file a kernel, all run by a [`Team`] of threads that share a cache.
//!
//! A kernel's result has the same bits whatever the number of threads: work is cut by the shapes alone, never by the
//! number of threads, and every reduction has a fixed tree.

mod arg_reduce;
mod block;
mod check;
mod concat;
mod conv;
mod conv_transpose;
mod copy;
mod elements;
mod gather;
mod gemm;
mod lanes;
mod map;
mod math;
mod matmul;
mod normalize;
mod number;
mod pad;
mod pool;
mod recurrent;
mod reduce;
mod resize;
mod slice;
mod softmax;
mod team;
#[cfg(test)]
mod testing;
mod transpose;
mod vector;

pub use team::Team;

use crate::error::KernelError;
use crate::op::{NodeSpec, Op};
use crate::tensor::Tensor;
use std::ops::Range;

/// One node, ready to be run any number of times.
pub trait CpuKernel: Send + Sync {
    /// Bytes of scratch memory that a call needs, aligned as a [`Buffer`](crate::Buffer).
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// Bytes that the kernel keeps between calls: packed weights, tables.
    fn resident_bytes(&self) -> usize {
        0
    }

    /// Computes the rows `call.rows` of the outputs.
    ///
    /// # Errors
    /// If an element's value makes the op undefined ([`KernelError::Value`]).
    fn run(&self, call: Call<'_>) -> Result<(), KernelError>;
}

/// What one execution of a kernel reads and writes.
pub struct Call<'a> {
    /// Bytes of each input; of a windowed input (see [`RowPlan`](crate::op::RowPlan)) only the rows at hand. Constants
    /// that the kernel packed when it was prepared may be empty.
    pub inputs: &'a [&'a [u8]],
    /// Bytes of each output; only the rows at hand. What they hold before is undefined; all of it is written. The output of
    /// a reduction at the end of a block is given whole, and written by the call for the last row.
    pub outputs: &'a mut [&'a mut [u8]],
    /// The rows at hand; `0..1` for a node that does not divide into rows.
    pub rows: Range<usize>,
    /// At least [`CpuKernel::scratch_bytes`] bytes, undefined before the first row. Calls for consecutive ranges of one
    /// node's rows are made in order and with the same scratch memory, whose content stays from one to the next: a block
    /// that ends in a reduction keeps there what it has reduced so far.
    pub scratch: &'a mut [u8],
    /// The threads to use.
    pub team: &'a Team,
}

/// Builds the kernel for a node. `constants` holds, for each input, its value if that never changes; the kernel may
/// pack it into the layout it likes.
///
/// # Errors
/// If the node does not fit its op's definition, or there is no CPU kernel for its types.
pub fn prepare(node: &NodeSpec, constants: &[Option<Tensor>]) -> Result<Box<dyn CpuKernel>, KernelError> {
    match &node.op {
        Op::Map(op) => map::prepare(node, op),
        Op::Pool(op) => pool::prepare(node, op),
        Op::MatMul(op) => matmul::prepare(op, node, constants),
        Op::Conv(op) => conv::prepare(op, node, constants),
        Op::ConvTranspose(op) => conv_transpose::prepare(node, op),
        Op::Reduce(op) => Ok(reduce::prepare(node, op)?),
        Op::Softmax(op) => softmax::prepare(node, op),
        Op::Normalize(op) => normalize::prepare(node, op),
        Op::ArgReduce(op) => arg_reduce::prepare(node, op),
        Op::Resize(op) => resize::prepare(node, op),
        Op::Recurrent(op) => recurrent::prepare(node, op),
        Op::Transpose(op) => transpose::prepare(node, op),
        Op::Concat(op) => concat::prepare(node, op),
        Op::Slice(op) => slice::prepare(node, op),
        Op::Pad(op) => pad::prepare(node, op),
        Op::Gather(op) => gather::prepare(node, op),
        Op::Block(block) => block::prepare(node, block, constants),
    }
}
