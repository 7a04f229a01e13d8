//! Events of a run with names, and as JSON.

use super::run::Run;
use super::whole::Part;
use anabranch_execute::{Activity, Event, Lane};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::HOST;
use serde_json::{Value, json};

impl Part<'_> {
    fn device_name(&self, device: DeviceId) -> &str {
        &self.planned.plan().device(device).name
    }

    /// Returns the device's name, or the names of both ends of the link.
    pub fn lane_name(&self, lane: Lane) -> String {
        match lane {
            Lane::Device(device) => self.device_name(device).to_owned(),
            Lane::Link { from, to } => format!("{} → {}", self.device_name(from), self.device_name(to)),
        }
    }

    /// Returns the name of the node, or of the transferred value.
    pub fn name(&self, what: Activity) -> &str {
        let (program, plan) = (&self.planned.program, self.planned.plan());
        match what {
            Activity::Node(node) => &program.node(node).name,
            Activity::Transfer(transfer) => &program.value(plan.transfer(transfer).value).name,
        }
    }

    /// Iterates over its events, with times since the whole run's start.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        let begun = self.begun.as_nanos() as u64;
        self.measured.events.iter().map(move |event| Event {
            ready: event.ready + begun,
            start: event.start + begun,
            end: event.end + begun,
            ..*event
        })
    }
}

/// Returns all events of a run as one JSON object: those of all its phases, and the operators that the host computed in
/// between. Times are in nanoseconds since the run's start.
pub fn events_json(run: &Run) -> Value {
    let in_phases = run.later.is_some();
    let mut events = Vec::new();
    for (number, part) in run.parts().iter().enumerate() {
        events.extend(part.events().map(|event| {
            let mut value = event_json(part, &event);
            if in_phases {
                value["phase"] = json!(number);
            }
            value
        }));
    }
    let host = run.prepared.plan().device(HOST).name.as_str();
    events.extend(run.host_operators().iter().map(|step| {
        let (start, took) = (step.begun.as_nanos() as u64, step.took.as_nanos() as u64);
        json!({
            "kind": "step", "name": step.name, "on": host, "ready_ns": start, "start_ns": start, "end_ns": start + took, "waited_ns": 0,
            "bytes": step.bytes,
        })
    }));
    let left_out = run.later.as_ref().map_or(0, |later| later.left_out);
    json!({ "makespan_ns": run.took().as_nanos() as u64, "events": events, "left_out": left_out })
}

fn event_json(part: &Part<'_>, event: &Event) -> Value {
    json!({
        "kind": match event.what { Activity::Node(_) => "node", Activity::Transfer(_) => "transfer" },
        "name": part.name(event.what),
        "on": part.lane_name(event.lane),
        "ready_ns": event.ready,
        "start_ns": event.start,
        "end_ns": event.end,
        "waited_ns": event.waited,
        "bytes": event.bytes,
    })
}
