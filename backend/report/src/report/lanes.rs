//! Activity of devices and links in a run, by lane: predicted and measured.

use super::spans::{Spans, Times};
use crate::chart::{Interval, SEND_COLOUR, Sample};
use crate::text::duration;
use anabranch::plan::{Route, Transfer};
use anabranch::session::Run;
use anabranch_placement::platform::{DeviceId, DeviceKind};
use std::collections::BTreeMap;

/// Name of a device or a link, with its predicted and measured intervals by start. On a link predicted transfers may
/// overlap.
pub type RunLane = (String, [Vec<Interval>; 2]);

/// Name of the lane of the host's steps between the plans of a model in phases.
const HOST_OPERATORS: &str = "host operators";

/// Returns the lanes of all devices, then of the links that move data, and the predicted and measured ends. In seconds.
///
/// If the model runs in phases, the lanes cover all phases, and the host's work between them.
pub fn lanes(run: &Run) -> (Vec<RunLane>, [f64; 2]) {
    let empty = |name: &str| (name.to_owned(), [Vec::new(), Vec::new()]);
    let devices = run.prepared.plan().devices();
    let mut lanes: Vec<RunLane> = devices.iter().map(|device| empty(&device.name)).collect();
    let mut links: BTreeMap<(DeviceId, DeviceId), RunLane> = BTreeMap::new();
    let mut ends = [run.foreseen(), run.took().as_secs_f64()];
    for part in run.parts() {
        let (plan, program, spans) = (part.planned.plan(), &part.planned.program, Spans::of_part(&part));
        for id in program.node_ids() {
            let device = plan.device_of(id);
            let colour = usize::from(plan.device(device).kind != DeviceKind::Cpu);
            let times = spans.each_ref().map(|spans| Some(spans.tasks[id.index()]));
            add(&mut lanes[device.index()], &program.node(id).name, colour, times);
        }
        let moved = |(_, transfer): &(usize, &Transfer)| transfer.route != Route::Shared;
        for (index, transfer) in plan.transfers().iter().enumerate().filter(moved) {
            let ends = [transfer.from, transfer.to].map(|device| plan.device(device).name.as_str());
            let link = links.entry((transfer.from, transfer.to)).or_insert_with(|| empty(&ends.join(" → ")));
            let times = spans.each_ref().map(|spans| spans.transfers[index]);
            add(link, &program.value(transfer.value).name, SEND_COLOUR, times);
        }
        ends.iter_mut().zip(&spans).for_each(|(end, spans)| *end = end.max(seconds(spans.makespan)));
    }
    lanes.extend(links.into_values());
    let mut steps = empty(HOST_OPERATORS);
    run.host_operators()
        .iter()
        .for_each(|step| add(&mut steps, &step.name, 0, [None, Some(Times::of_host_operator(step))]));
    lanes.extend(Some(steps).filter(|_| !run.host_operators().is_empty()));
    for intervals in lanes.iter_mut().flat_map(|(_, lanes)| lanes) {
        intervals.sort_by(|one, other| one.start.total_cmp(&other.start).then(one.end.total_cmp(&other.end)));
    }
    (lanes, ends)
}

/// Returns the meanings of the lanes' colours that occur.
pub fn key<'a>(lanes: impl Iterator<Item = &'a RunLane>) -> Vec<Sample> {
    let mut found = [(0, "node on a CPU"), (1, "node on a GPU"), (SEND_COLOUR, "transfer")].map(|known| (known, false));
    for interval in lanes.flat_map(|(_, both)| both).flatten() {
        found.iter_mut().filter(|((colour, _), _)| *colour == interval.colour).for_each(|(_, occurs)| *occurs = true);
    }
    let occurring = found.into_iter().filter(|(_, occurs)| *occurs);
    occurring.map(|((colour, name), _)| Sample { colour, name: name.to_owned() }).collect()
}

fn add((_, lanes): &mut RunLane, name: &str, colour: usize, times: [Option<Times>; 2]) {
    for (intervals, times) in lanes.iter_mut().zip(times) {
        intervals.extend(times.map(|times| {
            let (start, end) = (seconds(times.start), seconds(times.end));
            let tip = format!("{name}: {}, from {} to {}", duration(end - start), duration(start), duration(end));
            Interval { start, end, colour, tip }
        }));
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 * 1e-9
}
