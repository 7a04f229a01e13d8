//! Streaming blocks on one device: nodes that are computed together as one node, chunk of rows by chunk of rows.
//!
//! De Matteis 2023 partitions a canonical task graph into spatial blocks, whose tasks run on the processing elements
//! together and pass elements on as they come (section 4). A CPU or a GPU is not spatial. On one such device a block
//! becomes a loop over chunks of rows through all members, whose intermediate results stay in cache, or one kernel.
//! After placement, these steps follow:
//!
//! 1. [`form`] finds the largest groups of nodes that can stream into each other (rules in [`block_node`]).
//!    [`chunk`](chunk_rows) sets the number of rows that go through at a time;
//! 2. [`BlockGain`] predicts each block with and without streaming;
//! 3. [`contract`] makes each group one node. All later steps (order, memory, transfers, execution, cost history)
//!    treat it like any other node;
//! 4. [`check`] checks the contracted program against the original, from the definitions alone.

#![forbid(unsafe_code)]

mod check;
mod chunk;
mod contract;
mod error;
mod form;
mod gain;
mod node;
mod quotient;

pub use check::{Fault, check};
pub use chunk::chunk_rows;
pub use contract::{Contraction, contract};
pub use error::BlockError;
pub use form::{Forming, form};
pub use gain::BlockGain;
pub use node::{BlockMembers, BlockNode, Readers, block_node};

use anabranch_ir::program::NodeId;

/// A block of a contracted program, for reports and plan files.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockSummary {
    /// Node of the block in the contracted program.
    pub node: NodeId,
    /// Names of the nodes that the block computes, in order.
    pub members: Vec<String>,
    /// Reason of each member's device.
    pub reasons: Vec<String>,
    /// Total number of rows.
    pub rows: usize,
    /// Rows that go through at a time.
    pub chunk_rows: usize,
    /// Bytes that a chunk touches: its rows of all inputs that are read by rows, and of all members' outputs.
    pub chunk_bytes: u64,
    /// Bytes of tensors that pass only between members, and never exist whole.
    pub kept_bytes: u64,
    /// Predicted times of the block.
    pub gain: BlockGain,
}

#[cfg(test)]
mod tests;
