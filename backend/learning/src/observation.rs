//! Times in a profiled run, in the terms of its prediction.
//!
//! Events say when workers started and ended their work. A transfer's time starts when its value exists, not when its
//! link starts to wait for the value. The hop between two CPU devices shows if the second waited for the first. A GPU's
//! first kernel of a batch shows the duration of a submission.

use anabranch_execute::{Activity, Event, Lane, RunOutput};
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{HOST, Plan, Route, TransferId};
use anabranch_planning::batches;
use std::collections::BTreeMap;

/// Time of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeTiming {
    pub(super) node: NodeId,
    pub(super) device: DeviceId,
    /// Seconds.
    pub(super) seconds: f64,
    /// Share of the node's time in which each device was working; 0 for its own device.
    pub(super) beside: Vec<f64>,
    /// Whether the node read a stream: its time then includes the stream's.
    pub(super) streamed: bool,
}

/// All times of a run, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observed {
    pub(super) nodes: Vec<NodeTiming>,
    /// Times of transfers that were not streamed.
    ///
    /// Each starts when the value exists and the link and its GPU are free. It ends when everything has arrived or, if
    /// nothing moves, when the first waiting reader continues. Other transfers do not show their times.
    pub(super) transfers: Vec<(TransferId, f64)>,
    /// Times of streamed transfers, likewise.
    pub(super) streams: Vec<(TransferId, f64)>,
    /// Time until the caller's thread started its first step; 0 if it had no step.
    pub(super) start: f64,
    /// Time until each other thread started its first step.
    pub(super) joins: Vec<f64>,
    /// Times from the arrival of a transfer until the waiting CPU device continued.
    pub(super) wakes: Vec<f64>,
    /// Host's times to encode a node for a GPU.
    pub(super) encodes: Vec<(DeviceId, f64)>,
    /// Times from the submission to an idle GPU until it started.
    pub(super) dispatches: Vec<(DeviceId, f64)>,
    /// Time from the last event until the run was over.
    pub(super) finish: f64,
}

/// Events by node and transfer.
struct Events<'a> {
    program: &'a Program,
    plan: &'a Plan,
    nodes: BTreeMap<NodeId, &'a Event>,
    transfers: BTreeMap<TransferId, &'a Event>,
}

/// Reads the events of a run of `plan`. O(events × devices).
pub(super) fn observe(program: &Program, plan: &Plan, run: &RunOutput) -> Observed {
    let mut events = Events { program, plan, nodes: BTreeMap::new(), transfers: BTreeMap::new() };
    let mut first: BTreeMap<Lane, u64> = BTreeMap::new();
    for event in &run.events {
        match event.what {
            Activity::Node(node) => drop(events.nodes.insert(node, event)),
            Activity::Transfer(id) => drop(events.transfers.insert(id, event)),
        }
        let moved = match event.what {
            Activity::Node(_) => true,
            Activity::Transfer(id) => plan.transfer(id).moves(plan.devices()),
        };
        let host = |lane| !matches!(lane, Lane::Device(device) if plan.device(device).kind != DeviceKind::Cpu);
        if moved && host(event.lane) {
            let ready = first.entry(event.lane).or_insert(event.ready);
            *ready = event.ready.min(*ready);
        }
    }
    let last = run.events.iter().map(|event| event.end).max().unwrap_or(0);
    let mut observed = Observed {
        nodes: events.node_times(),
        start: first.remove(&Lane::Device(HOST)).map_or(0.0, seconds),
        joins: first.into_values().map(seconds).collect(),
        finish: (run.makespan.as_secs_f64() - seconds(last)).max(0.0),
        ..Observed::default()
    };
    events.observe_moves(&mut observed);
    events.observe_waits(&mut observed);
    for device in (0..plan.devices().len() as u32).map(DeviceId) {
        events.observe_batches(device, &mut observed);
    }
    observed
}

