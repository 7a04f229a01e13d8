//! Contents of a file: a graph, a platform, or whole problems that own all their parts.

use super::{MAX_CELLS, Refusal};
use crate::cost::{CostModel, OperationsOverSpeed, TimeTable};
use crate::graph::{TaskGraph, TaskId};
use crate::platform::{DeviceId, Platform};
use crate::problem::{MemoryRule, Problem, ProblemError};
use std::collections::{BTreeMap, BTreeSet};

/// Contents of a file.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Loaded {
    /// A graph, which needs a platform to become a problem.
    Graph(Box<LoadedGraph>),
    /// A platform.
    Platform(Platform),
    /// Problems, at least one.
    Problems(Vec<LoadedProblem>),
}

/// A graph from a file.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedGraph {
    /// Name in the file, or the name of the file.
    pub name: String,
    /// The graph.
    pub graph: TaskGraph,
    /// Memory rule of the problem, once there is a platform.
    pub memory_rule: MemoryRule,
    /// Unit of the time that one operation takes at speed 1, if the file has it.
    pub time_unit: Option<String>,
    /// Numbers of the tasks in the file, indexed by [`TaskId`]; empty if the file has none.
    pub task_ids: Vec<u64>,
}

impl LoadedGraph {
    /// Returns the problem of placing this graph on `platform`, with operations over speed as times.
    ///
    /// # Errors
    /// Returns an error for more than [`MAX_CELLS`] pairs of a task and a device.
    pub fn on(self, platform: Platform) -> Result<LoadedProblem, Refusal> {
        check_cells([(self.graph.task_count(), platform.device_count())].into_iter())?;
        let problem = LoadedProblem::new(self.name, self.graph, platform, self.memory_rule);
        let facts = Facts { time_unit: self.time_unit, task_ids: self.task_ids, ..Facts::default() };
        Ok(LoadedProblem { facts, ..problem })
    }
}

/// Problem that owns its parts; [`LoadedProblem::problem`] verifies and borrows them.
///
/// It is its own cost model: times come from [`LoadedProblem::costs`], transfers from the platform's links.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedProblem {
    /// Name of the problem.
    pub name: String,
    /// Graph to be placed.
    pub graph: TaskGraph,
    /// Platform to place it on.
    pub platform: Platform,
    /// Times of the tasks.
    pub costs: Costs,
    /// Devices that may run a task, if they are fewer than its kinds admit. Tasks that are not in the map have all
    /// devices.
    pub only_on: BTreeMap<TaskId, BTreeSet<DeviceId>>,
    /// Memory rule.
    pub memory_rule: MemoryRule,
    /// Further data of the file.
    pub facts: Facts,
}

/// Data of a file in addition to the problem itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Unit of all times, such as `s` or `ms`.
    pub time_unit: Option<String>,
    /// Bytes of the graph per unit of size in the file, whose sizes may be fractions. Rates have the same scale.
    pub bytes_a_unit: f64,
    /// Further numbers of the file, such as makespans of published schedulers, by their path in the file.
    pub figures: BTreeMap<String, f64>,
    /// Numbers of the tasks, as [`LoadedGraph::task_ids`].
    pub task_ids: Vec<u64>,
}

impl Default for Facts {
    fn default() -> Self {
        Facts { time_unit: None, bytes_a_unit: 1.0, figures: BTreeMap::new(), task_ids: Vec::new() }
    }
}

/// Times of the tasks.
#[derive(Debug, Clone, PartialEq)]
pub enum Costs {
    /// Operations of the task over speed of the device.
    OperationsOverSpeed,
    /// A time for each task and device.
    Times(TimeTable),
}

impl LoadedProblem {
    /// Creates a problem whose times are operations over speed.
    pub fn new(name: impl Into<String>, graph: TaskGraph, platform: Platform, memory_rule: MemoryRule) -> Self {
        let (costs, facts) = (Costs::OperationsOverSpeed, Facts::default());
        LoadedProblem { name: name.into(), graph, platform, costs, only_on: BTreeMap::new(), memory_rule, facts }
    }

    /// Copies a problem, so that it can be written or kept. Its transfer times become those of its platform's links.
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

