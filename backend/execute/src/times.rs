//! Times of nodes and transfers, read from a run's events.

use super::{Activity, Event, Lane, RunOutput};
use anabranch_ir::program::NodeId;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::{Plan, Route, Traffic, TransferId};

/// Times of nodes and transfers in a profiled run's events.
impl RunOutput {
    /// Iterates over the nodes that ran, with their devices, in the order of the events.
    pub fn executed(&self) -> impl Iterator<Item = (NodeId, DeviceId)> {
        self.events.iter().filter_map(|event| match (event.what, event.lane) {
            (Activity::Node(node), Lane::Device(device)) => Some((node, device)),
            _ => None,
        })
    }

    /// Iterates over the nodes that ran, with their seconds, without waits for chunks.
    pub fn node_times(&self) -> impl Iterator<Item = (NodeId, f64)> {
        self.events.iter().filter_map(|event| match event.what {
            Activity::Node(node) => Some((node, seconds(event))),
            Activity::Transfer(_) => None,
        })
    }

    /// Iterates over the transfers, with their seconds, without waits.
    pub fn transfer_times(&self) -> impl Iterator<Item = (TransferId, f64)> {
        self.events.iter().filter_map(|event| match event.what {
            Activity::Transfer(transfer) => Some((transfer, seconds(event))),
            Activity::Node(_) => None,
        })
    }

    /// Returns the traffic between devices. `plan` is the plan of the run; without a plan every transfer is a copy.
    pub fn traffic(&self, plan: Option<&Plan>) -> Traffic {
        let mut traffic = Traffic::default();
        for event in &self.events {
            if let Activity::Transfer(id) = event.what {
                traffic.add(plan.map_or(&Route::Copied, |plan| &plan.transfer(id).route), event.bytes);
            }
        }
        traffic
    }
}

fn seconds(event: &Event) -> f64 {
    event.busy() as f64 * 1e-9
}
