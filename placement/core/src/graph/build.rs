//! Construction of a graph: tasks, data and constraints in any order, then one validation.

use super::colocation::Units;
use super::{DatumId, Rows, Task, TaskGraph, TaskId};
use crate::platform::{DeviceId, DeviceKinds};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Reason why a graph is rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum GraphError {
    /// An id of a task that does not exist.
    #[error("{task} is used, but the graph has only {count} tasks; add the task before using it")]
    UnknownTask { task: TaskId, count: usize },
    /// An id of a datum that does not exist.
    #[error("{datum} is consumed by {consumer:?}, but the graph has only {count} data")]
    UnknownDatum { datum: DatumId, consumer: String, count: usize },
    /// A number of operations that is negative, infinite or not a number.
    #[error("task {task:?} has {operations} operations; the number must be finite and not negative")]
    Operations { task: String, operations: f64 },
    /// A task that allows no kind of device.
    #[error("task {task:?} allows no kind of device; allow at least one")]
    NoKind { task: String },
    /// Tasks that wait for each other.
    #[error("the graph has a cycle: {}", .tasks.join(" -> "))]
    Cycle {
        /// Names along the cycle, the first repeated at the end; a long cycle is cut in the middle.
        tasks: Vec<String>,
    },
    /// Colocated tasks, or their groups, without a common kind of device.
    #[error(
        "tasks {first:?} and {second:?} are colocated, but {first:?} (with its group) allows {first_kinds} and {second:?} (with \
         its group) {second_kinds}; drop the colocation or allow a common kind"
    )]
    ColocatedKinds { first: String, first_kinds: DeviceKinds, second: String, second_kinds: DeviceKinds },
    /// Colocated tasks, or their groups, that are pinned to different devices.
    #[error(
        "tasks {first:?} and {second:?} are colocated, but {first:?} (or its group) is pinned to {first_pin} and {second:?} (or \
         its group) to {second_pin}; drop a pin or the colocation"
    )]
    ColocatedPins { first: String, first_pin: DeviceId, second: String, second_pin: DeviceId },
    /// More tasks, data or edges than ids can number.
    #[error("the graph has {count} {what}, but fewer than 2^32 are possible")]
    TooLarge { what: &'static str, count: usize },
}

/// Builder that collects the parts of a graph and turns into the validated [`TaskGraph`].
///
/// ```
/// use anabranch_placement::graph::{GraphBuilder, Task};
///
/// let mut builder = GraphBuilder::new();
/// let producer = builder.task(Task::new("producer"));
/// let consumer = builder.task(Task::new("consumer"));
/// let value = builder.datum(producer, 4096);
/// builder.consume(value, consumer);
/// let graph = builder.build()?;
/// assert_eq!(graph.successors(producer), [consumer]);
/// # Ok::<(), anabranch_placement::graph::GraphError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct GraphBuilder {
    tasks: Vec<Task>,
    data: Vec<(TaskId, u64)>,
    uses: Vec<(DatumId, TaskId)>,
    colocated: Vec<(TaskId, TaskId)>,
}

impl GraphBuilder {
    /// Creates a builder of an empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a task; ids count up from 0.
    pub fn task(&mut self, task: Task) -> TaskId {
        self.tasks.push(task);
        TaskId((self.tasks.len() - 1) as u32)
    }

    /// Adds a datum of `bytes` that `producer` makes; ids count up from 0.
    pub fn datum(&mut self, producer: TaskId, bytes: u64) -> DatumId {
        self.data.push((producer, bytes));
        DatumId((self.data.len() - 1) as u32)
    }

    /// Adds `consumer` to the readers of `datum`; repetitions change nothing.
    pub fn consume(&mut self, datum: DatumId, consumer: TaskId) {
        self.uses.push((datum, consumer));
    }

    /// Adds a datum for the edge from `producer` to `consumer` alone, and returns its id.
    pub fn edge(&mut self, producer: TaskId, consumer: TaskId, bytes: u64) -> DatumId {
        let datum = self.datum(producer, bytes);
        self.consume(datum, consumer);
        datum
    }

    /// Requires that two tasks run on one device. Groups form transitively.
    pub fn colocate(&mut self, first: TaskId, second: TaskId) {
        self.colocated.push((first, second));
    }

