//! Small graphs and platforms for unit tests.

use crate::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use crate::platform::{Device, DeviceKind, Platform};

/// A builder that holds a task `t0`, `t1`, ... for each number of operations.
pub(crate) fn tasks(operations: &[f64]) -> GraphBuilder {
    let mut builder = GraphBuilder::new();
    for (number, &operations) in operations.iter().enumerate() {
        builder.task(Task::new(format!("t{number}")).with_operations(operations));
    }
    builder
}

/// A graph with a datum of its own for each (producer, consumer, bytes).
pub(crate) fn graph(operations: &[f64], edges: &[(u32, u32, u64)]) -> TaskGraph {
    let mut builder = tasks(operations);
    for &(from, to, bytes) in edges {
        builder.edge(TaskId(from), TaskId(to), bytes);
    }
    builder.build().unwrap()
}

/// A CPU device `d0`, `d1`, ... for each speed, without latency and with a rate of 10 between any two.
pub(crate) fn platform(speeds: &[f64]) -> Platform {
    let device = |(number, &speed)| Device::new(format!("d{number}"), DeviceKind::Cpu).with_speed(speed);
    Platform::uniform(speeds.iter().enumerate().map(device).collect(), 0.0, 10.0).unwrap()
}
