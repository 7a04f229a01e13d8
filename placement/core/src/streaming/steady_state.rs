//! Streaming intervals: the mean time between two elements on an edge, at steady state (paper, theorem 4.1).

use super::{CanonicalGraph, Components, EdgeId, NodeId};
use std::fmt;

/// Exact fraction in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ratio {
    /// Number above the line.
    pub numerator: u64,
    /// Number below the line; not 0.
    pub denominator: u64,
}

impl Ratio {
    /// Creates `numerator / denominator` in lowest terms; `None` if the denominator is 0.
    pub fn new(numerator: u64, denominator: u64) -> Option<Self> {
        let divisor = greatest_common_divisor(numerator, denominator);
        (denominator > 0).then(|| Ratio { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    /// Returns the nearest float.
    pub fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => write!(formatter, "{}", self.numerator),
            _ => write!(formatter, "{}/{}", self.numerator, self.denominator),
        }
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Steady state of tasks that stream to each other: within a component, volume times interval is equal on all edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteadyState {
    components: Components,
    largest: Vec<u64>,
}

impl SteadyState {
    /// Computes the steady state if all edges between tasks stream: every task has its own processing element.
    pub fn new(graph: &CanonicalGraph) -> Self {
        SteadyState::over(graph, |_| true)
    }

    /// Computes the steady state if only the edges between tasks that satisfy `streams` stream. The other edges go
    /// through memory. `O((nodes + edges) α)`.
    pub fn over(graph: &CanonicalGraph, streams: impl Fn(EdgeId) -> bool) -> Self {
        let components = Components::new(graph, streams);
        let mut largest = vec![0; components.count()];
        for node in graph.node_ids() {
            let volume = &mut largest[components.of(node)];
            *volume = graph.node(node).work().max(*volume);
        }
        SteadyState { components, largest }
    }

    /// Returns the components that stream.
    pub fn components(&self) -> &Components {
        &self.components
    }

    /// Returns the largest volume that a task of the component of `node` reads or writes: the time that the component
    /// streams.
    pub fn largest(&self, node: NodeId) -> u64 {
        self.largest[self.components.of(node)]
    }

    /// Returns the time between two elements that `node` writes, `Sᵒ(v)`; `None` for a sink and for memory.
    pub fn output_interval(&self, graph: &CanonicalGraph, node: NodeId) -> Option<Ratio> {
        let written = graph.node(node);
        if written.is_memory() { None } else { Ratio::new(self.largest(node), written.output()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::streaming::Node;

    fn intervals(nodes: &[Node], edges: &[(u32, u32)]) -> Vec<String> {
        let graph = sample::canonical(nodes, edges);
        let flow = SteadyState::new(&graph);
        let text = |interval: Option<Ratio>| interval.map_or("-".into(), |interval| interval.to_string());
        graph.node_ids().map(|node| text(flow.output_interval(&graph, node))).collect()
    }

    /// The paper's figure 6: a task before an upsampler of rate 4 can write only in every fourth unit of time.
    #[test]
    fn an_upsampler_holds_back_what_comes_before_it() {
        assert_eq!(intervals(&[Node::task("u", 8, 8), Node::task("v", 8, 32)], &[(0, 1)]), ["4", "1"]);
    }

    #[test]
    fn buffers_separate_components() {
        let nodes =
            [Node::source("s", 128), Node::task("a", 128, 64), Node::buffer("b", 64, 32), Node::task("c", 32, 16)];
        assert_eq!(intervals(&nodes, &[(0, 1), (1, 2), (2, 3)]), ["1", "2", "-", "2"]);
    }

    /// Without the input volume, the reduction's input interval would be 1/64, but no edge is that fast.
    #[test]
    fn volumes_that_are_read_from_memory_count() {
        let nodes = [Node::task("sum", 64, 1), Node::task("two", 1, 2)];
        assert_eq!(intervals(&nodes, &[(0, 1)]), ["64", "32"]);
    }

    #[test]
    fn ratios_are_in_lowest_terms() {
        assert_eq!(Ratio::new(14, 4), Some(Ratio { numerator: 7, denominator: 2 }));
        assert_eq!(Ratio::new(0, 5), Some(Ratio { numerator: 0, denominator: 1 }));
        assert_eq!(Ratio::new(5, 0), None);
        assert_eq!(Ratio::new(7, 2).unwrap().to_f64(), 3.5);
    }
}