impl Events<'_> {
    fn node_times(&self) -> Vec<NodeTiming> {
        let count = self.plan.devices().len();
        let mut busy: Vec<Vec<(u64, u64)>> = vec![Vec::new(); count];
        for (node, event) in &self.nodes {
            busy[self.plan.device_of(*node).index()].push((event.start, event.end));
        }
        busy.iter_mut().for_each(|spans| spans.sort_unstable());
        let time = |(node, event): (&NodeId, &&Event)| {
            let device = self.plan.device_of(*node);
            let share = |other: usize| match other == device.index() {
                true => 0.0,
                false => overlap(&busy[other], (event.start, event.end)),
            };
            NodeTiming {
                node: *node,
                device,
                seconds: seconds(event.busy()),
                beside: (0..count).map(share).collect(),
                streamed: self.plan.transfers().iter().any(|t| t.stream().is_some_and(|stream| stream.node == *node)),
            }
        };
        self.nodes.iter().map(time).collect()
    }

    /// Time at which a value was made; 0 for inputs of the caller.
    fn made(&self, value: ValueId) -> u64 {
        match self.program.value(value).origin {
            anabranch_ir::program::Origin::Node(node) => self.nodes.get(&node).map_or(0, |event| event.end),
            anabranch_ir::program::Origin::Input | anabranch_ir::program::Origin::Constant(_) => 0,
        }
    }

    fn observe_moves(&self, observed: &mut Observed) {
        let emptied = self.plan.memory().emptied();
        for (id, event) in &self.transfers {
            let transfer = self.plan.transfer(*id);
            // On a GPU, the event itself says when the copy started: the device's earlier work is not the link's. A
            // value that waits for its slot may have been made long before.
            let from_cpu = self.plan.device(transfer.from).kind == DeviceKind::Cpu;
            let waits = emptied.contains_key(&(transfer.to, transfer.value));
            let since = match self.program.constant(transfer.value) {
                None if from_cpu && !waits => event.ready.max(self.made(transfer.value)),
                _ => event.start,
            };
            // The copy stood still while its target GPU computed.
            let waited = if transfer.route == Route::Copied { event.waited } else { 0 };
            let took = (*id, seconds(event.end.saturating_sub(since).saturating_sub(waited)));
            match transfer.route {
                Route::Copied => observed.transfers.push(took),
                Route::Streamed(stream) if stream.producer.is_none() => observed.streams.push(took),
                // A streamed value arrives as fast as it is made.
                Route::Streamed(_) | Route::Shared => {}
            }
        }
    }

    /// Finds the last value that each node of a CPU device waited for.
    fn observe_waits(&self, observed: &mut Observed) {
        let arriving: BTreeMap<(ValueId, DeviceId), TransferId> = (0..self.plan.transfers().len() as u32)
            .map(|id| (TransferId(id), self.plan.transfer(TransferId(id))))
            .filter(|(_, transfer)| transfer.stream().is_none())
            .map(|(id, transfer)| ((transfer.value, transfer.to), id))
            .collect();
        for (node, event) in &self.nodes {
            let device = self.plan.device_of(*node);
            if self.plan.device(device).kind != DeviceKind::Cpu || event.start <= event.ready {
                continue;
            }
            let inputs = self.program.node(*node).inputs.iter();
            let came = inputs.filter_map(|value| arriving.get(&(*value, device))).map(|id| {
                let transfer = self.plan.transfer(*id);
                let shared = transfer.route == Route::Shared;
                let moved = self.transfers.get(id).map_or(0, |event| event.end);
                (if shared { self.made(transfer.value) } else { moved }, *id, shared)
            });
            match came.max() {
                Some((at, id, shared)) if at > event.ready && at < event.start => {
                    let waited = seconds(event.start - at);
                    match shared {
                        true => observed.transfers.push((id, waited)),
                        false => observed.wakes.push(waited),
                    }
                }
                _ => {}
            }
        }
    }

    /// Measures the start of a GPU's batches, and the host's time between its nodes.
    fn observe_batches(&self, device: DeviceId, observed: &mut Observed) {
        let mut free = 0;
        for batch in batches(self.program, self.plan, device) {
            let marks: Vec<&Event> = batch.iter().filter_map(|node| self.nodes.get(node).copied()).collect();
            let gaps: Vec<u64> = marks.windows(2).map(|pair| pair[1].ready.saturating_sub(pair[0].ready)).collect();
            observed.encodes.extend(gaps.iter().map(|gap| (device, seconds(*gap))));
            let (Some(first), Some(last)) = (marks.first(), marks.last()) else { continue };
            // The last node's own encoding is not seen, and is assumed to be like the others'.
            let encoding = if gaps.is_empty() { 0 } else { gaps.iter().sum::<u64>() / gaps.len() as u64 };
            let submitted = last.ready + encoding;
            if free < submitted && first.start > submitted {
                observed.dispatches.push((device, seconds(first.start - submitted)));
            }
            free = last.end;
        }
    }
}

/// Share of `span` that the spans cover; they are sorted and do not overlap.
fn overlap(spans: &[(u64, u64)], (start, end): (u64, u64)) -> f64 {
    let from = spans.partition_point(|span| span.1 <= start);
    let within = spans[from..].iter().take_while(|span| span.0 < end);
    let covered: u64 = within.map(|span| span.1.min(end).saturating_sub(span.0.max(start))).sum();
    covered as f64 / end.saturating_sub(start).max(1) as f64
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_shares_of_the_span() {
        let busy = [(0, 10), (20, 30), (40, 50)];
        assert_eq!(overlap(&busy, (5, 25)), 0.5);
        assert_eq!(overlap(&busy, (10, 20)), 0.0);
        assert_eq!(overlap(&busy, (22, 28)), 1.0);
        assert_eq!(overlap(&[], (22, 28)), 0.0);
    }
}