    /// Validates everything and builds the graph. `O((V + E) log (V + E))`.
    ///
    /// # Errors
    /// Returns the first error in this order: sizes beyond ids, unknown ids, a task without kinds or with invalid
    /// operations, contradictory colocations, a cycle.
    pub fn build(self) -> Result<TaskGraph, GraphError> {
        self.validate_sizes()?;
        self.validate_ids()?;
        self.validate_tasks()?;
        let units = Units::form(&self.tasks, &self.colocated)?;
        let GraphBuilder { tasks, data, mut uses, .. } = self;
        uses.sort_unstable();
        uses.dedup();
        let (producers, bytes): (Vec<_>, Vec<_>) = data.into_iter().unzip();
        let consumers = Rows::group(producers.len(), uses.iter().map(|&(datum, task)| (datum.index(), task)));
        let inputs = Rows::group(tasks.len(), uses.iter().map(|&(datum, task)| (task.index(), datum)));
        let produced = producers.iter().enumerate().map(|(datum, task)| (task.index(), DatumId(datum as u32)));
        let outputs = Rows::group(tasks.len(), produced);
        let mut edges: Vec<(TaskId, TaskId)> =
            uses.iter().map(|&(datum, task)| (producers[datum.index()], task)).collect();
        edges.sort_unstable();
        edges.dedup();
        let successors = Rows::group(tasks.len(), edges.iter().map(|&(from, to)| (from.index(), to)));
        let predecessors = Rows::group(tasks.len(), edges.iter().map(|&(from, to)| (to.index(), from)));
        let topological = sort_topologically(&tasks, &successors, &predecessors)?;
        Ok(TaskGraph {
            tasks,
            producers,
            bytes,
            outputs,
            consumers,
            inputs,
            successors,
            predecessors,
            topological,
            units,
        })
    }

    fn validate_sizes(&self) -> Result<(), GraphError> {
        for (what, count) in [("tasks", self.tasks.len()), ("data", self.data.len()), ("edges", self.uses.len())] {
            if count >= u32::MAX as usize {
                return Err(GraphError::TooLarge { what, count });
            }
        }
        Ok(())
    }

    fn validate_ids(&self) -> Result<(), GraphError> {
        let count = self.tasks.len();
        let producers = self.data.iter().map(|&(task, _)| task);
        let consumers = self.uses.iter().map(|&(_, task)| task);
        let colocated = self.colocated.iter().flat_map(|&(first, second)| [first, second]);
        if let Some(task) = producers.chain(consumers).chain(colocated).find(|task| task.index() >= count) {
            return Err(GraphError::UnknownTask { task, count });
        }
        let count = self.data.len();
        match self.uses.iter().find(|(datum, _)| datum.index() >= count) {
            Some(&(datum, task)) => {
                Err(GraphError::UnknownDatum { datum, consumer: self.tasks[task.index()].name.clone(), count })
            }
            None => Ok(()),
        }
    }

    fn validate_tasks(&self) -> Result<(), GraphError> {
        for Task { name, allowed, operations, .. } in &self.tasks {
            if !(operations.is_finite() && *operations >= 0.0) {
                return Err(GraphError::Operations { task: name.clone(), operations: *operations });
            }
            if allowed.is_empty() {
                return Err(GraphError::NoKind { task: name.clone() });
            }
        }
        Ok(())
    }
}

/// Sorts by Kahn's algorithm: the smallest id of the tasks without open predecessors comes next.
fn sort_topologically(
    tasks: &[Task],
    successors: &Rows<TaskId>,
    predecessors: &Rows<TaskId>,
) -> Result<Vec<TaskId>, GraphError> {
    let mut open: Vec<u32> = (0..tasks.len()).map(|task| predecessors.row(task).len() as u32).collect();
    let sources = (0..tasks.len()).filter(|&task| open[task] == 0);
    let mut next: BinaryHeap<Reverse<u32>> = sources.map(|task| Reverse(task as u32)).collect();
    let mut sorted = Vec::with_capacity(tasks.len());
    while let Some(Reverse(task)) = next.pop() {
        sorted.push(TaskId(task));
        for &successor in successors.row(task as usize) {
            open[successor.index()] -= 1;
            if open[successor.index()] == 0 {
                next.push(Reverse(successor.0));
            }
        }
    }
    if sorted.len() == tasks.len() {
        return Ok(sorted);
    }
    Err(GraphError::Cycle { tasks: name_cycle(tasks, predecessors, &open) })
}

