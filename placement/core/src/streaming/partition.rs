//! Partition of tasks into spatial blocks: SB-LTS, SB-RLX (paper, section 5.2) and a search.
//!
//! SB-LTS and SB-RLX are the two variants of the paper's Algorithm 1 (`greedy.rs`).
//!
//! The search uses that a block lasts about as long as its largest task streams, so tasks with similar work belong
//! together. Algorithm 1 leaves open which source comes next, so several rules are tried. Each rule gives an order of
//! tasks, which dynamic programming cuts into blocks optimally. The cheapest results are scheduled, and with them the
//! blocks of Algorithm 1 and of the paper's published code. The shortest schedule wins.

mod greedy;
mod growth;
mod line;

use super::{Blocks, CanonicalGraph, NodeId, StreamingSchedule, path_lengths};
use greedy::Rule;
use growth::Growth;
use line::Line;

/// Rule that forms spatial blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockVariant {
    /// SB-LTS, as printed: a task joins sources of its block only if it produces less than each of them.
    Lts,
    /// SB-RLX, as printed: if no task can join so, the task joins that produces least.
    Rlx,
    /// Our search; never longer than SB-LTS, SB-RLX and the blocks of the paper's published code.
    Best,
}

/// Most steps of the search for the best cut of an order. Beyond them, blocks stay as they were grown.
const CUT_STEPS: usize = 1 << 22;
/// Number of the cheapest partitions that are scheduled to find the shortest.
const SCHEDULED: usize = 3;

/// Partitions the tasks into blocks of at most `elements` tasks.
///
/// `O((nodes + edges) log nodes)`. The search takes `O(elements × (nodes + edges))` in addition, if that is at most
/// four million steps.
pub fn spatial_blocks(graph: &CanonicalGraph, elements: usize, variant: BlockVariant) -> Blocks {
    let elements = elements.clamp(1, graph.node_count().max(1));
    match variant {
        BlockVariant::Lts => Blocks::numbered(graph, greedy::grow(graph, elements, Rule::Printed, false)),
        BlockVariant::Rlx => Blocks::numbered(graph, greedy::grow(graph, elements, Rule::Printed, true)),
        BlockVariant::Best => search(graph, elements),
    }
}

fn search(graph: &CanonicalGraph, elements: usize) -> Blocks {
    let partition = Partition::new(graph, elements);
    let cuts = elements.saturating_mul(graph.node_count() + graph.edges().len()) <= CUT_STEPS;
    let mut orders: Vec<Vec<NodeId>> = Vec::new();
    let mut found: Vec<(u64, Vec<Vec<NodeId>>)> = Vec::new();
    for relaxed in [true, false] {
        for choice in
            [Choice::Breadth, Choice::Depth, Choice::Level, Choice::Largest, Choice::Smallest, Choice::Longest]
        {
            let blocks = Growth::new(&partition, relaxed, choice).grow();
            if !cuts {
                found.push((partition.cost(&blocks), blocks));
                continue;
            }
            let order: Vec<NodeId> = blocks.into_iter().flatten().collect();
            if !orders.contains(&order) {
                found.push(Line::new(&partition, &order).cut(elements));
                orders.push(order);
            }
        }
    }
    // The costs are estimates, which rounding may distort.
    found.sort_by_key(|&(cost, _)| cost);
    let searched = found.into_iter().take(SCHEDULED).map(|(_, lists)| lists);
    let rules = [Rule::Printed, Rule::Published].into_iter().flat_map(|rule| [(rule, false), (rule, true)]);
    let greedy = rules.map(|(rule, relaxed)| greedy::grow(graph, elements, rule, relaxed));
    let schedules = searched.chain(greedy).map(|lists| StreamingSchedule::new(graph, Blocks::numbered(graph, lists)));
    let best = schedules.min_by_key(StreamingSchedule::makespan);
    best.map_or_else(|| Blocks::numbered(graph, Vec::new()), StreamingSchedule::into_blocks)
}

/// Rule that chooses the next task among those that stream from nothing in the block. Except for `Breadth`, they come
/// after all tasks that may stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// The lowest level, even before tasks of higher levels that may stream.
    Breadth,
    /// The lowest level; of the tasks that may stream, the most work on a path from the task.
    Depth,
    /// The lowest level.
    Level,
    /// The most work, as in algorithm 2.
    Largest,
    /// The least work.
    Smallest,
    /// The most work on a path from the task.
    Longest,
}

