//! Partial schedule: some tasks, appended one after the other.

use crate::graph::{TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::schedule::Span;

/// Appended tasks, and the resulting state of the others.
pub(super) struct State<'p> {
    problem: &'p Problem<'p>,
    spans: Vec<Option<Span>>,
    /// Number of predecessors of each task that are not appended.
    missing: Vec<u32>,
    /// Device of each unit, and number of its members that are appended.
    units: Vec<(DeviceId, u32)>,
    /// Free bytes by device; `None` means no limit.
    left: Vec<Option<u64>>,
    devices: Vec<DeviceState>,
    /// Appended tasks in order, each with the former state of its device.
    sequence: Vec<(TaskId, DeviceState)>,
}

/// State of a device with its tasks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeviceState {
    /// End of its last task.
    pub(super) free: f64,
    /// Number of its tasks.
    pub(super) tasks: u32,
}

impl<'p> State<'p> {
    pub(super) fn new(problem: &'p Problem<'p>) -> Self {
        let (graph, platform) = (problem.graph(), problem.platform());
        State {
            problem,
            spans: vec![None; graph.task_count()],
            missing: graph.task_ids().map(|task| graph.predecessors(task).len() as u32).collect(),
            units: vec![(DeviceId(0), 0); graph.unit_count()],
            left: platform.devices().iter().map(|device| device.memory).collect(),
            devices: vec![DeviceState::default(); platform.device_count()],
            sequence: Vec::with_capacity(graph.task_count()),
        }
    }

    /// Appends `task` to `device` at `start`. The task must be ready, and the device must admit it.
    pub(super) fn append(&mut self, task: TaskId, device: DeviceId, start: f64) {
        let graph = self.problem.graph();
        let end = start + self.problem.time(task, device);
        self.sequence.push((task, self.devices[device.index()]));
        self.spans[task.index()] = Some(Span { device, start, end });
        let tasks = self.devices[device.index()].tasks + 1;
        self.devices[device.index()] = DeviceState { free: end, tasks };
        let unit = graph.unit(task);
        let (place, members) = &mut self.units[unit.index()];
        *members += 1;
        if *members == 1 {
            *place = device;
            let demand = self.problem.demand(unit);
            // A device that admits the unit has enough free memory.
            self.left[device.index()] = self.left[device.index()].map(|left| left - demand);
        }
        for successor in graph.successors(task) {
            self.missing[successor.index()] -= 1;
        }
    }

    /// Removes the last append, if there is one.
    pub(super) fn take_back(&mut self) {
        let Some((task, before)) = self.sequence.pop() else { return };
        let Some(span) = self.spans[task.index()].take() else { return };
        let (graph, device) = (self.problem.graph(), span.device.index());
        self.devices[device] = before;
        let unit = graph.unit(task);
        let (_, members) = &mut self.units[unit.index()];
        *members -= 1;
        if *members == 0 {
            let demand = self.problem.demand(unit);
            self.left[device] = self.left[device].map(|left| left + demand);
        }
        for successor in graph.successors(task) {
            self.missing[successor.index()] += 1;
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.sequence.len() == self.spans.len()
    }

    /// Returns the spans of all tasks, if all are appended.
    pub(super) fn spans(&self) -> Option<Vec<Span>> {
        self.spans.iter().copied().collect()
    }

    pub(super) fn span(&self, task: TaskId) -> Option<Span> {
        self.spans[task.index()]
    }

    pub(super) fn device(&self, device: DeviceId) -> DeviceState {
        self.devices[device.index()]
    }

    /// Returns the last task and its span.
    pub(super) fn last(&self) -> Option<(TaskId, Span)> {
        let &(task, _) = self.sequence.last()?;
        Some((task, self.spans[task.index()]?))
    }

    /// Whether `task` is not appended and all its predecessors are.
    pub(super) fn is_ready(&self, task: TaskId) -> bool {
        self.spans[task.index()].is_none() && self.missing[task.index()] == 0
    }

    /// Whether `unit` may be on `device`: its members are there, or it is feasible and fits into the free memory.
    pub(super) fn admits(&self, unit: UnitId, device: DeviceId) -> bool {
        match self.units[unit.index()] {
            (place, 1..) => place == device,
            _ => {
                let room = self.left[device.index()].is_none_or(|left| self.problem.demand(unit) <= left);
                room && self.problem.is_feasible(unit, device)
            }
        }
    }

    /// Returns the earliest start of a task after the other tasks of `device`, if its predecessors are all appended.
    pub(super) fn start(&self, task: TaskId, device: DeviceId) -> f64 {
        let graph = self.problem.graph();
        let arrival = |&datum| match self.spans[graph.producer(datum).index()] {
            Some(span) => span.end + self.problem.transfer_time(graph.bytes(datum), span.device, device),
            None => f64::INFINITY,
        };
        graph.inputs(task).iter().map(arrival).fold(self.devices[device.index()].free, f64::max)
    }
}
