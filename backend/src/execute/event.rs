//! What happened when in a run.

use crate::plan::TransferId;
use crate::program::NodeId;
use anabranch_placement::platform::DeviceId;

/// What took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// A node ran.
    Node(NodeId),
    /// A value travelled.
    Transfer(TransferId),
}

/// Where something takes place. What is on one lane never overlaps, but for values that one node streams to one other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// On a device.
    Device(DeviceId),
    /// On the link between two.
    Link {
        /// The sender.
        from: DeviceId,
        /// The receiver.
        to: DeviceId,
    },
}

/// One thing that happened. Times in nanoseconds since the run's start; `ready ≤ start ≤ end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub what: Activity,
    /// Where.
    pub lane: Lane,
    /// When the lane turned to it and began to wait for what it needs.
    pub ready: u64,
    /// When all was there.
    pub start: u64,
    /// When it was done.
    pub end: u64,
    /// Of the time from start to end, what went by in waiting for chunks, or for room for them.
    pub waited: u64,
    /// Of a transfer, the bytes that arrived; of a node, the bytes that it made.
    pub bytes: u64,
}

impl Event {
    /// Nanoseconds that it took without the waits in it.
    pub fn busy(&self) -> u64 {
        self.end.saturating_sub(self.start).saturating_sub(self.waited)
    }
}
