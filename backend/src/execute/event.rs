//! What happened when in a run.

use crate::plan::TransferId;
use crate::program::NodeId;
use anabranch_placement::platform::DeviceId;
use std::collections::BTreeMap;

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
    /// When all was there. Of a transfer from a GPU: when the node that made the value was done there.
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

/// Tells the copying of a value from a GPU from the wait for its node. Who copies turns to a value when its node is submitted, and asks
/// the device for the bytes behind it; that begins to copy when the node is done, which is therefore taken for the copy's start. What
/// others have submitted in between still counts as copying. `maker` names the GPU node whose value a transfer is, and whether that is
/// passed on in chunks while it is made: then the device computes and copies by turns, and the node's time is waited for.
pub(super) fn start_copies(events: &mut [Event], maker: impl Fn(TransferId) -> Option<(NodeId, bool)>) {
    let node = |event: &Event| match event.what {
        Activity::Node(node) => Some((node, *event)),
        Activity::Transfer(_) => None,
    };
    let nodes: BTreeMap<NodeId, Event> = events.iter().filter_map(node).collect();
    for event in events {
        let Activity::Transfer(id) = event.what else { continue };
        let Some((made, in_chunks)) = maker(id).and_then(|(node, in_chunks)| Some((nodes.get(&node)?, in_chunks)))
        else {
            continue;
        };
        match in_chunks {
            true => event.waited = event.waited.max(made.busy()),
            false => event.start = event.start.max(made.end).min(event.end),
        }
        event.waited = event.waited.min(event.end - event.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: Activity, [ready, start, end, waited]: [u64; 4]) -> Event {
        Event { what, lane: Lane::Device(DeviceId(0)), ready, start, end, waited, bytes: 4 }
    }

    #[test]
    fn a_copy_starts_when_its_node_is_done() {
        let (node, whole, chunks, other) = (
            NodeId(7),
            Activity::Transfer(TransferId(0)),
            Activity::Transfer(TransferId(1)),
            Activity::Transfer(TransferId(2)),
        );
        let mut events = [
            event(Activity::Node(node), [5, 10, 100, 20]),
            event(whole, [0, 6, 110, 0]),
            event(chunks, [0, 6, 120, 10]),
            event(other, [0, 6, 130, 0]),
        ];
        start_copies(&mut events, |id| (id.0 < 2).then_some((node, id.0 == 1)));
        let times = events.map(|event| (event.start, event.busy()));
        assert_eq!(times, [(10, 70), (100, 10), (6, 114 - 70), (6, 124)]);
        // Clocks of a device agree to some microseconds: a copy never ends before it starts.
        let mut events = [event(Activity::Node(node), [5, 10, 100, 0]), event(whole, [0, 6, 90, 0])];
        start_copies(&mut events, |_| Some((node, false)));
        assert_eq!((events[1].start, events[1].busy()), (90, 0));
    }
}
