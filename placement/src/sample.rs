//! Small graphs, platforms and problems for unit tests.

use crate::format::{Costs, LoadedProblem, TimeTable};
use crate::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use crate::platform::{Device, DeviceKind, Platform};
use crate::problem::MemoryRule;
use crate::streaming::{CanonicalGraph, CanonicalGraphBuilder, Node, NodeId};

/// Returns a builder with tasks `t0`, `t1`, ..., one for each number of operations.
pub(crate) fn tasks(operations: &[f64]) -> GraphBuilder {
    let mut builder = GraphBuilder::new();
    for (number, &operations) in operations.iter().enumerate() {
        builder.task(Task::new(format!("t{number}")).with_operations(operations));
    }
    builder
}

/// Returns a graph with one datum for each (producer, consumer, bytes).
pub(crate) fn graph(operations: &[f64], edges: &[(u32, u32, u64)]) -> TaskGraph {
    let mut builder = tasks(operations);
    for &(from, to, bytes) in edges {
        builder.edge(TaskId(from), TaskId(to), bytes);
    }
    builder.build().unwrap()
}

/// Returns CPU devices `d0`, `d1`, ..., one for each speed, with links of rate 10 and no latency.
pub(crate) fn platform(speeds: &[f64]) -> Platform {
    let device = |(number, &speed)| Device::new(format!("d{number}"), DeviceKind::Cpu).with_speed(speed);
    Platform::uniform(speeds.iter().enumerate().map(device).collect(), 0.0, 10.0).unwrap()
}

/// Returns `graph` on CPU devices of these speeds, with operations over speed as times and no memory limit.
pub(crate) fn problem(graph: TaskGraph, speeds: &[f64]) -> LoadedProblem {
    on(graph, platform(speeds).devices(), MemoryRule::Ignore)
}

/// Returns `graph` on CPU devices of speed 1, with a row of times for each task.
pub(crate) fn timed<const D: usize>(graph: TaskGraph, times: &[[impl Into<Option<f64>> + Copy; D]]) -> LoadedProblem {
    let table = TimeTable::from_fn(times.len(), D, |task, device| times[task.index()][device.index()].into());
    LoadedProblem { costs: Costs::Times(table.unwrap()), ..problem(graph, &[1.0; D]) }
}

/// Returns `graph` on `devices`, with operations over speed as times and the links of [`platform`].
pub(crate) fn on(graph: TaskGraph, devices: impl Into<Vec<Device>>, rule: MemoryRule) -> LoadedProblem {
    LoadedProblem::new("sample", graph, Platform::uniform(devices.into(), 0.0, 10.0).unwrap(), rule)
}

/// Returns a canonical graph of `nodes` with an edge for each (producer, consumer).
pub(crate) fn canonical(nodes: &[Node], edges: &[(u32, u32)]) -> CanonicalGraph {
    let mut builder = CanonicalGraphBuilder::new();
    nodes.iter().for_each(|node| _ = builder.node(node.clone()));
    edges.iter().for_each(|&(from, to)| builder.edge(NodeId(from), NodeId(to)));
    builder.build().unwrap()
}

/// Returns the number of tasks on the longest path.
pub(crate) fn depth(graph: &TaskGraph) -> usize {
    let mut depths = vec![1; graph.task_count()];
    for &task in graph.topological() {
        let before = graph.predecessors(task).iter().map(|before| depths[before.index()] + 1);
        depths[task.index()] = before.max().unwrap_or(1);
    }
    depths.into_iter().max().unwrap_or(0)
}
