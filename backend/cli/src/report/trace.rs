//! A run as a trace: a track for each device and link, slices for nodes and transfers, flows from who makes a tensor over its
//! transfer to who reads it, counters of the memory in use and of the bytes in flight.

use super::memory;
use super::spans::{Spans, Steps};
use crate::trace::{Slice, SliceId, Trace, Track};
use anabranch::execute::{Activity, Event, Lane};
use anabranch::program::{NodeId, Origin, ValueId};
use anabranch::session::Run;
use anabranch_placement::platform::DeviceId;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn trace(run: &Run) -> Trace {
    let mut trace = Trace::default();
    let tracks = add_tracks(run, &mut trace);
    let slices: Vec<SliceId> =
        run.measured.events.iter().map(|event| trace.slice(slice(run, &tracks, event))).collect();
    add_flows(run, &mut trace, &slices);
    add_counters(run, &mut trace, &tracks);
    trace
}

/// A track for the run, for each device, and for each link on which something happened.
fn add_tracks(run: &Run, trace: &mut Trace) -> BTreeMap<Lane, Track> {
    let devices = trace.group("anabranch: devices");
    let track = trace.track(devices, "run");
    let end = Spans::measured(run).makespan;
    let arguments = Map::from_iter([
        ("nodes".to_owned(), json!(run.prepared.program.nodes.len())),
        ("strategy".to_owned(), json!(run.prepared.plan().strategy())),
    ]);
    trace.slice(Slice { track, name: "model_run".into(), category: "session", start: 0, end, arguments });
    let mut tracks = BTreeMap::new();
    for index in 0..run.prepared.plan().devices().len() {
        let lane = Lane::Device(DeviceId(index as u32));
        tracks.insert(lane, trace.track(devices, &run.lane_name(lane)));
    }
    let links = run.measured.events.iter().map(|event| event.lane).filter(|lane| matches!(lane, Lane::Link { .. }));
    let links: BTreeSet<Lane> = links.collect();
    if !links.is_empty() {
        let group = trace.group("anabranch: links");
        tracks.extend(links.into_iter().map(|lane| (lane, trace.track(group, &run.lane_name(lane)))));
    }
    tracks
}

fn slice(run: &Run, tracks: &BTreeMap<Lane, Track>, event: &Event) -> Slice {
    let category = match event.what {
        Activity::Node(_) => "node",
        Activity::Transfer(_) => "transfer",
    };
    let (name, arguments) = (run.name(event.what).to_owned(), arguments(run, event));
    Slice { track: tracks[&event.lane], name, category, start: event.start, end: event.end, arguments }
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

/// Arrows from producer to consumer; where a transfer is between them, over it. `slices` are those of the events.
fn add_flows(run: &Run, trace: &mut Trace, slices: &[SliceId]) {
    let (program, plan) = (&run.prepared.program, run.prepared.plan());
    let mut nodes: BTreeMap<NodeId, SliceId> = BTreeMap::new();
    let mut transfers: BTreeMap<(ValueId, DeviceId), SliceId> = BTreeMap::new();
    for (event, slice) in run.measured.events.iter().zip(slices) {
        match event.what {
            Activity::Node(node) => _ = nodes.insert(node, *slice),
            Activity::Transfer(id) => _ = transfers.insert((plan.transfer(id).value, plan.transfer(id).to), *slice),
        }
    }
    let producer = |value: ValueId| match program.value(value).origin {
        Origin::Node(producer) => nodes.get(&producer).copied(),
        Origin::Input | Origin::Constant(_) => None,
    };
    let reads = nodes.iter().flat_map(|(node, slice)| {
        let source = |value: &ValueId| {
            let sent = transfers.get(&(*value, plan.device_of(*node))).copied();
            Some((*value, sent.or_else(|| producer(*value))?, *slice))
        };
        program.node(*node).inputs.iter().filter_map(source)
    });
    let sends = transfers.iter().filter_map(|((value, _), slice)| Some((*value, producer(*value)?, *slice)));
    for (value, from, to) in reads.chain(sends) {
        trace.flow(&program.value(value).name, from, to);
    }
}

fn add_counters(run: &Run, trace: &mut Trace, tracks: &BTreeMap<Lane, Track>) {
    let (program, plan) = (&run.prepared.program, run.prepared.plan());
    for (index, steps) in memory::over_time(program, plan, &Spans::measured(run)).into_iter().enumerate() {
        if let Some(track) = tracks.get(&Lane::Device(DeviceId(index as u32))) {
            trace.counter(*track, "memory in use", steps);
        }
    }
    for (lane, track) in tracks.iter().filter(|(lane, _)| matches!(lane, Lane::Link { .. })) {
        let events = run.measured.events.iter().filter(|event| event.lane == *lane);
        let things = events.map(|event| (event.start, event.end, event.bytes));
        trace.counter(*track, "bytes in flight", in_flight(things));
    }
}

/// What is under way from moment to moment, of things that start and end.
fn in_flight(things: impl Iterator<Item = (u64, u64, u64)>) -> Steps {
    let mut changes: BTreeMap<u64, i128> = BTreeMap::from([(0, 0)]);
    for (start, end, bytes) in things {
        *changes.entry(start).or_default() += i128::from(bytes);
        *changes.entry(end).or_default() -= i128::from(bytes);
    }
    memory::summed(&changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_is_summed() {
        let things = [(10, 30, 5), (20, 40, 7), (40, 50, 1)];
        assert_eq!(in_flight(things.into_iter()), [[0, 0], [10, 5], [20, 12], [30, 7], [40, 1], [50, 0]]);
    }
}
