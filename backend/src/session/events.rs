//! A run's events, read: times by node and transfer, as JSON, and as a trace.

use super::opened::Run;
use crate::execute::{Activity, Event, Lane};
use crate::plan::TransferId;
use crate::profile::{Slice, Trace, Track};
use crate::program::{NodeId, Origin, ValueId};
use anabranch_placement::platform::DeviceId;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

impl Run {
    /// Each node that ran, with the device that it ran on, in the order of the events.
    pub fn executed(&self) -> impl Iterator<Item = (NodeId, DeviceId)> {
        self.measured.events.iter().filter_map(|event| match (event.what, event.lane) {
            (Activity::Node(node), Lane::Device(device)) => Some((node, device)),
            _ => None,
        })
    }

    /// Each node that ran, with the seconds that it took.
    pub fn node_times(&self) -> impl Iterator<Item = (NodeId, f64)> {
        self.measured.events.iter().filter_map(|event| match event.what {
            Activity::Node(node) => Some((node, seconds(event))),
            Activity::Transfer(_) => None,
        })
    }

    /// Each transfer, with the seconds that it took.
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

    fn lane_name(&self, lane: Lane) -> String {
        match lane {
            Lane::Device(device) => self.device_name(device).to_owned(),
            Lane::Link { from, to } => format!("{} → {}", self.device_name(from), self.device_name(to)),
        }
    }

    /// The node's name, or the value's that travels.
    fn name(&self, what: Activity) -> &str {
        let (program, plan) = (&self.prepared.program, self.prepared.plan());
        match what {
            Activity::Node(node) => &program.node(node).name,
            Activity::Transfer(transfer) => &program.value(plan.transfer(transfer).value).name,
        }
    }
}

fn seconds(event: &Event) -> f64 {
    event.end.saturating_sub(event.start) as f64 * 1e-9
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
            "bytes": event.bytes,
        })
    };
    let events: Vec<_> = run.measured.events.iter().map(event).collect();
    json!({ "makespan_ns": run.measured.makespan.as_nanos() as u64, "events": events })
}

/// A run as a trace: one track a device and a link, slices for nodes and transfers, flows along the edges.
pub fn trace(run: &Run) -> Trace {
    let mut trace = Trace::new("anabranch");
    let mut lanes: Vec<Lane> = run.measured.events.iter().map(|event| event.lane).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let tracks: BTreeMap<Lane, Track> = lanes.iter().map(|lane| (*lane, trace.track(&run.lane_name(*lane)))).collect();
    for event in &run.measured.events {
        let category = match event.what {
            Activity::Node(_) => "node",
            Activity::Transfer(_) => "transfer",
        };
        let slice = Slice {
            track: tracks[&event.lane],
            name: run.name(event.what),
            category,
            start: event.start,
            end: event.end,
        };
        trace.slice(slice, arguments(run, event));
    }
    add_flows(run, &mut trace, &tracks);
    trace
}

fn arguments(run: &Run, event: &Event) -> Map<String, Value> {
    let mut arguments = Map::new();
    arguments.insert("bytes".into(), json!(event.bytes));
    arguments.insert("queue_wait_us".into(), json!(event.start.saturating_sub(event.ready) as f64 / 1e3));
    match event.what {
        Activity::Node(node) => {
            let node = run.prepared.program.node(node);
            arguments.insert("op".into(), json!(node.spec.op.name()));
            arguments.insert("operators".into(), json!(node.operators));
        }
        Activity::Transfer(transfer) => {
            let streamed = run.prepared.plan().transfer(transfer).stream().is_some();
            arguments.insert("streamed".into(), json!(streamed));
        }
    }
    arguments
}

/// Arrows from producer to consumer; where a transfer is between them, over it.
fn add_flows(run: &Run, trace: &mut Trace, tracks: &BTreeMap<Lane, Track>) {
    let (program, plan) = (&run.prepared.program, run.prepared.plan());
    let mut nodes: BTreeMap<NodeId, &Event> = BTreeMap::new();
    let mut transfers: BTreeMap<(ValueId, DeviceId), &Event> = BTreeMap::new();
    for event in &run.measured.events {
        match event.what {
            Activity::Node(node) => {
                nodes.insert(node, event);
            }
            Activity::Transfer(id) => {
                let transfer = plan.transfer(id);
                transfers.insert((transfer.value, transfer.to), event);
            }
        }
    }
    let mut arrow = |from: &Event, to: &Event| {
        trace.flow((tracks[&from.lane], from.end), (tracks[&to.lane], to.start.max(from.end)));
    };
    for (node, event) in &nodes {
        for value in &program.node(*node).inputs {
            let producer = match program.value(*value).origin {
                Origin::Node(producer) => nodes.get(&producer),
                Origin::Input | Origin::Constant(_) => None,
            };
            match (producer, transfers.get(&(*value, plan.device_of(*node)))) {
                (_, Some(transfer)) => arrow(transfer, event),
                (Some(producer), None) => arrow(producer, event),
                (None, None) => {}
            }
        }
    }
    for ((value, _), transfer) in &transfers {
        if let Origin::Node(producer) = program.value(*value).origin
            && let Some(producer) = nodes.get(&producer)
        {
            arrow(producer, transfer);
        }
    }
}
