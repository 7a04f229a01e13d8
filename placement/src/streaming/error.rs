//! Why something is no canonical task graph.

/// The first thing that is not canonical, with the node where it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum CanonicalError {
    /// No JSON, or not of the shape that the format has.
    #[error("no canonical task graph in JSON: {0}")]
    Json(String),
    /// A graph that is too large.
    #[error("{count} {what}; at most {limit} are taken")]
    TooLarge { what: &'static str, count: usize, limit: usize },
    /// Two nodes of one name.
    #[error("two nodes are named {node:?}; names are unique")]
    DuplicateNode { node: String },
    /// An edge to or from a node that is not there.
    #[error("edge {edge} (from 0) has an end at node {node:?}, which is not among the nodes")]
    UnknownNode { edge: usize, node: String },
    /// Two edges with the same ends.
    #[error("node {from:?} has two edges to {to:?}; merge them")]
    DuplicateEdge { from: String, to: String },
    /// A volume that no node may have.
    #[error("node {node:?} has an {side} volume of {volume}; it should be from 1 to {limit}", limit = super::MAX_VOLUME)]
    Volume { node: String, side: &'static str, volume: u64 },
    /// An edge whose volume is not that of its end.
    #[error("node {node:?} has an {side} volume of {volume}, but its edge {edge} carries {carried}; all must be equal")]
    EdgeVolume { node: String, side: &'static str, volume: u64, edge: String, carried: u64 },
    /// A source that reads, or a sink that writes.
    #[error("node {node:?} is a {kind} with an edge {edge}; give it an {side} volume")]
    EdgeOfEnd { node: String, kind: &'static str, edge: String, side: &'static str },
    /// Tasks that wait for each other.
    #[error("node {node:?} is on a directed cycle, or behind one; a task graph has none")]
    Cycle {
        /// The name of the first node that can never start.
        node: String,
    },
}
