//! What devices and links do in a run, lane by lane: predicted and measured.

use super::data::Times;
use super::spans::Spans;
use anabranch::plan::Transfer;
use anabranch::session::Run;
use anabranch_placement::platform::{DeviceId, DeviceKind};
use std::collections::BTreeMap;

/// A device or a link.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunLane {
    /// Its name.
    pub(crate) name: String,
    /// The device's kind; `None` of a link.
    pub(crate) kind: Option<DeviceKind>,
    /// What should take place on it, by start. On a link predicted transfers may overlap.
    pub(crate) predicted: Vec<Bar>,
    /// What took place on it, by start.
    pub(crate) measured: Vec<Bar>,
}

/// A node or a transfer, in nanoseconds from the run's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    /// Of the node, or of the value that travels.
    pub(crate) name: String,
    /// When it began.
    pub(crate) start: u64,
    /// When it ended.
    pub(crate) end: u64,
}

/// The lanes of all devices, then those of the links over which something is moved; and the ends, predicted and measured.
pub(crate) fn lanes(run: &Run) -> (Vec<RunLane>, [u64; 2]) {
    let plan = run.prepared.plan();
    let spans = [Spans::predicted(plan, &run.prepared.placed), Spans::measured(run)];
    let lane = |name: &str, kind| RunLane { name: name.to_owned(), kind, predicted: Vec::new(), measured: Vec::new() };
    let mut lanes: Vec<_> = plan.devices().iter().map(|device| lane(&device.name, Some(device.kind))).collect();
    let mut links: BTreeMap<(DeviceId, DeviceId), RunLane> = BTreeMap::new();
    for id in run.prepared.program.node_ids() {
        let name = &run.prepared.program.node(id).name;
        lanes[plan.device_of(id).index()].add(name, [0, 1].map(|when| Some(spans[when].tasks[id.index()])));
    }
    let moved = |(_, transfer): &(usize, &Transfer)| transfer.route != anabranch::plan::Route::Shared;
    for (index, transfer) in plan.transfers().iter().enumerate().filter(moved) {
        let ends = [transfer.from, transfer.to].map(|device| plan.device(device).name.as_str());
        let link = links.entry((transfer.from, transfer.to)).or_insert_with(|| lane(&ends.join(" → "), None));
        let name = &run.prepared.program.value(transfer.value).name;
        link.add(name, [0, 1].map(|when| spans[when].transfers[index]));
    }
    lanes.extend(links.into_values());
    for lane in &mut lanes {
        lane.predicted.sort_by_key(|bar| (bar.start, bar.end));
        lane.measured.sort_by_key(|bar| (bar.start, bar.end));
    }
    (lanes, spans.map(|spans| spans.makespan))
}

impl RunLane {
    fn add(&mut self, name: &str, times: [Option<Times>; 2]) {
        for (bars, times) in [&mut self.predicted, &mut self.measured].into_iter().zip(times) {
            bars.extend(times.map(|times| Bar { name: name.to_owned(), start: times.start, end: times.end }));
        }
    }
}
