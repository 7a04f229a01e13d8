//! Which tasks share a spatial block: the heuristics SB-LTS and SB-RLX (paper, section 5.2 and appendix A.2).
//!
//! A block lasts about as long as its largest task streams, so tasks of like work belong together, and a task that works longer
//! than what it streams from holds that back. Blocks are grown task by task as in the paper's algorithm 1, with what it leaves
//! open (which source comes next) decided in several ways. Of each order that this gives, the cut into blocks is then optimal by
//! dynamic programming, and the best of all is taken.

mod growth;
mod line;

use super::{Blocks, CanonicalGraph, NodeId, StreamingSchedule, path_lengths};
use growth::Growth;
use line::Line;

/// What a block may take in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockVariant {
    /// SB-LTS: a task joins what it streams from only if its work is no more than that of the sources, in this block, of what it
    /// streams from. No source is held back.
    Lts,
    /// SB-RLX: any task may join.
    Rlx,
}

/// Steps that the search for the best cut of an order may take; above, blocks stay as they were grown.
const CUT_STEPS: usize = 1 << 22;
/// How many of the cheapest partitions are scheduled, to take the shortest.
const SCHEDULED: usize = 3;

/// Partitions the tasks into blocks of at most `elements` tasks. What reads memory comes in a later block than what fills it.
///
/// `O((nodes + edges) log nodes)`, and `O(elements × (nodes + edges))` more where that is at most four million steps.
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
    // The costs are estimates, which rounding may mislead.
    found.sort_by_key(|&(cost, _)| cost);
    let schedules = found.into_iter().take(SCHEDULED).map(|(_, lists)| {
        let blocks = Blocks::numbered(graph, lists);
        StreamingSchedule::new(graph, blocks)
    });
    let best = schedules.min_by_key(StreamingSchedule::makespan);
    best.map_or_else(|| Blocks::numbered(graph, Vec::new()), StreamingSchedule::into_blocks)
}

/// Which of the tasks that stream from nothing in the block comes next; but for `Breadth`, after all that may stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// The lowest level, also before tasks of higher levels that may stream.
    Breadth,
    /// The lowest level; of those that may stream, the most work on a path from it.
    Depth,
    /// The lowest level, as in algorithm 1.
    Level,
    /// The most work, as in algorithm 2.
    Largest,
    /// The least work.
    Smallest,
    /// The most work on a path from it.
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

    /// About how long blocks take: the most work of each, and its levels.
    fn cost(&self, blocks: &[Vec<NodeId>]) -> u64 {
        let cost = |block: &Vec<NodeId>| {
            let mut span = Span::default();
            block.iter().for_each(|task| span.add(self.work[task.index()], self.level[task.index()]));
            span.cost()
        };
        blocks.iter().map(cost).sum()
    }
}

/// The most work and the levels of some tasks: about how long they take in one block.
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

    /// Two large and two small tasks on two elements: the large ones together, whatever their order.
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
