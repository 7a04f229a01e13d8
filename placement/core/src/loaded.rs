//! Problems that own their parts: what files hold, and what is kept of a plan.

use crate::cost::{CostModel, OperationsOverSpeed, TimeTable};
use crate::graph::{TaskGraph, TaskId};
use crate::platform::{DeviceId, Platform};
use crate::problem::{MemoryRule, Problem, ProblemError};
use std::collections::{BTreeMap, BTreeSet};

/// A problem that owns its parts; [`LoadedProblem::problem`] verifies them and returns references to them.
///
/// It is its own cost model: times come from [`LoadedProblem::costs`], transfers from the platform's links.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedProblem {
    /// Name for tables and messages.
    pub name: String,
    /// Tasks to place.
    pub graph: TaskGraph,
    /// Devices to place them on.
    pub platform: Platform,
    /// Times of tasks.
    pub costs: Costs,
    /// Devices that may run a task, where those are not all that its kinds admit; of tasks that are not here, all.
    pub only_on: BTreeMap<TaskId, BTreeSet<DeviceId>>,
    /// Rule that counts memory.
    pub memory_rule: MemoryRule,
    /// Other facts of the file.
    pub facts: Facts,
}

/// Facts of a file that are not part of the problem.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Unit of all times, such as `s` or `ms`.
    pub time_unit: Option<String>,
    /// Bytes of the graph that stand for one unit of size in the file, whose sizes may be fractions. Rates are scaled
    /// alike.
    pub bytes_a_unit: f64,
    /// Numbers that the file gives along, such as makespans of published schedulers, by their path in the file.
    pub figures: BTreeMap<String, f64>,
    /// The numbers by which the file calls the tasks, by [`TaskId`]; empty if it gives them none.
    pub task_ids: Vec<u64>,
    /// Uncertainty of each task's time on each device, if the file has them: a factor `u ≥ 1`, so that the time lies
    /// from `time / u` to `time · u` in nine cases of ten. A pair without a factor is unknown.
    pub uncertainties: Option<TimeTable>,
}

impl Default for Facts {
    fn default() -> Self {
        let (figures, task_ids) = (BTreeMap::new(), Vec::new());
        Facts { time_unit: None, bytes_a_unit: 1.0, figures, task_ids, uncertainties: None }
    }
}

/// Times of tasks.
#[derive(Debug, Clone, PartialEq)]
pub enum Costs {
    /// Operations of the task over speed of the device.
    OperationsOverSpeed,
    /// A time for each task and device.
    Times(TimeTable),
}

impl LoadedProblem {
    /// A problem whose times are operations over speed.
    pub fn new(name: impl Into<String>, graph: TaskGraph, platform: Platform, memory_rule: MemoryRule) -> Self {
        let (costs, facts) = (Costs::OperationsOverSpeed, Facts::default());
        LoadedProblem { name: name.into(), graph, platform, costs, only_on: BTreeMap::new(), memory_rule, facts }
    }

    /// Copies a problem, so that it can be written or kept. Its transfers become those of its platform's links.
    pub fn copy_of(name: impl Into<String>, problem: &Problem<'_>) -> Self {
        let (graph, platform) = (problem.graph(), problem.platform());
        let time = |task, device| Some(problem.time(task, device)).filter(|time| time.is_finite());
        let times = TimeTable::from_fn(graph.task_count(), platform.device_count(), time);
        LoadedProblem {
            name: name.into(),
            graph: graph.clone(),
            platform: platform.clone(),
            costs: Costs::Times(times.expect("a problem has verified its times")),
            only_on: BTreeMap::new(),
            memory_rule: problem.memory_rule(),
            facts: Facts::default(),
        }
    }

    /// The verified problem.
    ///
    /// # Errors
    /// As [`Problem::new`].
    pub fn problem(&self) -> Result<Problem<'_>, ProblemError> {
        Problem::new(&self.graph, &self.platform, self, self.memory_rule)
    }
}

impl CostModel for LoadedProblem {
    fn task_time(&self, task: TaskId, device: DeviceId) -> Option<f64> {
        match self.only_on.get(&task) {
            Some(devices) if !devices.contains(&device) => None,
            _ => self.nominal_time(task, device),
        }
    }

    fn nominal_time(&self, task: TaskId, device: DeviceId) -> Option<f64> {
        match &self.costs {
            Costs::Times(table) => table.time(task, device),
            Costs::OperationsOverSpeed => OperationsOverSpeed::new(&self.graph, &self.platform).task_time(task, device),
        }
    }

    fn transfer_time(&self, bytes: u64, from: DeviceId, to: DeviceId) -> f64 {
        self.platform.transfer_time(bytes, from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{Device, DeviceKind};
    use crate::sample;

    #[test]
    fn a_problem_is_its_own_cost_model() {
        let devices = vec![Device::new("slow", DeviceKind::Cpu), Device::new("fast", DeviceKind::Gpu).with_speed(3.0)];
        let platform = Platform::uniform(devices, 1.0, 10.0).unwrap();
        let graph = sample::graph(&[6.0; 2], &[(0, 1, 10)]);
        let mut loaded = LoadedProblem::new("p", graph, platform, MemoryRule::Ignore);
        assert_eq!(loaded.problem().unwrap().time(TaskId(0), DeviceId(1)), 2.0);
        assert_eq!(loaded.problem().unwrap().transfer_time(20, DeviceId(0), DeviceId(1)), 3.0);
        let table = TimeTable::from_fn(2, 2, |task, device| (task.0 != device.0).then_some(7.0)).unwrap();
        loaded.costs = Costs::Times(table);
        let problem = loaded.problem().unwrap();
        assert_eq!((problem.time(TaskId(0), DeviceId(1)), problem.time(TaskId(1), DeviceId(1))), (7.0, f64::INFINITY));
        assert_eq!(LoadedProblem::copy_of("p", &problem), loaded);
    }
}
