//! Why nodes cannot be one block.

/// Nodes that do not stream into each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum BlockError {
    /// Nothing that could stream.
    #[error("it needs at least two nodes")]
    Few,
    /// A node that is in two blocks, or twice in one.
    #[error("node {node:?} is in it and in another block, or twice in it; a node is in one block at most")]
    Twice { node: String },
    /// A node without rows.
    #[error("node {node:?} ({op}) does not divide into rows; leave it out")]
    Divides { node: String, op: &'static str },
    /// A reduction over all rows with something behind it.
    #[error(
        "node {node:?} reduces over all rows, so no other node of the block can come behind it; let the block end with it"
    )]
    Ends { node: String },
    /// A node that reads more of another than the rows at hand.
    #[error("node {node:?} reads the whole of what {from:?} makes, not row by row; put them into different blocks")]
    Whole { node: String, from: String },
    /// Rows that do not match.
    #[error("node {node:?} has no number of rows in common with the nodes before it; leave it out")]
    Rows { node: String },
    /// A chunk without rows.
    #[error("its chunks have no rows; write a chunk_rows of at least 1, or none")]
    Chunk,
    /// A path leaves the block and comes back.
    #[error(
        "it waits for itself: a path leaves the block and comes back through {through:?}; take that node in too, or split the block"
    )]
    Cycle {
        /// A node outside that reads from the block and that the block reads from.
        through: String,
    },
    /// No kernel.
    #[error("{device:?} has no kernel for it; leave out the nodes that {device:?} cannot stream")]
    Kernel { device: String },
}
