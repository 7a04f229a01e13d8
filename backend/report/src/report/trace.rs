//! A run as a trace. It has a track for each device and link, and slices for nodes and transfers. Flows lead from the
//! node that makes a tensor over its transfer to the node that reads it. Counters show the memory in use and the bytes
//! in flight. All phases of a model are on one time axis.

use super::memory;
use super::spans::{Spans, Steps};
use crate::trace::{Group, Slice, SliceId, Trace, Track};
use anabranch::execute::{Activity, Event, Lane};
use anabranch::program::{NodeId, Origin, ValueId};
use anabranch::session::{Part, Run};
use anabranch_placement::platform::DeviceId;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the trace of a run with a profile: a track for each device and link, the predicted times, and memory over
/// time.
pub fn trace(run: &Run) -> Trace {
    let mut trace = Trace::default();
    let parts = run.parts();
    let tracks = add_tracks(run, &parts, &mut trace);
    for part in &parts {
        let events: Vec<Event> = part.events().collect();
        let slices: Vec<SliceId> = events.iter().map(|event| trace.slice(slice(part, &tracks, event))).collect();
        add_flows(part, &mut trace, &events, &slices);
    }
    add_predicted(run, &parts, &mut trace);
    add_counters(&parts, &mut trace, &tracks);
    trace
}

