//! Small graphs, platforms and problems for unit tests.

use crate::cost::TimeTable;
use crate::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use crate::loaded::{Costs, LoadedProblem};
use crate::platform::{Device, DeviceKind, Platform};
use crate::problem::MemoryRule;
use crate::streaming::{CanonicalGraph, CanonicalGraphBuilder, Node, NodeId};

/// A builder that holds a task `t0`, `t1`, ... for each number of operations.
pub fn tasks(operations: &[f64]) -> GraphBuilder {
    let mut builder = GraphBuilder::new();
    for (number, &operations) in operations.iter().enumerate() {
        builder.task(Task::new(format!("t{number}")).with_operations(operations));
    }
    builder
}

/// A graph with a datum of its own for each (producer, consumer, bytes).
pub fn graph(operations: &[f64], edges: &[(u32, u32, u64)]) -> TaskGraph {
    let mut builder = tasks(operations);
    for &(from, to, bytes) in edges {
        builder.edge(TaskId(from), TaskId(to), bytes);
    }
    builder.build().unwrap()
}

/// A CPU device `d0`, `d1`, ... for each speed, without latency and with a rate of 10 between any two.
pub fn platform(speeds: &[f64]) -> Platform {
    let device = |(number, &speed)| Device::new(format!("d{number}"), DeviceKind::Cpu).with_speed(speed);
    Platform::uniform(speeds.iter().enumerate().map(device).collect(), 0.0, 10.0).unwrap()
}

/// `graph` on CPU devices of these speeds, with operations over speed as times and no limit of memory.
pub fn problem(graph: TaskGraph, speeds: &[f64]) -> LoadedProblem {
    on(graph, platform(speeds).devices(), MemoryRule::Ignore)
}

/// `graph` on CPU devices of speed 1, with a row of times for each task.
pub fn timed<const D: usize>(graph: TaskGraph, times: &[[impl Into<Option<f64>> + Copy; D]]) -> LoadedProblem {
    let table = TimeTable::from_fn(times.len(), D, |task, device| times[task.index()][device.index()].into());
    LoadedProblem { costs: Costs::Times(table.unwrap()), ..problem(graph, &[1.0; D]) }
}

/// `graph` on `devices`, with operations over speed as times and the links of [`platform`].
pub fn on(graph: TaskGraph, devices: impl Into<Vec<Device>>, rule: MemoryRule) -> LoadedProblem {
    LoadedProblem::new("sample", graph, Platform::uniform(devices.into(), 0.0, 10.0).unwrap(), rule)
}

/// A canonical graph of `nodes` with an edge for each (producer, consumer).
pub fn canonical(nodes: &[Node], edges: &[(u32, u32)]) -> CanonicalGraph {
    let mut builder = CanonicalGraphBuilder::new();
    nodes.iter().for_each(|node| _ = builder.node(node.clone()));
    edges.iter().for_each(|&(from, to)| builder.edge(NodeId(from), NodeId(to)));
    builder.build().unwrap()
}

/// Tasks on the longest path.
pub fn depth(graph: &TaskGraph) -> usize {
    let mut depths = vec![1; graph.task_count()];
    for &task in graph.topological() {
        let before = graph.predecessors(task).iter().map(|before| depths[before.index()] + 1);
        depths[task.index()] = before.max().unwrap_or(1);
    }
    depths.into_iter().max().unwrap_or(0)
}
