//! Times of nodes and transfers, read from a run's events.

use crate::execute::{Activity, Event, Lane, RunOutput};
use crate::plan::TransferId;
use crate::program::NodeId;
use anabranch_placement::platform::DeviceId;

/// What a profiled run's events say of nodes and transfers.
impl RunOutput {
    /// Each node that ran, with the device that it ran on, in the order of the events.
    pub fn executed(&self) -> impl Iterator<Item = (NodeId, DeviceId)> {
        self.events.iter().filter_map(|event| match (event.what, event.lane) {
            (Activity::Node(node), Lane::Device(device)) => Some((node, device)),
            _ => None,
        })
    }

    /// Each node that ran, with the seconds that it took, waits for chunks left out.
    pub fn node_times(&self) -> impl Iterator<Item = (NodeId, f64)> {
        self.events.iter().filter_map(|event| match event.what {
            Activity::Node(node) => Some((node, seconds(event))),
            Activity::Transfer(_) => None,
        })
    }

    /// Each transfer, with the seconds that it took, likewise.
    pub fn transfer_times(&self) -> impl Iterator<Item = (TransferId, f64)> {
        self.events.iter().filter_map(|event| match event.what {
            Activity::Transfer(transfer) => Some((transfer, seconds(event))),
            Activity::Node(_) => None,
        })
    }

    /// Bytes of all transfers that took place.
    pub fn traffic(&self) -> u64 {
        let transfers = self.events.iter().filter(|event| matches!(event.what, Activity::Transfer(_)));
        transfers.map(|event| event.bytes).sum()
    }
}

fn seconds(event: &Event) -> f64 {
    event.busy() as f64 * 1e-9
}
