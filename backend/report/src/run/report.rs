//! Report of `anabranch run`: predicted beside measured values, for the whole run and for each device.

use super::blocks::BlockLine;
use super::divided::{PartLine, displaced_line};
use super::latency::Latency;
use super::lines::{DeviceLine, LinkLine, LoadLine, NodeLine, OutputLine, devices, links, one_device};
use super::phases::Phases;
use super::staged::Staged;
use crate::table::Table;
use crate::text::{WIDTH, amount, count, digits, duration, error, interval, wrapped};
use anabranch::compare::Series;
use anabranch::costs::CostSource;
use anabranch::device::format_bytes;
use anabranch::plan::{CandidatePlan, Displaced, Traffic};
use anabranch::session::{Run, RunPrediction, Session};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// A report, as text and as JSON. Times in milliseconds, sizes in bytes, errors in percent:
/// `(predicted − measured) / measured`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    model: String,
    /// File of the compiled model, if it is one or was found in a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    compiled: Option<String>,
    strategy: String,
    nodes: usize,
    outputs: Vec<OutputLine>,
    latency_ms: Latency,
    /// Prediction for the whole run; null if it was not known before the run.
    predicted_makespan_ms: Option<f64>,
    /// Interval of nine of ten runs; null if it is unknown, or too wide to be useful.
    predicted_interval_ms: Option<(f64, f64)>,
    /// Quality of the prediction.
    prediction: Known,
    /// Median of the measured runs.
    measured_makespan_ms: f64,
    makespan_error_percent: Option<f64>,
    /// Load of the machine during the measured runs.
    load: LoadLine,
    /// Makespan of the profiled run that is nearest to the median. Figures of nodes, devices, links and blocks come
    /// from it.
    profiled_makespan_ms: f64,
    place_ms: f64,
    /// Candidates for the plan, the shortest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    candidates: Vec<CandidatePlan>,
    /// Bytes copied or streamed, as planned.
    predicted_traffic_bytes: u64,
    /// Bytes copied or streamed, as measured.
    traffic_bytes: u64,
    /// Number of transfers, as measured.
    transfers: usize,
    traffic: Traffic,
    /// Parts of the batch, if it is divided.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    split: Vec<PartLine>,
    /// Nodes that left their devices because memory is short.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    displaced: Vec<Displaced>,
    /// Weights that are sent to GPUs in each run.
    staged: Vec<Staged>,
    /// Times of the run's phases, if it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    phases: Option<Phases>,
    /// Σ |predicted − measured| of Σ measured, for nodes and for copies over links, in the run shown.
    node_error_percent: Option<f64>,
    link_error_percent: Option<f64>,
    /// Node with the greatest error.
    worst_node: Option<NodeLine>,
    /// Basis of the predictions.
    costs: CostBasis,
    devices: Vec<DeviceLine>,
    links: Vec<LinkLine>,
    blocks: Vec<BlockLine>,
    notes: Vec<String>,
}

/// Quality of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Known {
    /// Nine of ten runs are expected within the interval.
    Interval,
    /// A time without an interval.
    Point,
    /// The interval is too wide to be useful.
    NotYet,
    /// Later phases were planned only while the model ran.
    UnknownBeforeTheFirstRun,
}

/// Number of nodes by basis of their prediction.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct CostBasis {
    measured: usize,
    fitted: usize,
    roofline: usize,
    assumed: usize,
}

impl Report {
    /// Returns the report of a plan that was measured.
    pub fn new(model: String, session: &Session, series: &Series) -> Self {
        let run = &series.run;
        let (plan, plans) = (run.prepared.plan(), run.plans());
        let (predicted, median) = (series.predicted.map(|known| known.makespan * 1e3), series.measured_ms.median);
        let [planned_traffic, traffic] = run.traffic();
        let interval = series.predicted.and_then(|known| known.telling_interval());
        Self {
            model,
            compiled: session.compiled_file().map(|file| file.to_string_lossy().into_owned()),
            strategy: plan.strategy().to_owned(),
            nodes: plans.iter().map(|plan| plan.program.nodes.len()).sum(),
            outputs: run.outputs.iter().map(|(name, tensor)| OutputLine::new(name, tensor, session)).collect(),
            latency_ms: Latency::new(series),
            predicted_makespan_ms: predicted,
            predicted_interval_ms: interval.map(|(low, high)| (low * 1e3, high * 1e3)),
            prediction: Known::of(series.predicted),
            measured_makespan_ms: median,
            makespan_error_percent: predicted.filter(|_| median > 0.0).map(|ms| 100.0 * (ms - median) / median),
            load: LoadLine { load: series.load, busy: series.load.is_busy() },
            profiled_makespan_ms: milliseconds(run.took()),
            place_ms: milliseconds(run.prepared.place_time),
            candidates: run.prepared.candidates.clone(),
            predicted_traffic_bytes: planned_traffic.moved().bytes,
            traffic_bytes: traffic.moved().bytes,
            transfers: traffic.moved().transfers,
            traffic,
            split: PartLine::all(run.prepared.planned()),
            displaced: plans.iter().flat_map(|planned| planned.displaced.clone()).collect(),
            staged: plans.iter().flat_map(|plan| Staged::all(plan.plan(), &plan.program)).collect(),
            phases: Phases::of(run),
            node_error_percent: series.accuracy.node_error().map(|error| 100.0 * error),
            link_error_percent: series.accuracy.link_error().map(|error| 100.0 * error),
            worst_node: series.accuracy.worst_node().map(|worst| NodeLine::new(worst, run)),
            costs: CostBasis::of(run),
            devices: devices(run),
            links: links(run),
            blocks: run.parts().iter().flat_map(|part| BlockLine::all(part.planned, Some(part.measured))).collect(),
            notes: session.inventory().notes.clone(),
        }
    }
}

