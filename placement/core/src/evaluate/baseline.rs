//! Reference figures with which a problem's schedules are compared.

use crate::bound::{LowerBound, lower_bound};
use crate::problem::Problem;
use crate::rank::static_levels;
use serde::Serialize;

/// Figures of a problem that are equal for all of its schedules.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Baseline {
    /// Lower bound of the makespan.
    pub bound: LowerBound,
    /// Longest path of least times over feasible devices, without transfers (`CP_MIN` of Topcuoglu 2002, section 5.1).
    pub critical_path: f64,
    /// Time of all tasks on the best device that can run all of them under constraints and memory, if there is one.
    pub single_device: Option<f64>,
}

impl Baseline {
    /// Computes the figures. The bound takes most of the time, see [`lower_bounds`](crate::bound::lower_bounds).
    pub fn of(problem: &Problem<'_>) -> Self {
        Baseline {
            bound: lower_bound(problem),
            critical_path: shortest_critical_path(problem),
            single_device: best_single_device(problem),
        }
    }
}

fn shortest_critical_path(problem: &Problem<'_>) -> f64 {
    let graph = problem.graph();
    let least = |task| {
        problem.feasible(graph.unit(task)).map(|device| problem.time(task, device)).fold(f64::INFINITY, f64::min)
    };
    static_levels(problem, least).into_iter().fold(0.0, f64::max)
}

fn best_single_device(problem: &Problem<'_>) -> Option<f64> {
    let (graph, platform) = (problem.graph(), problem.platform());
    let demand = graph.unit_ids().fold(0, |sum: u64, unit| sum.saturating_add(problem.demand(unit)));
    let takes_all = |device: &_| {
        platform.device(*device).memory.is_none_or(|memory| demand <= memory)
            && graph.unit_ids().all(|unit| problem.is_feasible(unit, *device))
    };
    let time = |device| graph.task_ids().map(|task| problem.time(task, device)).sum();
    platform.device_ids().filter(takes_all).map(time).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task, TaskId};
    use crate::platform::{Device, DeviceKind, DeviceKinds};
    use crate::problem::MemoryRule;
    use crate::sample;

    /// Returns the single device's time if the fast device has `memory` bytes and the second task may run on `kinds`.
    fn single_device(memory: u64, kinds: DeviceKinds) -> Option<f64> {
        let mut builder = GraphBuilder::new();
        let task = || Task::new("t").with_operations(8.0).with_memory(10);
        builder.task(task());
        builder.task(task().with_allowed(kinds));
        builder.edge(TaskId(0), TaskId(1), 100);
        let fast = Device::new("fast", DeviceKind::Gpu).with_speed(4.0).with_memory(memory);
        let loaded =
            sample::on(builder.build().unwrap(), [Device::new("slow", DeviceKind::Cpu), fast], MemoryRule::Resident);
        let problem = loaded.problem().unwrap();
        Baseline::of(&problem).single_device
    }

    #[test]
    fn the_single_device_can_take_everything() {
        assert_eq!(single_device(20, DeviceKinds::ALL), Some(4.0));
        assert_eq!(single_device(19, DeviceKinds::ALL), Some(16.0));
        assert_eq!(single_device(20, DeviceKinds::CPU), Some(16.0));
        assert_eq!(single_device(19, DeviceKinds::GPU), None);
    }
}
