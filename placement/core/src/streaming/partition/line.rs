//! Cheapest cut of an order of tasks into blocks, by dynamic programming over its positions.

use super::{Partition, Span};
use crate::streaming::NodeId;

/// All tasks in an order of their dependencies, to be cut into blocks.
pub(super) struct Line<'a> {
    partition: &'a Partition<'a>,
    order: &'a [NodeId],
    /// For each position, the first position at which its block may begin: after all tasks that fill memory which its
    /// task reads.
    barrier: Vec<usize>,
}

impl<'a> Line<'a> {
    pub(super) fn new(partition: &'a Partition<'a>, order: &'a [NodeId]) -> Self {
        let graph = partition.graph;
        // Position after the task; for memory, after all tasks that fill it.
        let mut behind = vec![0; graph.node_count()];
        order.iter().enumerate().for_each(|(place, task)| behind[task.index()] = place + 1);
        for &node in graph.topological_order().iter().filter(|&&node| graph.node(node).is_memory()) {
            behind[node.index()] = graph.predecessors(node).map(|before| behind[before.index()]).max().unwrap_or(0);
        }
        let barrier = |&task: &NodeId| {
            let memory = graph.predecessors(task).filter(|&before| graph.node(before).is_memory());
            memory.map(|before| behind[before.index()]).max().unwrap_or(0)
        };
        let barrier = order.iter().map(barrier).collect();
        Line { partition, order, barrier }
    }

    /// Returns the cheapest cut into blocks, with its cost.
    pub(super) fn cut(&self, elements: usize) -> (u64, Vec<Vec<NodeId>>) {
        let count = self.order.len();
        let (mut cost, mut begin) = (vec![u64::MAX; count + 1], vec![0; count + 1]);
        cost[0] = 0;
        for first in 0..count {
            let mut span = Span::default();
            for place in first..count.min(first + elements) {
                let task = self.order[place].index();
                let work = self.partition.work[task];
                if self.barrier[place] > first {
                    break;
                }
                span.add(work, self.partition.level[task]);
                let total = cost[first] + span.cost();
                if total < cost[place + 1] {
                    (cost[place + 1], begin[place + 1]) = (total, first);
                }
            }
        }
        let (mut blocks, mut end) = (Vec::new(), count);
        while end > 0 {
            blocks.push(self.order[begin[end]..end].to_vec());
            end = begin[end];
        }
        blocks.reverse();
        (cost[count], blocks)
    }
}
