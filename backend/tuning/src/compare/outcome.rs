//! Results of one compared configuration: predicted and measured times, traffic, use of devices, agreement of outputs.

use super::interleaved::Ran;
use super::nearest::Nearest;
use super::together::Together;
use super::{Agreement, Configuration, Latencies, Median, runs_per_second};
use anabranch_execute::{Activity, Lane, RunOutput};
use anabranch_learning::Accuracy;
use anabranch_planning::Planned;
use anabranch_session::{Outputs, Part, Run};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Measurements of one configuration. Values that only a plan has are `None` for the dynamic scheduler. Times in
/// milliseconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The configuration.
    #[serde(alias = "way")]
    pub configuration: Configuration,
    /// An earlier configuration with the same plan: the measurements are those of that plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_plan_as: Option<String>,
    /// Number of its plan among the distinct plans, from 0. Configurations with the same number share a plan. `None`
    /// for the dynamic scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<usize>,
    /// Time for placing and planning.
    pub place_ms: Option<f64>,
    /// Predicted makespan. If the model runs in phases: the prediction for the whole run before the profiled run.
    pub predicted_ms: Option<f64>,
    /// Measured makespan of all phases. If there are several callers, the time that a run took its caller.
    pub measured_ms: Median,
    /// Percentiles of the measured makespans.
    pub latencies_ms: Latencies,
    /// Runs per second: one after the other, or of all callers.
    pub runs_per_second: f64,
    /// Each measured makespan, in the order of the runs. If there are several callers, by round and caller.
    pub samples_ms: Vec<f64>,
    /// `(predicted − measured) / measured` of the makespan, in percent: positive if the prediction was too long. `None`
    /// also for several callers, because the time that each waits is not a makespan.
    pub error_percent: Option<f64>,
    /// Sum of the nodes' prediction errors, in percent of their measured time
    /// ([`Accuracy::node_error`](anabranch_learning::Accuracy::node_error)).
    ///
    /// This and all figures of links, traffic and devices come from the profiled run whose time is nearest to the
    /// median.
    pub node_error_percent: Option<f64>,
    /// Sum of the prediction errors of copies over links, in percent of their measured time.
    pub link_error_percent: Option<f64>,
    /// Bytes that the plan copies or streams between devices.
    pub predicted_traffic_bytes: Option<u64>,
    /// Bytes that were copied or streamed between devices.
    pub traffic_bytes: u64,
    /// Figures of each device.
    pub devices: Vec<DeviceOutcome>,
    /// Comparison of the outputs with those of the first configuration.
    pub outputs: Agreement,
}

/// One device under one configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceOutcome {
    /// Number of nodes that it ran.
    pub nodes: usize,
    /// Share of the predicted makespan in which it runs nodes.
    pub predicted_utilisation: Option<f64>,
    /// Share of the profiled run's time in which it ran nodes.
    pub utilisation: f64,
    /// Peak memory of the plan.
    pub predicted_peak_bytes: Option<u64>,
    /// Peak memory that was allocated.
    pub peak_bytes: u64,
}

/// Measurements of one configuration while it runs.
#[derive(Default)]
pub(super) struct Tally {
    samples: Vec<f64>,
    /// Runs of several callers together.
    callers: Option<Together>,
    agreement: Option<Agreement>,
    /// The profiled run that the outcome describes.
    seen: Option<Nearest<Seen>>,
}

/// A profiled run.
struct Seen {
    predicted_ms: Option<f64>,
    /// Predicted against measured times, for the run of a plan.
    accuracy: Option<Accuracy>,
    predicted_traffic_bytes: Option<u64>,
    traffic_bytes: u64,
    devices: Vec<DeviceOutcome>,
}

impl Tally {
    /// Adds a measured run.
    pub(super) fn add(&mut self, ran: &Ran) {
        self.samples.push(ran.took_ms());
    }

    /// Adds measured runs of several callers.
    pub(super) fn add_together(&mut self, made: Together) {
        self.callers.get_or_insert_default().extend(made);
    }

    /// Adds a profiled run, and compares its outputs with the reference. Returns whether it is nearer to the median
    /// than those before.
    pub(super) fn add_profiled(&mut self, ran: &Ran, reference: &Outputs) -> bool {
        let agreement = Agreement::of(ran.outputs(), reference);
        self.agreement = Some(self.agreement.map_or(agreement, |so_far| so_far.and(agreement)));
        let median = Median::of(&self.samples).map_or_else(|| ran.took_ms(), |median| median.median);
        let seen = self.seen.get_or_insert_with(|| Nearest::to(median));
        let nearer = seen.is_nearer(ran.took_ms());
        if nearer {
            seen.offer(ran.took_ms(), Seen::of(ran));
        }
        nearer
    }

