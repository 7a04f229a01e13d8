//! Partition of tasks into spatial blocks: the heuristics SB-LTS and SB-RLX (paper, section 5.2 and appendix A.2).
//!
//! A block lasts about as long as its largest task streams, so tasks with similar work belong together. A task with
//! more work than the tasks that it streams from delays them. Blocks are grown task by task, as in the paper's
//! Algorithm 1. The algorithm leaves open which source comes next, so several rules are tried. Each rule gives an order
//! of tasks, which dynamic programming cuts into blocks optimally. The best of all results is taken.

mod growth;
mod line;

use super::{Blocks, CanonicalGraph, NodeId, StreamingSchedule, path_lengths};
use growth::Growth;
use line::Line;

/// Rule for the tasks that a block may take in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockVariant {
    /// SB-LTS: no source is delayed. A task joins the tasks that it streams from only if its work is at most the work
    /// of their sources in this block.
    Lts,
    /// SB-RLX: any task may join.
    Rlx,
}

/// Most steps of the search for the best cut of an order. Beyond them, blocks stay as they were grown.
const CUT_STEPS: usize = 1 << 22;
/// Number of the cheapest partitions that are scheduled to find the shortest.
const SCHEDULED: usize = 3;

/// Partitions the tasks into blocks of at most `elements` tasks. Readers of memory are in a later block than its
/// writers.
///
/// `O((nodes + edges) log nodes)`, plus `O(elements × (nodes + edges))` if that is at most four million steps.
pub fn spatial_blocks(graph: &CanonicalGraph, elements: usize, variant: BlockVariant) -> Blocks {
    let partition = Partition::new(graph, elements.clamp(1, graph.node_count().max(1)));
    let allowed: &[BlockVariant] = match variant {
        BlockVariant::Lts => &[BlockVariant::Lts],
        BlockVariant::Rlx => &[BlockVariant::Rlx, BlockVariant::Lts],
    };
    let cuts = partition.elements.saturating_mul(graph.node_count() + graph.edges().len()) <= CUT_STEPS;
    let mut orders: Vec<Vec<NodeId>> = Vec::new();
    let mut found: Vec<(u64, Vec<Vec<NodeId>>)> = Vec::new();
    for &grown in allowed {
        for choice in
            [Choice::Breadth, Choice::Depth, Choice::Level, Choice::Largest, Choice::Smallest, Choice::Longest]
        {
            let blocks = Growth::new(&partition, grown, choice).grow();
            if !cuts {
                found.push((partition.cost(&blocks), blocks));
                continue;
            }
            let order: Vec<NodeId> = blocks.into_iter().flatten().collect();
            if !orders.contains(&order) {
                found.push(Line::new(&partition, &order).cut(partition.elements, variant));
                orders.push(order);
            }
        }
    }
    // The costs are estimates, which rounding may distort.
    found.sort_by_key(|&(cost, _)| cost);
    let schedules = found.into_iter().take(SCHEDULED).map(|(_, lists)| {
        let blocks = Blocks::numbered(graph, lists);
        StreamingSchedule::new(graph, blocks)
    });
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
    /// The lowest level, as in algorithm 1.
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
    use crate::streaming::{Node, StreamingSchedule};

    fn blocks(graph: &CanonicalGraph, elements: usize, variant: BlockVariant) -> Vec<Vec<u32>> {
        let blocks = spatial_blocks(graph, elements, variant);
        blocks.lists().iter().map(|list| list.iter().map(|node| node.0).collect()).collect()
    }

    #[test]
    fn an_upsampler_joins_only_under_the_relaxed_rule() {
        let nodes = [Node::task("a", 8, 8), Node::task("b", 8, 16), Node::task("c", 16, 16)];
        let chain = canonical(&nodes, &[(0, 1), (1, 2)]);
        assert_eq!(blocks(&chain, 3, BlockVariant::Lts), [vec![0], vec![1, 2]]);
        assert_eq!(blocks(&chain, 3, BlockVariant::Rlx), [vec![0, 1, 2]]);
        assert_eq!(blocks(&chain, 1, BlockVariant::Rlx).len(), 3);
    }

    /// Two large and two small tasks on two elements: the large tasks share a block, in any order.
    #[test]
    fn tasks_of_like_work_share_a_block() {
        let nodes = [("a", 100), ("b", 10), ("c", 100), ("d", 10)].map(|(name, work)| Node::task(name, work, work));
        let loose = canonical(&nodes, &[]);
        let schedule = StreamingSchedule::new(&loose, spatial_blocks(&loose, 2, BlockVariant::Lts));
        assert_eq!(schedule.makespan(), 110);
    }

    #[test]
    fn what_reads_memory_comes_after_what_fills_it() {
        let nodes =
            [Node::task("x", 8, 8), Node::task("sum", 8, 1), Node::buffer("mean", 1, 8), Node::task("minus", 8, 8)];
        let normalised = canonical(&nodes, &[(0, 1), (1, 2), (2, 3), (0, 3)]);
        assert_eq!(blocks(&normalised, 8, BlockVariant::Rlx), [vec![0, 1], vec![3]]);
        assert_eq!(blocks(&canonical(&[], &[]), 8, BlockVariant::Lts), Vec::<Vec<u32>>::new());
    }
}
