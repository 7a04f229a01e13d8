//! Heads and tails: the earliest start of a task on a device, and the least time from its end to the end of the
//! schedule.
//!
//! *Start*: `r(t, d)` is the earliest time at which all inputs of `t` can be on `d`, as in [`join`](super::join). A
//! predecessor `p` may be on `d` too. Then it starts at `r(p, d)` or later and shares `d` with the other predecessors
//! there. Or `p` is on another device `e`. Then the task waits for the sum of `r(p, e)`, the time of `p` on `e` and the
//! transfer of its data from `e` to `d`; `e` is the device with the least sum. A predecessor that must share its device
//! with `t` is never elsewhere. By induction along the graph, no schedule with `t` on `d` starts it before `r(t, d)`.
//!
//! *Tail*: `q(t, d)` is the same quantity with time and edges reversed: every schedule with `t` on `d` ends at least
//! `q(t, d)` after `t` does.
//!
//! *Bound*: the members of an assignment unit share a device. On `d` the makespan is at least the start, time and tail
//! of each member. It is also at least the least start of a member, plus the sum of the members' times, plus the least
//! tail of a member. Each unit is assumed on its best device, and the makespan is at least the value of the worst unit.

use super::cut::Clusters;
use super::join::{Feeder, earliest};
use crate::graph::{TaskGraph, TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Starts and tails of every task on every device; infinite if the device is not feasible.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    devices: usize,
    starts: Vec<f64>,
    tails: Vec<f64>,
    /// Clusters before and after each task, if memory is limited.
    clusters: Option<(Clusters, Clusters)>,
}

impl Paths {
    pub(crate) fn new(problem: &Problem<'_>) -> Self {
        let (starts, before) = Sweep { problem, direction: Direction::Forward }.run();
        let (tails, after) = Sweep { problem, direction: Direction::Backward }.run();
        Paths { devices: problem.platform().device_count(), starts, tails, clusters: before.zip(after) }
    }

    /// Returns the earliest start of `task` on `device`.
    pub(crate) fn start(&self, task: TaskId, device: DeviceId) -> f64 {
        self.starts[task.index() * self.devices + device.index()]
    }

    /// Returns the least time from the end of `task` on `device` to the end of the schedule.
    pub(crate) fn tail(&self, task: TaskId, device: DeviceId) -> f64 {
        self.tails[task.index() * self.devices + device.index()]
    }

    /// Returns the bound of the module's documentation.
    pub(super) fn bound(&self, problem: &Problem<'_>) -> f64 {
        let of_unit = |unit| {
            problem.feasible(unit).map(|device| self.with_unit_on(problem, unit, device)).fold(f64::INFINITY, f64::min)
        };
        // A unit without a finite bound fits on no device next to the others: there is no schedule.
        problem.graph().unit_ids().map(of_unit).filter(|bound| bound.is_finite()).fold(0.0, f64::max)
    }

    /// Returns the least makespan with `unit` on a feasible `device`; infinite if it cannot be there.
    pub(super) fn with_unit_on(&self, problem: &Problem<'_>, unit: UnitId, device: DeviceId) -> f64 {
        let (mut longest, mut first, mut sum, mut last) = (0.0f64, f64::INFINITY, 0.0, f64::INFINITY);
        for &task in problem.graph().members(unit) {
            let (start, time, tail) = (self.start(task, device), problem.time(task, device), self.tail(task, device));
            let both = self.clusters.as_ref().map_or(0.0, |(before, after)| before.through(after, task, device));
            longest = longest.max((start + tail).max(both) + time);
            (first, sum, last) = (first.min(start), sum + time, last.min(tail));
        }
        longest.max(first + sum + last)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Pass over the graph in one direction.
struct Sweep<'p> {
    problem: &'p Problem<'p>,
    direction: Direction,
}

/// Most pairs of a neighbour and a device that are considered together. Beyond this each neighbour counts separately,
/// which gives a lower but valid bound.
const TOGETHER: usize = 1 << 20;

impl Sweep<'_> {
    fn run(&self) -> (Vec<f64>, Option<Clusters>) {
        let (graph, devices) = (self.problem.graph(), self.problem.platform().device_count());
        let mut clusters = Clusters::of(self.problem);
        let mut releases = vec![f64::INFINITY; graph.task_count() * devices];
        let order = graph.topological();
        for place in 0..order.len() {
            let task = if self.direction == Direction::Forward { order[place] } else { order[order.len() - 1 - place] };
            let row = self.release(task, &releases, &mut clusters);
            for device in self.problem.feasible(graph.unit(task)) {
                releases[task.index() * devices + device.index()] = row[device.index()];
            }
        }
        (releases, clusters)
    }

