//! Adds a profiled run to the cost store: times of nodes and transfers, overheads, and slowdowns of devices by each
//! other.

use super::observation::{NodeTime, Observed, observe};
use anabranch_costs::{MachineCosts, Sample};
use anabranch_execute::RunOutput;
use anabranch_ir::program::Program;
use anabranch_plan::Plan;
use anabranch_planning::{Constants, MachineDevice, first_reads, link, read_seconds, threads, with_far, without_far};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// A node ran next to another device if that device was working for more than this share of the node's time.
const BESIDE: f64 = 0.7;

/// A node ran alone if no other device was working for more than this share of the node's time.
const ALONE: f64 = 0.1;

/// Largest share of a node's time that counts as reads from another device's cache.
const MOST_READ: f64 = 0.8;

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
    let mut observed = observe(profiled.program, profiled.plan, profiled.run);
    discount_reads(known, &mut observed, profiled);
    let far = Far::of(known, profiled);
    if !profiled.cold {
        record_slowdowns(known, &observed, &far, profiled);
    }
    record_nodes(known, &observed, &far, profiled, &mut learned);
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

/// Subtracts from the nodes' times the reads of data that another CPU device has just written.
///
/// Never subtracts most of a time: a kernel may have hidden the reads behind its arithmetic.
fn discount_reads(known: &MachineCosts, observed: &mut Observed, profiled: ProfiledRun<'_>) {
    let reads = first_reads(profiled.program, profiled.plan);
    for node in &mut observed.nodes {
        if let Some(reads) = reads.get(&node.node) {
            let reading = read_seconds(known, profiled.devices, node.device, reads);
            node.seconds -= reading.min(node.seconds * MOST_READ);
        }
    }
}

/// Extra time of constants from outside the cores' own caches.
struct Far {
    constants: Constants,
    /// Extra seconds per byte, indexed by device.
    seconds: Vec<f64>,
}

impl Far {
    fn of(known: &MachineCosts, profiled: ProfiledRun<'_>) -> Self {
        let constants = Constants::of(profiled.program);
        let seconds = constants.placed(profiled.devices, known, |node| profiled.plan.device_of(node));
        Self { constants, seconds }
    }

    fn of_node(&self, node: &NodeTime) -> f64 {
        self.constants.seconds(node.node, self.seconds[node.device.index()])
    }
}

/// Returns a node's time without its slowdown by other devices.
fn alone(known: &MachineCosts, node: &NodeTime, devices: &[MachineDevice]) -> f64 {
    let kept = node.beside.iter().zip(devices).filter(|(share, _)| **share > 0.0).map(|(share, other)| {
        let slowdown = known.slowdown(&devices[node.device.index()].key, &other.key);
        1.0 - share + share / slowdown
    });
    node.seconds * kept.product::<f64>()
}

fn record_nodes(
    known: &mut MachineCosts,
    observed: &Observed,
    far: &Far,
    profiled: ProfiledRun<'_>,
    learned: &mut Learned,
) {
    for node in observed.nodes.iter().filter(|node| !node.streamed) {
        let near = without_far(alone(known, node, profiled.devices), far.of_node(node));
        let sample = profiled.sample(near);
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
fn record_slowdowns(known: &mut MachineCosts, observed: &Observed, far: &Far, profiled: ProfiledRun<'_>) {
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
        *expected += with_far(estimate.nanoseconds * 1e-9, far.of_node(node));
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
