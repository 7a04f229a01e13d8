//! Weakly connected components of the tasks that stream to each other (paper, section 4.1).

use super::{CanonicalGraph, EdgeId, NodeId};
use crate::union_find::UnionFind;

/// Components of tasks that streaming edges connect in either direction. No streaming edge ends at memory, so every
/// buffer is split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Components {
    of: Vec<u32>,
    count: usize,
}

impl Components {
    /// Computes the components of `graph` over its edges between tasks that satisfy `streams`.
    ///
    /// Components are numbered by their first nodes; a buffer is a component of its own. `O((nodes + edges) α)`.
    pub fn new(graph: &CanonicalGraph, streams: impl Fn(EdgeId) -> bool) -> Self {
        let mut joined = UnionFind::new(graph.node_count());
        for edge in graph.edge_ids().filter(|&edge| graph.can_stream(edge) && streams(edge)) {
            let (from, to) = graph.edge(edge);
            joined.join(from.index(), to.index());
        }
        let (of, count) = joined.numbered();
        Components { of, count }
    }

    /// Returns the component of a node.
    pub fn of(&self, node: NodeId) -> usize {
        self.of[node.index()] as usize
    }

    /// Returns the number of components.
    pub fn count(&self) -> usize {
        self.count
    }
}
