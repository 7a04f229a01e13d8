//! Most memory of data in any order: the heaviest antichain of their live ranges.
//!
//! A datum is live from the start of its producer to the end of its last consumer; data without consumers stay. Datum
//! `a` is dead before `b` is live in every order, if each consumer of `a` precedes the producer of `b` in the graph.
//! Data that are live at the same moment are mutually unordered in this sense: an antichain. The heaviest antichain
//! bounds the peak of every order, summed over any number of devices (of copies on several devices, only the first
//! counts). An executor that reuses an input's memory for a result, or that streams, needs less.
//!
//! The order of data is reachability in a graph of tasks and data. Its edges lead from a datum to the first tasks that
//! come after all its consumers, and from tasks to their successors and outputs. So the antichain needs no closure. The
//! set after a task is a separate vertex, so a datum of one consumer needs one edge, regardless of the number of tasks
//! that follow. For several consumers, the first common tasks are found by a walk from each consumer: `O(V + E)` for
//! each edge of such a datum, and at most [`MOST_STEPS`] in total.

use super::antichain::heaviest_antichain;
use super::check::check_antichain;
use super::problem::FootprintError;
use crate::graph::{DatumId, GraphBuilder, Task, TaskGraph, TaskId};
use serde::Serialize;

/// Most steps to find the tasks after data with several consumers. Beyond them a datum is assumed to stay, which only
/// raises the bound.
const MOST_STEPS: u64 = 2_000_000_000;
/// Most edges from data with several consumers to the tasks after them. Beyond them, too, a datum is assumed to stay.
const MOST_EDGES: usize = 1 << 22;

/// Bounds of the bytes of live data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiveBytes {
    /// Upper bound of the live bytes in any order.
    pub any_order: u64,
    /// Lower bound of the peak in any order: a task's inputs and outputs are live together.
    pub each_order: u64,
    /// Data that could be live together, with `any_order` bytes.
    pub data: Vec<DatumId>,
}

/// Computes bounds of the bytes that are live at one time in any order.
///
/// # Errors
/// Returns an error if all data together are 2⁶² bytes or more, or if tasks and data are too many for ids. Also returns
/// an error if the checker rejects the antichain, which is a bug in this crate.
pub fn live_bytes(graph: &TaskGraph) -> Result<LiveBytes, FootprintError> {
    let ranges = live_ranges(graph)?;
    let tasks = graph.task_count();
    let bytes = graph.datum_ids().map(|datum| graph.bytes(datum));
    let nothing = || std::iter::repeat_n(0, tasks);
    let weights: Vec<u64> = nothing().chain(bytes).chain(nothing()).collect();
    let antichain = heaviest_antichain(&ranges, &weights).ok_or(FootprintError::Overflow { what: "bytes" })?;
    if let Some(violation) = check_antichain(&ranges, &weights, &antichain).into_iter().next() {
        return Err(FootprintError::Fault(violation));
    }
    let together = |task: TaskId| {
        let data = graph.inputs(task).iter().chain(graph.outputs(task));
        data.fold(0, |sum: u64, &datum| sum.saturating_add(graph.bytes(datum)))
    };
    Ok(LiveBytes {
        any_order: antichain.weight,
        each_order: graph.task_ids().map(together).max().unwrap_or(0),
        data: antichain.tasks.iter().map(|place| DatumId(place.0 - tasks as u32)).collect(),
    })
}

/// Builds a graph of tasks, then data, then the sets after each task. A path from one datum to another means that the
/// first is dead before the second is live.
fn live_ranges(graph: &TaskGraph) -> Result<TaskGraph, FootprintError> {
    let too_many = FootprintError::Overflow { what: "live ranges" };
    let mut builder = GraphBuilder::new();
    let (tasks, things) = (graph.task_count(), graph.task_count() + graph.datum_count());
    if u32::try_from(things + tasks).is_err() {
        return Err(too_many);
    }
    (0..things + tasks).for_each(|_| _ = builder.task(Task::new("")));
    let after = |task: TaskId| TaskId((things + task.index()) as u32);
    for task in graph.task_ids() {
        builder.edge(task, after(task), 0);
        graph.successors(task).iter().for_each(|&to| _ = builder.edge(after(task), to, 0));
    }
    let mut common = Common { graph, reached: vec![(0, 0); tasks], walks: 0, steps: 0, edges: 0 };
    for datum in graph.datum_ids() {
        let place = TaskId((tasks + datum.index()) as u32);
        builder.edge(graph.producer(datum), place, 0);
        match graph.consumers(datum) {
            [] => {}
            &[one] => _ = builder.edge(place, after(one), 0),
            several => common.first_after(several).into_iter().for_each(|task| _ = builder.edge(place, task, 0)),
        }
    }
    // Edges go from earlier tasks to later ones, so the build fails only if there are too many.
    builder.build().map_err(|_| too_many)
}