/// Adds a track for each device with the nodes at their predicted times.
fn add_predicted(run: &Run, parts: &[Part<'_>], trace: &mut Trace) {
    let group = trace.group("anabranch: predicted");
    for (index, device) in run.prepared.plan().devices().iter().enumerate() {
        let track = trace.track(group, &format!("{}, predicted", device.name));
        for part in parts {
            let (program, plan, spans) = (&part.planned.program, part.planned.plan(), Spans::of_part(part));
            let [predicted, measured] = &spans;
            let mut own: Vec<_> = program.node_ids().filter(|id| plan.device_of(*id).index() == index).collect();
            own.sort_by_key(|id| predicted.tasks[id.index()].start);
            let mut free = 0;
            for id in own {
                let (times, took) = (predicted.tasks[id.index()], measured.tasks[id.index()]);
                // Rounded times of neighbours may overlap by a nanosecond.
                let (start, end) = (times.start.max(free), times.end.max(times.start.max(free)));
                free = end;
                let arguments = Map::from_iter([("measured_us".to_owned(), json!(took.busy as f64 / 1e3))]);
                let name = program.node(id).name.clone();
                trace.slice(Slice { track, name, category: "predicted", start, end, arguments });
            }
        }
    }
}

/// Adds a track for the run, for each device, and for each link with events. If the model runs in phases, also for the
/// phases and the host's operators between them.
fn add_tracks(run: &Run, parts: &[Part<'_>], trace: &mut Trace) -> BTreeMap<Lane, Track> {
    let devices = trace.group("anabranch: devices");
    let track = trace.track(devices, "run");
    let end = parts.iter().map(|part| Spans::of_part(part)[1].makespan).max().unwrap_or(0);
    let arguments = Map::from_iter([
        ("nodes".to_owned(), json!(run.plans().iter().map(|plan| plan.program.nodes.len()).sum::<usize>())),
        ("strategy".to_owned(), json!(run.prepared.plan().strategy())),
    ]);
    let end = end.max(run.took().as_nanos() as u64);
    trace.slice(Slice { track, name: "model_run".into(), category: "session", start: 0, end, arguments });
    if run.later.is_some() {
        add_phases(run, parts, trace, devices);
    }
    let mut tracks = BTreeMap::new();
    for index in 0..run.prepared.plan().devices().len() {
        let lane = Lane::Device(DeviceId(index as u32));
        tracks.insert(lane, trace.track(devices, &parts[0].lane_name(lane)));
    }
    let lanes = parts.iter().flat_map(|part| &part.measured.events).map(|event| event.lane);
    let links: BTreeSet<Lane> = lanes.filter(|lane| matches!(lane, Lane::Link { .. })).collect();
    if !links.is_empty() {
        let group = trace.group("anabranch: links");
        tracks.extend(links.into_iter().map(|lane| (lane, trace.track(group, &parts[0].lane_name(lane)))));
    }
    tracks
}

/// Adds the times of each phase, and the host's operators between them.
fn add_phases(run: &Run, parts: &[Part<'_>], trace: &mut Trace, group: Group) {
    let track = trace.track(group, "phases");
    for (number, part) in parts.iter().enumerate() {
        let (start, took) = (part.begun.as_nanos() as u64, part.measured.makespan.as_nanos() as u64);
        let arguments = Map::from_iter([
            ("nodes".to_owned(), json!(part.planned.program.nodes.len())),
            ("predicted_us".to_owned(), json!(part.planned.plan().predicted().makespan * 1e6)),
        ]);
        let name = format!("phase {number}");
        trace.slice(Slice { track, name, category: "phase", start, end: start + took, arguments });
    }
    let track = trace.track(group, "host operators");
    for step in run.host_operators() {
        let (start, took) = (step.begun.as_nanos() as u64, step.took.as_nanos() as u64);
        let arguments =
            Map::from_iter([("op_name".to_owned(), json!(step.operator)), ("bytes".to_owned(), json!(step.bytes))]);
        let (name, end) = (step.name.clone(), start + took);
        trace.slice(Slice { track, name, category: "step", start, end, arguments });
    }
}

fn slice(part: &Part<'_>, tracks: &BTreeMap<Lane, Track>, event: &Event) -> Slice {
    let category = match event.what {
        Activity::Node(_) => "node",
        Activity::Transfer(_) => "transfer",
    };
    let (name, arguments) = (part.name(event.what).to_owned(), arguments(part, event));
    Slice { track: tracks[&event.lane], name, category, start: event.start, end: event.end, arguments }
}

/// Returns the arguments of an event. For nodes, `op_name` and `provider` are named as in ONNX Runtime's profiles.
fn arguments(part: &Part<'_>, event: &Event) -> Map<String, Value> {
    let (program, plan) = (&part.planned.program, part.planned.plan());
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
            if let Some(block) = part.planned.block(id) {
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

/// Adds arrows from producers to consumers, over the transfer between them if there is one. `slices` are those of the
/// events.
fn add_flows(part: &Part<'_>, trace: &mut Trace, events: &[Event], slices: &[SliceId]) {
    let (program, plan) = (&part.planned.program, part.planned.plan());
    let mut nodes: BTreeMap<NodeId, SliceId> = BTreeMap::new();
    let mut transfers: BTreeMap<(ValueId, DeviceId), SliceId> = BTreeMap::new();
    for (event, slice) in events.iter().zip(slices) {
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

fn add_counters(parts: &[Part<'_>], trace: &mut Trace, tracks: &BTreeMap<Lane, Track>) {
    let mut held: BTreeMap<usize, Steps> = BTreeMap::new();
    for part in parts {
        let (spans, begun) = (Spans::measured(part.planned, part.measured), part.begun.as_nanos() as u64);
        for (device, steps) in memory::over_time(&part.planned.program, part.planned.plan(), &spans).iter().enumerate()
        {
            memory::go_on(held.entry(device).or_default(), steps, begun);
        }
    }
    for (device, steps) in held {
        if let Some(track) = tracks.get(&Lane::Device(DeviceId(device as u32))) {
            trace.counter(*track, "memory in use", steps);
        }
    }
    for (lane, track) in tracks.iter().filter(|(lane, _)| matches!(lane, Lane::Link { .. })) {
        let events = parts.iter().flat_map(|part| part.events().filter(|event| event.lane == *lane));
        let things = events.map(|event| (event.start, event.end, event.bytes));
        trace.counter(*track, "bytes in flight", in_flight(things));
    }
}

/// Returns the sum of items in flight over time, from their starts, ends and sizes.
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
