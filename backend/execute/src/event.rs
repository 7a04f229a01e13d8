//! Events of a run with their times.

use anabranch_ir::program::NodeId;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::TransferId;
use std::collections::{BTreeMap, BTreeSet};

/// Activity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// A node ran.
    Node(NodeId),
    /// A value was transferred.
    Transfer(TransferId),
}

/// Place of an event. Events of one lane never overlap, except values that one node streams to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// On a device.
    Device(DeviceId),
    /// On the link between two devices.
    Link {
        /// Sending device.
        from: DeviceId,
        /// Receiving device.
        to: DeviceId,
    },
}

/// One event of a run. Times are in nanoseconds since the run's start; `ready ≤ start ≤ end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Activity of the event.
    pub what: Activity,
    /// Lane of the event.
    pub lane: Lane,
    /// Time at which the lane turned to the activity and started to wait for its inputs.
    pub ready: u64,
    /// Time at which all inputs were present. For a transfer from a GPU: time at which the GPU finished the node that
    /// made the value.
    pub start: u64,
    /// Time at which the activity was done.
    pub end: u64,
    /// Part of the time from start to end spent waiting for chunks, for free buffers, or for a GPU that was computing.
    pub waited: u64,
    /// Bytes that arrived in a transfer, or that a node made.
    pub bytes: u64,
}

impl Event {
    /// Returns the nanoseconds of the activity without its waits.
    pub fn busy(&self) -> u64 {
        self.end.saturating_sub(self.start).saturating_sub(self.waited)
    }
}

/// Separates the copy of a value from a GPU from the wait for its node.
///
/// A link turns to a value when its node is submitted, and requests the copy behind the node. The copy starts when the
/// node is done there. If the GPU ran other nodes in between, the copy starts when the host has seen the end of all
/// earlier submissions, as the event says. `maker` returns the GPU node whose value a transfer moves, and whether the
/// node passes the value on in chunks. In that case the device computes and copies alternately, and the node's time
/// counts as a wait.
pub(super) fn start_copies(events: &mut [Event], maker: impl Fn(TransferId) -> Option<(NodeId, bool)>) {
    let is_copy = |event: &Event| matches!(event.what, Activity::Transfer(id) if maker(id).is_some());
    if !events.iter().any(is_copy) {
        return;
    }
    let mut nodes: BTreeMap<NodeId, Event> = BTreeMap::new();
    let mut starts: BTreeSet<(Lane, u64)> = BTreeSet::new();
    for event in events.iter() {
        if let Activity::Node(node) = event.what {
            nodes.insert(node, *event);
            starts.insert((event.lane, event.start));
        }
    }
    for event in events {
        let Activity::Transfer(id) = event.what else { continue };
        let Some((made, in_chunks)) = maker(id).and_then(|(node, in_chunks)| Some((nodes.get(&node)?, in_chunks)))
        else {
            continue;
        };
        if in_chunks {
            event.waited = event.waited.max(made.busy());
        } else {
            let between = starts.range((made.lane, made.end)..(made.lane, event.start.max(made.end)));
            event.start = if between.count() > 0 { event.start } else { made.end.max(event.ready) }.min(event.end);
        }
        event.waited = event.waited.min(event.end - event.start);
    }
}

/// Separates the copy of whole values to GPUs from waits: a GPU does one thing after the other, so that a copy to it
/// stands still while it computes.
///
/// `to` returns the GPU of a transfer that a CPU sends whole. The time spent waiting for staging buffers is a wait as
/// far as nodes ran on the GPU meanwhile; the rest is copying.
pub(super) fn part_copies(events: &mut [Event], to: impl Fn(TransferId) -> Option<DeviceId>) {
    if !events.iter().any(|event| matches!(event.what, Activity::Transfer(id) if to(id).is_some())) {
        return;
    }
    let mut nodes: BTreeMap<DeviceId, Vec<(u64, u64)>> = BTreeMap::new();
    for event in events.iter() {
        if let (Activity::Node(_), Lane::Device(device)) = (event.what, event.lane) {
            nodes.entry(device).or_default().push((event.start, event.end));
        }
    }
    nodes.values_mut().for_each(|spans| spans.sort_unstable());
    for event in events.iter_mut().filter(|event| event.waited > 0) {
        let Activity::Transfer(id) = event.what else { continue };
        let Some(spans) = to(id).map(|device| nodes.get(&device).map_or(&[][..], Vec::as_slice)) else { continue };
        let first = spans.partition_point(|(_, end)| *end <= event.start);
        let meanwhile = spans[first..].iter().take_while(|(start, _)| *start < event.end);
        let computed: u64 = meanwhile.map(|(start, end)| event.end.min(*end) - event.start.max(*start)).sum();
        event.waited = event.waited.min(computed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: Activity, [ready, start, end, waited]: [u64; 4]) -> Event {
        Event { what, lane: Lane::Device(DeviceId(0)), ready, start, end, waited, bytes: 4 }
    }

    #[test]
    fn a_copy_to_a_gpu_stands_still_while_that_computes() {
        let node = |number, start, end| event(Activity::Node(NodeId(number)), [start, start, end, 0]);
        let copy = |number, times| event(Activity::Transfer(TransferId(number)), times);
        let times = [[0, 10, 100, 80], [0, 10, 100, 20], [0, 60, 100, 30], [0, 10, 100, 80]];
        let mut events = [0, 1, 2, 3].map(|number| copy(number, times[number as usize])).to_vec();
        events.extend([node(1, 40, 55), node(0, 0, 30), node(2, 95, 200)]);
        part_copies(&mut events, |id| (id.0 < 3).then_some(DeviceId(0)));
        assert_eq!([0, 1, 2, 3].map(|at: usize| events[at].waited), [20 + 15 + 5, 20, 5, 80]);
    }

    #[test]
    fn a_copy_starts_when_its_node_is_done_or_what_came_between() {
        let (node, other) = (Activity::Node(NodeId(7)), Activity::Node(NodeId(8)));
        let [whole, chunks, late, input] = [0, 1, 2, 3].map(|id| Activity::Transfer(TransferId(id)));
        let maker = |id: TransferId| (id.0 < 3).then_some((NodeId(7), id.0 == 1));
        let mut events = [
            event(node, [5, 10, 100, 20]),
            event(other, [5, 104, 200, 0]),
            // The host saw the end of the node a little later …
            event(whole, [0, 103, 110, 0]),
            event(chunks, [0, 6, 120, 10]),
            // … and here also the end of the other node.
            event(late, [0, 203, 210, 0]),
            event(input, [0, 6, 130, 0]),
        ];
        start_copies(&mut events, maker);
        let times = events[2..].iter().map(|event| (event.start, event.busy())).collect::<Vec<_>>();
        assert_eq!(times, [(100, 10), (6, 114 - 70), (203, 7), (6, 124)]);
        // The clocks of a device agree to some microseconds: a copy never ends before it starts.
        let mut events = [event(node, [5, 10, 100, 0]), event(whole, [0, 6, 90, 0])];
        start_copies(&mut events, maker);
        assert_eq!((events[1].start, events[1].busy()), (90, 0));
    }
}
