//! Why something is no canonical task graph.

/// The first thing that is not canonical, with the node where it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CanonicalError {
    text: String,
}

impl CanonicalError {
    pub(super) fn new(text: String) -> Self {
        CanonicalError { text }
    }

    /// An edge to or from a node that is not there.
    pub(super) fn unknown_node(edge: usize, node: &str) -> Self {
        CanonicalError::new(format!("edge {edge} (from 0) has an end at node {node:?}, which is not among the nodes"))
    }
}
