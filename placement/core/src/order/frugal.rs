//! Least memory first: run the task that frees most memory and needs least, so that few data are live at a time.
//!
//! The order is a walk through the graph. Of all tasks whose predecessors are done, the next is the one after which the
//! fewest bytes are live. That counts the bytes of its outputs minus the bytes of inputs without other remaining
//! readers. On a tie, the task that became ready last goes first, so that the walk goes deep before it goes wide. The
//! method is greedy, because the least peak is NP-complete even for the registers of straight-line code (Sethi 1975).
//! All devices are treated as one.

use super::{Order, PlacedGraph, Planned, Rule};
use crate::graph::{DatumId, TaskGraph, TaskId};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Order of least memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Frugal;

impl Order for Frugal {
    fn name(&self) -> &'static str {
        "frugal"
    }

    fn uses_sizes(&self) -> bool {
        true
    }

    fn rule(&self, placed: &PlacedGraph<'_>) -> Rule {
        Planned::new(&Frugal::walk(placed.problem().graph())).rule(placed)
    }
}

impl Frugal {
    /// Returns all tasks in the walk's order. `O((V + E) log V)`.
    pub(crate) fn walk(graph: &TaskGraph) -> Vec<TaskId> {
        Walk::through(graph)
    }
}

/// Partial walk.
struct Walk<'g> {
    graph: &'g TaskGraph,
    /// Number of predecessors of each task that are not done.
    waits: Vec<usize>,
    /// Number of consumers of each datum that are not done.
    readers: Vec<usize>,
    /// Growth of the live bytes when each task runs.
    growth: Vec<i128>,
    /// Time when each task became ready.
    since: Vec<Option<usize>>,
    /// Possible next tasks, best first.
    ready: BTreeSet<(i128, Reverse<usize>, TaskId)>,
    order: Vec<TaskId>,
}

impl<'g> Walk<'g> {
    fn through(graph: &'g TaskGraph) -> Vec<TaskId> {
        let bytes = |datum: &DatumId| i128::from(graph.bytes(*datum));
        let last_here = |datum: &&DatumId| graph.consumers(**datum).len() == 1;
        let growth = |task| {
            let freed: i128 = graph.inputs(task).iter().filter(last_here).map(bytes).sum();
            graph.outputs(task).iter().map(bytes).sum::<i128>() - freed
        };
        let mut walk = Walk {
            graph,
            waits: graph.task_ids().map(|task| graph.predecessors(task).len()).collect(),
            readers: graph.datum_ids().map(|datum| graph.consumers(datum).len()).collect(),
            growth: graph.task_ids().map(growth).collect(),
            since: vec![None; graph.task_count()],
            ready: BTreeSet::new(),
            order: Vec::with_capacity(graph.task_count()),
        };
        graph.task_ids().filter(|&task| graph.predecessors(task).is_empty()).for_each(|task| walk.make_ready(task));
        while let Some((_, _, task)) = walk.ready.pop_first() {
            walk.run(task);
        }
        walk.order
    }

    fn make_ready(&mut self, task: TaskId) {
        let since = self.order.len();
        self.since[task.index()] = Some(since);
        self.ready.insert((self.growth[task.index()], Reverse(since), task));
    }

    fn run(&mut self, task: TaskId) {
        self.since[task.index()] = None;
        self.order.push(task);
        for &datum in self.graph.inputs(task) {
            self.readers[datum.index()] -= 1;
            if self.readers[datum.index()] == 1 {
                self.leave_to_the_last(datum);
            }
        }
        for &next in self.graph.successors(task) {
            self.waits[next.index()] -= 1;
            if self.waits[next.index()] == 0 {
                self.make_ready(next);
            }
        }
    }

    /// Updates the last remaining reader of a datum, which will free it.
    fn leave_to_the_last(&mut self, datum: DatumId) {
        let done = |task: TaskId| self.waits[task.index()] == 0 && self.since[task.index()].is_none();
        let Some(&last) = self.graph.consumers(datum).iter().find(|&&task| !done(task)) else { return };
        let growth = self.growth[last.index()];
        self.growth[last.index()] -= i128::from(self.graph.bytes(datum));
        if let Some(since) = self.since[last.index()] {
            self.ready.remove(&(growth, Reverse(since), last));
            self.ready.insert((self.growth[last.index()], Reverse(since), last));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Pct;
    use crate::platform::DeviceId;
    use crate::sample;
    use crate::simulate::simulate;

    fn order(edges: &[(u32, u32, u64)], times: &[f64], order: &dyn Order) -> Vec<u32> {
        let loaded = sample::problem(sample::graph(times, edges), &[1.0]);
        let problem = loaded.problem().unwrap();
        let device_of = vec![DeviceId(0); times.len()];
        let schedule = simulate(&problem, &device_of, order).unwrap();
        schedule.order.iter().map(|task| task.0).collect()
    }

    /// Two branches out of task 0. Each makes a large datum and then a small one from it.
    #[test]
    fn a_branch_is_done_before_the_next_begins() {
        let edges = [(0, 1, 1), (0, 2, 1), (1, 3, 90), (2, 4, 90), (3, 5, 1), (4, 5, 1)];
        let times = [1.0; 6];
        assert_eq!(order(&edges, &times, &Pct), [0, 1, 2, 3, 4, 5]);
        assert_eq!(order(&edges, &times, &Frugal), [0, 1, 3, 2, 4, 5]);
    }

    /// Task 2 is the last reader of task 0's datum once task 1 is done.
    #[test]
    fn the_last_reader_sets_a_datum_free() {
        let mut builder = sample::tasks(&[1.0; 5]);
        let shared = builder.datum(TaskId(0), 50);
        builder.consume(shared, TaskId(1));
        builder.consume(shared, TaskId(2));
        builder.edge(TaskId(0), TaskId(3), 10);
        builder.edge(TaskId(1), TaskId(4), 20);
        builder.edge(TaskId(2), TaskId(4), 45);
        let graph = builder.build().unwrap();
        assert_eq!(Walk::through(&graph), [0, 3, 1, 2, 4].map(TaskId));
    }
}
