//! The most memory that data take in any order: the heaviest antichain of their live ranges.
//!
//! A datum is there from the start of its producer to the end of its last consumer; what nobody consumes stays. So datum `a` is gone before `b`
//! is there, whatever the order, if each consumer of `a` comes before the producer of `b` in the graph. Data that are there at the same moment are
//! mutually unordered in this sense: an antichain, and the heaviest bounds the peak of every order on any number of devices together (of copies on several
//! devices, the first alone). An executor that gives a result its input's place, or streams, only takes less.
//!
//! The order of data is that of paths in a graph of tasks and data: from a datum to the first tasks that come after all its consumers, from
//! tasks to their successors and to the data that they make. So the antichain needs no closure. What comes after a task is a vertex of its own, so that
//! a datum of one consumer is one edge, however many tasks follow. Finding the first common tasks of several consumers walks what follows
//! each: `O(V + E)` for each edge of such a datum, and at most [`MOST_STEPS`] together.

use super::antichain::heaviest_antichain;
use super::check::check_antichain;
use super::problem::FootprintError;
use crate::graph::{DatumId, GraphBuilder, Task, TaskGraph, TaskId};
use serde::Serialize;

/// Steps that are made at most to find what follows data of several consumers. Beyond them a datum is taken to stay, which only makes the
/// bound greater.
const MOST_STEPS: u64 = 2_000_000_000;
/// Edges from data of several consumers to what follows them; beyond them, too, a datum is taken to stay.
const MOST_EDGES: usize = 1 << 22;

/// What data of a graph take together. Bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiveBytes {
    /// No order holds more at a time.
    pub any_order: u64,
    /// Every order holds as much at some time: a task's inputs and outputs are there together.
    pub each_order: u64,
    /// The data that could be there together.
    pub data: Vec<DatumId>,
}

/// Bounds of the bytes that are there at a time, whatever the order.
///
/// # Errors
/// Where all data together are 2⁶² bytes or more, tasks and data are more than can be numbered, or the checker refuses the antichain, which is a
/// fault of this crate.
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

/// Tasks, then data, then what comes after each task: a way from one datum to another means that the first is gone before the second is there.
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
    // Edges go from earlier tasks to later ones, so that only their number is ever refused.
    builder.build().map_err(|_| too_many)
}

/// Finds what comes after several tasks.
struct Common<'g> {
    graph: &'g TaskGraph,
    /// By task: how many of the consumers come before it, and the walk that counted last.
    reached: Vec<(usize, u64)>,
    walks: u64,
    steps: u64,
    /// Tasks that were found.
    edges: usize,
}

impl Common<'_> {
    /// The tasks that come after all `consumers` and follow no other such task; none where finding them takes too much.
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

    /// All that comes after any of `consumers`, counting how many of them come before.
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

    /// Those that all consumers come before, but no other such task.
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
        // 0 → {1, 2} → 3 → 4: both branches are there together; what follows 3 comes after them.
        let diamond = [(0, 1, 4), (0, 2, 4), (1, 3, 6), (2, 3, 8), (3, 4, 9)];
        assert_eq!(bytes(&diamond, 5), (6 + 8 + 9, 6 + 8 + 9));
        let mut builder = sample::tasks(&[1.0; 5]);
        // One datum for both branches is gone when 3 makes its own.
        let shared = builder.datum(TaskId(0), 100);
        [1, 2].into_iter().for_each(|to| builder.consume(shared, TaskId(to)));
        for (from, to, bytes) in [(1, 3, 6), (2, 3, 8), (3, 4, 9)] {
            builder.edge(TaskId(from), TaskId(to), bytes);
        }
        let found = live_bytes(&builder.build().unwrap()).unwrap();
        assert_eq!((found.any_order, found.each_order), (114, 108));
    }

    /// Producers, then a task that takes all their data, then many that follow it: edges add up, and do not multiply.
    #[test]
    fn hubs_cost_an_edge_for_each_neighbour() {
        let hub = 300u32;
        let out_of = (1..=hub).map(|to| (hub, hub + to, 1u64));
        let edges: Vec<(u32, u32, u64)> = (0..hub).map(|from| (from, hub, 2u64)).chain(out_of).collect();
        let graph = sample::graph(&[1.0; 601], &edges);
        let ranges = live_ranges(&graph).unwrap();
        assert!(ranges.datum_count() <= 3 * (graph.task_count() + graph.datum_count()));
        // All inputs and all outputs of the hub meet.
        assert_eq!(live_bytes(&graph).unwrap().any_order, 900);
    }

    /// What nobody consumes stays to the end.
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