    /// Returns the outcome; `None` if nothing was measured.
    pub(super) fn outcome(&self, configuration: Configuration, planned: Option<&Arc<Planned>>) -> Option<Outcome> {
        let samples = self.callers.as_ref().map_or(&self.samples, |together| &together.latencies_ms);
        let (measured_ms, outputs) = (Median::of(samples)?, self.agreement?);
        let seen = self.seen.as_ref()?.found()?;
        let alone = seen.predicted_ms.filter(|_| self.callers.is_none());
        let [node_error_percent, link_error_percent] =
            seen.accuracy.as_ref().map_or([None; 2], Accuracy::error_percents);
        Some(Outcome {
            place_ms: planned.map(|planned| planned.place_time.as_secs_f64() * 1e3),
            predicted_ms: seen.predicted_ms,
            error_percent: alone.map(|ms| (ms - measured_ms.median) / measured_ms.median * 100.0),
            measured_ms,
            latencies_ms: Latencies::of(samples),
            runs_per_second: self.callers.as_ref().map_or_else(|| runs_per_second(samples), Together::runs_per_second),
            node_error_percent,
            link_error_percent,
            predicted_traffic_bytes: seen.predicted_traffic_bytes,
            traffic_bytes: seen.traffic_bytes,
            devices: seen.devices.clone(),
            outputs,
            samples_ms: samples.clone(),
            same_plan_as: None,
            plan: None,
            configuration,
        })
    }
}

impl Seen {
    fn of(ran: &Ran) -> Self {
        match ran {
            Ran::Planned(run) => Self::planned(run),
            Ran::Dynamic(_, measured) => Self {
                predicted_ms: None,
                accuracy: None,
                predicted_traffic_bytes: None,
                traffic_bytes: measured.traffic(None).moved().bytes,
                devices: measured.peaks.iter().enumerate().map(|(at, peak)| dynamic(measured, at, *peak)).collect(),
            },
        }
    }

    fn planned(run: &Run) -> Self {
        let (parts, [planned, measured]) = (run.parts(), run.traffic());
        let devices = run.peaks().into_iter().enumerate();
        Self {
            predicted_ms: run.predicted().map(|predicted| predicted.makespan * 1e3),
            accuracy: Some(run.accuracy()),
            predicted_traffic_bytes: Some(planned.moved().bytes),
            traffic_bytes: measured.moved().bytes,
            devices: devices.map(|(at, peak)| device(run, &parts, at, peak)).collect(),
        }
    }
}

/// Returns the figures of a device in a run of all its plans.
fn device(run: &Run, parts: &[Part<'_>], at: usize, peak_bytes: u64) -> DeviceOutcome {
    let predicted = |part: &Part<'_>| {
        let (plan, nodes) = (part.planned.plan(), part.planned.program.node_ids());
        let here = nodes.filter(|node| plan.device_of(*node).index() == at);
        here.map(|node| plan.predicted().busy[node.index()]).fold(0.0, |sum, busy| sum + busy)
    };
    let planned_peak = |part: &Part<'_>| part.planned.plan().memory().devices()[at].peak();
    let (busy, nodes) =
        parts.iter().map(|part| ran(part.measured, at)).fold((0.0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
    let predicted_busy = parts.iter().map(predicted).fold(0.0, |sum, busy| sum + busy);
    DeviceOutcome {
        nodes,
        predicted_utilisation: Some(share(predicted_busy, run.foreseen())),
        utilisation: share(busy, run.took().as_secs_f64()),
        predicted_peak_bytes: parts.iter().map(planned_peak).max(),
        peak_bytes,
    }
}

/// Returns the figures of a device in a run without a plan.
fn dynamic(measured: &RunOutput, at: usize, peak_bytes: u64) -> DeviceOutcome {
    let (busy, nodes) = ran(measured, at);
    let utilisation = share(busy, measured.makespan.as_secs_f64());
    DeviceOutcome { nodes, predicted_utilisation: None, utilisation, predicted_peak_bytes: None, peak_bytes }
}

/// Returns the seconds for which a device ran nodes, and the number of nodes.
fn ran(measured: &RunOutput, at: usize) -> (f64, usize) {
    let here = measured.events.iter().filter(
        |event| matches!((event.what, event.lane), (Activity::Node(_), Lane::Device(device)) if device.index() == at),
    );
    here.fold((0.0, 0), |(busy, nodes), event| (busy + event.busy() as f64 * 1e-9, nodes + 1))
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
