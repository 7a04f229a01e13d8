//! Sizes of the channels of streaming edges, such that no block deadlocks and no element waits (paper, section 6).
//!
//! A task that reads from two tasks waits for the later one, while the earlier one continues. If their paths have a
//! common ancestor or descendant, a small channel stops the earlier path, and with it the later one. So the channel
//! must hold all elements that pass it until the first element of the later path arrives (equation 5).

use super::{
    CanonicalGraph, EdgeId, NodeId, Simulation, SimulationError, StreamingSchedule, WaitReason, simulate_streaming,
};

/// Most simulations with larger channels for a schedule whose simulation ends later.
const WIDER: usize = 4;

/// Capacity of the channel of each streaming edge, in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferSizes {
    sizes: Vec<u64>,
}

impl BufferSizes {
    /// Computes the sizes for a schedule, in `O(nodes + edges)`.
    ///
    /// Edges into tasks on undirected cycles of their block have the size of equation 5, at least 1 and at most the
    /// edge's volume. All other streaming edges have size 1. The paper's code has no upper limit.
    ///
    /// A task that reads memory filled by its own block, or that streams from such a task, starts only when all its
    /// elements have been written. The channels there hold the whole volume.
    pub fn new(graph: &CanonicalGraph, schedule: &StreamingSchedule) -> Self {
        let waits = Waits::new(graph, schedule);
        let cyclic = waits.cyclic();
        BufferSizes::of_waits(graph, schedule, &waits, |task| cyclic[task.index()])
    }

    /// Computes the sizes of equation 5 for the edges into the tasks that satisfy `counts`; all others are 1.
    fn of_waits(
        graph: &CanonicalGraph,
        schedule: &StreamingSchedule,
        waits: &Waits<'_>,
        counts: impl Fn(NodeId) -> bool,
    ) -> Self {
        let late = waits.late();
        let size = |edge: EdgeId| {
            let (from, to) = graph.edge(edge);
            if !schedule.streams(graph, edge) {
                return 0;
            }
            if !counts(to) {
                return 1;
            }
            if late[to.index()] {
                return graph.volume(edge);
            }
            let wait = schedule.times(to).start - schedule.times(from).first_out;
            let volume = graph.volume(edge);
            let arrived =
                (u128::from(wait) * u128::from(volume)).div_ceil(u128::from(schedule.steady_state().largest(from)));
            u64::try_from(arrived).unwrap_or(volume).clamp(1, volume)
        };
        BufferSizes { sizes: graph.edge_ids().map(size).collect() }
    }

    /// Computes sizes without deadlock, and simulates them. It starts from [`new`](Self::new) and doubles the channels
    /// that are full in a deadlock until there is none.
    ///
    /// Equation 5 uses mean intervals. If rates are whole numbers, its sizes prevent deadlocks; otherwise more elements
    /// may arrive at once. If the simulation ends later than the schedule, all streaming edges get at least the size of
    /// equation 5, and then up to eight times that: without a cycle, a full channel deadlocks nothing, but it delays
    /// its writer and so the writer's other readers.
    ///
    /// Complexity: one simulation, and at most one more for each doubling.
    ///
    /// # Errors
    /// Returns an error if one simulation takes more than `limit` steps.
    pub fn proven(
        graph: &CanonicalGraph,
        schedule: &StreamingSchedule,
        limit: u64,
    ) -> Result<(Self, Simulation), SimulationError> {
        let mut sizes = BufferSizes::new(graph, schedule);
        loop {
            let error = match simulate_streaming(graph, schedule, &sizes, limit) {
                Ok(simulation) if simulation.makespan <= schedule.makespan() => return Ok((sizes, simulation)),
                Ok(simulation) => return sizes.widened(graph, schedule, simulation, limit),
                Err(error) => error,
            };
            let SimulationError::Deadlock { cycle, .. } = &error else { return Err(error) };
            // A channel of its whole volume is never full, so this ends.
            let full = cycle.iter().filter_map(|wait| match wait.reason {
                WaitReason::Full { edge, size } => Some((edge, (2 * size).min(graph.volume(edge)))),
                _ => None,
            });
            let raised: Vec<(EdgeId, u64)> = full.collect();
            if raised.is_empty() {
                return Err(error);
            }
            raised.into_iter().for_each(|(edge, size)| sizes.sizes[edge.index()] = size);
        }
    }

