//! A run as a trace: a track for each device and link, slices for nodes and transfers, flows from who makes a tensor over its
//! transfer to who reads it, counters of the memory in use and of the bytes in flight.

use super::memory;
use super::spans::Spans;
use crate::trace::{Slice, Trace, Track};
use anabranch::execute::{Activity, Event, Lane};
use anabranch::program::{NodeId, Origin, ValueId};
use anabranch::session::Run;
use anabranch_placement::platform::DeviceId;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The trace of a run that was profiled.
pub(crate) fn trace(run: &Run) -> Trace {
    let mut trace = Trace::default();
    let tracks = add_tracks(run, &mut trace);
    for event in &run.measured.events {
        trace.slice(slice(run, &tracks, event), arguments(run, event));
    }
    add_flows(run, &mut trace, &tracks);
    add_counters(run, &mut trace, &tracks);
    trace
}

/// A track for the run, for each device, and for each link on which something happened.
fn add_tracks(run: &Run, trace: &mut Trace) -> BTreeMap<Lane, Track> {
    let devices = trace.group("anabranch: devices");
    let whole = trace.track(devices, "run");
    let end = Spans::measured(run).makespan;
    let arguments = json!({ "nodes": run.prepared.program.nodes.len(), "strategy": run.prepared.plan().strategy() });
    let run_slice = Slice { track: whole, name: "model_run", category: "session", start: 0, end };
    trace.slice(run_slice, arguments.as_object().cloned().unwrap_or_default());
    let mut tracks = BTreeMap::new();
    for index in 0..run.prepared.plan().devices().len() {
        let lane = Lane::Device(DeviceId(index as u32));
        tracks.insert(lane, trace.track(devices, &run.lane_name(lane)));
    }
    let mut links: Vec<Lane> = run.measured.events.iter().map(|event| event.lane).collect();
    links.sort_unstable();
    links.dedup();
    links.retain(|lane| matches!(lane, Lane::Link { .. }));
    if !links.is_empty() {
        let group = trace.group("anabranch: links");
        tracks.extend(links.into_iter().map(|lane| (lane, trace.track(group, &run.lane_name(lane)))));
    }
    tracks
}

fn slice<'a>(run: &'a Run, tracks: &BTreeMap<Lane, Track>, event: &Event) -> Slice<'a> {
    let category = match event.what {
        Activity::Node(_) => "node",
        Activity::Transfer(_) => "transfer",
    };
    Slice { track: tracks[&event.lane], name: run.name(event.what), category, start: event.start, end: event.end }
}

/// Of nodes, `op_name` and `provider` are called so by ONNX Runtime's profiles too.
fn arguments(run: &Run, event: &Event) -> Map<String, Value> {
    let (program, plan) = (&run.prepared.program, run.prepared.plan());
    let micro = |seconds: f64| seconds * 1e6;
    let mut arguments = Map::new();
    let mut put = |name: &str, value: Value| arguments.insert(name.to_owned(), value);
    put("bytes", json!(event.bytes));
    put("queue_wait_us", json!(event.start.saturating_sub(event.ready) as f64 / 1e3));
    put("chunk_wait_us", json!(event.waited as f64 / 1e3));
    match event.what {
        Activity::Node(id) => {
            let node = program.node(id);
            put("op_name", json!(node.spec.op.name()));
            put("provider", json!(plan.device(plan.device_of(id)).name));
            put("operators", json!(node.operators.iter().map(|operator| &operator.name).collect::<Vec<_>>()));
            if let Some(block) = run.prepared.block(id) {
                put("members", json!(block.members));
                put("rows", json!(block.rows));
                put("chunk_rows", json!(block.chunk_rows));
            }
            put("predicted_us", json!(micro(plan.predicted().busy[id.index()])));
        }
        Activity::Transfer(id) => {
            let stream = plan.transfer(id).stream();
            put("streamed", json!(stream.is_some()));
            put("chunks", json!(stream.map_or(1, |stream| stream.chunks())));
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
    let producer = |value: ValueId| match program.value(value).origin {
        Origin::Node(producer) => nodes.get(&producer).copied(),
        Origin::Input | Origin::Constant(_) => None,
    };
    let mut arrow = |value: ValueId, from: &Event, to: &Event| {
        trace.flow(&program.value(value).name, slice(run, tracks, from), slice(run, tracks, to));
    };
    for (node, event) in &nodes {
        for value in &program.node(*node).inputs {
            let sent = transfers.get(&(*value, plan.device_of(*node))).copied();
            if let Some(from) = sent.or_else(|| producer(*value)) {
                arrow(*value, from, event);
            }
        }
    }
    for ((value, _), transfer) in &transfers {
        if let Some(from) = producer(*value) {
            arrow(*value, from, transfer);
        }
    }
}

fn add_counters(run: &Run, trace: &mut Trace, tracks: &BTreeMap<Lane, Track>) {
    let (program, plan) = (&run.prepared.program, run.prepared.plan());
    for (index, steps) in memory::over_time(program, plan, &Spans::measured(run)).into_iter().enumerate() {
        if let Some(track) = tracks.get(&Lane::Device(DeviceId(index as u32))) {
            trace.counter(*track, "memory in use", steps.into_iter().map(|[time, bytes]| (time, bytes)));
        }
    }
    for (lane, track) in tracks.iter().filter(|(lane, _)| matches!(lane, Lane::Link { .. })) {
        let events = run.measured.events.iter().filter(|event| event.lane == *lane);
        let things = events.map(|event| (event.start, event.end, event.bytes));
        trace.counter(*track, "bytes in flight", in_flight(things));
    }
}

/// What is under way from moment to moment, of things that start and end.
fn in_flight(things: impl Iterator<Item = (u64, u64, u64)>) -> Vec<(u64, u64)> {
    let mut changes: BTreeMap<u64, i128> = BTreeMap::from([(0, 0)]);
    for (start, end, bytes) in things {
        *changes.entry(start).or_default() += i128::from(bytes);
        *changes.entry(end).or_default() -= i128::from(bytes);
    }
    let mut held = 0;
    let sum = |(time, change): (u64, i128)| {
        held += change;
        (time, u64::try_from(held).unwrap_or(0))
    };
    changes.into_iter().map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_is_summed() {
        let things = [(10, 30, 5), (20, 40, 7), (40, 50, 1)];
        assert_eq!(in_flight(things.into_iter()), [(0, 0), (10, 5), (20, 12), (30, 7), (40, 1), (50, 0)]);
    }
}
