//! Weakly connected components of the tasks that stream to each other (paper, section 4.1).

use super::{CanonicalGraph, EdgeId, NodeId};

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
        let mut parent: Vec<u32> = (0..graph.node_count() as u32).collect();
        for edge in graph.edge_ids().filter(|&edge| graph.can_stream(edge) && streams(edge)) {
            let (from, to) = graph.edge(edge);
            let (a, b) = (root(&mut parent, from.0), root(&mut parent, to.0));
            // The smaller id is the root, so that roots come before what they stand for.
            parent[a.max(b) as usize] = a.min(b);
        }
        let mut of = vec![0; parent.len()];
        let mut count = 0;
        for node in 0..parent.len() {
            let top = root(&mut parent, node as u32) as usize;
            if top == node {
                of[node] = count;
                count += 1;
            } else {
                of[node] = of[top];
            }
        }
        Components { of, count: count as usize }
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

fn root(parent: &mut [u32], mut node: u32) -> u32 {
    while parent[node as usize] != node {
        parent[node as usize] = parent[parent[node as usize] as usize];
        node = parent[node as usize];
    }
    node
}