struct Partition<'a> {
    graph: &'a CanonicalGraph,
    elements: usize,
    work: Vec<u64>,
    level: Vec<u64>,
    paths: Vec<u64>,
}

impl<'a> Partition<'a> {
    fn new(graph: &'a CanonicalGraph, elements: usize) -> Self {
        let mut level = vec![0; graph.node_count()];
        for &node in graph.topological_order() {
            level[node.index()] = graph.predecessors(node).map(|before| level[before.index()] + 1).max().unwrap_or(0);
        }
        let work = graph.nodes().iter().map(|node| node.work()).collect();
        Partition { graph, elements, work, level, paths: path_lengths(graph) }
    }

    /// Estimates the time of blocks: the most work of each, plus its levels.
    fn cost(&self, blocks: &[Vec<NodeId>]) -> u64 {
        let cost = |block: &Vec<NodeId>| {
            let mut span = Span::default();
            block.iter().for_each(|task| span.add(self.work[task.index()], self.level[task.index()]));
            span.cost()
        };
        blocks.iter().map(cost).sum()
    }
}

/// The most work and the levels of some tasks, from which their time in one block is estimated.
#[derive(Default)]
struct Span {
    work: u64,
    levels: Option<(u64, u64)>,
}

impl Span {
    fn add(&mut self, work: u64, level: u64) {
        self.work = self.work.max(work);
        self.levels = Some(self.levels.map_or((level, level), |(low, high)| (low.min(level), high.max(level))));
    }

    fn cost(&self) -> u64 {
        self.work + self.levels.map_or(0, |(low, high)| high - low + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::canonical;
    use crate::streaming::Node;

    fn blocks(graph: &CanonicalGraph, elements: usize, variant: BlockVariant) -> Vec<Vec<u32>> {
        let blocks = spatial_blocks(graph, elements, variant);
        blocks.lists().iter().map(|list| list.iter().map(|node| node.0).collect()).collect()
    }

    /// The second `8 → 8` produces as much as its source, and not less.
    #[test]
    fn only_a_task_that_produces_less_joins_its_source() {
        let nodes = [Node::task("a", 8, 8), Node::task("b", 8, 8), Node::task("c", 8, 4), Node::task("d", 4, 16)];
        let chain = canonical(&nodes, &[(0, 1), (1, 2), (2, 3)]);
        assert_eq!(blocks(&chain, 4, BlockVariant::Lts), [vec![0], vec![1, 2], vec![3]]);
        assert_eq!(blocks(&chain, 4, BlockVariant::Rlx), [vec![0, 1, 2, 3]]);
        assert_eq!(blocks(&chain, 1, BlockVariant::Rlx).len(), 4);
    }

    /// Candidates are taken in three classes: less than their sources, sources, then the least volume.
    #[test]
    fn sources_come_before_the_least_volume() {
        let nodes = [("a", 8, 8), ("b", 8, 16), ("c", 8, 4), ("d", 3, 3), ("e", 8, 32)];
        let nodes = nodes.map(|(name, input, output)| Node::task(name, input, output));
        let graph = canonical(&nodes, &[(0, 1), (0, 2), (0, 4)]);
        assert_eq!(blocks(&graph, 5, BlockVariant::Lts), [vec![0, 2, 3], vec![1, 4]]);
        assert_eq!(blocks(&graph, 5, BlockVariant::Rlx), [vec![0, 2, 3, 1, 4]]);
    }

    /// Two large and two small tasks on two elements: the large tasks share a block, in any order.
    #[test]
    fn tasks_of_like_work_share_a_block() {
        let nodes = [("a", 100), ("b", 10), ("c", 100), ("d", 10)].map(|(name, work)| Node::task(name, work, work));
        let loose = canonical(&nodes, &[]);
        let schedule = StreamingSchedule::new(&loose, spatial_blocks(&loose, 2, BlockVariant::Best));
        assert_eq!(schedule.makespan(), 110);
    }

    #[test]
    fn what_reads_memory_comes_after_what_fills_it() {
        let nodes =
            [Node::task("x", 8, 8), Node::task("sum", 8, 1), Node::buffer("mean", 1, 8), Node::task("minus", 8, 8)];
        let normalised = canonical(&nodes, &[(0, 1), (1, 2), (2, 3), (0, 3)]);
        assert_eq!(blocks(&normalised, 8, BlockVariant::Best), [vec![0, 1], vec![3]]);
        assert_eq!(blocks(&canonical(&[], &[]), 8, BlockVariant::Lts), Vec::<Vec<u32>>::new());
    }
}
