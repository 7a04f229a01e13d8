//! Adds a profiled run to the cost store: times of nodes and transfers, overheads, and slowdowns of devices by each
//! other.

use super::observation::{NodeTiming, Observed, observe};
use anabranch_costs::{MachineCosts, NodeTime, Sample};
use anabranch_execute::RunOutput;
use anabranch_ir::program::Program;
use anabranch_plan::Plan;
use anabranch_planning::{MachineDevice, NodeTimes, link, threads};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// A node ran next to another device if that device was working for more than this share of the node's time.
const BESIDE: f64 = 0.7;

/// A node ran alone if no other device was working for more than this share of the node's time.
const ALONE: f64 = 0.1;

/// Fewest samples of a node's time that may reveal a slowdown.
const KNOWN: u64 = 3;

/// Samples taken from a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Number of nodes with a new sample.
    pub nodes: usize,
    /// Number of transfers with a new sample.
    pub transfers: usize,
    /// Number of samples that were rejected because they are below the clock's resolution.
    pub refused: usize,
    /// Whether the run was its plan's first, whose times are kept apart.
    pub cold: bool,
}

/// A profiled run, and its devices.
#[derive(Clone, Copy)]
pub struct ProfiledRun<'a> {
    /// The program.
    pub program: &'a Program,
    /// The program's plan.
    pub plan: &'a Plan,
    /// The measured run.
    pub run: &'a RunOutput,
    /// Whether this was the plan's first run.
    pub cold: bool,
    /// Whether the nodes that read streams have so little work that a stream's time is its link's time.
    pub streams_alone: bool,
    /// The machine's devices.
    pub devices: &'a [MachineDevice],
}

/// Adds a run's times to the machine's known costs, under its devices' keys.
pub fn record(known: &mut MachineCosts, profiled: ProfiledRun<'_>) -> Learned {
    let mut learned = Learned { cold: profiled.cold, ..Learned::default() };
    if profiled.run.events.is_empty() {
        return learned;
    }
    let observed = observe(profiled.program, profiled.plan, profiled.run);
    let times = NodeTimes::of(profiled.program, profiled.plan, profiled.devices, known);
    if !profiled.cold {
        record_slowdowns(known, &observed, &times, profiled);
    }
    record_nodes(known, &observed, &times, profiled, &mut learned);
    record_transfers(known, &observed, profiled, &mut learned);
    record_run(known, &observed, profiled);
    learned
}

impl ProfiledRun<'_> {
    fn sample(&self, seconds: f64) -> Sample {
        sample(seconds, self.cold)
    }
}

/// Sample of a time measured just now.
pub(super) fn sample(seconds: f64, cold: bool) -> Sample {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Sample { nanoseconds: seconds * 1e9, cold, at }
}

/// Adds the devices that were working next to a node to its time.
fn beside(time: NodeTime, known: &MachineCosts, node: &NodeTiming, devices: &[MachineDevice]) -> NodeTime {
    let own = &devices[node.device.index()].key;
    let others = node.beside.iter().zip(devices).filter(|(share, _)| **share > 0.0);
    others.fold(time, |time, (share, other)| time.beside(*share, known.slowdown(own, &other.key)))
}

fn record_nodes(
    known: &mut MachineCosts,
    observed: &Observed,
    times: &NodeTimes,
    profiled: ProfiledRun<'_>,
    learned: &mut Learned,
) {
    for node in observed.nodes.iter().filter(|node| !node.streamed) {
        let time = beside(times.at(node.node, node.device), known, node, profiled.devices);
        let sample = profiled.sample(time.remove(node.seconds));
        let key = &profiled.devices[node.device.index()].key;
        match known.record(key, &profiled.program.node(node.node).spec, sample) {
            true => learned.nodes += 1,
            false => learned.refused += 1,
        }
    }
}

fn record_transfers(known: &mut MachineCosts, observed: &Observed, profiled: ProfiledRun<'_>, learned: &mut Learned) {
    let streams = observed.streams.iter().filter(|_| profiled.streams_alone);
    for (id, seconds) in observed.transfers.iter().chain(streams) {
        let transfer = profiled.plan.transfer(*id);
        let (from, to) = (&profiled.devices[transfer.from.index()], &profiled.devices[transfer.to.index()]);
        let assumed = link(known, from, to);
        let link = known.links.entry(MachineCosts::link_key(&from.key, &to.key)).or_insert(assumed);
        let taken = match transfer.stream() {
            Some(_) => link.record_streamed(transfer.bytes, profiled.sample(*seconds)),
            None => link.record(transfer.bytes, profiled.sample(*seconds)),
        };
        match taken {
            true => learned.transfers += 1,
            false => learned.refused += 1,
        }
    }
}

/// Adds the overheads of a run, one sample of each per run, so that runs of many nodes do not outweigh others.
fn record_run(known: &mut MachineCosts, observed: &Observed, profiled: ProfiledRun<'_>) {
    let run = known.runs.entry(MachineCosts::run_key(threads(profiled.plan))).or_default();
    run.start.add(profiled.sample(observed.start));
    run.join.add(profiled.sample(middle(&observed.joins)));
    run.finish.add(profiled.sample(observed.finish));
    run.wake.add(profiled.sample(middle(&observed.wakes)));
    for (at_device, device) in profiled.devices.iter().enumerate() {
        let of = |times: &[(anabranch_placement_core::platform::DeviceId, f64)]| {
            let here: Vec<f64> =
                times.iter().filter(|(at, _)| at.index() == at_device).map(|(_, time)| *time).collect();
            middle(&here)
        };
        let (encode, dispatch) = (of(&observed.encodes), of(&observed.dispatches));
        if encode > 0.0 || dispatch > 0.0 {
            let costs = known.devices.entry(device.key.clone()).or_default();
            costs.encode.add(profiled.sample(encode));
            costs.dispatch.add(profiled.sample(dispatch));
        }
    }
}

