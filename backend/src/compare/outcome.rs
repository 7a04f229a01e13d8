//! What was measured of one way.

use super::contest::Ran;
use super::profiles::{Profiles, percents};
use super::together::Together;
use super::{Agreement, Latencies, Median, Way, runs_per_second};
use crate::execute::{Activity, Event, Lane};
use crate::planning::Planned;
use crate::session::Outputs;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One way. What only a plan knows is `None` for the dynamic scheduler. Times in milliseconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Which.
    pub way: Way,
    /// An earlier way whose plan is the same: what was measured is that plan's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_plan_as: Option<String>,
    /// Which of the different plans it has, from 0 on; ways with the same number share one. `None` for the dynamic scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<usize>,
    /// How long placing and planning took.
    pub place_ms: Option<f64>,
    /// The predicted makespan.
    pub predicted_ms: Option<f64>,
    /// The measured makespan; of several callers at once, what a run took its caller.
    pub measured_ms: Median,
    /// Percentiles of the same.
    pub latencies_ms: Latencies,
    /// Runs a second: one after the other, or of all callers.
    pub runs_per_second: f64,
    /// Each measured makespan, in the order of the runs; of several callers, by round and caller.
    pub samples_ms: Vec<f64>,
    /// `(predicted − measured) / measured` of the makespan, in percent: positive where the prediction was too long. `None` of several
    /// callers, too: what each waits is no makespan.
    pub error_percent: Option<f64>,
    /// By how much of their measured time nodes were predicted too long or too short, in percent
    /// ([`Accuracy::node_error`](crate::learning::Accuracy::node_error)), by the median of each node in the profiled runs.
    pub node_error_percent: Option<f64>,
    /// The same of copies over links.
    pub link_error_percent: Option<f64>,
    /// Bytes that the plan copies or streams between devices.
    pub predicted_traffic_bytes: Option<u64>,
    /// Bytes that were copied or streamed between devices.
    pub traffic_bytes: u64,
    /// By device.
    pub devices: Vec<DeviceOutcome>,
    /// Whether the outputs are those of the first way.
    pub outputs: Agreement,
}

/// One device under one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceOutcome {
    /// Nodes that it ran.
    pub nodes: usize,
    /// The part of the predicted makespan in which it runs nodes.
    pub predicted_utilisation: Option<f64>,
    /// The part of the profiled runs' time in which it ran nodes.
    pub utilisation: f64,
    /// Peak memory of the plan.
    pub predicted_peak_bytes: Option<u64>,
    /// Peak memory taken.
    pub peak_bytes: u64,
}

/// What is gathered of one way while it runs.
#[derive(Default)]
pub(super) struct Tally {
    samples: Vec<f64>,
    /// What runs of several callers took together.
    callers: Option<Together>,
    agreement: Option<Agreement>,
    profiles: Profiles,
    traffic: u64,
    profiled_seconds: f64,
    busy: Vec<f64>,
    nodes: Vec<usize>,
    peaks: Vec<u64>,
}

impl Tally {
    /// Adds a measured run.
    pub(super) fn add(&mut self, ran: &Ran) {
        self.samples.push(ran.makespan_ms());
    }

    /// Adds measured runs of several callers.
    pub(super) fn add_together(&mut self, made: Together) {
        self.callers.get_or_insert_default().extend(made);
    }

    /// Adds a profiled run, and compares its outputs with the reference.
    pub(super) fn add_profiled(&mut self, ran: &Ran, reference: &Outputs) {
        let measured = ran.measured();
        let agreement = Agreement::of(ran.outputs(), reference);
        self.agreement = Some(self.agreement.map_or(agreement, |so_far| so_far.and(agreement)));
        let plan = match ran {
            Ran::Planned(run) => {
                self.profiles.add(run);
                Some(&**run.prepared.plan())
            }
            Ran::Dynamic(..) => None,
        };
        self.traffic = measured.traffic(plan).moved().bytes;
        self.profiled_seconds += measured.makespan.as_secs_f64();
        self.peaks.clone_from(&measured.peaks);
        self.busy.resize(measured.peaks.len(), 0.0);
        self.nodes = vec![0; measured.peaks.len()];
        for event in &measured.events {
            if let (Activity::Node(_), Lane::Device(device)) = (event.what, event.lane) {
                self.busy[device.index()] += seconds(event);
                self.nodes[device.index()] += 1;
            }
        }
    }

    /// All of it; `None` if nothing was measured.
    pub(super) fn outcome(&self, way: Way, planned: Option<&Arc<Planned>>) -> Option<Outcome> {
        let samples = self.callers.as_ref().map_or(&self.samples, |together| &together.latencies_ms);
        let (measured_ms, outputs) = (Median::of(samples)?, self.agreement?);
        let predicted = planned.map(|planned| planned.plan().predicted());
        let predicted_ms = predicted.map(|predicted| predicted.makespan * 1e3);
        let alone = predicted_ms.filter(|_| self.callers.is_none());
        let [node_error_percent, link_error_percent] = percents(&self.profiles.typical());
        Some(Outcome {
            place_ms: planned.map(|planned| planned.place_time.as_secs_f64() * 1e3),
            predicted_ms,
            error_percent: alone.map(|ms| (ms - measured_ms.median) / measured_ms.median * 100.0),
            measured_ms,
            latencies_ms: Latencies::of(samples),
            runs_per_second: self.callers.as_ref().map_or_else(|| runs_per_second(samples), Together::runs_per_second),
            node_error_percent,
            link_error_percent,
            predicted_traffic_bytes: planned.map(|planned| planned.plan().traffic().moved().bytes),
            traffic_bytes: self.traffic,
            devices: (0..self.peaks.len()).map(|at| self.device(at, planned)).collect(),
            outputs,
            samples_ms: samples.clone(),
            same_plan_as: None,
            plan: None,
            way,
        })
    }

    fn device(&self, at: usize, planned: Option<&Arc<Planned>>) -> DeviceOutcome {
        let predicted_utilisation = |planned: &Arc<Planned>| {
            let (plan, nodes) = (planned.plan(), planned.program.node_ids());
            let here = nodes.filter(|node| plan.device_of(*node).index() == at);
            let busy = here.map(|node| plan.predicted().busy[node.index()]).fold(0.0, |sum, busy| sum + busy);
            if plan.predicted().makespan > 0.0 { busy / plan.predicted().makespan } else { 0.0 }
        };
        DeviceOutcome {
            nodes: self.nodes[at],
            predicted_utilisation: planned.map(predicted_utilisation),
            utilisation: if self.profiled_seconds > 0.0 { self.busy[at] / self.profiled_seconds } else { 0.0 },
            predicted_peak_bytes: planned.map(|planned| planned.plan().memory().devices()[at].peak()),
            peak_bytes: self.peaks[at],
        }
    }
}

fn seconds(event: &Event) -> f64 {
    event.busy() as f64 * 1e-9
}
