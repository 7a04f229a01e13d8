//! Errors of nodes that cannot be one block.

/// Reason that nodes do not stream into each other: the node that prevents it, and how to fix that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BlockError(String);

impl BlockError {
    #[doc(hidden)]
    pub fn new(problem: impl Into<String>) -> Self {
        Self(problem.into())
    }

    /// Creates the error of too few nodes.
    pub(crate) fn few() -> Self {
        Self::new("it needs at least two nodes")
    }

    /// Creates the error of a node that is in two blocks, or twice in one block.
    pub(super) fn twice(node: &str) -> Self {
        Self(format!("node {node:?} is in several blocks, or twice in this block; list each node once"))
    }
}
