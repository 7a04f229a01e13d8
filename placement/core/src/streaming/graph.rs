//! Canonical task graphs: every node reads one volume from each of its inputs and writes one volume to each of its
//! outputs.

use super::{CanonicalError, MAX_EDGES, MAX_NODES, MAX_VOLUME, Node, NodeId, NodeKind};
use crate::graph::Rows;
use crate::ids::id;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Position of an edge in its [`CanonicalGraph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeId(pub u32);

id!(EdgeId, "edge");

/// Validated canonical task graph (paper, section 3). `O(nodes + edges)` memory; every neighbourhood is a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanonicalGraph {
    nodes: Vec<Node>,
    edges: Vec<(NodeId, NodeId)>,
    outgoing: Rows<EdgeId>,
    incoming: Rows<EdgeId>,
    order: Vec<NodeId>,
}

impl CanonicalGraph {
    /// Returns all nodes, in the order in which they were added.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns one node.
    pub fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.index()]
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the ids of all nodes.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Returns the nodes that run on processing elements, in the order in which they were added.
    pub fn task_ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.node_ids().filter(|&node| !self.node(node).is_memory())
    }

    /// Returns the two ends of all edges, in the order in which they were added.
    pub fn edges(&self) -> &[(NodeId, NodeId)] {
        &self.edges
    }

    /// Returns the two ends of one edge.
    pub fn edge(&self, edge: EdgeId) -> (NodeId, NodeId) {
        self.edges[edge.index()]
    }

    /// Returns the number of elements that pass an edge.
    pub fn volume(&self, edge: EdgeId) -> u64 {
        let (from, to) = self.edge(edge);
        if self.node(from).output() > 0 { self.node(from).output() } else { self.node(to).input() }
    }

    /// Returns the edges that leave `node`.
    pub fn outgoing(&self, node: NodeId) -> &[EdgeId] {
        self.outgoing.row(node.index())
    }

    /// Returns the edges that enter `node`.
    pub fn incoming(&self, node: NodeId) -> &[EdgeId] {
        self.incoming.row(node.index())
    }

    /// Returns the nodes that read from `node`.
    pub fn successors(&self, node: NodeId) -> impl Iterator<Item = NodeId> + Clone + '_ {
        self.outgoing(node).iter().map(|&edge| self.edge(edge).1)
    }

    /// Returns the nodes that `node` reads from.
    pub fn predecessors(&self, node: NodeId) -> impl Iterator<Item = NodeId> + Clone + '_ {
        self.incoming(node).iter().map(|&edge| self.edge(edge).0)
    }

    /// Returns all nodes, each after its predecessors; of the possible next nodes, the first one added comes first.
    pub fn topological_order(&self) -> &[NodeId] {
        &self.order
    }

    /// Returns the work of the graph `T₁ = Σ W(v)`, its time on one processing element (section 4.2).
    pub fn work(&self) -> u64 {
        self.nodes.iter().map(Node::work).sum()
    }

    /// Whether an edge is between two tasks, so that elements may pass it one by one.
    pub fn can_stream(&self, edge: EdgeId) -> bool {
        let (from, to) = self.edge(edge);
        !self.node(from).is_memory() && !self.node(to).is_memory()
    }

    /// Returns the ids of all edges.
    pub fn edge_ids(&self) -> impl Iterator<Item = EdgeId> + use<> {
        (0..self.edges.len() as u32).map(EdgeId)
    }
}

/// Builder that collects nodes and edges, and validates them once.
#[derive(Debug, Clone, Default)]
pub struct CanonicalGraphBuilder {
    nodes: Vec<Node>,
    edges: Vec<(NodeId, NodeId, Option<u64>)>,
}

impl CanonicalGraphBuilder {
    /// Creates an empty builder.
    pub fn new() -> Self {
        CanonicalGraphBuilder::default()
    }

    /// Adds a node.
    pub fn node(&mut self, node: Node) -> NodeId {
        // Positions beyond 32 bits wrap here. `build` rejects them by the number of nodes.
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        id
    }

    /// Adds an edge with the volume of its ends.
    pub fn edge(&mut self, from: NodeId, to: NodeId) {
        self.edges.push((from, to, None));
    }

    /// Adds an edge with `volume` elements, which [`build`](Self::build) compares with the volumes of its ends.
    pub fn edge_of(&mut self, from: NodeId, to: NodeId, volume: u64) {
        self.edges.push((from, to, Some(volume)));
    }

    /// Validates everything and returns the graph. `O((nodes + edges) log(nodes + edges))`.
    ///
    /// # Errors
    /// Returns the first fault that makes the graph not canonical.
    pub fn build(self) -> Result<CanonicalGraph, CanonicalError> {
        check_count("nodes", self.nodes.len(), MAX_NODES)?;
        check_count("edges", self.edges.len(), MAX_EDGES)?;
        check_names(&self.nodes)?;
        self.check_ends()?;
        let ends: Vec<(NodeId, NodeId)> = self.edges.iter().map(|&(from, to, _)| (from, to)).collect();
        let numbered = |(number, &(from, to)): (usize, &(NodeId, NodeId))| (from, to, EdgeId(number as u32));
        let count = self.nodes.len();
        let outgoing =
            Rows::group(count, ends.iter().enumerate().map(numbered).map(|(from, _, id)| (from.index(), id)));
        let incoming = Rows::group(count, ends.iter().enumerate().map(numbered).map(|(_, to, id)| (to.index(), id)));
        let mut graph = CanonicalGraph { nodes: self.nodes, edges: ends, outgoing, incoming, order: Vec::new() };
        for node in graph.node_ids() {
            graph.check_volumes(node)?;
        }
        for (&(from, to, volume), edge) in self.edges.iter().zip(graph.edge_ids()) {
            graph.check_edge(edge, from, to, volume)?;
        }
        graph.order = graph.sort()?;
        Ok(graph)
    }

    fn check_ends(&self) -> Result<(), CanonicalError> {
        let mut seen = BTreeSet::new();
        for (edge, &(from, to, _)) in self.edges.iter().enumerate() {
            if let Some(&end) = [from, to].iter().find(|end| end.index() >= self.nodes.len()) {
                return Err(CanonicalError::unknown_node(edge, &end.to_string()));
            }
            if !seen.insert((from, to)) {
                let [from, to] = [from, to].map(|node| self.nodes[node.index()].name());
                return Err(CanonicalError::new(format!("node {from:?} has two edges to {to:?}; merge them")));
            }
        }
        Ok(())
    }
}

impl CanonicalGraph {
    fn check_volumes(&self, id: NodeId) -> Result<(), CanonicalError> {
        let node = self.node(id);
        let reads = match node.kind() {
            NodeKind::Source => false,
            NodeKind::Buffer => !self.incoming(id).is_empty(),
            _ => true,
        };
        let writes = match node.kind() {
            NodeKind::Sink => false,
            NodeKind::Buffer => !self.outgoing(id).is_empty(),
            _ => true,
        };
        for (needed, side, volume) in [(reads, "input", node.input()), (writes, "output", node.output())] {
            if volume > MAX_VOLUME || (needed && volume == 0) {
                let node = node.name();
                let text =
                    format!("node {node:?} has an {side} volume of {volume}, but 1 to {MAX_VOLUME} are possible");
                return Err(CanonicalError::new(text));
            }
        }
        Ok(())
    }

    fn check_edge(&self, edge: EdgeId, from: NodeId, to: NodeId, volume: Option<u64>) -> Result<(), CanonicalError> {
        let carried = volume.unwrap_or(self.volume(edge));
        let ends = [(from, "output", "sink", self.node(from).output()), (to, "input", "source", self.node(to).input())];
        for (end, side, kind, volume) in ends {
            let node = self.node(end).name();
            let edge = || format!("{:?} → {:?}", self.node(from).name(), self.node(to).name());
            if volume == 0 {
                let text = format!("node {node:?} is a {kind} with an edge {}; give it an {side} volume", edge());
                return Err(CanonicalError::new(text));
            }
            if volume != carried {
                return Err(CanonicalError::new(format!(
                    "node {node:?} has an {side} volume of {volume}, but its edge {} carries {carried}; all must be equal",
                    edge()
                )));
            }
        }
        Ok(())
    }

    /// Sorts by Kahn's algorithm, the smallest id first.
    fn sort(&self) -> Result<Vec<NodeId>, CanonicalError> {
        let mut waiting: Vec<usize> = self.node_ids().map(|node| self.incoming(node).len()).collect();
        let mut ready: BinaryHeap<Reverse<NodeId>> =
            self.node_ids().filter(|node| waiting[node.index()] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(Reverse(node)) = ready.pop() {
            order.push(node);
            for next in self.successors(node) {
                waiting[next.index()] -= 1;
                if waiting[next.index()] == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
        match self.node_ids().find(|node| waiting[node.index()] > 0) {
            Some(node) => {
                let node = self.node(node).name();
                let text = format!("node {node:?} is on a directed cycle, or behind one; a task graph has none");
                Err(CanonicalError::new(text))
            }
            None => Ok(order),
        }
    }
}

fn check_count(what: &'static str, count: usize, limit: usize) -> Result<(), CanonicalError> {
    match count > limit {
        true => Err(CanonicalError::new(format!("the graph has {count} {what}, but the limit is {limit}"))),
        false => Ok(()),
    }
}

fn check_names(nodes: &[Node]) -> Result<(), CanonicalError> {
    let mut seen = BTreeSet::new();
    match nodes.iter().find(|node| !seen.insert(node.name())) {
        Some(node) => Err(CanonicalError::new(format!("two nodes are named {:?}; rename one of them", node.name()))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Ends = (u32, u32, Option<u64>);

    fn build(nodes: &[Node], edges: &[Ends]) -> Result<CanonicalGraph, CanonicalError> {
        let mut builder = CanonicalGraphBuilder::new();
        nodes.iter().for_each(|node| _ = builder.node(node.clone()));
        for &(from, to, volume) in edges {
            match volume {
                Some(volume) => builder.edge_of(NodeId(from), NodeId(to), volume),
                None => builder.edge(NodeId(from), NodeId(to)),
            }
        }
        builder.build()
    }

    #[test]
    fn kinds_rates_and_work_follow_from_volumes() {
        let nodes = [
            Node::source("s", 12),
            Node::task("half", 12, 6),
            Node::buffer("b", 6, 18),
            Node::task("same", 18, 18),
            Node::task("more", 18, 27),
            Node::sink("t", 27),
        ];
        let graph = build(&nodes, &[(0, 1, Some(12)), (1, 2, None), (2, 3, None), (3, 4, None), (4, 5, None)]).unwrap();
        let kinds: Vec<NodeKind> = graph.nodes().iter().map(Node::kind).collect();
        use NodeKind::*;
        assert_eq!(kinds, [Source, Downsampler, Buffer, Elementwise, Upsampler, Sink]);
        assert_eq!(graph.node(NodeId(4)).rate().map(|rate| rate.to_string()), Some("3/2".into()));
        assert_eq!(graph.node(NodeId(0)).rate(), None);
        assert_eq!(graph.work(), 12 + 12 + 18 + 27 + 27);
        assert!(graph.can_stream(EdgeId(0)) && !graph.can_stream(EdgeId(1)) && !graph.can_stream(EdgeId(2)));
    }

    #[test]
    fn what_is_not_canonical_is_refused_by_the_name_of_its_node() {
        let task = |name: &str, input, output| Node::task(name, input, output);
        let pair = [task("a", 8, 4), task("b", 4, 4)];
        let cases: [(&[Node], &[Ends], &str); 8] = [
            (&[task("a", 1, 1), task("a", 1, 1)], &[], "two nodes are named \"a\""),
            (&pair, &[(0, 2, None)], "edge 0 (counted from 0) names node \"node 2\""),
            (&pair, &[(0, 1, None), (0, 1, None)], "node \"a\" has two edges to \"b\""),
            (&[task("a", 0, 4)], &[], "node \"a\" has an input volume of 0"),
            (&[task("a", 1, 4), task("c", 5, 5)], &[(0, 1, None)], "node \"c\" has an input volume of 5"),
            (&pair, &[(0, 1, Some(8))], "node \"a\" has an output volume of 4, but its edge \"a\" → \"b\" carries 8"),
            (&[task("a", 1, 1), Node::source("s", 1)], &[(0, 1, None)], "node \"s\" is a source with an edge"),
            (&[task("a", 1, 1), task("b", 1, 1)], &[(0, 1, None), (1, 0, None)], "node \"a\" is on a directed cycle"),
        ];
        for (nodes, edges, expected) in cases {
            let message = build(nodes, edges).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
        }
        let huge = build(&[task("a", MAX_VOLUME + 1, 1)], &[]).unwrap_err().to_string();
        assert!(huge.contains("\"a\" has an input volume of 1099511627777"), "{huge}");
    }
}
