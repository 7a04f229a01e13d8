//! Problem of the smallest machine: a graph whose tasks take cores and time, and identical devices in any number.

use super::antichain::parallelism_within;
use super::chains::Closure;
use super::check::Violation;
use crate::graph::{DatumId, TaskGraph, TaskId};
use crate::pipeline::Link;
use std::sync::OnceLock;

/// Capacity of one device. All devices are identical, as the compute nodes of Wu et al. 2018, section 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Number of cores that tasks can use at a time.
    pub cores: u64,
    /// Bytes for resident memory ([`Task::memory`](crate::graph::Task::memory)); `None` means no limit.
    pub memory: Option<u64>,
}

/// Reason why a problem is rejected, or has no solution.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum FootprintError {
    /// The number of cores or times differs from the number of tasks.
    #[error("cores or times are given for {given} tasks, but the graph has {tasks}")]
    Length { tasks: usize, given: usize },
    /// A time that is negative, infinite or not a number.
    #[error("task {task:?} has the time {time}; a time is finite and not negative")]
    Time { task: String, time: f64 },
    /// A link whose latency is negative or not finite, or whose bandwidth is not positive.
    #[error(
        "the link has latency {latency} and {bandwidth} bytes per time unit; give a latency of at least 0 and a \
         rate greater than 0"
    )]
    Link { latency: f64, bandwidth: f64 },
    /// A task (with its colocated tasks) that needs more cores than a device has.
    #[error(
        "task {task:?} and its colocated tasks need {cores} cores, but a device has {capacity}; give devices \
         more cores"
    )]
    Cores { task: String, cores: u64, capacity: u64 },
    /// A task (with its colocated tasks) that needs more memory than a device has.
    #[error(
        "task {task:?} and its colocated tasks keep {bytes} bytes, but a device has {capacity}; give devices \
         more memory"
    )]
    Memory { task: String, bytes: u64, capacity: u64 },
    /// Numbers whose sum overflows.
    #[error("the sum of the tasks' {what} exceeds the range of a number")]
    Overflow { what: &'static str },
    /// A deadline that is shorter than the longest path.
    #[error("no number of cores and devices meets the deadline {deadline}: the longest path alone takes {path}")]
    Deadline { deadline: f64, path: f64 },
    /// A deadline that no result keeps, although it may be feasible.
    #[error(
        "no partitioning was found that meets the deadline {deadline}: the shortest takes {reached}; give \
         devices more cores, or a later deadline"
    )]
    NotReached { deadline: f64, reached: f64 },
    /// A result that the checker rejects.
    #[error("the checker rejects a result, which is a bug in Anabranch; please report it: {0}")]
    Fault(Violation),
}

/// Verified graph, with the cores and time of each task and the capacity of a device.
#[derive(Debug, Clone)]
pub struct Problem<'a> {
    graph: &'a TaskGraph,
    cores: Vec<u64>,
    times: Vec<f64>,
    capacity: Capacity,
    link: Link,
    /// Position of each task in the topological order.
    position: Vec<u32>,
    /// Transitive closure, computed on first use.
    closure: OnceLock<Option<Closure>>,
}

impl<'a> Problem<'a> {
    /// Verifies the inputs and creates the problem.
    ///
    /// Task `t` takes `cores[t]` cores for `times[t]`. A datum takes the time of `link` from one device to another,
    /// once for all its readers there. Kinds of devices and pins of the graph are ignored, colocation is not. `O(V +
    /// E)`.
    ///
    /// # Errors
    /// Returns an error for lists of another length, numbers out of range, or tasks that no device can hold.
    pub fn new(
        graph: &'a TaskGraph,
        cores: Vec<u64>,
        times: Vec<f64>,
        capacity: Capacity,
        link: Link,
    ) -> Result<Self, FootprintError> {
        let tasks = graph.task_count();
        if let Some(given) = [cores.len(), times.len()].into_iter().find(|&given| given != tasks) {
            return Err(FootprintError::Length { tasks, given });
        }
        let Link { latency, bandwidth } = link;
        let is_time = |time: f64| time.is_finite() && time >= 0.0;
        if !(is_time(latency) && bandwidth > 0.0) {
            return Err(FootprintError::Link { latency, bandwidth });
        }
        for (task, &time) in graph.tasks().iter().zip(&times) {
            if !is_time(time) {
                return Err(FootprintError::Time { task: task.name.clone(), time });
            }
        }
        let mut position = vec![0; tasks];
        graph.topological().iter().enumerate().for_each(|(place, task)| position[task.index()] = place as u32);
        let problem = Problem { graph, cores, times, capacity, link, position, closure: OnceLock::new() };
        problem.refuse_overflow()?;
        problem.refuse_units()?;
        Ok(problem)
    }

