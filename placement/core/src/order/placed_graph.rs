//! Placed graph as its devices see it: tasks and sends, each an item on one device.

use crate::graph::TaskId;
use crate::platform::{Device, DeviceId};
use crate::problem::Problem;
use crate::rules::SendCosts;
use crate::transfer::{Send, Sends};

/// Placed graph. The work of its devices are *items*: the work on each send, and each task, numbered in this order.
pub struct PlacedGraph<'a> {
    problem: &'a Problem<'a>,
    device_of: Vec<DeviceId>,
    sends: Sends,
    /// Time of each send on its link.
    transfers: Vec<f64>,
    /// Time of the work on one send, by device.
    send_time: Vec<f64>,
}

impl<'a> PlacedGraph<'a> {
    /// Creates the items of `problem` with task `t` on `device_of[t]`. `O(V + E log E)`.
    ///
    /// Every task must have a device of the platform that can run it.
    pub fn new(problem: &'a Problem<'a>, device_of: &[DeviceId]) -> Self {
        let mut placed = PlacedGraph::unplaced(problem);
        placed.fill(device_of);
        placed
    }

    /// Creates an empty graph; [`PlacedGraph::fill`] adds the placement.
    pub(crate) fn unplaced(problem: &'a Problem<'a>) -> Self {
        let (device_of, sends, transfers) = (Vec::new(), Sends::default(), Vec::new());
        let send_time = |device: &Device| problem.rules().send_costs.send_operations / device.speed;
        let send_time = problem.platform().devices().iter().map(send_time).collect();
        PlacedGraph { problem, device_of, sends, transfers, send_time }
    }

    /// Replaces the placement, and reuses the memory.
    pub(crate) fn fill(&mut self, device_of: &[DeviceId]) {
        self.device_of.clear();
        self.device_of.extend_from_slice(device_of);
        self.sends.fill(self.problem.graph(), device_of);
        self.transfers.clear();
        let time = |send: &Send| self.problem.transfer_time(send.bytes, send.from, send.to);
        self.transfers.extend(self.sends.all().iter().map(time));
    }

    /// Returns the problem.
    pub fn problem(&self) -> &'a Problem<'a> {
        self.problem
    }

    /// Returns the sends. The work on the send at a position of [`Sends::all`] is the item of that number.
    pub fn sends(&self) -> &Sends {
        &self.sends
    }

    /// Returns the costs of sends.
    pub fn send_costs(&self) -> SendCosts {
        self.problem.rules().send_costs
    }

    /// Returns the number of tasks and sends.
    pub fn item_count(&self) -> usize {
        self.device_of.len() + self.sends.count()
    }

    /// Returns the item of a task.
    pub fn item(&self, task: TaskId) -> usize {
        self.sends.count() + task.index()
    }

    /// Returns the task of an item; `None` for a send.
    pub fn task(&self, item: usize) -> Option<TaskId> {
        item.checked_sub(self.sends.count()).map(|task| TaskId(task as u32))
    }

    /// Returns the device of a task.
    pub fn device_of(&self, task: TaskId) -> DeviceId {
        self.device_of[task.index()]
    }

    /// Returns the device that runs an item.
    pub fn device(&self, item: usize) -> DeviceId {
        match self.task(item) {
            Some(task) => self.device_of(task),
            None => self.sends.all()[item].from,
        }
    }

    /// Returns the time that an item takes on its device.
    pub fn time(&self, item: usize) -> f64 {
        match self.task(item) {
            Some(task) => self.problem.time(task, self.device_of(task)),
            None => self.send_time(self.sends.all()[item].from),
        }
    }

    /// Returns the time that the send at `send` spends on its link.
    pub fn transfer_time(&self, send: usize) -> f64 {
        self.transfers[send]
    }

    /// Returns the time of the work on one send on `device`.
    pub(crate) fn send_time(&self, device: DeviceId) -> f64 {
        self.send_time[device.index()]
    }

    /// Returns the time to move `bytes` from `from` to `to`: the work on the send plus the transfer.
    pub(crate) fn crossing_time(&self, bytes: u64, from: DeviceId, to: DeviceId) -> f64 {
        if from == to { 0.0 } else { self.send_time(from) + self.problem.transfer_time(bytes, from, to) }
    }
}