/// Search for the tasks that come after several tasks.
struct Common<'g> {
    graph: &'g TaskGraph,
    /// For each task, the number of consumers that precede it, and the last walk that counted it.
    reached: Vec<(usize, u64)>,
    walks: u64,
    steps: u64,
    /// Number of tasks found so far.
    edges: usize,
}

impl Common<'_> {
    /// Returns the tasks that come after all `consumers` and follow no other such task; none if the search takes too
    /// much.
    fn first_after(&mut self, consumers: &[TaskId]) -> Vec<TaskId> {
        let touched = self.walk(consumers);
        let mut first = if self.steps < MOST_STEPS { self.first_of(&touched, consumers.len()) } else { Vec::new() };
        touched.iter().for_each(|task| self.reached[task.index()].0 = 0);
        if first.len() > MOST_EDGES - self.edges {
            first.clear();
        }
        self.edges += first.len();
        first
    }

    /// Visits all tasks after any of `consumers`, and counts the consumers that precede each.
    fn walk(&mut self, consumers: &[TaskId]) -> Vec<TaskId> {
        let mut touched = Vec::new();
        for consumer in consumers {
            if self.steps >= MOST_STEPS {
                break;
            }
            self.walks += 1;
            let mut open: Vec<TaskId> = self.graph.successors(*consumer).to_vec();
            while let Some(task) = open.pop().filter(|_| self.steps < MOST_STEPS) {
                let (count, walk) = &mut self.reached[task.index()];
                if *walk != self.walks {
                    if *count == 0 {
                        touched.push(task);
                    }
                    (*count, *walk) = (*count + 1, self.walks);
                    open.extend_from_slice(self.graph.successors(task));
                }
                self.steps += 1;
            }
        }
        touched.sort_unstable();
        touched
    }

    /// Returns the tasks that all consumers precede, but no other such task does.
    fn first_of(&self, touched: &[TaskId], consumers: usize) -> Vec<TaskId> {
        let is_common = |task: TaskId| self.reached[task.index()].0 == consumers;
        let is_first =
            |task: &TaskId| is_common(*task) && !self.graph.predecessors(*task).iter().any(|&from| is_common(from));
        touched.iter().copied().filter(is_first).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn bytes(edges: &[(u32, u32, u64)], tasks: usize) -> (u64, u64) {
        let found = live_bytes(&sample::graph(&vec![1.0; tasks], edges)).unwrap();
        (found.any_order, found.each_order)
    }

    #[test]
    fn data_of_a_chain_meet_at_their_task_alone() {
        assert_eq!(bytes(&[(0, 1, 10), (1, 2, 7), (2, 3, 5)], 4), (17, 17));
    }

    #[test]
    fn branches_meet_and_what_all_consumers_precede_does_not() {
        // 0 → {1, 2} → 3 → 4: both branches are live together; data after 3 come later.
        let diamond = [(0, 1, 4), (0, 2, 4), (1, 3, 6), (2, 3, 8), (3, 4, 9)];
        assert_eq!(bytes(&diamond, 5), (6 + 8 + 9, 6 + 8 + 9));
        let mut builder = sample::tasks(&[1.0; 5]);
        // One datum for both branches is dead when 3 makes its own.
        let shared = builder.datum(TaskId(0), 100);
        [1, 2].into_iter().for_each(|to| builder.consume(shared, TaskId(to)));
        for (from, to, bytes) in [(1, 3, 6), (2, 3, 8), (3, 4, 9)] {
            builder.edge(TaskId(from), TaskId(to), bytes);
        }
        let found = live_bytes(&builder.build().unwrap()).unwrap();
        assert_eq!((found.any_order, found.each_order), (114, 108));
    }

    /// Producers, then a task that takes all their data, then many tasks that follow it: edges add up, and do not
    /// multiply.
    #[test]
    fn hubs_cost_an_edge_for_each_neighbour() {
        let hub = 300u32;
        let out_of = (1..=hub).map(|to| (hub, hub + to, 1u64));
        let edges: Vec<(u32, u32, u64)> = (0..hub).map(|from| (from, hub, 2u64)).chain(out_of).collect();
        let graph = sample::graph(&[1.0; 601], &edges);
        let ranges = live_ranges(&graph).unwrap();
        assert!(ranges.datum_count() <= 3 * (graph.task_count() + graph.datum_count()));
        // All inputs and all outputs of the hub are live together.
        assert_eq!(live_bytes(&graph).unwrap().any_order, 900);
    }

    /// Data without consumers stay to the end.
    #[test]
    fn results_stay() {
        let mut builder = sample::tasks(&[1.0; 3]);
        builder.datum(TaskId(0), 50);
        builder.edge(TaskId(0), TaskId(1), 1);
        builder.edge(TaskId(1), TaskId(2), 2);
        let found = live_bytes(&builder.build().unwrap()).unwrap();
        assert_eq!((found.any_order, found.each_order), (53, 51));
        assert_eq!(found.data, [0, 1, 2].map(DatumId));
    }
}