/// Walks back from a task that never became free until it repeats a task, and names the tasks between.
fn name_cycle(tasks: &[Task], predecessors: &Rows<TaskId>, open: &[u32]) -> Vec<String> {
    const SHOWN: usize = 12;
    let mut position = vec![usize::MAX; tasks.len()];
    let mut walked = Vec::new();
    // A task with open predecessors has a predecessor that also has open predecessors. So the walk can only end at a
    // repetition.
    let mut current = open.iter().position(|&count| count > 0);
    while let Some(task) = current
        && position[task] == usize::MAX
    {
        position[task] = walked.len();
        walked.push(task);
        current = predecessors.row(task).iter().map(|before| before.index()).find(|&before| open[before] > 0);
    }
    let first = current.map_or(0, |task| position[task]);
    let mut cycle: Vec<usize> = walked[first..].to_vec();
    cycle.reverse();
    cycle.extend(cycle.first().copied());
    let mut names: Vec<String> = cycle.iter().map(|&task| tasks[task].name.clone()).collect();
    if names.len() > SHOWN {
        let left_out = names.len() - SHOWN;
        names.splice(SHOWN / 2..SHOWN / 2 + left_out, [format!("({left_out} more)")]);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder(tasks: u32) -> GraphBuilder {
        let mut builder = GraphBuilder::new();
        for id in 0..tasks {
            builder.task(Task::new(format!("t{id}")));
        }
        builder
    }

    #[test]
    fn rows_are_sorted_and_without_repetitions() {
        let mut builder = builder(4);
        let wide = builder.datum(TaskId(2), 8);
        let narrow = builder.datum(TaskId(2), 1);
        for (datum, consumer) in [(wide, 3), (wide, 1), (wide, 3), (narrow, 3), (narrow, 1)] {
            builder.consume(datum, TaskId(consumer));
        }
        let graph = builder.build().unwrap();
        assert_eq!(graph.consumers(wide), [TaskId(1), TaskId(3)]);
        assert_eq!(graph.inputs(TaskId(3)), [wide, narrow]);
        assert_eq!(graph.outputs(TaskId(2)), [wide, narrow]);
        assert_eq!(graph.successors(TaskId(2)), [TaskId(1), TaskId(3)]);
        assert_eq!(graph.predecessors(TaskId(1)), [TaskId(2)]);
        assert_eq!(graph.edge_count(), 4);
        assert_eq!(graph.topological(), [0, 2, 1, 3].map(TaskId));
    }

    #[test]
    fn a_cycle_is_named_in_the_direction_of_its_edges() {
        let mut builder = builder(5);
        for (from, to) in [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)] {
            builder.edge(TaskId(from), TaskId(to), 1);
        }
        let Err(GraphError::Cycle { tasks }) = builder.build() else { panic!("a cycle must be refused") };
        assert_eq!((tasks.len(), tasks.first()), (4, tasks.last()));
        let edges = [("t1", "t2"), ("t2", "t3"), ("t3", "t1")];
        assert!(tasks.windows(2).all(|pair| edges.contains(&(&pair[0], &pair[1]))), "{tasks:?}");
    }

    #[test]
    fn a_task_that_feeds_itself_is_a_cycle_and_a_long_cycle_is_cut() {
        let mut own = builder(1);
        own.edge(TaskId(0), TaskId(0), 1);
        assert_eq!(own.build().unwrap_err(), GraphError::Cycle { tasks: vec!["t0".into(), "t0".into()] });
        let mut long = builder(1000);
        for id in 0..1000 {
            long.edge(TaskId(id), TaskId((id + 1) % 1000), 1);
        }
        assert!(matches!(long.build(), Err(GraphError::Cycle { tasks }) if tasks.len() == 13));
    }

    #[test]
    fn bad_input_is_an_error_that_names_it() {
        let mut unknown = builder(1);
        unknown.datum(TaskId(3), 1);
        assert_eq!(unknown.build().unwrap_err(), GraphError::UnknownTask { task: TaskId(3), count: 1 });
        let mut unknown = builder(1);
        unknown.consume(DatumId(0), TaskId(0));
        assert!(matches!(unknown.build(), Err(GraphError::UnknownDatum { consumer, .. }) if consumer == "t0"));
        for operations in [f64::NAN, -1.0, f64::INFINITY] {
            let mut odd = builder(1);
            odd.task(Task::new("odd").with_operations(operations));
            assert!(matches!(odd.build(), Err(GraphError::Operations { task, .. }) if task == "odd"));
        }
        let mut nowhere = builder(0);
        nowhere.task(Task::new("nowhere").with_allowed(DeviceKinds::NONE));
        assert!(matches!(nowhere.build(), Err(GraphError::NoKind { .. })));
    }

    #[test]
    fn an_empty_graph_is_a_graph() {
        let graph = GraphBuilder::new().build().unwrap();
        assert_eq!((graph.task_count(), graph.unit_count(), graph.topological().len()), (0, 0, 0));
    }
}
