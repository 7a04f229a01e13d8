//! A run's events, read: times by node and transfer, and as JSON.

use super::opened::Run;
use crate::execute::{Activity, Event, Lane};
use crate::plan::TransferId;
use crate::program::NodeId;
use anabranch_placement::platform::DeviceId;
use serde_json::{Value, json};

impl Run {
    /// Each node that ran, with the device that it ran on, in the order of the events.
    pub fn executed(&self) -> impl Iterator<Item = (NodeId, DeviceId)> {
        self.measured.events.iter().filter_map(|event| match (event.what, event.lane) {
            (Activity::Node(node), Lane::Device(device)) => Some((node, device)),
            _ => None,
        })
    }

    /// Each node that ran, with the seconds that it took, waits for chunks left out.
    pub fn node_times(&self) -> impl Iterator<Item = (NodeId, f64)> {
        self.measured.events.iter().filter_map(|event| match event.what {
            Activity::Node(node) => Some((node, seconds(event))),
            Activity::Transfer(_) => None,
        })
    }

    /// Each transfer, with the seconds that it took, likewise.
    pub fn transfer_times(&self) -> impl Iterator<Item = (TransferId, f64)> {
        self.measured.events.iter().filter_map(|event| match event.what {
            Activity::Transfer(transfer) => Some((transfer, seconds(event))),
            Activity::Node(_) => None,
        })
    }

    /// Bytes of all transfers that took place.
    pub fn traffic(&self) -> u64 {
        let transfers = self.measured.events.iter().filter(|event| matches!(event.what, Activity::Transfer(_)));
        transfers.map(|event| event.bytes).sum()
    }

    fn device_name(&self, device: DeviceId) -> &str {
        &self.prepared.plan().device(device).name
    }

    /// The device's name, or both ends' of the link.
    pub fn lane_name(&self, lane: Lane) -> String {
        match lane {
            Lane::Device(device) => self.device_name(device).to_owned(),
            Lane::Link { from, to } => format!("{} → {}", self.device_name(from), self.device_name(to)),
        }
    }

    /// The node's name, or the value's that travels.
    pub fn name(&self, what: Activity) -> &str {
        let (program, plan) = (&self.prepared.program, self.prepared.plan());
        match what {
            Activity::Node(node) => &program.node(node).name,
            Activity::Transfer(transfer) => &program.value(plan.transfer(transfer).value).name,
        }
    }
}

fn seconds(event: &Event) -> f64 {
    event.busy() as f64 * 1e-9
}

/// All events of a run as one JSON object. Times are nanoseconds since the run's start.
pub fn events_json(run: &Run) -> Value {
    let event = |event: &Event| {
        json!({
            "kind": match event.what { Activity::Node(_) => "node", Activity::Transfer(_) => "transfer" },
            "name": run.name(event.what),
            "on": run.lane_name(event.lane),
            "ready_ns": event.ready,
            "start_ns": event.start,
            "end_ns": event.end,
            "waited_ns": event.waited,
            "bytes": event.bytes,
        })
    };
    let events: Vec<_> = run.measured.events.iter().map(event).collect();
    json!({ "makespan_ns": run.measured.makespan.as_nanos() as u64, "events": events })
}
