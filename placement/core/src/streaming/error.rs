//! Errors of canonical task graphs.

/// First fault of a canonical task graph, with its node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CanonicalError {
    text: String,
}

impl CanonicalError {
    pub(super) fn new(text: String) -> Self {
        CanonicalError { text }
    }

    /// An edge with an end at a node that does not exist.
    pub(super) fn unknown_node(edge: usize, node: &str) -> Self {
        CanonicalError::new(format!("edge {edge} (counted from 0) names node {node:?}, which does not exist"))
    }
}
