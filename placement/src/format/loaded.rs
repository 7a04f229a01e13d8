//! Contents of a file: a graph, a platform, or whole problems that own all their parts.

use super::{MAX_CELLS, Refusal};
use crate::graph::TaskGraph;
use crate::loaded::{Facts, LoadedProblem};
use crate::platform::Platform;
use crate::problem::MemoryRule;

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
    /// The numbers by which the file calls the tasks, by [`TaskId`](crate::graph::TaskId); empty where it gives them
    /// none.
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

/// Refuses problems of the given numbers of tasks and devices where a table of all times would be too large.
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
