//! What can be wrong, one variant each.

use crate::graph::{DatumId, TaskId};
use crate::platform::{DeviceId, DeviceKind, DeviceKinds};

/// A rule that a placement or a schedule breaks.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Not exactly one entry for each task.
    #[error("{given} entries for {tasks} tasks")]
    Length {
        /// Tasks of the graph.
        tasks: usize,
        /// Entries given.
        given: usize,
    },
    /// A device that the platform does not have.
    #[error("{task} is on {device}, which does not exist")]
    UnknownDevice {
        /// The task.
        task: TaskId,
        /// Its device.
        device: DeviceId,
    },
    /// A device of a kind that the task does not allow.
    #[error("{task} is on {device}, a {kind}, but may run only on {allowed}")]
    Kind {
        /// The task.
        task: TaskId,
        /// Its device.
        device: DeviceId,
        /// The device's kind.
        kind: DeviceKind,
        /// Kinds that the task allows.
        allowed: DeviceKinds,
    },
    /// Another device than the task is pinned to.
    #[error("{task} is on {device}, but pinned to {pin}")]
    Pin {
        /// The task.
        task: TaskId,
        /// Its device.
        device: DeviceId,
        /// Where it must be.
        pin: DeviceId,
    },
    /// A device that cannot run the task.
    #[error("{task} is on {device}, which cannot run it")]
    CannotRun {
        /// The task.
        task: TaskId,
        /// Its device.
        device: DeviceId,
    },
    /// Colocated tasks on different devices.
    #[error("{first} is on {first_device} and {second} on {second_device}, but they are colocated")]
    Colocation {
        /// The first member of the group.
        first: TaskId,
        /// Its device.
        first_device: DeviceId,
        /// Another member.
        second: TaskId,
        /// Its device.
        second_device: DeviceId,
    },
    /// More memory in use on a device than it has.
    #[error("{device} has {available} bytes, and {needed} are placed on it")]
    Memory {
        /// The device.
        device: DeviceId,
        /// Bytes of all tasks on it.
        needed: u128,
        /// Bytes that it has.
        available: u64,
    },
    /// A time that is negative, infinite or not a number.
    #[error("{what} has a time that is negative or not finite")]
    Time {
        /// The task or datum.
        what: Subject,
    },
    /// A task runs on another device than it is placed on.
    #[error("{task} is placed on {placed} but runs on {runs}")]
    OtherDevice {
        /// The task.
        task: TaskId,
        /// Where it is placed.
        placed: DeviceId,
        /// Where it runs.
        runs: DeviceId,
    },
    /// A task or transfer does not take as long as it costs.
    #[error("{what} takes {taken} and should take {cost}")]
    Duration {
        /// The task or datum.
        what: Subject,
        /// Its duration in the schedule.
        taken: f64,
        /// Its duration by the cost model.
        cost: f64,
    },
    /// Two things overlap on a device.
    #[error("{first} and {second} are on {device} at the same time")]
    Overlap {
        /// The device.
        device: DeviceId,
        /// What started first.
        first: Subject,
        /// What started before that had ended.
        second: Subject,
    },
    /// A task starts before one of its inputs is there.
    #[error("{task} starts at {start}, but {datum} is there only at {available}")]
    Precedence {
        /// The task.
        task: TaskId,
        /// When it starts.
        start: f64,
        /// The input.
        datum: DatumId,
        /// When the input is on the task's device.
        available: f64,
    },
    /// A datum that is needed on a device does not get there.
    #[error("{datum} is needed on {to} and not sent there")]
    MissingTransfer {
        /// The datum.
        datum: DatumId,
        /// The device.
        to: DeviceId,
    },
    /// A transfer that nobody needs, that repeats another, or whose ends or size are wrong.
    #[error("the transfer of {datum} from {from} to {to} is not needed, or a repetition, or of a wrong size")]
    NeedlessTransfer {
        /// The datum.
        datum: DatumId,
        /// Its source.
        from: DeviceId,
        /// Its target.
        to: DeviceId,
    },
    /// A send or transfer starts before its datum is there.
    #[error("the transfer of {datum} to {to} starts at {start}, but the datum is ready only at {available}")]
    EarlyTransfer {
        /// The datum.
        datum: DatumId,
        /// Its target.
        to: DeviceId,
        /// When the send or the transfer starts.
        start: f64,
        /// When it can.
        available: f64,
    },
    /// Two transfers share a link that carries one at a time.
    #[error("the transfers of {first} and {second} from {from} to {to} overlap")]
    SharedLink {
        /// The source.
        from: DeviceId,
        /// The target.
        to: DeviceId,
        /// What started first.
        first: DatumId,
        /// What started before that had arrived.
        second: DatumId,
    },
    /// The order is not a permutation of the tasks, or contradicts start times or the graph.
    #[error("the order does not hold every task once, by start time, after its predecessors; {task} is out of place")]
    Order {
        /// A task that is out of place, repeated or missing.
        task: TaskId,
    },
    /// The makespan is not the end of the last task.
    #[error("the makespan is said to be {given}, but the last task ends at {last}")]
    Makespan {
        /// What the schedule says.
        given: f64,
        /// The greatest end.
        last: f64,
    },
    /// The traffic is not the sum of the transfers.
    #[error("the traffic is said to be {given} bytes, but the transfers sum to {sum}")]
    Traffic {
        /// What the schedule says.
        given: u64,
        /// The sum.
        sum: u128,
    },
}

/// What a violation is about.
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
