//! Paths that memory cuts: the earliest start of a task, given the memory of the tasks before it on its device.
//!
//! Take a schedule with task `t` on device `d`. The *cluster* of `t` are the tasks before `t` that reach it by edges
//! whose ends are all on `d`. Their units and that of `t` share the memory of `d`. Let `f(t, d, m)` be a lower bound of
//! the start of `t` if the memory of its cluster is at most `m`. Each predecessor `p` is either on another device, and
//! its data arrive no sooner than they can from there. Or `p` is on `d`, and belongs to the cluster together with its
//! own cluster. Then `t` starts no sooner than `f(p, d, m − size(p))` plus the time of `p`. The less of both values is
//! a bound for `p`, and `f(t, d, m)` is the greatest of these bounds. In `m` it is a falling step function.
//!
//! A task counts with the memory of its unit if it takes longest of all members on average; otherwise with nothing, so
//! that no unit counts twice. The memory of the cluster of `t` is at most that of `d` without the size of
//! `t`. So a path whose tasks do not fit on one device has to leave it somewhere, and pays for a transfer or for slower
//! devices. Tails are the same with edges reversed. The cluster before `t` and that after it are disjoint, and both
//! have to fit together.

use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Most steps of a function; more are merged, which gives a lower but valid bound.
const STEPS: usize = 32;
/// Most functions of a problem, and most pairs of devices over all edges. Beyond this memory is ignored.
const MOST_FUNCTIONS: usize = 200_000;
const MOST_PAIRS: usize = 20_000_000;

/// Step function of the memory of a cluster: `(m, start)` holds from the memory `m` on, ascending, with falling starts.
/// Below the first step the cluster is impossible.
pub(super) type Steps = Vec<(u64, f64)>;

/// Functions of all tasks and devices in one direction.
#[derive(Debug, Clone)]
pub(super) struct Clusters {
    devices: usize,
    /// Memory that a task adds to its cluster.
    sizes: Vec<u64>,
    /// Memory of each device; `u64::MAX` without a limit.
    capacities: Vec<u64>,
    functions: Vec<Steps>,
}

impl Clusters {
    /// Creates empty functions; `None` if memory limits nothing, or if the problem or its sizes are too large.
    pub(super) fn of(problem: &Problem<'_>) -> Option<Self> {
        let (graph, platform) = (problem.graph(), problem.platform());
        let devices = platform.device_count();
        let all: u128 = graph.unit_ids().map(|unit| u128::from(problem.demand(unit))).sum();
        let limits =
            platform.devices().iter().any(|device| device.memory.is_some_and(|memory| u128::from(memory) < all));
        let (functions, pairs) = (graph.task_count() * devices, graph.edge_count() * devices * devices);
        // Otherwise `u64::MAX` would be a limit.
        let sums_fit = u64::try_from(all).is_ok();
        if !limits || !sums_fit || functions > MOST_FUNCTIONS || pairs > MOST_PAIRS {
            return None;
        }
        let mut sizes = vec![0; graph.task_count()];
        for unit in graph.unit_ids() {
            let longest =
                graph.members(unit).iter().max_by(|one, other| problem.work(**one).total_cmp(&problem.work(**other)));
            if let Some(task) = longest {
                sizes[task.index()] = problem.demand(unit);
            }
        }
        let capacities = platform.devices().iter().map(|device| device.memory.unwrap_or(u64::MAX)).collect();
        Some(Clusters { devices, sizes, capacities, functions: vec![Vec::new(); functions] })
    }

    /// Whether the units of `task` and `neighbour` fit on `device` together, and the least cluster of `neighbour` too.
    pub(super) fn fits(&self, problem: &Problem<'_>, task: TaskId, neighbour: TaskId, device: DeviceId) -> bool {
        let (unit, other) = (problem.graph().unit(task), problem.graph().unit(neighbour));
        let both = problem.demand(unit).saturating_add(if unit == other { 0 } else { problem.demand(other) });
        let first = self.function(neighbour, device).first();
        both <= self.capacities[device.index()]
            && first.is_some_and(|&(memory, _)| self.with(memory, neighbour) <= self.limit(task, device))
    }