impl Known {
    fn of(predicted: Option<RunPrediction>) -> Self {
        match predicted {
            None => Self::UnknownBeforeTheFirstRun,
            Some(known) if known.is_vague() => Self::NotYet,
            Some(RunPrediction { interval: None, .. }) => Self::Point,
            Some(_) => Self::Interval,
        }
    }
}

impl CostBasis {
    fn of(run: &Run) -> Self {
        let mut basis = Self::default();
        for planned in run.plans() {
            for node in planned.program.node_ids() {
                let device = planned.plan().device_of(node);
                let cost = planned.placed.costs[node.index()][device.index()];
                match cost.map(|cost| cost.source) {
                    Some(CostSource::Measured { .. } | CostSource::Cold { .. }) => basis.measured += 1,
                    Some(CostSource::Fitted { .. } | CostSource::OtherKernels { .. }) => basis.fitted += 1,
                    Some(CostSource::Roofline | CostSource::Scaled { .. }) => basis.roofline += 1,
                    Some(CostSource::Assumed) | None => basis.assumed += 1,
                }
            }
        }
        basis
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ms: f64| duration(ms * 1e-3);
        let Self { latency_ms, costs, .. } = self;
        writeln!(f, "{}: {} placed by {} in {}", self.model, nodes(self.nodes), self.strategy, ms(self.place_ms))?;
        if let [first, others @ ..] = &self.candidates[..]
            && !others.is_empty()
        {
            let told = |c: &CandidatePlan| format!("{} {}", c.name, duration(c.makespan));
            let before = |at: usize, name: &str| others[..at].iter().any(|other| other.name == name);
            let others = others.iter().enumerate().filter(|(at, other)| !before(*at, &other.name));
            let others: Vec<_> = others.map(|(_, other)| told(other)).collect();
            writeln!(f, "chosen    {} before {}", told(first), others.join(", "))?;
        }
        let error = self
            .makespan_error_percent
            .map(|percent| format!("\n          (predicted − measured) / measured: {}", error(percent)));
        let (predicted, measured) = (self.predicted_text(), ms(self.measured_makespan_ms));
        writeln!(f, "\nmakespan  predicted {predicted}, measured {measured}{}", error.unwrap_or_default())?;
        if self.prediction == Known::NotYet {
            writeln!(
                f,
                "          not known yet: run `anabranch calibrate`, or run the model again, which learns from each run"
            )?;
        }
        write!(f, "{}", self.load)?;
        writeln!(f, "measured  {latency_ms}")?;
        writeln!(f, "traffic   {}", traffic_text(&self.traffic))?;
        PartLine::line(&self.split).iter().try_for_each(|line| writeln!(f, "{line}"))?;
        self.displaced.iter().try_for_each(|displaced| writeln!(f, "{}", displaced_line(displaced)))?;
        self.staged.iter().try_for_each(|staged| writeln!(f, "{staged}"))?;
        self.phases.iter().try_for_each(|phases| writeln!(f, "{phases}"))?;
        writeln!(
            f,
            "costs     {} measured, {} fitted, {} roofline, {} assumed when this was predicted",
            nodes(costs.measured),
            costs.fitted,
            costs.roofline,
            costs.assumed
        )?;
        if let (Some(off), Some(worst)) = (self.node_error_percent, &self.worst_node) {
            let NodeLine { node, device, predicted_ms, measured_ms, .. } = worst;
            let (predicted, measured) = (ms(*predicted_ms), ms(*measured_ms));
            writeln!(f, "nodes     off by {} % (Σ |predicted − measured| of Σ measured); most:", digits(off, 0))?;
            writeln!(f, "          {node} on {device}, predicted {predicted}, measured {measured}")?;
        }
        let which = if self.latency_ms.runs > 1 { " is the profiled one nearest to the median" } else { "" };
        writeln!(f, "\nthe run shown{which}: {}\n\n{}", ms(self.profiled_makespan_ms), self.device_table())?;
        if !self.links.is_empty() {
            writeln!(f, "{}", self.link_table())?;
        }
        if !self.blocks.is_empty() {
            writeln!(f, "{}", BlockLine::table(&self.blocks))?;
        }
        if let Some(advice) = one_device(self.devices.len()) {
            writeln!(f, "{}\n", wrapped(advice, WIDTH).join("\n"))?;
        }
        self.outputs.iter().try_for_each(|output| output.fmt(f))
    }
}

