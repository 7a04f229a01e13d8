//! What a profiled run shows, in the terms in which it is predicted.
//!
//! Events say when workers turned to something and when it ended. What a transfer took begins when its value is there, not when its
//! link begins to wait for it; the hop between two CPU devices is seen where the second waited for the first; a GPU's first kernel of a
//! batch shows how long a submission takes.

use anabranch_execute::{Activity, Event, Lane, RunOutput};
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::{HOST, Plan, Route, TransferId};
use anabranch_planning::batches;
use std::collections::BTreeMap;

/// A node's time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeTime {
    pub(super) node: NodeId,
    pub(super) device: DeviceId,
    /// Seconds.
    pub(super) seconds: f64,
    /// The share of its time in which each device was at work; its own is 0.
    pub(super) beside: Vec<f64>,
    /// Whether it read a stream: its time is then also the stream's.
    pub(super) streamed: bool,
}

/// All times of a run, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observed {
    pub(super) nodes: Vec<NodeTime>,
    /// Of transfers that were not streamed: from when the value was there and the link and its GPU free, until all had arrived or, where nothing
    /// moves, until the first reader that waited for it went on. Others do not show theirs.
    pub(super) transfers: Vec<(TransferId, f64)>,
    /// Of streamed transfers, the same.
    pub(super) streams: Vec<(TransferId, f64)>,
    /// When the caller's thread turned to its first step; 0 if it had none.
    pub(super) start: f64,
    /// When each other thread did.
    pub(super) joins: Vec<f64>,
    /// From the arrival of a transfer until the CPU device that waited for it went on.
    pub(super) wakes: Vec<f64>,
    /// The host's time for a GPU's node.
    pub(super) encodes: Vec<(DeviceId, f64)>,
    /// From the submission to an idle GPU until that began.
    pub(super) dispatches: Vec<(DeviceId, f64)>,
    /// From the last event until the run was over.
    pub(super) finish: f64,
}

/// The events by what they are of.
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
    fn node_times(&self) -> Vec<NodeTime> {
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
            NodeTime {
                node: *node,
                device,
                seconds: seconds(event.busy()),
                beside: (0..count).map(share).collect(),
                streamed: self.plan.transfers().iter().any(|t| t.stream().is_some_and(|stream| stream.node == *node)),
            }
        };
        self.nodes.iter().map(time).collect()
    }

    /// When a value was made, or 0 for what the caller gives.
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
            // From a GPU the event itself says when the copy began: what the device did before was not the link's. What waits for its slot may
            // have been made long before.
            let from_cpu = self.plan.device(transfer.from).kind == DeviceKind::Cpu;
            let waits = emptied.contains_key(&(transfer.to, transfer.value));
            let since = match self.program.constant(transfer.value) {
                None if from_cpu && !waits => event.ready.max(self.made(transfer.value)),
                _ => event.start,
            };
            // While a GPU computed that it goes to, a copy stood still.
            let waited = if transfer.route == Route::Copied { event.waited } else { 0 };
            let took = (*id, seconds(event.end.saturating_sub(since).saturating_sub(waited)));
            match transfer.route {
                Route::Copied => observed.transfers.push(took),
                Route::Streamed(stream) if stream.producer.is_none() => observed.streams.push(took),
                // What is made at the same time comes as fast as that.
                Route::Streamed(_) | Route::Shared => {}
            }
        }
    }

    /// Looks at what each node of a CPU device waited for last.
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

    /// Looks at the beginnings of a GPU's batches, and at the host's time between its nodes.
    fn observe_batches(&self, device: DeviceId, observed: &mut Observed) {
        let mut free = 0;
        for batch in batches(self.program, self.plan, device) {
            let marks: Vec<&Event> = batch.iter().filter_map(|node| self.nodes.get(node).copied()).collect();
            let gaps: Vec<u64> = marks.windows(2).map(|pair| pair[1].ready.saturating_sub(pair[0].ready)).collect();
            observed.encodes.extend(gaps.iter().map(|gap| (device, seconds(*gap))));
            let (Some(first), Some(last)) = (marks.first(), marks.last()) else { continue };
            // The last node's own encoding is not seen; it is like the others'.
            let encoding = if gaps.is_empty() { 0 } else { gaps.iter().sum::<u64>() / gaps.len() as u64 };
            let submitted = last.ready + encoding;
            if free < submitted && first.start > submitted {
                observed.dispatches.push((device, seconds(first.start - submitted)));
            }
            free = last.end;
        }
    }
}

/// The share of `span` that the spans cover, which are sorted and do not overlap.
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
