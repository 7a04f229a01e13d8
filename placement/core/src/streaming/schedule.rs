//! Schedules of spatial blocks: the start of each task, and the times of its first and last output (paper, section
//! 5.1).

use super::{Blocks, CanonicalGraph, EdgeId, Node, NodeId, NodeKind, SteadyState};

/// Times of one task. For memory all three are the time from which it can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskTimes {
    /// `ST(v)`: arrival of its first input.
    pub start: u64,
    /// `FO(v)`: time of its first output; for a sink, the time of its end.
    pub first_out: u64,
    /// `LO(v)`: time of its last output.
    pub last_out: u64,
}

/// Schedule of blocks that run one after the other, with streaming within each block; its times are estimates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamingSchedule {
    blocks: Blocks,
    flow: SteadyState,
    times: Vec<TaskTimes>,
    starts: Vec<u64>,
    makespan: u64,
}

impl StreamingSchedule {
    /// Schedules `blocks`, each as soon as the one before has ended, in `O(nodes log nodes + edges α)`.
    ///
    /// A task that reads only memory starts with its block, not when its inputs are complete (section 5.1 has both):
    /// earlier, no processing element is free. It reads an element in each unit of time until its first output, because
    /// no channel is full yet.
    pub fn new(graph: &CanonicalGraph, blocks: Blocks) -> Self {
        let flow = SteadyState::over(graph, |edge| blocks.together(graph.edge(edge)));
        let mut schedule = StreamingSchedule {
            times: vec![TaskTimes::default(); graph.node_count()],
            starts: vec![0; blocks.count()],
            makespan: 0,
            blocks,
            flow,
        };
        let mut order = graph.topological_order().to_vec();
        // The sort is stable, so each block keeps the order of its dependencies.
        order.sort_by_key(|&node| schedule.blocks.of(node));
        let mut block = 0;
        for node in order {
            if schedule.blocks.of(node) > block {
                block = schedule.blocks.of(node);
                schedule.starts[block] = schedule.makespan;
            }
            let times = schedule.times_of(graph, node);
            schedule.times[node.index()] = times;
            schedule.makespan = times.last_out.max(schedule.makespan);
        }
        schedule
    }

    /// Returns the blocks.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Returns the blocks, and drops the times.
    pub fn into_blocks(self) -> Blocks {
        self.blocks
    }

    /// Returns the streaming intervals within the blocks.
    pub fn steady_state(&self) -> &SteadyState {
        &self.flow
    }

    /// Returns the end of the last task: an estimate from mean intervals (see the module).
    pub fn makespan(&self) -> u64 {
        self.makespan
    }

    /// Returns the start of a block: the end of the block before it.
    pub fn block_start(&self, block: usize) -> u64 {
        self.starts[block]
    }

    /// Returns the times of one node.
    pub fn times(&self, node: NodeId) -> TaskTimes {
        self.times[node.index()]
    }

    /// Whether elements pass the edge one by one: it connects two tasks of one block.
    pub fn streams(&self, graph: &CanonicalGraph, edge: EdgeId) -> bool {
        graph.can_stream(edge) && self.blocks.together(graph.edge(edge))
    }

    /// Returns the time on one processing element over the makespan (section 7); 1 if there is no work.
    pub fn speedup(&self, graph: &CanonicalGraph) -> f64 {
        if self.makespan == 0 { 1.0 } else { graph.work() as f64 / self.makespan as f64 }
    }

    /// Returns the streaming schedule length ratio: the makespan over the streaming depth (section 7).
    pub fn length_ratio(&self, depth: u64) -> f64 {
        self.makespan as f64 / depth.max(1) as f64
    }

    /// Returns the share of the processing elements' time that is work.
    pub fn utilisation(&self, graph: &CanonicalGraph, elements: usize) -> f64 {
        self.speedup(graph) / elements.max(1) as f64
    }

    fn times_of(&self, graph: &CanonicalGraph, id: NodeId) -> TaskTimes {
        let node = graph.node(id);
        let (mut first, mut held) = (0, 0);
        for &edge in graph.incoming(id) {
            let times = self.times(graph.edge(edge).0);
            if self.streams(graph, edge) {
                first = times.first_out.max(first);
            } else {
                held = times.last_out.max(held);
            }
        }
        if node.is_memory() {
            return TaskTimes { start: held, first_out: held, last_out: held };
        }
        let start = self.starts[self.blocks.of(id)].max(held).max(first);
        let pace = self.pace(graph, id);
        let last_out = start + pace.span(node);
        let first_out = if node.kind() == NodeKind::Sink { last_out } else { start + pace.first_delay(node) };
        TaskTimes { start, first_out, last_out }
    }

    /// Memory gives and takes an element in each unit of time, so only streaming edges slow a task down.
    fn pace(&self, graph: &CanonicalGraph, id: NodeId) -> Pace {
        let (node, largest) = (graph.node(id), self.flow.largest(id));
        let streams = |edges: &[EdgeId]| edges.iter().any(|&edge| self.streams(graph, edge));
        Pace {
            input: if streams(graph.incoming(id)) { largest } else { node.input() },
            output: if streams(graph.outgoing(id)) { largest } else { node.output() },
        }
    }
}

