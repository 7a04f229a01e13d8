//! Why nodes cannot be one block.

/// Nodes that do not stream into each other: which of them keeps them apart, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BlockError(String);

impl BlockError {
    #[doc(hidden)]
    pub fn new(problem: impl Into<String>) -> Self {
        Self(problem.into())
    }

    /// Nothing that could stream.
    pub(crate) fn few() -> Self {
        Self::new("it needs at least two nodes")
    }

    /// A node that is in two blocks, or twice in one.
    pub(super) fn twice(node: &str) -> Self {
        Self(format!("node {node:?} is in it and in another block, or twice in it; a node is in one block at most"))
    }
}