    /// Enlarges channels until the simulation ends no later than the schedule, at most [`WIDER`] times.
    fn widened(
        mut self,
        graph: &CanonicalGraph,
        schedule: &StreamingSchedule,
        mut simulation: Simulation,
        limit: u64,
    ) -> Result<(Self, Simulation), SimulationError> {
        let everywhere = BufferSizes::of_waits(graph, schedule, &Waits::new(graph, schedule), |_| true);
        let mut wide = BufferSizes::given(graph, schedule, |edge| self.of(edge).max(everywhere.of(edge)));
        for _ in 0..WIDER {
            if simulation.makespan <= schedule.makespan() {
                break;
            }
            let wider = simulate_streaming(graph, schedule, &wide, limit)?;
            let twice = BufferSizes::given(graph, schedule, |edge| wide.of(edge).saturating_mul(2));
            if wider.makespan < simulation.makespan {
                (self, simulation) = (wide, wider);
            }
            wide = twice;
        }
        Ok((self, simulation))
    }

    /// Sets one size for all streaming edges, limited to the edge's volume.
    pub fn uniform(graph: &CanonicalGraph, schedule: &StreamingSchedule, size: u64) -> Self {
        BufferSizes::given(graph, schedule, |_| size)
    }

    /// Sets the size of each streaming edge by a function, limited to the range from 1 to the edge's volume.
    pub fn given(graph: &CanonicalGraph, schedule: &StreamingSchedule, size: impl Fn(EdgeId) -> u64) -> Self {
        let size = |edge| if schedule.streams(graph, edge) { size(edge).clamp(1, graph.volume(edge)) } else { 0 };
        BufferSizes { sizes: graph.edge_ids().map(size).collect() }
    }

    /// Returns the size of one edge's channel; 0 for edges through memory.
    pub fn of(&self, edge: EdgeId) -> u64 {
        self.sizes[edge.index()]
    }

    /// Returns the number of elements in all channels together.
    pub fn total(&self) -> u64 {
        self.sizes.iter().sum()
    }
}

/// Returns the tasks and memory nodes on the undirected cycles of a schedule's blocks, sorted by their first nodes.
/// Overlapping cycles are merged.
pub fn undirected_cycles(graph: &CanonicalGraph, schedule: &StreamingSchedule) -> Vec<Vec<NodeId>> {
    let cycles = Waits::new(graph, schedule).bridges();
    let mut lists: Vec<Vec<NodeId>> = vec![Vec::new(); graph.node_count()];
    for node in graph.node_ids() {
        lists[cycles.group[node.index()] as usize].push(node);
    }
    lists.retain(|list| list.len() > 1);
    lists.sort();
    lists
}

/// Edges at which a task waits for the other end within its block: directly, or through memory that the block fills and
/// reads.
struct Waits<'a> {
    graph: &'a CanonicalGraph,
    counts: Vec<bool>,
}

impl<'a> Waits<'a> {
    fn new(graph: &'a CanonicalGraph, schedule: &StreamingSchedule) -> Self {
        let blocks = schedule.blocks();
        let passes = |memory: NodeId| {
            let inside = |node| blocks.of(node) == blocks.of(memory);
            graph.predecessors(memory).any(inside) && graph.successors(memory).any(inside)
        };
        let inner: Vec<bool> = graph.node_ids().map(|node| !graph.node(node).is_memory() || passes(node)).collect();
        let edges = graph.edges().iter();
        let counts = edges.map(|&(from, to)| blocks.together((from, to)) && inner[from.index()] && inner[to.index()]);
        Waits { graph, counts: counts.collect() }
    }

    fn bridges(&self) -> Bridges {
        Bridges::new(self.graph, &self.counts)
    }

    /// Returns whether each node is on an undirected cycle.
    fn cyclic(&self) -> Vec<bool> {
        let cycles = self.bridges();
        let mut size = vec![0; self.graph.node_count()];
        cycles.group.iter().for_each(|&group| size[group as usize] += 1);
        cycles.group.iter().map(|&group| size[group as usize] > 1).collect()
    }

