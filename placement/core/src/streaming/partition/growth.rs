//! Blocks that grow task by task, in the spirit of Algorithm 1 but by work: `max(I, O)`, and equal work may join.

use super::{Choice, Partition};
use crate::streaming::NodeId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Blocks during growth.
pub(super) struct Growth<'a> {
    partition: &'a Partition<'a>,
    /// Whether a task may join that has more work than the tasks that it streams from.
    relaxed: bool,
    choice: Choice,
    waiting: Vec<usize>,
    /// Block of each node that has one; for memory, the block of the last task that fills it.
    block: Vec<Option<usize>>,
    /// The most work of a task that streams from each task of the block.
    limit: Vec<u64>,
    blocks: Vec<Vec<NodeId>>,
    /// Ready tasks that stream from the block and fit; the next one first.
    fitting: BinaryHeap<Reverse<(u64, NodeId)>>,
    /// Ready tasks that stream from nothing in the block; the next one first.
    sources: BinaryHeap<Reverse<(u64, u64, NodeId)>>,
    /// Ready tasks that would delay the tasks that they stream from, by work and level.
    exceeding: BinaryHeap<Reverse<(u64, u64, NodeId)>>,
    /// Ready tasks that read memory filled by the block.
    later: Vec<NodeId>,
}

impl<'a> Growth<'a> {
    pub(super) fn new(partition: &'a Partition<'a>, relaxed: bool, choice: Choice) -> Self {
        let graph = partition.graph;
        let count = graph.node_count();
        Growth {
            partition,
            relaxed,
            choice,
            waiting: graph.node_ids().map(|node| graph.incoming(node).len()).collect(),
            block: vec![None; count],
            limit: vec![0; count],
            blocks: vec![Vec::new()],
            fitting: BinaryHeap::new(),
            sources: BinaryHeap::new(),
            exceeding: BinaryHeap::new(),
            later: Vec::new(),
        }
    }

    pub(super) fn grow(mut self) -> Vec<Vec<NodeId>> {
        let graph = self.partition.graph;
        for node in graph.node_ids().filter(|&node| graph.incoming(node).is_empty()) {
            if graph.node(node).is_memory() { self.release(node) } else { self.add_source(node) }
        }
        loop {
            let full = self.blocks.last().is_some_and(|block| block.len() >= self.partition.elements);
            match if full { None } else { self.next() } {
                Some(task) => self.take(task),
                None if self.is_done() => break,
                None => self.begin_block(),
            }
        }
        self.blocks.retain(|block| !block.is_empty());
        self.blocks
    }

    fn is_done(&self) -> bool {
        self.fitting.is_empty() && self.sources.is_empty() && self.exceeding.is_empty() && self.later.is_empty()
    }

    fn next(&mut self) -> Option<NodeId> {
        let source = self.sources.peek().filter(|_| self.choice == Choice::Breadth).map(|&Reverse((level, ..))| level);
        if self.fitting.peek().is_some_and(|&Reverse((level, _))| source.is_none_or(|source| level < source)) {
            return self.fitting.pop().map(|Reverse((_, task))| task);
        }
        let exceeding = self.relaxed.then_some(&mut self.exceeding);
        let next = self.sources.pop().or_else(|| exceeding.and_then(BinaryHeap::pop));
        next.map(|Reverse((.., task))| task)
    }

    fn begin_block(&mut self) {
        self.blocks.push(Vec::new());
        let mut tasks = std::mem::take(&mut self.later);
        tasks.extend(self.fitting.drain().map(|Reverse((_, task))| task));
        tasks.extend(self.exceeding.drain().map(|Reverse((.., task))| task));
        for task in tasks {
            self.add_source(task);
        }
    }

    fn add_source(&mut self, task: NodeId) {
        let Partition { work, level, paths, .. } = self.partition;
        let (work, level) = (work[task.index()], level[task.index()]);
        self.sources.push(Reverse(match self.choice {
            Choice::Breadth | Choice::Depth | Choice::Level => (level, work, task),
            Choice::Largest => (u64::MAX - work, level, task),
            Choice::Smallest => (work, level, task),
            Choice::Longest => (u64::MAX - paths[task.index()], level, task),
        }));
    }

    /// Puts a task into the current block, and finds the tasks that are now ready.
    fn take(&mut self, task: NodeId) {
        let limit = self.streams_from(task).unwrap_or(0);
        self.limit[task.index()] = limit.max(self.partition.work[task.index()]);
        self.block[task.index()] = Some(self.blocks.len() - 1);
        if let Some(block) = self.blocks.last_mut() {
            block.push(task);
        }
        self.release(task);
    }

    /// Finds the tasks that are ready once `node` is in a block; memory passes this on at once.
    fn release(&mut self, node: NodeId) {
        let graph = self.partition.graph;
        let mut done = vec![node];
        while let Some(node) = done.pop() {
            for next in graph.successors(node) {
                self.waiting[next.index()] -= 1;
                if self.waiting[next.index()] > 0 {
                    continue;
                }
                if graph.node(next).is_memory() {
                    let filled = graph.predecessors(next).filter_map(|before| self.block[before.index()]).max();
                    self.block[next.index()] = filled;
                    done.push(next);
                } else {
                    self.sort_in(next);
                }
            }
        }
    }

    /// Puts a ready task into the list of its kind.
    fn sort_in(&mut self, task: NodeId) {
        let graph = self.partition.graph;
        let present = Some(self.blocks.len() - 1);
        let own = |before: NodeId| graph.node(before).is_memory() && self.block[before.index()] == present;
        if graph.predecessors(task).any(own) {
            return self.later.push(task);
        }
        let (work, level) = (self.partition.work[task.index()], self.partition.level[task.index()]);
        let first = match self.choice {
            Choice::Depth | Choice::Longest => u64::MAX - self.partition.paths[task.index()],
            _ => level,
        };
        match self.streams_from(task) {
            None => self.add_source(task),
            Some(limit) if work <= limit => self.fitting.push(Reverse((first, task))),
            Some(_) => self.exceeding.push(Reverse((work, level, task))),
        }
    }

    /// Returns the work limit of the tasks in the current block that `task` streams from; `None` if it streams from
    /// none.
    fn streams_from(&self, task: NodeId) -> Option<u64> {
        let graph = self.partition.graph;
        let present = Some(self.blocks.len() - 1);
        let streams = |before: &NodeId| !graph.node(*before).is_memory() && self.block[before.index()] == present;
        graph.predecessors(task).filter(streams).map(|before| self.limit[before.index()]).max()
    }
}
