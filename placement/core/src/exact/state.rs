//! A schedule in the making: some tasks appended one after the other.

use crate::graph::{TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::schedule::Span;

/// The tasks that have been appended, and what follows for the others.
pub(super) struct State<'p> {
    problem: &'p Problem<'p>,
    spans: Vec<Option<Span>>,
    /// Predecessors that are not there yet.
    missing: Vec<u32>,
    /// The device of a unit, and how many of its members are there.
    units: Vec<(DeviceId, u32)>,
    /// Bytes left; `None` where there is no limit.
    left: Vec<Option<u64>>,
    devices: Vec<DeviceState>,
    /// In the order of appending, with what the device was before.
    sequence: Vec<(TaskId, DeviceState)>,
}

/// A device with the tasks that it has.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeviceState {
    /// When its last task ends.
    pub(super) free: f64,
    /// How many tasks it has.
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

    /// Appends `task` to `device` at `start`. It must be ready, and `device` one of its candidates.
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
            // Candidates have room.
            self.left[device.index()] = self.left[device.index()].map(|left| left - demand);
        }
        for successor in graph.successors(task) {
            self.missing[successor.index()] -= 1;
        }
    }

    /// Takes back the last append, if there is one.
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

    /// Where and when all tasks are, if they all are there.
    pub(super) fn spans(&self) -> Option<Vec<Span>> {
        self.spans.iter().copied().collect()
    }

    pub(super) fn span(&self, task: TaskId) -> Option<Span> {
        self.spans[task.index()]
    }

    pub(super) fn device(&self, device: DeviceId) -> DeviceState {
        self.devices[device.index()]
    }

    /// The last task and its span.
    pub(super) fn last(&self) -> Option<(TaskId, Span)> {
        let &(task, _) = self.sequence.last()?;
        Some((task, self.spans[task.index()]?))
    }

    /// Whether `task` is still to come and all its predecessors are there.
    pub(super) fn is_ready(&self, task: TaskId) -> bool {
        self.spans[task.index()].is_none() && self.missing[task.index()] == 0
    }

    /// Whether `unit` may be on `device`: where its members are, or where it is feasible and has room.
    pub(super) fn admits(&self, unit: UnitId, device: DeviceId) -> bool {
        match self.units[unit.index()] {
            (place, 1..) => place == device,
            _ => {
                let room = self.left[device.index()].is_none_or(|left| self.problem.demand(unit) <= left);
                room && self.problem.is_feasible(unit, device)
            }
        }
    }

    /// When a task whose predecessors are all there could start at the end of `device`.
    pub(super) fn start(&self, task: TaskId, device: DeviceId) -> f64 {
        let graph = self.problem.graph();
        let arrival = |&datum| match self.spans[graph.producer(datum).index()] {
            Some(span) => span.end + self.problem.transfer_time(graph.bytes(datum), span.device, device),
            None => f64::INFINITY,
        };
        graph.inputs(task).iter().map(arrival).fold(self.devices[device.index()].free, f64::max)
    }
}