    /// Returns whether each task reads memory that its own block fills, or streams from such a task.
    fn late(&self) -> Vec<bool> {
        let graph = self.graph;
        let mut late = vec![false; graph.node_count()];
        for &node in graph.topological_order().iter().filter(|&&node| !graph.node(node).is_memory()) {
            let held = |before: NodeId| graph.node(before).is_memory() || late[before.index()];
            let waits = graph.incoming(node).iter().filter(|edge| self.counts[edge.index()]);
            late[node.index()] = waits.map(|&edge| graph.edge(edge).0).any(held);
        }
        late
    }
}

/// Groups of nodes that stay connected if any one edge is removed: a node is on an undirected cycle if its group has
/// other members. Found by depth-first search with low points (Tarjan 1974).
struct Bridges {
    group: Vec<u32>,
}

impl Bridges {
    fn new(graph: &CanonicalGraph, edges: &[bool]) -> Self {
        let count = graph.node_count();
        let (mut entered, mut low, mut group) = (vec![0u32; count], vec![0u32; count], vec![0u32; count]);
        let (mut clock, mut path, mut open) = (0, Vec::new(), Vec::new());
        for start in graph.node_ids() {
            if entered[start.index()] > 0 {
                continue;
            }
            path.push((start, None, 0));
            while let Some((node, by, next)) = path.last_mut() {
                let (node, by) = (*node, *by);
                if *next == 0 {
                    clock += 1;
                    (entered[node.index()], low[node.index()]) = (clock, clock);
                    open.push(node);
                }
                let (incoming, outgoing) = (graph.incoming(node), graph.outgoing(node));
                if let Some(&edge) = incoming.get(*next).or_else(|| outgoing.get(*next - incoming.len())) {
                    *next += 1;
                    let (from, to) = graph.edge(edge);
                    let other = if from == node { to } else { from };
                    if !edges[edge.index()] || by == Some(edge) {
                        continue;
                    }
                    if entered[other.index()] == 0 {
                        path.push((other, Some(edge), 0));
                    } else {
                        low[node.index()] = low[node.index()].min(entered[other.index()]);
                    }
                    continue;
                }
                path.pop();
                if let Some((parent, ..)) = path.last() {
                    low[parent.index()] = low[parent.index()].min(low[node.index()]);
                }
                if low[node.index()] == entered[node.index()] {
                    while let Some(member) = open.pop() {
                        group[member.index()] = node.0;
                        if member == node {
                            break;
                        }
                    }
                }
            }
        }
        Bridges { group }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::streaming::{Blocks, Node};

    fn sizes(nodes: &[Node], edges: &[(u32, u32)]) -> Vec<u64> {
        let graph = sample::canonical(nodes, edges);
        let schedule = StreamingSchedule::new(&graph, Blocks::one(&graph));
        let sizes = BufferSizes::new(&graph, &schedule);
        graph.edge_ids().map(|edge| sizes.of(edge)).collect()
    }

    fn task(name: &str, input: u64, output: u64) -> Node {
        Node::task(name, input, output)
    }

    /// The paper's figure 9: 18 between tasks 0 and 4 on the left, 32 between 3 and 5 on the right; the code gives 33.
    #[test]
    fn figure_9() {
        let nodes = [Node::source("0", 32), task("1", 32, 4), task("2", 4, 2), task("3", 2, 32), task("4", 32, 32)];
        assert_eq!(sizes(&nodes, &[(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)]), [1, 18, 1, 1, 1]);
        let (source, same) = (|name| Node::source(name, 32), |name| task(name, 32, 32));
        let nodes = [source("0"), task("1", 32, 1), task("2", 1, 32), source("3"), same("4"), same("5")];
        assert_eq!(sizes(&nodes, &[(0, 1), (0, 4), (1, 2), (2, 5), (3, 4), (3, 5)]), [1, 1, 1, 1, 1, 32]);
    }

    #[test]
    fn trees_need_no_more_than_one_element() {
        let nodes = [Node::source("a", 8), Node::source("b", 64), task("sum", 64, 8), task("plus", 8, 8)];
        assert_eq!(sizes(&nodes, &[(0, 3), (1, 2), (2, 3)]), [1, 1, 1]);
    }

    #[test]
    fn a_path_through_memory_of_the_block_closes_a_cycle() {
        let nodes = [task("x", 8, 8), task("sum", 8, 1), Node::buffer("mean", 1, 8), task("minus", 8, 8)];
        assert_eq!(sizes(&nodes, &[(0, 1), (1, 2), (2, 3), (0, 3)]), [1, 0, 0, 8]);
    }
}
