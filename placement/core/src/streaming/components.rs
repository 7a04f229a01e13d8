//! Weakly connected components of the tasks that stream to each other (paper, section 4.1).

use super::{CanonicalGraph, EdgeId, NodeId};
use crate::union_find::UnionFind;

/// Which tasks are joined by streaming edges, in either direction. As no streaming edge ends at memory, every buffer is split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Components {
    of: Vec<u32>,
    count: usize,
}

impl Components {
    /// The components of `graph` over its edges between tasks for which `streams` says yes. They are numbered by their first
    /// nodes; a buffer is alone. `O((nodes + edges) α)`.
    pub fn new(graph: &CanonicalGraph, streams: impl Fn(EdgeId) -> bool) -> Self {
        let mut joined = UnionFind::new(graph.node_count());
        for edge in graph.edge_ids().filter(|&edge| graph.can_stream(edge) && streams(edge)) {
            let (from, to) = graph.edge(edge);
            joined.join(from.index(), to.index());
        }
        let (of, count) = joined.numbered();
        Components { of, count }
    }

    /// The component of a node.
    pub fn of(&self, node: NodeId) -> usize {
        self.of[node.index()] as usize
    }

    /// Number of components.
    pub fn count(&self) -> usize {
        self.count
    }
}