    /// Returns the earliest start of `task` on each device, given its neighbours' releases and clusters.
    fn release(&self, task: TaskId, releases: &[f64], clusters: &mut Option<Clusters>) -> Vec<f64> {
        let (problem, devices) = (self.problem, self.problem.platform().device_count());
        let neighbours = self.neighbours(task);
        let together = neighbours.len() * devices <= TOGETHER;
        let mut alone = vec![0.0f64; devices];
        let mut here = Vec::new();
        let mut feeders: Vec<Vec<Feeder>> = vec![Vec::new(); if together { devices } else { 0 }];
        let mut steps = vec![vec![(0, 0.0)]; if clusters.is_some() { devices } else { 0 }];
        for (neighbour, bytes) in neighbours {
            let row = &releases[neighbour.index() * devices..][..devices];
            let remotes = self.remotes(task, neighbour, &bytes, row);
            for (device, remote) in problem.platform().device_ids().zip(remotes) {
                let (mut release, time) = (row[device.index()], problem.time(neighbour, device));
                if let Some(clusters) = clusters {
                    let fits = clusters.fits(problem, task, neighbour, device);
                    let here = if fits { time } else { f64::INFINITY };
                    clusters.join(&mut steps[device.index()], (task, device), neighbour, remote, here);
                    release = if fits { release } else { f64::INFINITY };
                }
                let feeder = Feeder { remote, release, time };
                match feeders.get_mut(device.index()) {
                    Some(feeders) => feeders.push(feeder),
                    None => alone[device.index()] = alone[device.index()].max(earliest(&mut [feeder], &mut here)),
                }
            }
        }
        let mut starts: Vec<f64> =
            if together { feeders.iter_mut().map(|feeders| earliest(feeders, &mut here)).collect() } else { alone };
        if let Some(clusters) = clusters {
            for device in problem.feasible(problem.graph().unit(task)) {
                let (steps, floor) = (std::mem::take(&mut steps[device.index()]), starts[device.index()]);
                starts[device.index()] = clusters.keep(task, device, steps, floor);
            }
        }
        starts
    }

    /// Returns the tasks that `task` waits for, each once, with the sizes of the data from them.
    fn neighbours(&self, task: TaskId) -> Vec<(TaskId, Vec<u64>)> {
        let graph = self.problem.graph();
        let mut pairs: Vec<(TaskId, u64)> = match self.direction {
            Direction::Forward => {
                graph.inputs(task).iter().map(|&datum| (graph.producer(datum), graph.bytes(datum))).collect()
            }
            Direction::Backward => consumers(graph, task),
        };
        pairs.sort_unstable();
        pairs.dedup();
        let group = |pairs: &[(TaskId, u64)]| (pairs[0].0, pairs.iter().map(|&(_, bytes)| bytes).collect());
        pairs.chunk_by(|one, other| one.0 == other.0).map(group).collect()
    }

