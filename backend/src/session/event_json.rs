//! A run's events under their names, and as JSON.

use super::run::Run;
use crate::execute::{Activity, Event, Lane};
use anabranch_placement::platform::DeviceId;
use serde_json::{Value, json};

impl Run {
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
