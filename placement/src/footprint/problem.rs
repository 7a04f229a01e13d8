//! What is asked: a graph whose tasks take cores and time, and the machines that there are as many of as wanted.

use super::antichain::parallelism_within;
use super::chains::Closure;
use super::check::Violation;
use crate::graph::{DatumId, TaskGraph, TaskId};
use crate::pipeline::Link;
use std::sync::OnceLock;

/// What one device has. All are alike, as the compute nodes of Wu et al. 2018, section 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Cores; tasks on it never take more at a time.
    pub cores: u64,
    /// Bytes for what stays there ([`Task::memory`](crate::graph::Task::memory)); `None` where there is no limit.
    pub memory: Option<u64>,
}

/// Why a problem was refused, or has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum FootprintError {
    /// Not one number for each task.
    #[error("cores or times are given for {given} tasks, but the graph has {tasks}")]
    Length { tasks: usize, given: usize },
    /// A time that is negative, infinite or not a number.
    #[error("task {task:?} is said to take {time}; a time is finite and not negative")]
    Time { task: String, time: f64 },
    /// A transfer that takes no time that can be added.
    #[error(
        "a link of latency {latency} and {bandwidth} bytes a time unit is none; give a latency of 0 or more and a greater rate"
    )]
    Link { latency: f64, bandwidth: f64 },
    /// A task that no device holds.
    #[error(
        "task {task:?} (with what is colocated with it) takes {cores} cores, and a device has {capacity}; give devices more cores"
    )]
    Cores { task: String, cores: u64, capacity: u64 },
    /// A task whose memory no device has.
    #[error(
        "task {task:?} and what is colocated with it keep {bytes} bytes, and a device has {capacity}; give devices more memory"
    )]
    Memory { task: String, bytes: u64, capacity: u64 },
    /// Numbers that cannot be added up.
    #[error("the tasks' {what} together are more than can be counted")]
    Overflow { what: &'static str },
    /// A deadline that nothing can keep.
    #[error("no number of cores and devices ends within {deadline}: the longest path alone takes {path}")]
    Deadline { deadline: f64, path: f64 },
    /// A deadline that was not kept, though nothing says that it cannot be.
    #[error(
        "no partitioning was found that ends within {deadline}; the shortest takes {reached}. Give devices more cores, or a later deadline"
    )]
    NotReached { deadline: f64, reached: f64 },
    /// A result that the checker refuses.
    #[error("a result did not pass the checker, which is a fault of Anabranch: {0}")]
    Fault(Violation),
}

/// A graph, what each of its tasks takes, and what a device has. Verified once.
#[derive(Debug, Clone)]
pub struct Problem<'a> {
    graph: &'a TaskGraph,
    cores: Vec<u64>,
    times: Vec<f64>,
    capacity: Capacity,
    link: Link,
    /// Of each task: its place in the topological order.
    position: Vec<u32>,
    /// Made when it is first asked for.
    closure: OnceLock<Option<Closure>>,
}

impl<'a> Problem<'a> {
    /// Verifies it. Task `t` takes `cores[t]` cores for `times[t]`; a datum takes what `link` says from one device to another, however many read
    /// it there. Kinds of devices and pins of the graph do not count, colocation does. `O(V + E)`.
    ///
    /// # Errors
    /// Lists of another length, numbers out of range, or tasks that no device holds.
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
        // An eighth of what can be counted, so that sums of parts, and twice of them, need no care.
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

    /// Refuses colocated tasks that no device holds together.
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

    /// The graph.
    pub fn graph(&self) -> &'a TaskGraph {
        self.graph
    }

    /// What a device has.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Cores that a task takes while it runs.
    pub fn cores(&self, task: TaskId) -> u64 {
        self.cores[task.index()]
    }

    /// How long it runs.
    pub fn time(&self, task: TaskId) -> f64 {
        self.times[task.index()]
    }

    /// How long a datum is on its way to another device.
    pub fn transfer(&self, datum: DatumId) -> f64 {
        self.link.seconds(self.graph.bytes(datum) as f64)
    }

    /// Of each task: its place in the topological order.
    pub(super) fn position(&self) -> &[u32] {
        &self.position
    }

    /// Which tasks paths lead to; `None` where that takes too much memory.
    pub(super) fn closure(&self) -> Option<&Closure> {
        self.closure.get_or_init(|| Closure::of(self.graph, &self.position)).as_ref()
    }

    /// Cores, by task.
    pub(super) fn all_cores(&self) -> &[u64] {
        &self.cores
    }

    /// The weight of the heaviest antichain of all tasks: the most cores that any order takes at a time. Time as
    /// [`heaviest_antichain`](super::heaviest_antichain).
    pub fn parallelism(&self) -> u64 {
        super::heaviest_antichain(self.graph, &self.cores).map_or(0, |antichain| antichain.weight)
    }

    /// Cores times time of all tasks.
    pub fn work(&self) -> f64 {
        self.graph.task_ids().map(|task| self.cores(task) as f64 * self.time(task)).sum()
    }

    /// The longest path, where data between tasks for which `crosses` holds take their transfer's time: when the last task ends, if none waits for
    /// cores. `O(V + E)`.
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
            (refusal(&[1, 3], &[1.0, 1.0], free), "\"t1\" (with what is colocated with it) takes 3 cores"),
            (refusal(&[1, 1], &[1.0, f64::NAN], free), "\"t1\" is said to take NaN"),
            (refusal(&[1, 1], &[f64::MAX, f64::MAX], free), "times together"),
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