    /// Returns the earliest times at which data from `neighbour` on another device can be on each device. The search
    /// visits the neighbour's ends in ascending order. It stops when an end alone is no better than the best value.
    fn remotes(&self, task: TaskId, neighbour: TaskId, bytes: &[u64], releases: &[f64]) -> Vec<f64> {
        let (problem, graph) = (self.problem, self.problem.graph());
        if graph.unit(task) == graph.unit(neighbour) {
            return vec![f64::INFINITY; releases.len()];
        }
        let end = |device: DeviceId| releases[device.index()] + problem.time(neighbour, device);
        let mut ends: Vec<(f64, DeviceId)> =
            problem.feasible(graph.unit(neighbour)).map(|device| (end(device), device)).collect();
        ends.sort_by(|one, other| one.0.total_cmp(&other.0));
        let transfer = |there: DeviceId, here: DeviceId| {
            let (from, to) = if self.direction == Direction::Forward { (there, here) } else { (here, there) };
            bytes.iter().map(|&bytes| problem.transfer_time(bytes, from, to)).fold(0.0, f64::max)
        };
        let to = |here: DeviceId| {
            let mut best = f64::INFINITY;
            for &(end, there) in ends.iter().filter(|&&(_, there)| there != here) {
                if end >= best {
                    break;
                }
                best = best.min(end + transfer(there, here));
            }
            best
        };
        problem.platform().device_ids().map(to).collect()
    }
}

/// Returns every use of the data of `task`: consumer and bytes.
fn consumers(graph: &TaskGraph, task: TaskId) -> Vec<(TaskId, u64)> {
    let uses = |&datum: &_| graph.consumers(datum).iter().map(move |&consumer| (consumer, graph.bytes(datum)));
    graph.outputs(task).iter().flat_map(uses).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind, DeviceKinds};
    use crate::problem::MemoryRule;
    use crate::sample;

    /// CPU → GPU → CPU by constraint, with a transfer time of 1 per 10 bytes; the third task takes longer on the second
    /// CPU.
    #[test]
    fn transfers_that_cannot_be_avoided_count() {
        let mut builder = GraphBuilder::new();
        let [a, b, c] = [(DeviceKinds::CPU, 1.0), (DeviceKinds::GPU, 2.0), (DeviceKinds::CPU, 3.0)]
            .map(|(kinds, work)| builder.task(Task::new("t").with_allowed(kinds).with_operations(work)));
        builder.edge(a, b, 10);
        builder.edge(b, c, 20);
        let devices = [(DeviceKind::Cpu, 1.0), (DeviceKind::Cpu, 0.5), (DeviceKind::Gpu, 1.0)]
            .map(|(kind, speed)| Device::new("d", kind).with_speed(speed));
        let loaded = sample::on(builder.build().unwrap(), devices, MemoryRule::Ignore);
        let problem = loaded.problem().unwrap();
        let paths = Paths::new(&problem);
        let gpu = DeviceId(2);
        assert_eq!((paths.start(a, DeviceId(1)), paths.start(a, gpu)), (0.0, f64::INFINITY));
        assert_eq!((paths.start(b, gpu), paths.tail(b, gpu)), (1.0 + 1.0, 2.0 + 3.0));
        assert_eq!((paths.start(c, DeviceId(1)), paths.tail(c, DeviceId(1))), (4.0 + 2.0, 0.0));
        assert_eq!(paths.bound(&problem), 9.0);
    }

    #[test]
    fn colocated_tasks_come_one_after_the_other() {
        let mut builder = sample::tasks(&[2.0; 5]);
        for middle in [1, 2, 3].map(TaskId) {
            builder.edge(TaskId(0), middle, 0);
            builder.edge(middle, TaskId(4), 0);
            builder.colocate(TaskId(1), middle);
        }
        let loaded = sample::problem(builder.build().unwrap(), &[1.0; 3]);
        let problem = loaded.problem().unwrap();
        assert_eq!(Paths::new(&problem).bound(&problem), 2.0 + 3.0 * 2.0 + 2.0);
    }

    /// Two tasks of 5 feed a third over transfers of 8: one after the other is best, and the longest path alone is 6.
    #[test]
    fn what_meets_is_in_one_place_or_sent() {
        let loaded = sample::problem(sample::graph(&[5.0, 5.0, 1.0], &[(0, 2, 80), (1, 2, 80)]), &[1.0; 2]);
        let problem = loaded.problem().unwrap();
        assert_eq!(Paths::new(&problem).bound(&problem), 11.0);
    }
}
