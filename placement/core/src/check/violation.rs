//! Faults of placements and schedules, one variant each.

use crate::graph::{DatumId, TaskId};
use crate::platform::{DeviceId, DeviceKind, DeviceKinds};

/// Rule that a placement or a schedule breaks.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum Violation {
    /// The number of entries differs from the number of tasks.
    #[error("{given} entries are given for {tasks} tasks")]
    Length { tasks: usize, given: usize },
    /// A device that the platform does not have.
    #[error("{task} is on {device}, which does not exist")]
    UnknownDevice { task: TaskId, device: DeviceId },
    /// A device of a kind that the task does not allow.
    #[error("{task} is on {device}, a {kind}, but may run only on {allowed}")]
    Kind { task: TaskId, device: DeviceId, kind: DeviceKind, allowed: DeviceKinds },
    /// Another device than the task is pinned to.
    #[error("{task} is on {device}, but pinned to {pin}")]
    Pin { task: TaskId, device: DeviceId, pin: DeviceId },
    /// A device that cannot run the task.
    #[error("{task} is on {device}, which cannot run it")]
    CannotRun { task: TaskId, device: DeviceId },
    /// Colocated tasks on different devices.
    #[error("{first} is on {first_device} and {second} on {second_device}, but they are colocated")]
    Colocation { first: TaskId, first_device: DeviceId, second: TaskId, second_device: DeviceId },
    /// More memory in use on a device than its capacity.
    #[error("{device} has {available} bytes, but {needed} bytes are placed on it")]
    Memory { device: DeviceId, needed: u128, available: u64 },
    /// A time that is negative, infinite or not a number.
    #[error("{what} has a time that is negative or not finite")]
    Time { what: Subject },
    /// A task runs on another device than it is placed on.
    #[error("{task} is placed on {placed} but runs on {runs}")]
    OtherDevice { task: TaskId, placed: DeviceId, runs: DeviceId },
    /// A task or transfer does not take as long as it costs.
    #[error("{what} takes {taken}, but should take {cost}")]
    Duration { what: Subject, taken: f64, cost: f64 },
    /// Two items overlap on a device.
    #[error("{first} and {second} are on {device} at the same time")]
    Overlap { device: DeviceId, first: Subject, second: Subject },
    /// A task starts before one of its inputs is on its device.
    #[error("{task} starts at {start}, but {datum} arrives only at {available}")]
    Precedence {
        task: TaskId,
        start: f64,
        datum: DatumId,
        /// Time when the input is on the task's device.
        available: f64,
    },
    /// A datum that is needed on a device and never arrives there.
    #[error("{datum} is needed on {to}, but not sent there")]
    MissingTransfer { datum: DatumId, to: DeviceId },
    /// A transfer that is not needed, that repeats another, or whose ends or size are wrong.
    #[error("the transfer of {datum} from {from} to {to} is redundant, repeated, or has a wrong size")]
    NeedlessTransfer { datum: DatumId, from: DeviceId, to: DeviceId },
    /// A send or transfer that starts before its datum is ready.
    #[error("the transfer of {datum} to {to} starts at {start}, but the datum is ready only at {available}")]
    EarlyTransfer { datum: DatumId, to: DeviceId, start: f64, available: f64 },
    /// Two transfers share a link that carries one at a time.
    #[error("the transfers of {first} and {second} from {from} to {to} overlap")]
    SharedLink { from: DeviceId, to: DeviceId, first: DatumId, second: DatumId },
    /// Two transfers use a link of a network that carries one at a time.
    #[error("the transfers of {first} and {second} overlap on the link {link:?}")]
    NetworkLink { link: String, first: DatumId, second: DatumId },
    /// The order is not a permutation of the tasks, or contradicts start times or the graph.
    #[error("{task} is out of place: the order must list every task once, by start time and after its predecessors")]
    Order {
        /// A task that is out of place, repeated or missing.
        task: TaskId,
    },
    /// The makespan is not the end of the last task.
    #[error("the makespan is given as {given}, but the last task ends at {last}")]
    Makespan { given: f64, last: f64 },
    /// The traffic is not the sum of the transfers.
    #[error("the traffic is given as {given} bytes, but the transfers have {sum} bytes")]
    Traffic { given: u64, sum: u128 },
}

/// Subject of a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A task.
    Task(TaskId),
    /// The work of sending a datum to a device.
    Send(DatumId, DeviceId),
    /// A datum on its way to a device.
    Transfer(DatumId, DeviceId),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Task(task) => write!(formatter, "{task}"),
            Subject::Send(datum, to) => write!(formatter, "the send of {datum} to {to}"),
            Subject::Transfer(datum, to) => write!(formatter, "the transfer of {datum} to {to}"),
        }
    }
}
