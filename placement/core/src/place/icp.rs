//! ICP: repeatedly, the critical path of the remaining graph goes to one device (Laich 2017, section 4.5).
//!
//! The path is the longest in work, without transfers, through the remaining edges. It is cut into subpaths that some
//! device can run completely. A task that has a device already ends a subpath and belongs to none. A subpath goes to
//! the device that then has the smallest load (equation 4.5), with the whole of every colocation group. If no device
//! has enough free memory for all of it, it is halved. Then the path's edges are removed. The method ends when every
//! task has a device.
//!
//! Choices that the text leaves open: a path's length includes its sink, like that of a critical path. The load
//! includes the current subpath; otherwise the first path would go to the first device instead of the fastest.
//!
//! Time: `O(paths × (V + E) log V)` in the worst case. After each path only the ranks behind its edges are updated, so
//! that short paths cost little.

use super::assignment::Assignment;
use super::reason::Best;
use super::{PlaceError, Placement, Placer, Reason, ScoreOn};
use crate::graph::{TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::total::Total;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// The ICP strategy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Icp;

impl Placer for Icp {
    fn name(&self) -> &'static str {
        "icp"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        let mut rest = Rest::new(problem);
        let mut state = State::new(problem)?;
        while state.left > 0
            && let Some(path) = rest.next_path()
        {
            state.place_path(&path)?;
            rest.remove(&path);
        }
        Ok(state.assignment.finish(self.name(), None))
    }
}

struct State<'p> {
    problem: &'p Problem<'p>,
    assignment: Assignment<'p>,
    load: Vec<f64>,
    /// Number of units without a device.
    left: usize,
}

impl<'p> State<'p> {
    fn new(problem: &'p Problem<'p>) -> Result<Self, PlaceError> {
        let load = vec![0.0; problem.platform().device_count()];
        Ok(State { problem, assignment: Assignment::new(problem)?, load, left: problem.graph().unit_count() })
    }

    /// Cuts the path into subpaths and gives each a device.
    fn place_path(&mut self, path: &[TaskId]) -> Result<(), PlaceError> {
        let mut subpath: Vec<TaskId> = Vec::new();
        let mut devices: Vec<DeviceId> = Vec::new();
        for &task in path {
            let unit = self.problem.graph().unit(task);
            if subpath.iter().any(|&other| self.problem.graph().unit(other) == unit) {
                continue;
            }
            let taken = self.assignment.device(unit).is_some();
            let common = self.common(&devices, unit);
            if !subpath.is_empty() && !taken && !common.is_empty() {
                subpath.push(task);
                devices = common;
                continue;
            }
            self.place_subpath(&subpath, &devices)?;
            subpath.clear();
            // The group of `unit` may have just been placed with the previous subpath.
            if !taken && self.assignment.device(unit).is_none() {
                subpath.push(task);
                devices = self.problem.feasible(unit).collect();
            }
        }
        self.place_subpath(&subpath, &devices)
    }

    /// Returns the devices among `devices` that are feasible for `unit`.
    fn common(&self, devices: &[DeviceId], unit: UnitId) -> Vec<DeviceId> {
        devices.iter().copied().filter(|&device| self.problem.is_feasible(unit, device)).collect()
    }

    /// Places a part of a subpath, which may have more common devices than the whole.
    fn place_part(&mut self, part: &[TaskId]) -> Result<(), PlaceError> {
        let all: Vec<DeviceId> = self.problem.platform().device_ids().collect();
        let units = part.iter().map(|&task| self.problem.graph().unit(task));
        let devices = units.fold(all, |devices, unit| self.common(&devices, unit));
        self.place_subpath(part, &devices)
    }

    /// Puts all of `subpath` on the best of `devices`, each of which is feasible for all of it; in halves if none has
    /// enough memory.
    fn place_subpath(&mut self, subpath: &[TaskId], devices: &[DeviceId]) -> Result<(), PlaceError> {
        let units: Vec<UnitId> = subpath.iter().map(|&task| self.problem.graph().unit(task)).collect();
        let Some(&unit) = units.first() else {
            return Ok(());
        };
        let mut best = Best::new();
        for &device in devices.iter().filter(|&&device| self.assignment.free_memory().holds_all(&units, device)) {
            let time: f64 = units.iter().map(|&unit| self.problem.unit_time(unit, device)).sum();
            let load = self.load[device.index()] + time;
            best.offer(ScoreOn { device, score: load }, |one: &ScoreOn, other: &ScoreOn| one.score < other.score);
        }
        let Some(&ScoreOn { device, score: load }) = best.first() else {
            if subpath.len() == 1 {
                return Err(self.assignment.free_memory().refusal(unit));
            }
            let (first, second) = subpath.split_at(subpath.len() / 2);
            self.place_part(first)?;
            return self.place_part(second);
        };
        self.load[device.index()] = load;
        self.left -= units.len();
        let candidates = best.into_list(|on| on);
        for (&task, unit) in subpath.iter().zip(units) {
            let forced = self.assignment.forced(unit).map(|(_, reason)| reason);
            let reason = forced.unwrap_or_else(|| Reason::LeastLoaded(candidates.clone()));
            self.assignment.assign(unit, task, device, reason)?;
        }
        Ok(())
    }
}

/// A sink, preceded by the length of the longest path to its end.
type Sink = (Total, Reverse<TaskId>);