    /// Returns the verified problem.
    ///
    /// # Errors
    /// Returns the errors of [`Problem::new`].
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

/// Rejects problems with these numbers of tasks and devices if a table of all times would be too large.
pub(super) fn check_cells(problems: impl Iterator<Item = (usize, usize)>) -> Result<(), Refusal> {
    let cells = problems.map(|(tasks, devices)| (tasks as u64).saturating_mul(devices as u64));
    let count = cells.fold(0, u64::saturating_add);
    if count > MAX_CELLS {
        return Err(Refusal::TooMany { what: "pairs of a task and a device", count, limit: MAX_CELLS });
    }
    Ok(())
}

/// Combines parts into problems: each graph on the one platform.
pub(super) fn combine(parts: Vec<Loaded>) -> Result<Vec<LoadedProblem>, Refusal> {
    let (mut graphs, mut platform, mut problems) = (Vec::new(), None, Vec::new());
    for part in parts {
        match part {
            Loaded::Graph(graph) => graphs.push(graph),
            Loaded::Problems(some) => problems.extend(some),
            Loaded::Platform(_) if platform.is_some() => return Err(Refusal::SeveralPlatforms),
            Loaded::Platform(one) => platform = Some(one),
        }
    }
    if graphs.is_empty() && problems.is_empty() {
        return Err(Refusal::Missing { place: "this".into(), what: "graph to place" });
    }
    if !graphs.is_empty() {
        let missing =
            || Refusal::Missing { place: format!("graph {:?}", graphs[0].name), what: "platform; name one too" };
        let platform = platform.ok_or_else(missing)?;
        check_cells(graphs.iter().map(|graph| (graph.graph.task_count(), platform.device_count())))?;
        for graph in graphs {
            problems.push(graph.on(platform.clone())?);
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};
    use crate::platform::{Device, DeviceKind};

    fn graph() -> TaskGraph {
        let mut builder = GraphBuilder::new();
        let [a, b] = ["a", "b"].map(|name| builder.task(Task::new(name).with_operations(6.0)));
        builder.edge(a, b, 10);
        builder.build().unwrap()
    }

    fn platform() -> Platform {
        let devices = vec![Device::new("slow", DeviceKind::Cpu), Device::new("fast", DeviceKind::Gpu).with_speed(3.0)];
        Platform::uniform(devices, 1.0, 10.0).unwrap()
    }

    #[test]
    fn a_problem_is_its_own_cost_model() {
        let mut loaded = LoadedProblem::new("p", graph(), platform(), MemoryRule::Ignore);
        assert_eq!(loaded.problem().unwrap().time(TaskId(0), DeviceId(1)), 2.0);
        assert_eq!(loaded.problem().unwrap().transfer_time(20, DeviceId(0), DeviceId(1)), 3.0);
        let table = TimeTable::from_fn(2, 2, |task, device| (task.0 != device.0).then_some(7.0)).unwrap();
        loaded.costs = Costs::Times(table);
        let problem = loaded.problem().unwrap();
        assert_eq!((problem.time(TaskId(0), DeviceId(1)), problem.time(TaskId(1), DeviceId(1))), (7.0, f64::INFINITY));
        assert_eq!(LoadedProblem::copy_of("p", &problem), loaded);
    }

    #[test]
    fn graphs_need_one_platform() {
        let part = || {
            Loaded::Graph(Box::new(LoadedGraph {
                name: "g".into(),
                graph: graph(),
                memory_rule: MemoryRule::Ignore,
                time_unit: None,
                task_ids: vec![],
            }))
        };
        assert_eq!(combine(vec![part(), Loaded::Platform(platform()), part()]).unwrap().len(), 2);
        let cases = [
            (vec![part()], "graph \"g\" has no platform"),
            (vec![Loaded::Platform(platform())], "no graph"),
            (vec![part(), Loaded::Platform(platform()), Loaded::Platform(platform())], "several"),
        ];
        for (parts, expected) in cases {
            let error = combine(parts).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn too_many_cells_are_refused() {
        assert!(check_cells([(1 << 14, 1 << 13)].into_iter()).is_ok());
        assert!(check_cells([(1 << 14, 1 << 13), (1, 1)].into_iter()).is_err());
        assert!(check_cells([(usize::MAX, usize::MAX)].into_iter()).is_err());
    }
}
