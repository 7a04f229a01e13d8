//! What a run teaches the cost store.

use super::forecast::run_key;
use super::observed::{NodeTime, Observed, observe};
use super::placing::{Target, link};
use crate::execute::RunOutput;
use crate::plan::Plan;
use crate::profile::{MachineCosts, Sample};
use crate::program::Program;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// A node ran beside another device if that was at work for more than this share of its time …
const BESIDE: f64 = 0.7;

/// … and alone if no other was for more than this.
const ALONE: f64 = 0.1;

/// Samples that a node's time must rest on before it tells a slowdown.
const KNOWN: u64 = 3;

/// What was taken from a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Times of nodes.
    pub nodes: usize,
    /// Times of transfers.
    pub transfers: usize,
    /// Times that were none: too short for the clock.
    pub refused: usize,
    /// Whether the run was its plan's first, and its times are kept apart.
    pub cold: bool,
}

/// A profiled run, and the devices that it ran on.
#[derive(Clone, Copy)]
pub(super) struct Lesson<'a> {
    pub(super) program: &'a Program,
    pub(super) plan: &'a Plan,
    pub(super) run: &'a RunOutput,
    pub(super) cold: bool,
    /// Whether the nodes that read streams do so little that a stream's time is its link's.
    pub(super) streams_alone: bool,
    pub(super) targets: &'a [Target],
}

/// Adds a run's times to what is known of the machine, under its devices' keys.
pub(super) fn learn(known: &mut MachineCosts, lesson: Lesson<'_>) -> Learned {
    let mut learned = Learned { cold: lesson.cold, ..Learned::default() };
    if lesson.run.events.is_empty() {
        return learned;
    }
    let observed = observe(lesson.program, lesson.plan, lesson.run);
    if !lesson.cold {
        learn_slowdowns(known, &observed, lesson);
    }
    learn_nodes(known, &observed, lesson, &mut learned);
    learn_transfers(known, &observed, lesson, &mut learned);
    learn_run(known, &observed, lesson);
    learned
}

impl Lesson<'_> {
    fn sample(&self, seconds: f64) -> Sample {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Sample { nanoseconds: seconds * 1e9, cold: self.cold, at }
    }
}

/// A node's time without the share that others have taken from it.
fn alone(known: &MachineCosts, node: &NodeTime, targets: &[Target]) -> f64 {
    let kept = node.beside.iter().zip(targets).filter(|(share, _)| **share > 0.0).map(|(share, other)| {
        let slowdown = known.slowdown(&targets[node.device.index()].key, &other.key);
        1.0 - share + share / slowdown
    });
    node.seconds * kept.product::<f64>()
}

fn learn_nodes(known: &mut MachineCosts, observed: &Observed, lesson: Lesson<'_>, learned: &mut Learned) {
    for node in observed.nodes.iter().filter(|node| !node.streamed) {
        let sample = lesson.sample(alone(known, node, lesson.targets));
        let key = &lesson.targets[node.device.index()].key;
        match known.record(key, &lesson.program.node(node.node).spec, sample) {
            true => learned.nodes += 1,
            false => learned.refused += 1,
        }
    }
}

fn learn_transfers(known: &mut MachineCosts, observed: &Observed, lesson: Lesson<'_>, learned: &mut Learned) {
    let streams = observed.streams.iter().filter(|_| lesson.streams_alone);
    for (id, seconds) in observed.transfers.iter().chain(streams) {
        let transfer = lesson.plan.transfer(*id);
        let (from, to) = (&lesson.targets[transfer.from.index()], &lesson.targets[transfer.to.index()]);
        let assumed = link(known, from, to);
        let link = known.links.entry(MachineCosts::link_key(&from.key, &to.key)).or_insert(assumed);
        let taken = match transfer.stream() {
            Some(_) => link.record_streamed(transfer.bytes, lesson.sample(*seconds)),
            None => link.record(transfer.bytes, lesson.sample(*seconds)),
        };
        match taken {
            true => learned.transfers += 1,
            false => learned.refused += 1,
        }
    }
}

/// The fixed costs; one sample of each a run, so that runs of many nodes do not outvote others.
fn learn_run(known: &mut MachineCosts, observed: &Observed, lesson: Lesson<'_>) {
    let run = known.runs.entry(run_key(lesson.plan)).or_default();
    run.start.add(lesson.sample(middle(&observed.starts)));
    run.finish.add(lesson.sample(observed.finish));
    run.wake.add(lesson.sample(middle(&observed.wakes)));
    for (device, target) in lesson.targets.iter().enumerate() {
        let of = |times: &[(anabranch_placement::platform::DeviceId, f64)]| {
            let here: Vec<f64> = times.iter().filter(|(at, _)| at.index() == device).map(|(_, time)| *time).collect();
            middle(&here)
        };
        let (encode, dispatch) = (of(&observed.encodes), of(&observed.dispatches));
        if encode > 0.0 || dispatch > 0.0 {
            let costs = known.devices.entry(target.key.clone()).or_default();
            costs.encode.add(lesson.sample(encode));
            costs.dispatch.add(lesson.sample(dispatch));
        }
    }
}

/// Compares the nodes that ran beside one other device with what is known of them, and with those that ran alone in the same run: what
/// slows all of them down is not the other device. Times are added up, because devices that share a core take turns on it: a few nodes
/// then wait for long, and most not at all.
fn learn_slowdowns(known: &mut MachineCosts, observed: &Observed, lesson: Lesson<'_>) {
    let mut sums: BTreeMap<Option<(usize, usize)>, (f64, f64)> = BTreeMap::new();
    for node in observed.nodes.iter().filter(|node| !node.streamed) {
        let device = node.device.index();
        let history = known.node(&lesson.targets[device].key, &lesson.program.node(node.node).spec.key());
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
        *expected += estimate.nanoseconds * 1e-9;
    }
    let usual = sums.get(&None).map_or(1.0, |(measured, expected)| measured / expected);
    for (pair, (measured, expected)) in sums {
        let Some((device, other)) = pair else { continue };
        let key = MachineCosts::slowdown_key(&lesson.targets[device].key, &lesson.targets[other].key);
        known.slowdowns.entry(key).or_default().add(measured / expected / usual);
    }
}

/// The median; 0 of nothing, which no history takes.
fn middle(values: &[f64]) -> f64 {
    crate::profile::median(values).unwrap_or(0.0)
}