/// Remaining edges, with the longest path to every task over them.
struct Rest {
    predecessors: Vec<Vec<TaskId>>,
    successors: Vec<Vec<TaskId>>,
    work: Vec<f64>,
    /// Operations source rank: work on the longest path to the task, without the task.
    source: Vec<f64>,
    /// Position of each task in topological order, and the task at each position.
    place: Vec<u32>,
    at: Vec<TaskId>,
    /// Remaining sinks, with lengths that may be outdated; lengths only shrink.
    sinks: BinaryHeap<Sink>,
}

impl Rest {
    fn new(problem: &Problem<'_>) -> Self {
        let graph = problem.graph();
        let count = graph.task_count();
        let mut rest = Rest {
            predecessors: graph.task_ids().map(|task| graph.predecessors(task).to_vec()).collect(),
            successors: graph.task_ids().map(|task| graph.successors(task).to_vec()).collect(),
            work: graph.task_ids().map(|task| problem.work(task)).collect(),
            source: vec![0.0; count],
            place: vec![0; count],
            at: graph.topological().to_vec(),
            sinks: BinaryHeap::new(),
        };
        for (place, &task) in (0..).zip(graph.topological()) {
            rest.place[task.index()] = place;
            rest.source[task.index()] = rest.longest_before(task).map_or(0.0, |(length, _)| length);
        }
        for task in graph.task_ids().filter(|&task| graph.successors(task).is_empty()) {
            rest.sinks.push(rest.sink(task));
        }
        rest
    }

    fn sink(&self, task: TaskId) -> Sink {
        (Total(self.source[task.index()] + self.work[task.index()]), Reverse(task))
    }

    /// Returns the length of the longest path to the start of `task`, and the predecessor on it; on a tie, the smallest
    /// predecessor.
    fn longest_before(&self, task: TaskId) -> Option<(f64, TaskId)> {
        let ways = self.predecessors[task.index()].iter();
        let ways = ways.map(|&before| (self.source[before.index()] + self.work[before.index()], before));
        ways.reduce(|best, way| if way.0 > best.0 || way.0 == best.0 && way.1 < best.1 { way } else { best })
    }

    /// Returns the longest remaining path, from its sink to its source.
    fn next_path(&mut self) -> Option<Vec<TaskId>> {
        let sink = loop {
            let sink = self.sinks.pop()?;
            let (_, Reverse(task)) = sink;
            let now = self.sink(task);
            if now == sink {
                break task;
            }
            self.sinks.push(now);
        };
        let mut path = vec![sink];
        let mut last = sink;
        while let Some((_, before)) = self.longest_before(last) {
            path.push(before);
            last = before;
        }
        Some(path)
    }

    /// Removes the edges of a path, given from its sink to its source.
    fn remove(&mut self, path: &[TaskId]) {
        let mut changed = BTreeSet::new();
        for pair in path.windows(2) {
            let (after, before) = (pair[0], pair[1]);
            self.predecessors[after.index()].retain(|&task| task != before);
            self.successors[before.index()].retain(|&task| task != after);
            changed.insert(self.place[after.index()]);
        }
        for &task in path {
            if self.successors[task.index()].is_empty() && !self.predecessors[task.index()].is_empty() {
                self.sinks.push(self.sink(task));
            }
        }
        while let Some(place) = changed.pop_first() {
            let task = self.at[place as usize];
            let length = self.longest_before(task).map_or(0.0, |(length, _)| length);
            if length != self.source[task.index()] {
                self.source[task.index()] = length;
                changed.extend(self.successors[task.index()].iter().map(|after| self.place[after.index()]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Task;
    use crate::platform::{Device, DeviceKind, DeviceKinds};
    use crate::problem::MemoryRule;
    use crate::sample;

    /// The first path is 0, 2, 4; the next is 1, 2 over the remaining edge, with 1 as a new task; the last is 3, 4.
    #[test]
    fn paths_are_taken_out_one_after_the_other() {
        let edges = [(0, 2, 1), (1, 2, 1), (2, 4, 1), (3, 4, 1)];
        let loaded = sample::problem(sample::graph(&[5.0, 4.0, 2.0, 1.0, 2.0], &edges), &[1.0, 2.0]);
        let problem = loaded.problem().unwrap();
        let mut rest = Rest::new(&problem);
        let mut paths = Vec::new();
        while let Some(path) = rest.next_path() {
            rest.remove(&path);
            paths.push(path.iter().map(|task| task.0).collect::<Vec<_>>());
        }
        assert_eq!(paths, [vec![4, 2, 0], vec![2, 1], vec![4, 3]]);
        assert_eq!(Icp.place(&problem).unwrap().device_of, [1, 0, 1, 0, 1].map(DeviceId));
    }

    /// The chain has 30 bytes, and a task in its middle that only the CPU can run.
    #[test]
    fn a_path_is_cut_where_constraints_and_memory_need_it() {
        let mut builder = sample::tasks(&[]);
        let mut before = None;
        for number in 0..6 {
            let kinds = if number == 2 { DeviceKinds::CPU } else { DeviceKinds::GPU };
            let task = Task::new("t").with_operations(1.0).with_memory(10).with_allowed(kinds);
            let task = builder.task(task);
            if let Some(before) = before.replace(task) {
                builder.edge(before, task, 1);
            }
        }
        let device = |kind, memory| Device::new("d", kind).with_memory(memory);
        let devices = vec![device(DeviceKind::Cpu, 10), device(DeviceKind::Gpu, 25), device(DeviceKind::Gpu, 30)];
        let loaded = sample::on(builder.build().unwrap(), devices, MemoryRule::Resident);
        let problem = loaded.problem().unwrap();
        assert_eq!(Icp.place(&problem).unwrap().device_of, [1, 1, 0, 2, 2, 2].map(DeviceId));
    }
}