/// Compares nodes that ran next to one other device with their known times, and with nodes that ran alone in the same
/// run.
///
/// A slowdown of all nodes is not caused by the other device. Times are added up, because devices that share a core
/// take turns: a few nodes then wait long, and most not at all.
fn record_slowdowns(known: &mut MachineCosts, observed: &Observed, times: &NodeTimes, profiled: ProfiledRun<'_>) {
    let mut sums: BTreeMap<Option<(usize, usize)>, (f64, f64)> = BTreeMap::new();
    for node in observed.nodes.iter().filter(|node| !node.streamed) {
        let device = node.device.index();
        let history = known.node(&profiled.devices[device].key, &profiled.program.node(node.node).spec.key());
        let Some(estimate) = history.and_then(|h| h.estimate()).filter(|e| !e.cold && e.samples >= KNOWN) else {
            continue;
        };
        let others: Vec<usize> = (0..node.beside.len()).filter(|other| node.beside[*other] > ALONE).collect();
        let company = match others[..] {
            [] => None,
            [other] if node.beside[other] > BESIDE => Some((device, other)),
            _ => continue,
        };
        let (measured, expected) = sums.entry(company).or_default();
        *measured += node.seconds;
        *expected += times.at(node.node, node.device).apply(estimate.seconds());
    }
    let usual = sums.get(&None).map_or(1.0, |(measured, expected)| measured / expected);
    for (pair, (measured, expected)) in sums {
        let Some((device, other)) = pair else { continue };
        let key = MachineCosts::slowdown_key(&profiled.devices[device].key, &profiled.devices[other].key);
        known.slowdowns.entry(key).or_default().add(measured / expected / usual);
    }
}

/// Median; 0 without values, which no history accepts.
fn middle(values: &[f64]) -> f64 {
    anabranch_costs::median(values).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_costs::LinkCosts;
    use anabranch_execute::{Activity, Event, Lane};
    use anabranch_ir::program::NodeId;
    use anabranch_plan::test_programs::{Maker, PlacedProgram, add, cpu_device, relu};
    use anabranch_plan::{PlanOptions, StreamMode};
    use std::time::Duration;

    /// Weights of 1 KiB take 1 µs longer out of cache, and reads of 1 KiB take 4 µs. The second core takes 1.5 times as
    /// long while the first is at work.
    fn known() -> MachineCosts {
        let mut known = MachineCosts::default();
        for (from, to) in [("cpu0", "cpu1"), ("cpu1", "cpu0")] {
            assert!(known.devices.entry(from.into()).or_default().misses.add(sample(1.024e-3, false)));
            let mut link = LinkCosts::affine(1e-6, 1e10);
            assert!(link.record_read(1024, sample(4e-6, false)));
            known.links.insert(MachineCosts::link_key(from, to), link);
        }
        known.slowdowns.entry(MachineCosts::slowdown_key("cpu1", "cpu0")).or_default().add(1.5);
        known
    }

    #[test]
    fn what_the_places_of_nodes_add_is_not_learnt_as_time_of_their_kernels() {
        let mut maker = Maker::new();
        let (x, large) = (maker.input(&[256]), maker.input(&[4096]));
        let weights = [1.0, 2.0, 3.0].map(|sign| maker.constant(&[256], |at| sign * at as f32));
        let chain = weights.iter().fold(x, |last, weights| maker.node(add(), &[last, *weights], &[256]));
        let beside = maker.node(relu(), &[large], &[4096]);
        let placed = PlacedProgram::new(maker.finish(&[chain, beside]), &["cpu", "cpu"], &[0, 1, 0, 0]);
        let plan = placed.plan(&PlanOptions::default().with_streaming(StreamMode::Off)).expect("a plan");
        let devices = ["cpu0", "cpu1"].map(|name| MachineDevice { cache: 64, threads: 1, ..cpu_device(name) });
        // The kernels take 10 and 40 µs. The second node runs next to the last.
        let spans = [(0, 11_000), (11_000, 33_500), (51_000, 66_000), (11_000, 51_000)];
        let event = |(node, (start, end)): (u32, (u64, u64))| {
            let lane = Lane::Device(plan.device_of(NodeId(node)));
            Event { what: Activity::Node(NodeId(node)), lane, ready: start, start, end, waited: 0, bytes: 0 }
        };
        let run = RunOutput {
            events: (0u32..).zip(spans).map(event).collect(),
            makespan: Duration::from_nanos(66_000),
            ..RunOutput::default()
        };
        let program = &placed.program;
        let mut known = known();
        for _ in 0..KNOWN + 2 {
            let profiled =
                ProfiledRun { program, plan: &plan, run: &run, cold: false, streams_alone: false, devices: &devices };
            let learned = record(&mut known, profiled);
            assert_eq!((learned.nodes, learned.refused), (4, 0));
        }
        for (device, node, nanoseconds) in [("cpu0", 0, 10e3), ("cpu1", 1, 10e3), ("cpu0", 2, 10e3), ("cpu0", 3, 40e3)]
        {
            let history = known.node(device, &program.node(NodeId(node)).spec.key()).expect("recorded");
            let found = history.median().expect("samples");
            assert!((found - nanoseconds).abs() < 1.0, "{device}, node {node}: {found} ns");
        }
        assert!((known.slowdown("cpu1", "cpu0") - 1.5).abs() < 1e-4, "{:?}", known.slowdowns);
    }
}