    fn refuse_overflow(&self) -> Result<(), FootprintError> {
        let overflow = |what| Err(FootprintError::Overflow { what });
        // The limit is an eighth of the range, so that sums of parts, and twice these sums, cannot overflow.
        let sum = |mut values: Box<dyn Iterator<Item = u64> + '_>| {
            values.try_fold(0u64, |sum, value| sum.checked_add(value)).is_some_and(|sum| sum < u64::MAX / 8)
        };
        if !sum(Box::new(self.cores.iter().copied())) {
            return overflow("cores");
        }
        if !sum(Box::new(self.graph.tasks().iter().map(|task| task.memory))) {
            return overflow("bytes");
        }
        let transfers: f64 = self.graph.datum_ids().map(|datum| self.transfer(datum)).sum();
        let work: f64 =
            self.graph.task_ids().map(|task| self.time(task) * self.cores(task) as f64 + self.time(task)).sum();
        if (transfers + work).is_finite() { Ok(()) } else { overflow("times") }
    }

    /// Rejects colocated tasks that no device can hold together.
    fn refuse_units(&self) -> Result<(), FootprintError> {
        let capacity = self.capacity;
        for unit in self.graph.unit_ids() {
            let mut members = self.graph.members(unit).to_vec();
            let name = || self.graph.task(self.graph.members(unit)[0]).name.clone();
            let bytes: u64 = members.iter().map(|&task| self.graph.task(task).memory).sum();
            if let Some(capacity) = capacity.memory.filter(|&capacity| bytes > capacity) {
                return Err(FootprintError::Memory { task: name(), bytes, capacity });
            }
            members.sort_unstable_by_key(|task| self.position[task.index()]);
            let cores =
                parallelism_within(self.graph, &members, &self.position, |task| self.cores(task), capacity.cores);
            if cores > capacity.cores {
                return Err(FootprintError::Cores { task: name(), cores, capacity: capacity.cores });
            }
        }
        Ok(())
    }

    /// Returns the graph.
    pub fn graph(&self) -> &'a TaskGraph {
        self.graph
    }

    /// Returns the capacity of a device.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Returns the number of cores that a task uses while it runs.
    pub fn cores(&self, task: TaskId) -> u64 {
        self.cores[task.index()]
    }

    /// Returns the duration of a task.
    pub fn time(&self, task: TaskId) -> f64 {
        self.times[task.index()]
    }

    /// Returns the time of a datum's transfer to another device.
    pub fn transfer(&self, datum: DatumId) -> f64 {
        self.link.seconds(self.graph.bytes(datum) as f64)
    }

    /// Returns the position of each task in the topological order.
    pub(super) fn position(&self) -> &[u32] {
        &self.position
    }

    /// Returns the transitive closure; `None` if it needs too much memory.
    pub(super) fn closure(&self) -> Option<&Closure> {
        self.closure.get_or_init(|| Closure::of(self.graph, &self.position)).as_ref()
    }

    /// Returns the number of cores of each task.
    pub(super) fn all_cores(&self) -> &[u64] {
        &self.cores
    }

    /// Returns the weight of the heaviest antichain of all tasks: the most cores that any order uses at a time.
    /// Complexity as [`heaviest_antichain`](super::heaviest_antichain).
    pub fn parallelism(&self) -> u64 {
        super::heaviest_antichain(self.graph, &self.cores).map_or(0, |antichain| antichain.weight)
    }

    /// Returns cores times time, summed over all tasks.
    pub fn work(&self) -> f64 {
        self.graph.task_ids().map(|task| self.cores(task) as f64 * self.time(task)).sum()
    }

    /// Returns the length of the longest path: the end of the last task if none waits for cores. Data between tasks for
    /// which `crosses` holds take their transfer's time. `O(V + E)`.
    pub fn longest_path(&self, crosses: impl Fn(TaskId, TaskId) -> bool) -> f64 {
        let mut ends = vec![0.0; self.graph.task_count()];
        for &task in self.graph.topological() {
            let arrival = |&datum: &DatumId| {
                let from = self.graph.producer(datum);
                ends[from.index()] + if crosses(from, task) { self.transfer(datum) } else { 0.0 }
            };
            let ready = self.graph.inputs(task).iter().map(arrival).fold(0.0, f64::max);
            ends[task.index()] = ready + self.time(task);
        }
        ends.into_iter().fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn impossible_numbers_are_refused_by_name() {
        let graph = sample::graph(&[1.0, 1.0], &[(0, 1, 8)]);
        let capacity = Capacity { cores: 2, memory: Some(10) };
        let refusal = |cores: &[u64], times: &[f64], link| {
            Problem::new(&graph, cores.into(), times.into(), capacity, link).unwrap_err().to_string()
        };
        let free = Link::FREE;
        let cases = [
            (refusal(&[1], &[1.0, 1.0], free), "given for 1 tasks"),
            (refusal(&[1, 3], &[1.0, 1.0], free), "\"t1\" and its colocated tasks need 3 cores"),
            (refusal(&[1, 1], &[1.0, f64::NAN], free), "\"t1\" has the time NaN"),
            (refusal(&[1, 1], &[f64::MAX, f64::MAX], free), "the tasks' times exceeds"),
            (refusal(&[1, 1], &[1.0, 1.0], Link { latency: 0.0, bandwidth: 0.0 }), "link"),
        ];
        for (refusal, expected) in cases {
            assert!(refusal.contains(expected), "{refusal}");
        }
    }

    #[test]
    fn paths_count_the_transfers_that_cross() {
        let graph = sample::graph(&[1.0, 2.0, 4.0], &[(0, 1, 8), (0, 2, 2)]);
        let capacity = Capacity { cores: 4, memory: None };
        let link = Link { latency: 0.5, bandwidth: 2.0 };
        let problem = Problem::new(&graph, vec![1, 2, 3], vec![1.0, 2.0, 4.0], capacity, link);
        assert!(problem.is_ok());
        let problem = problem.unwrap();
        assert_eq!((problem.longest_path(|_, _| false), problem.longest_path(|_, _| true)), (5.0, 7.5));
        assert_eq!((problem.parallelism(), problem.work()), (5, 17.0));
    }
}
