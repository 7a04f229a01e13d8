//! What a placed graph looks like to its devices: tasks and sends, each an item on one device.

use crate::graph::TaskId;
use crate::platform::{Device, DeviceId};
use crate::problem::Problem;
use crate::rules::SendCosts;
use crate::transfer::{Send, Sends};

/// A placed graph: what its devices do are *items*, the work on each send and each task, numbered sends first.
pub struct PlacedGraph<'a> {
    problem: &'a Problem<'a>,
    device_of: Vec<DeviceId>,
    sends: Sends,
    /// By send: time on its link.
    transfers: Vec<f64>,
    /// By device.
    send_time: Vec<f64>,
}

impl<'a> PlacedGraph<'a> {
    /// The items of `problem` when task `t` is on `device_of[t]`. `O(V + E log E)`.
    ///
    /// Every task must have a device of the platform that can run it.
    pub fn new(problem: &'a Problem<'a>, device_of: &[DeviceId]) -> Self {
        let mut placed = PlacedGraph::unplaced(problem);
        placed.fill(device_of);
        placed
    }

    /// Nothing yet: [`PlacedGraph::fill`] says where tasks are.
    pub(crate) fn unplaced(problem: &'a Problem<'a>) -> Self {
        let (device_of, sends, transfers) = (Vec::new(), Sends::default(), Vec::new());
        let send_time = |device: &Device| problem.rules().send_costs.send_operations / device.speed;
        let send_time = problem.platform().devices().iter().map(send_time).collect();
        PlacedGraph { problem, device_of, sends, transfers, send_time }
    }

    /// Becomes that of another placement, in the same memory.
    pub(crate) fn fill(&mut self, device_of: &[DeviceId]) {
        self.device_of.clear();
        self.device_of.extend_from_slice(device_of);
        self.sends.fill(self.problem.graph(), device_of);
        self.transfers.clear();
        let time = |send: &Send| self.problem.transfer_time(send.bytes, send.from, send.to);
        self.transfers.extend(self.sends.all().iter().map(time));
    }

    /// The problem.
    pub fn problem(&self) -> &'a Problem<'a> {
        self.problem
    }

    /// What is sent. The work on the send at a position of [`Sends::all`] is the item of that number.
    pub fn sends(&self) -> &Sends {
        &self.sends
    }

    /// What sends cost.
    pub fn send_costs(&self) -> SendCosts {
        self.problem.rules().send_costs
    }

    /// Number of tasks and sends.
    pub fn item_count(&self) -> usize {
        self.device_of.len() + self.sends.count()
    }

    /// The item that is a task.
    pub fn item(&self, task: TaskId) -> usize {
        self.sends.count() + task.index()
    }

    /// The task that is an item; `None` for a send.
    pub fn task(&self, item: usize) -> Option<TaskId> {
        item.checked_sub(self.sends.count()).map(|task| TaskId(task as u32))
    }

    /// The device of a task.
    pub fn device_of(&self, task: TaskId) -> DeviceId {
        self.device_of[task.index()]
    }

    /// The device that does an item.
    pub fn device(&self, item: usize) -> DeviceId {
        match self.task(item) {
            Some(task) => self.device_of(task),
            None => self.sends.all()[item].from,
        }
    }

    /// Time that an item takes on its device.
    pub fn time(&self, item: usize) -> f64 {
        match self.task(item) {
            Some(task) => self.problem.time(task, self.device_of(task)),
            None => self.send_time(self.sends.all()[item].from),
        }
    }

    /// Time that the send at `send` spends on its link.
    pub fn transfer_time(&self, send: usize) -> f64 {
        self.transfers[send]
    }

    /// Time that a send takes on `device`.
    pub(crate) fn send_time(&self, device: DeviceId) -> f64 {
        self.send_time[device.index()]
    }

    /// Time until `bytes` that are on `from` can be on `to`: that of the send and of the transfer.
    pub(crate) fn crossing_time(&self, bytes: u64, from: DeviceId, to: DeviceId) -> f64 {
        if from == to { 0.0 } else { self.send_time(from) + self.problem.transfer_time(bytes, from, to) }
    }
}
