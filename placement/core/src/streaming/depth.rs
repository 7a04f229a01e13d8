//! Work and depth with unlimited processing elements (paper, section 4.2).

use super::{CanonicalGraph, NodeId, SteadyState};
use crate::graph::Rows;

/// Reason why the paper's bound gives no streaming depth.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DepthError {
    /// A component that waits for itself through memory.
    #[error(
        "buffer {node:?} is on an undirected cycle, so tasks that stream to each other wait for memory that they \
         fill; break the cycle with another buffer"
    )]
    BufferCycle {
        /// Name of the first buffer that waits for its own readers, directly or through other buffers.
        node: String,
    },
}

/// Bounds of the time on as many processing elements as tasks. All tasks stream unless a buffer is between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamingDepth {
    /// Lower bound of any execution: along each path, all elements of one task, then the last element through the rest.
    pub lower: u64,
    /// The paper's streaming depth, `T∞(H)`: equation 4 over the deepest path of components. It sums the largest volume
    /// of each component plus its levels. It is exact as volumes grow.
    pub bound: u64,
    /// The most levels on a path of components, `L̂`. `bound` exceeds the true depth by at most this number, up to
    /// rounding.
    pub levels: u64,
}

impl StreamingDepth {
    /// Computes the bounds in `O((nodes + edges) α)`. A task without predecessors has the level `max(R, 1)` like every
    /// other task; the paper gives 1. Rates are rounded up.
    ///
    /// # Errors
    /// Returns an error for a graph whose components form a cycle through buffers.
    pub fn of(graph: &CanonicalGraph) -> Result<Self, DepthError> {
        let flow = SteadyState::new(graph);
        let (bound, levels) = component_paths(graph, &flow)?;
        Ok(StreamingDepth { lower: lower_bound(graph), bound, levels })
    }
}

/// Returns the level `L(v)` of each node within its component: the transit time of its last element. 0 for memory.
pub fn levels(graph: &CanonicalGraph) -> Vec<u64> {
    let mut levels = vec![0; graph.node_count()];
    for &node in graph.topological_order() {
        if !graph.node(node).is_memory() {
            let before = graph.predecessors(node).map(|before: NodeId| levels[before.index()]).max().unwrap_or(0);
            levels[node.index()] = before + graph.node(node).last_outputs();
        }
    }
    levels
}

fn lower_bound(graph: &CanonicalGraph) -> u64 {
    let mut last = vec![0; graph.node_count()];
    let mut ready = vec![0; graph.node_count()];
    for &id in graph.topological_order() {
        let node = graph.node(id);
        for before in graph.predecessors(id).map(NodeId::index) {
            // A task may start when its first predecessors start. After memory it waits for the last element.
            let start = if graph.nodes()[before].is_memory() { last[before] } else { ready[before] };
            ready[id.index()] = start.max(ready[id.index()]);
            last[id.index()] = last[before].max(last[id.index()]);
        }
        if !node.is_memory() {
            let streamed = last[id.index()] + node.last_outputs();
            last[id.index()] = streamed.max(ready[id.index()] + node.work());
        }
    }
    last.into_iter().max().unwrap_or(0)
}

/// Returns the length of the deepest path through components and the buffers between them, and the most levels on a
/// path.
fn component_paths(graph: &CanonicalGraph, flow: &SteadyState) -> Result<(u64, u64), DepthError> {
    let components = flow.components();
    let levels = levels(graph);
    let count = components.count();
    let mut depth = vec![(0, 0); count];
    for node in graph.task_ids() {
        let (bound, most) = &mut depth[components.of(node)];
        *most = levels[node.index()].max(*most);
        *bound = flow.largest(node) + *most;
    }
    let joined = graph.edges().iter().map(|&(from, to)| (components.of(from), components.of(to)));
    let crossing = joined.filter(|(from, to)| from != to);
    let mut waiting = vec![0; count];
    crossing.clone().for_each(|(_, to)| waiting[to] += 1);
    let next = Rows::group(count, crossing);
    let mut before = vec![(0, 0); count];
    let mut ready: Vec<usize> = (0..count).filter(|&component| waiting[component] == 0).collect();
    let (mut best, mut seen) = ((0, 0), 0);
    while let Some(component) = ready.pop() {
        seen += 1;
        let done = (before[component].0 + depth[component].0, before[component].1 + depth[component].1);
        best = larger(best, done);
        for &after in next.row(component) {
            before[after] = larger(before[after], done);
            waiting[after] -= 1;
            if waiting[after] == 0 {
                ready.push(after);
            }
        }
    }
    if seen == count {
        return Ok(best);
    }
    let held = graph.node_ids().find(|&node| graph.node(node).is_memory() && waiting[components.of(node)] > 0);
    Err(DepthError::BufferCycle { node: held.map_or_else(String::new, |node| graph.node(node).name().into()) })
}

fn larger(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.max(b.0), a.1.max(b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::streaming::Node;

    fn depth(nodes: &[Node], edges: &[(u32, u32)]) -> Result<StreamingDepth, DepthError> {
        StreamingDepth::of(&sample::canonical(nodes, edges))
    }

    /// Section 4.2.1: `k + L(G) − 1` for element-wise graphs, one less than the bound for any graph.
    #[test]
    fn the_lower_bound_is_exact_for_element_wise_graphs() {
        let nodes: Vec<Node> = (0..5).map(|number| Node::task(number.to_string(), 16, 16)).collect();
        let chain = depth(&nodes, &[(0, 1), (1, 2), (2, 3), (3, 4)]).unwrap();
        assert_eq!(chain, StreamingDepth { lower: 20, bound: 21, levels: 5 });
    }

    #[test]
    fn components_behind_buffers_follow_each_other() {
        let nodes = [Node::task("a", 8, 2), Node::buffer("b", 2, 6), Node::task("c", 6, 12), Node::task("d", 12, 12)];
        let chained = depth(&nodes, &[(0, 1), (1, 2), (2, 3)]).unwrap();
        assert_eq!(chained, StreamingDepth { lower: 8 + 12 + 1, bound: (8 + 1) + (12 + 3), levels: 1 + 3 });
        assert_eq!(depth(&[], &[]).unwrap(), StreamingDepth { lower: 0, bound: 0, levels: 0 });
    }

    /// The mean and the stream that it is subtracted from are in one component: some buffer would have to hold the
    /// stream.
    #[test]
    fn a_component_that_waits_for_its_own_buffer_is_named() {
        let nodes =
            [Node::task("x", 8, 8), Node::task("sum", 8, 1), Node::buffer("mean", 1, 8), Node::task("minus", 8, 8)];
        let error = depth(&nodes, &[(0, 1), (1, 2), (2, 3), (0, 3)]).unwrap_err();
        assert_eq!(error, DepthError::BufferCycle { node: "mean".into() });
    }
}
