//! Schedule without streaming, as a reference: a list schedule by the critical path, with insertion (section 7).

use super::{CanonicalGraph, NodeId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Start and processing element of each task, if every task waits for all its inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSchedule {
    /// Start of each node; for memory, the time when it is full.
    pub start: Vec<u64>,
    /// End of each node.
    pub end: Vec<u64>,
    /// Processing element of each node; 0 for memory.
    pub element: Vec<u32>,
    /// End of the last task.
    pub makespan: u64,
}

impl ListSchedule {
    /// Schedules ready tasks by the longest path of work to an exit; on a tie, the task with more successors goes first
    /// (CP/MISF, Kasahara and Narita 1984). Each goes into the earliest gap of the `elements` processing elements that
    /// is long enough.
    ///
    /// `O(nodes log nodes + edges)`, plus the gaps that are examined.
    pub fn new(graph: &CanonicalGraph, elements: usize) -> Self {
        let count = graph.node_count();
        let mut schedule =
            ListSchedule { start: vec![0; count], end: vec![0; count], element: vec![0; count], makespan: 0 };
        let paths = path_lengths(graph);
        let mut gaps = Gaps::new(elements.clamp(1, count.max(1)));
        let mut waiting: Vec<usize> = graph.node_ids().map(|node| graph.incoming(node).len()).collect();
        let key = |node: NodeId| (paths[node.index()], graph.outgoing(node).len(), Reverse(node));
        let mut ready: BinaryHeap<_> = graph.node_ids().filter(|node| waiting[node.index()] == 0).map(key).collect();
        while let Some((_, _, Reverse(node))) = ready.pop() {
            let data = graph.predecessors(node).map(|before| schedule.end[before.index()]).max().unwrap_or(0);
            let work = graph.node(node).work();
            let (start, element) = if work == 0 { (data, 0) } else { gaps.take(data, work) };
            schedule.start[node.index()] = start;
            schedule.end[node.index()] = start + work;
            schedule.element[node.index()] = element;
            schedule.makespan = schedule.makespan.max(start + work);
            for next in graph.successors(node) {
                waiting[next.index()] -= 1;
                if waiting[next.index()] == 0 {
                    ready.push(key(next));
                }
            }
        }
        schedule
    }
}

/// Returns the most work on a path from each node to an exit, including the node's own.
pub fn path_lengths(graph: &CanonicalGraph) -> Vec<u64> {
    let mut lengths = vec![0; graph.node_count()];
    for &node in graph.topological_order().iter().rev() {
        let after = graph.successors(node).map(|after| lengths[after.index()]).max().unwrap_or(0);
        lengths[node.index()] = after + graph.node(node).work();
    }
    lengths
}

/// Free time of all processing elements.
struct Gaps {
    /// Closed gaps as (end, start, element), by their ends.
    closed: std::collections::BTreeSet<(u64, u64, u32)>,
    /// Start of the endless free time of each element.
    open: std::collections::BTreeSet<(u64, u32)>,
}

impl Gaps {
    fn new(elements: usize) -> Self {
        Gaps { closed: Default::default(), open: (0..elements as u32).map(|element| (0, element)).collect() }
    }

    /// Occupies `work` at the earliest time from `data` on; returns the start and the element.
    fn take(&mut self, data: u64, work: u64) -> (u64, u32) {
        let fits = |start: u64, end: u64| (end >= data.max(start).saturating_add(work)).then_some(data.max(start));
        let later = self.closed.range((data + 1, 0, 0)..);
        let found = later.filter_map(|&(end, start, element)| Some((fits(start, end)?, (end, start, element)))).min();
        // All elements that are free at `data` give this start. Of these, the one that was busy last leaves the
        // smallest gap.
        let free = self.open.range(..(data, u32::MAX)).next_back().or(self.open.first()).copied();
        let (since, element) = free.unwrap_or((0, 0));
        match found {
            Some((start, gap @ (end, begin, element))) if start <= since.max(data) => {
                self.closed.remove(&gap);
                self.close(begin, start, element);
                self.close(start + work, end, element);
                (start, element)
            }
            _ => {
                let start = since.max(data);
                self.open.remove(&(since, element));
                self.close(since, start, element);
                self.open.insert((start + work, element));
                (start, element)
            }
        }
    }

    fn close(&mut self, start: u64, end: u64, element: u32) {
        if start < end {
            self.closed.insert((end, start, element));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streaming::{CanonicalGraphBuilder, Node};

    fn schedule(works: &[u64], edges: &[(u32, u32)], elements: usize) -> ListSchedule {
        let mut builder = CanonicalGraphBuilder::new();
        for (number, &work) in works.iter().enumerate() {
            builder.node(Node::task(number.to_string(), work, work));
        }
        for &(from, to) in edges {
            let memory = builder.node(Node::buffer(format!("{from}-{to}"), works[from as usize], works[to as usize]));
            builder.edge(NodeId(from), memory);
            builder.edge(memory, NodeId(to));
        }
        ListSchedule::new(&builder.build().unwrap(), elements)
    }

    #[test]
    fn the_longest_path_goes_first_and_gaps_are_filled() {
        // The critical path is 0 → 1. Task 3 waits for 2 and leaves a gap on the second element, into which 4 fits.
        let schedule = schedule(&[4, 4, 1, 5, 2], &[(0, 1), (0, 3)], 2);
        assert_eq!(schedule.start[..5], [0, 4, 2, 4, 0]);
        assert_eq!(schedule.makespan, 9);
    }

    #[test]
    fn one_element_takes_the_sum_and_none_overlap() {
        let chained = schedule(&[3, 2, 7], &[(0, 1)], 1);
        assert_eq!(chained.makespan, 12);
        let wide = schedule(&[3; 10], &[], 4);
        assert_eq!(wide.makespan, 9);
        for a in 0..10 {
            for b in 0..a {
                assert!(
                    wide.element[a] != wide.element[b] || wide.end[a] <= wide.start[b] || wide.end[b] <= wide.start[a]
                );
            }
        }
    }
}