/// Time in which all inputs and all outputs of a task pass at steady state: `I Sⁱ` and `O Sᵒ`.
struct Pace {
    input: u64,
    output: u64,
}

impl Pace {
    /// Time from the start to the last output: `⌈max((I − 1) Sⁱ, (O − 1) Sᵒ)⌉ + 1`. If an upsampler's inputs are slower
    /// than its outputs, it continues for `⌈R⌉ − 1` outputs after its last input.
    fn span(&self, node: &Node) -> u64 {
        let reading = elapsed(node.input(), node.input(), self.input);
        let writing = elapsed(node.output(), node.output(), self.output);
        match node.kind() {
            NodeKind::Upsampler if self.output < self.input => {
                let last = elapsed(node.last_outputs(), node.output(), self.output) - 1;
                writing.max(reading + last)
            }
            _ => writing.max(reading),
        }
    }

    /// Time from the start to the first output: `⌈(⌈1/R⌉ − 1) Sⁱ⌉ + 1` for downsamplers, else 1. The first output needs
    /// whole inputs.
    fn first_delay(&self, node: &Node) -> u64 {
        match node.kind() {
            NodeKind::Downsampler => elapsed(node.input().div_ceil(node.output()), node.input(), self.input),
            _ => 1,
        }
    }
}

/// Time until `count` elements have passed if `volume` pass in `time`: `⌈(count − 1) time/volume⌉ + 1`; 0 for none.
fn elapsed(count: u64, volume: u64, time: u64) -> u64 {
    match count.checked_sub(1) {
        // The result is at most `time + 1`, because no more elements pass than the volume.
        Some(gaps) => (u128::from(gaps) * u128::from(time)).div_ceil(u128::from(volume)) as u64 + 1,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn scheduled(nodes: &[Node], edges: &[(u32, u32)], blocks: Option<Vec<Vec<u32>>>) -> Vec<[u64; 3]> {
        let graph = sample::canonical(nodes, edges);
        let blocks = blocks.map_or_else(
            || Blocks::one(&graph),
            |lists| {
                let lists = lists.into_iter().map(|list| list.into_iter().map(NodeId).collect());
                Blocks::new(&graph, lists.collect(), 8).unwrap()
            },
        );
        let schedule = StreamingSchedule::new(&graph, blocks);
        let times = graph.task_ids().map(|node| schedule.times(node));
        times.map(|times| [times.start, times.last_out, times.first_out]).collect()
    }

    fn task(name: &str, input: u64, output: u64) -> Node {
        Node::task(name, input, output)
    }

    /// The paper's figure 8: start, last out, first out.
    #[test]
    fn figure_8() {
        let nodes = [Node::source("0", 16), task("1", 16, 4), task("2", 4, 4), task("3", 16, 32), task("4", 32, 8)];
        let times = scheduled(&nodes, &[(0, 1), (1, 2), (0, 3), (3, 4)], None);
        assert_eq!(times, [[0, 31, 1], [1, 32, 8], [8, 33, 9], [1, 33, 2], [2, 34, 6]]);
    }

    /// The paper's figure 9, left and right.
    #[test]
    fn figure_9() {
        let nodes = [Node::source("0", 32), task("1", 32, 4), task("2", 4, 2), task("3", 2, 32), task("4", 32, 32)];
        let times = scheduled(&nodes, &[(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)], None);
        assert_eq!(times, [[0, 32, 1], [1, 33, 9], [9, 34, 18], [18, 50, 19], [19, 51, 20]]);

        let (source, same) = (|name| Node::source(name, 32), |name| task(name, 32, 32));
        let nodes = [source("0"), task("1", 32, 1), task("2", 1, 32), source("3"), same("4"), same("5")];
        let times = scheduled(&nodes, &[(0, 1), (0, 4), (1, 2), (2, 5), (3, 4), (3, 5)], None);
        assert_eq!(times, [[0, 32, 1], [1, 33, 33], [33, 65, 34], [0, 32, 1], [1, 33, 2], [34, 66, 35]]);
    }

    #[test]
    fn blocks_follow_each_other_and_stream_within() {
        let nodes = [Node::buffer("in", 0, 8), task("a", 8, 4), task("b", 4, 4), task("c", 4, 8), task("d", 8, 2)];
        let edges = [(0, 1), (1, 2), (2, 3), (3, 4)];
        let times = scheduled(&nodes, &edges, Some(vec![vec![1, 2], vec![3, 4]]));
        assert_eq!(times, [[0, 8, 2], [2, 9, 3], [9, 17, 10], [10, 18, 14]]);
        let apart = scheduled(&nodes, &edges, Some(vec![vec![1], vec![2], vec![3], vec![4]]));
        assert_eq!(apart.iter().map(|times| times[1]).collect::<Vec<_>>(), [8, 12, 20, 28]);
    }

    /// `minus` reads the stream only once the mean is available, and does its whole work from then on.
    #[test]
    fn a_task_that_waits_for_memory_of_its_block_starts_late() {
        let nodes = [task("x", 8, 8), task("sum", 8, 1), Node::buffer("mean", 1, 8), task("minus", 8, 8)];
        let times = scheduled(&nodes, &[(0, 1), (1, 2), (2, 3), (0, 3)], None);
        assert_eq!(times, [[0, 8, 1], [1, 9, 9], [9, 17, 10]]);
    }
}
