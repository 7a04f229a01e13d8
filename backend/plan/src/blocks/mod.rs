//! Streaming blocks on one device: nodes that are computed together, chunk of rows by chunk of rows, as one node.
//!
//! De Matteis 2023 partitions a canonical task graph into spatial blocks whose tasks are on the processing elements together
//! and pass elements on as they come (section 4). A CPU or a GPU is not spatial; what is left of a block on one such
//! device is a loop over chunks of rows through all members, whose intermediates stay in cache, or one kernel. So after
//! placement:
//!
//! 1. [`form`] finds the groups of nodes that can stream into each other, as large as they get ([`block_node`] says what
//!    can), and [`chunk`](chunk_rows) how many rows go through at a time;
//! 2. [`BlockGain`] predicts each block with and without streaming;
//! 3. [`contract`] makes each group one node. All that comes after (order, memory, transfers, execution, cost history)
//!    treats it as any other;
//! 4. [`check`] judges the contracted program against the first from the definitions alone.

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

/// A block of a contracted program, as reports and plan files tell of it.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockSummary {
    /// The block's node in the contracted program.
    pub node: NodeId,
    /// The names of the nodes that it computes, in order.
    pub members: Vec<String>,
    /// Why each of them is on its device.
    pub reasons: Vec<String>,
    /// Rows in all.
    pub rows: usize,
    /// Rows that go through at a time.
    pub chunk_rows: usize,
    /// Bytes that a chunk touches: its rows of all inputs that are read by rows, and of all that members make.
    pub chunk_bytes: u64,
    /// Bytes of tensors that pass between members alone, and so never exist whole.
    pub kept_bytes: u64,
    /// What was predicted of it.
    pub gain: BlockGain,
}

#[cfg(test)]
mod tests;