    /// Adds a neighbour to the function of `task` on `device`: it is elsewhere, so that `task` starts at `remote`, or
    /// here, where it takes `time`; infinite if it cannot be here.
    pub(super) fn join(&self, into: &mut Steps, at: (TaskId, DeviceId), neighbour: TaskId, remote: f64, time: f64) {
        let (task, device) = at;
        let mut options: Steps = Vec::new();
        if remote.is_finite() {
            options.push((0, remote));
        }
        for &(memory, start) in self.function(neighbour, device) {
            let (memory, start) = (self.with(memory, neighbour), start + time);
            if memory > self.limit(task, device) || start.is_infinite() {
                break;
            }
            if options.last().is_none_or(|&(_, best)| start < best) {
                options.push((memory, start));
            }
        }
        *into = maximum(into, &options);
    }

    /// Keeps the function of `task` on `device`, which is nowhere below `floor`. Returns the least start.
    pub(super) fn keep(&mut self, task: TaskId, device: DeviceId, mut steps: Steps, floor: f64) -> f64 {
        steps.iter_mut().for_each(|step| step.1 = step.1.max(floor));
        steps.dedup_by(|later, earlier| later.1 >= earlier.1);
        while steps.len() > STEPS {
            // A merged step has the memory of the one and the start of the other: less than both.
            steps = steps.chunks(2).map(|pair| (pair[0].0, pair[pair.len() - 1].1)).collect();
        }
        let least = steps.last().map_or(f64::INFINITY, |&(_, start)| start);
        self.functions[task.index() * self.devices + device.index()] = steps;
        least
    }

    /// Returns the least sum of the start and the tail of `task` on `device`, if both clusters fit together.
    pub(super) fn through(&self, tails: &Clusters, task: TaskId, device: DeviceId) -> f64 {
        let limit = self.limit(task, device);
        let after = tails.function(task, device);
        let mut least = f64::INFINITY;
        for &(memory, start) in self.function(task, device) {
            let Some(left) = limit.checked_sub(memory) else { break };
            let fitting = after.partition_point(|&(memory, _)| memory <= left);
            if let Some(last) = fitting.checked_sub(1) {
                least = least.min(start + after[last].1);
            }
        }
        least
    }

    fn function(&self, task: TaskId, device: DeviceId) -> &[(u64, f64)] {
        &self.functions[task.index() * self.devices + device.index()]
    }

    /// Returns the most memory of the cluster of `task` on `device`.
    fn limit(&self, task: TaskId, device: DeviceId) -> u64 {
        self.capacities[device.index()].saturating_sub(self.sizes[task.index()])
    }

    fn with(&self, memory: u64, task: TaskId) -> u64 {
        memory.saturating_add(self.sizes[task.index()])
    }
}

/// Returns the greater of two functions at each memory.
fn maximum(one: &[(u64, f64)], other: &[(u64, f64)]) -> Steps {
    let mut steps = Steps::new();
    let (mut here, mut there) = (0, 0);
    let (mut left, mut right) = (f64::INFINITY, f64::INFINITY);
    while here < one.len() || there < other.len() {
        let next = |steps: &[(u64, f64)], at: usize| steps.get(at).map_or(u64::MAX, |step| step.0);
        let memory = next(one, here).min(next(other, there));
        while here < one.len() && one[here].0 <= memory {
            (left, here) = (one[here].1, here + 1);
        }
        while there < other.len() && other[there].0 <= memory {
            (right, there) = (other[there].1, there + 1);
        }
        let start = left.max(right);
        if start.is_finite() && steps.last().is_none_or(|&(_, last)| start < last) {
            steps.push((memory, start));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::lower_bound;
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind};
    use crate::problem::MemoryRule;
    use crate::sample;

    /// Both tasks fit on a device without a limit, although their sizes together exceed 2^64.
    #[test]
    fn a_device_without_a_limit_takes_everything() {
        let mut builder = GraphBuilder::new();
        let size = 10_000_000_000_000_000_000;
        let [a, b] = [(); 2].map(|()| builder.task(Task::new("t").with_memory(size).with_operations(1.0)));
        builder.edge(a, b, 1000);
        let device = || Device::new("d", DeviceKind::Cpu);
        let devices = vec![device(), device(), device().with_memory(0)];
        let loaded = sample::on(builder.build().unwrap(), devices, MemoryRule::Resident);
        assert_eq!(lower_bound(&loaded.problem().unwrap()).value, 2.0);
    }

    #[test]
    fn the_greater_of_two_functions_holds_everywhere() {
        let (one, other) = (vec![(0, 9.0), (5, 4.0)], vec![(2, 6.0), (7, 1.0)]);
        assert_eq!(maximum(&one, &other), [(2, 9.0), (5, 6.0), (7, 4.0)]);
        assert_eq!(maximum(&one, &[]), []);
    }
}