fn nodes(number: usize) -> String {
    count(number, "node")
}

/// Returns the traffic between devices, in words.
pub fn traffic_text(traffic: &Traffic) -> String {
    let Traffic { in_place, copied, streamed } = *traffic;
    let mut text =
        format!("{} in {}", format_bytes(traffic.moved().bytes), count(traffic.moved().transfers, "transfer"));
    if streamed.transfers > 0 {
        text += &format!(" ({} copied, {} streamed)", copied.transfers, streamed.transfers);
    }
    if in_place.transfers > 0 {
        text += &format!("; {} read in place ({})", in_place.transfers, format_bytes(in_place.bytes));
    }
    text
}

impl Report {
    /// Returns a line with the times of the runs.
    pub fn brief(&self) -> String {
        let Latency { median, low, high, p95, p99, runs, runs_per_second, .. } = self.latency_ms;
        let [median, p95, p99] = [median, p95, p99].map(|ms| duration(ms * 1e-3));
        let (within, rate) = (interval(low * 1e-3, high * 1e-3), amount(runs_per_second));
        format!("{}: median of {runs} {median} ({within}), p95 {p95}, p99 {p99}, {rate} runs a second", self.model)
    }

    /// Returns the prediction, with its interval if that is useful.
    fn predicted_text(&self) -> String {
        let Some(predicted) = self.predicted_makespan_ms else { return "unknown before the first run".into() };
        let expected = |(low, high): (f64, f64)| format!(" (nine of ten within {})", interval(low * 1e-3, high * 1e-3));
        let about = if self.prediction == Known::NotYet { "about " } else { "" };
        format!("{about}{}{}", duration(predicted * 1e-3), self.predicted_interval_ms.map_or(String::new(), expected))
    }

    /// Returns a line with the figures of the whole run.
    pub fn headline(&self) -> String {
        format!(
            "{} placed by {}; makespan predicted {}, measured {} (the run shown {}); {}",
            nodes(self.nodes),
            self.strategy,
            self.predicted_makespan_ms.map_or("unknown".into(), |ms| duration(ms * 1e-3)),
            duration(self.measured_makespan_ms * 1e-3),
            duration(self.profiled_makespan_ms * 1e-3),
            traffic_text(&self.traffic)
        )
    }

    fn device_table(&self) -> Table {
        let mut table =
            Table::new("device | >nodes | >busy predicted | >busy measured | >peak planned | >peak measured | >limit");
        for device in &self.devices {
            table.row([
                device.name.clone(),
                device.nodes.to_string(),
                duration(device.predicted_busy_ms * 1e-3),
                duration(device.busy_ms * 1e-3),
                format_bytes(device.planned_peak_bytes),
                format_bytes(device.peak_bytes),
                device.limit_bytes.map_or("none".into(), format_bytes),
            ]);
        }
        table
    }

    fn link_table(&self) -> Table {
        let mut table = Table::new("link | >transfers | >streamed | >bytes | >copying");
        for link in &self.links {
            table.row([
                format!("{} → {}", link.from, link.to),
                link.transfers.to_string(),
                link.streamed.to_string(),
                format_bytes(link.bytes),
                duration(link.busy_ms * 1e-3),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch::plan::Moved;

    #[test]
    fn what_is_read_in_place_is_no_traffic() {
        let moved = |transfers, bytes| Moved { transfers, bytes };
        let traffic = Traffic { in_place: moved(3, 4096), copied: moved(2, 1024), streamed: moved(1, 1024) };
        let text = "2 KiB in 3 transfers (2 copied, 1 streamed); 3 read in place (4 KiB)";
        assert_eq!(traffic_text(&traffic), text);
        assert_eq!(traffic_text(&Traffic::default()), "0 B in 0 transfers");
    }
}
