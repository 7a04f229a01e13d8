//! What a placed graph looks like to its devices: tasks and sends, each an item on one device.

use crate::graph::TaskId;
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::transfer::Sends;

/// What sends and receives cost the devices at their ends, in operations (divided by the device's speed).
///
/// The default is nothing. In the thesis' evaluation a send takes 10 operations, and a receive takes no time but counts 10
/// operations in path computation times: [`SendCosts::THESIS`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SendCosts {
    /// Operations that a send takes on the sender.
    pub send_operations: f64,
    /// Operations that a receive counts in path computation times. It never takes time.
    pub receive_operations: f64,
}

impl SendCosts {
    /// The costs of the thesis' evaluation (Laich 2017, sections 2.4 and 2.5; the figures are those of its experiments).
    pub const THESIS: SendCosts = SendCosts { send_operations: 10.0, receive_operations: 10.0 };

    /// Whether both numbers are finite and not negative.
    pub(crate) fn is_valid(&self) -> bool {
        [self.send_operations, self.receive_operations].iter().all(|cost| cost.is_finite() && *cost >= 0.0)
    }
}

/// Something that a device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// Work on the send at this position of [`Sends::all`].
    Send(usize),
    /// Run a task.
    Task(TaskId),
}

/// A placed graph: sends and tasks as items, numbered sends first.
pub struct PlacedGraph<'a> {
    problem: &'a Problem<'a>,
    device_of: &'a [DeviceId],
    sends: Sends,
    costs: SendCosts,
}

impl<'a> PlacedGraph<'a> {
    /// The items of `problem` when task `t` is on `device_of[t]`. `O(V + E log E)`.
    ///
    /// Every task must have a device of the platform that can run it.
    pub fn new(problem: &'a Problem<'a>, device_of: &'a [DeviceId], costs: SendCosts) -> Self {
        PlacedGraph { problem, device_of, sends: Sends::of(problem.graph(), device_of), costs }
    }

    /// The problem.
    pub fn problem(&self) -> &'a Problem<'a> {
        self.problem
    }

    /// What is sent.
    pub fn sends(&self) -> &Sends {
        &self.sends
    }

    /// What sends cost.
    pub fn send_costs(&self) -> SendCosts {
        self.costs
    }

    /// Number of tasks.
    pub fn task_count(&self) -> usize {
        self.device_of.len()
    }

    /// Number of tasks and sends.
    pub fn item_count(&self) -> usize {
        self.device_of.len() + self.sends.count()
    }

    /// The number of an item.
    pub fn position(&self, item: Item) -> usize {
        match item {
            Item::Send(send) => send,
            Item::Task(task) => self.sends.count() + task.index(),
        }
    }

    /// The item of a number below [`PlacedGraph::item_count`].
    pub fn item(&self, position: usize) -> Item {
        match position.checked_sub(self.sends.count()) {
            None => Item::Send(position),
            Some(task) => Item::Task(TaskId(task as u32)),
        }
    }

    /// The device of a task.
    pub fn device_of(&self, task: TaskId) -> DeviceId {
        self.device_of[task.index()]
    }

    /// The device that does an item.
    pub fn device(&self, item: Item) -> DeviceId {
        match item {
            Item::Task(task) => self.device_of(task),
            Item::Send(send) => self.sends.all()[send].from,
        }
    }

    /// Time that an item takes on its device.
    pub fn time(&self, item: Item) -> f64 {
        match item {
            Item::Task(task) => self.problem.time(task, self.device_of(task)),
            Item::Send(send) => {
                self.costs.send_operations / self.problem.platform().device(self.sends.all()[send].from).speed
            }
        }
    }

    /// Time that the send at `send` spends on its link.
    pub fn transfer_time(&self, send: usize) -> f64 {
        let send = self.sends.all()[send];
        self.problem.transfer_time(send.bytes, send.from, send.to)
    }
}
