//! Algorithm 1: blocks that grow by one candidate after the other (paper, section 5.2).
//!
//! A *source* of a block is a task that depends on no task of the block, not even through memory. Of the tasks whose
//! predecessors are all in blocks, the algorithm takes the first of these:
//!
//! 1. a task that produces less than each source of the block on which it depends,
//! 2. a task that is a source of the block,
//! 3. the task that produces least (SB-RLX only).
//!
//! Ties go to the lowest level, then to the node that was added first. If no candidate remains or the block is full,
//! the next block begins. The comparison is strict: under SB-LTS an element-wise task never joins the task that it
//! reads from, if that is a source. Memory needs no processing element and passes dependencies on at once.
//!
//! The paper's published code has another rule. It compares the work `max(I, O)` with the first source only, and equal
//! work may join. Sources come first, in the order of the graph, and then the most work.

use crate::streaming::{CanonicalGraph, NodeId, levels};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Rule that orders the candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Algorithm 1 as printed.
    Printed,
    /// The paper's published code.
    Published,
}

/// Grows blocks of at most `elements` tasks in `O((nodes + edges) log nodes)`; `relaxed` selects SB-RLX.
pub(super) fn grow(graph: &CanonicalGraph, elements: usize, rule: Rule, relaxed: bool) -> Vec<Vec<NodeId>> {
    let mut greedy = Greedy::new(graph, rule);
    graph.node_ids().filter(|&node| graph.incoming(node).is_empty()).for_each(|node| greedy.offer(node));
    let mut blocks = vec![Vec::new()];
    while let Some(block) = blocks.last_mut() {
        let full = block.len() >= elements;
        match if full { None } else { greedy.next(relaxed) } {
            Some(task) => {
                block.push(task);
                greedy.take(task, block.len());
            }
            None if greedy.is_done() => break,
            None => {
                greedy.begin_block(!full);
                blocks.push(Vec::new());
            }
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

/// Ready tasks, the next task first.
type Queue = BinaryHeap<Reverse<(u64, u64, NodeId)>>;

struct Greedy<'a> {
    graph: &'a CanonicalGraph,
    rule: Rule,
    level: Vec<u64>,
    /// Number of predecessors that are in no block yet.
    waiting: Vec<usize>,
    /// For each node of the present block, the position of the source that limits it, and the source's volume.
    limit: Vec<Option<(usize, u64)>>,
    /// The nodes of the present block.
    present: Vec<NodeId>,
    sources: Queue,
    fitting: Queue,
    exceeding: Queue,
}

impl<'a> Greedy<'a> {
    fn new(graph: &'a CanonicalGraph, rule: Rule) -> Self {
        Greedy {
            graph,
            rule,
            level: levels(graph),
            waiting: graph.node_ids().map(|node| graph.incoming(node).len()).collect(),
            limit: vec![None; graph.node_count()],
            present: Vec::new(),
            sources: Queue::new(),
            fitting: Queue::new(),
            exceeding: Queue::new(),
        }
    }

    fn is_done(&self) -> bool {
        self.fitting.is_empty() && self.sources.is_empty() && self.exceeding.is_empty()
    }

    fn next(&mut self, relaxed: bool) -> Option<NodeId> {
        let [first, second] = match self.rule {
            Rule::Printed => [&mut self.fitting, &mut self.sources],
            Rule::Published => [&mut self.sources, &mut self.fitting],
        };
        let next = first.pop().or_else(|| second.pop());
        let next = next.or_else(|| if relaxed { self.exceeding.pop() } else { None });
        next.map(|Reverse((.., task))| task)
    }

    /// Makes all ready tasks sources. If the block before was not full, the code begins with the most work.
    fn begin_block(&mut self, early: bool) {
        self.present.drain(..).for_each(|node| self.limit[node.index()] = None);
        let mut tasks: Vec<NodeId> =
            self.fitting.drain().chain(self.exceeding.drain()).map(|entry| entry.0.2).collect();
        if early && self.rule == Rule::Published {
            tasks.sort_by_key(|&task| (Reverse(self.volume(task)), task));
            if let Some(&first) = tasks.first() {
                self.sources.push(Reverse((0, 0, first)));
                tasks.remove(0);
            }
        }
        tasks.into_iter().for_each(|task| self.offer(task));
    }

    /// Puts a task into the present block at a position, from 1.
    fn take(&mut self, task: NodeId, position: usize) {
        let own = self.limit_of(task).or(Some((position, self.volume(task))));
        self.settle(task, own);
    }

    /// Notes the limit of a node of the present block, and offers the nodes that are ready now.
    fn settle(&mut self, node: NodeId, limit: Option<(usize, u64)>) {
        let graph = self.graph;
        let mut done = vec![(node, limit)];
        while let Some((node, limit)) = done.pop() {
            self.limit[node.index()] = limit;
            self.present.push(node);
            for next in graph.successors(node) {
                self.waiting[next.index()] -= 1;
                match self.waiting[next.index()] {
                    0 if graph.node(next).is_memory() => done.push((next, self.limit_of(next))),
                    0 => self.offer(next),
                    _ => {}
                }
            }
        }
    }

    /// Puts a ready node into the queue of its kind.
    fn offer(&mut self, node: NodeId) {
        if self.graph.node(node).is_memory() {
            return self.settle(node, None);
        }
        let (volume, level, id) = (self.volume(node), self.level[node.index()], u64::from(node.0));
        match (self.limit_of(node), self.rule) {
            (None, Rule::Printed) => self.sources.push(Reverse((level, id, node))),
            (None, Rule::Published) => self.sources.push(Reverse((1, id, node))),
            (Some((_, limit)), Rule::Printed) if volume < limit => self.fitting.push(Reverse((level, id, node))),
            (Some((_, limit)), Rule::Published) if volume <= limit => {
                self.fitting.push(Reverse((u64::MAX - volume, u64::MAX - id, node)));
            }
            (Some(_), Rule::Printed) => self.exceeding.push(Reverse((volume, level, node))),
            (Some(_), Rule::Published) => self.exceeding.push(Reverse((volume, id, node))),
        }
    }

    /// Returns the volume that is compared with that of the sources.
    fn volume(&self, node: NodeId) -> u64 {
        match self.rule {
            Rule::Printed => self.graph.node(node).output(),
            Rule::Published => self.graph.node(node).work(),
        }
    }

    /// Returns the source that limits a ready node; `None` if the node depends on no task of the block.
    fn limit_of(&self, node: NodeId) -> Option<(usize, u64)> {
        let limits = self.graph.predecessors(node).filter_map(|before| self.limit[before.index()]);
        match self.rule {
            Rule::Printed => limits.min_by_key(|&(_, volume)| volume),
            Rule::Published => limits.min_by_key(|&(position, _)| position),
        }
    }
}
