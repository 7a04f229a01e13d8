//! What `anabranch run` tells of a run: predicted beside measured, for the whole and for each device.

use super::blocks::BlockLine;
use super::lossy;
use super::phases::Phases;
use super::staged::Staged;
use super::table::{Table, digits, duration, error, interval};
use crate::text::amount;
use anabranch::compare::{Latencies, Load, Median, Series, runs_per_second};
use anabranch::device::format_bytes;
use anabranch::learning::NodeAccuracy;
use anabranch::plan::{CandidatePlan, Plan, Route, Traffic};
use anabranch::planning::Planned;
use anabranch::profile::CostSource;
use anabranch::program::NodeId;
use anabranch::session::{Part, Run, RunPrediction, Session};
use anabranch_kernels::TensorSpec;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A report, as text and as JSON. Times in milliseconds, sizes in bytes, errors in percent: `(predicted − measured) / measured`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    model: String,
    /// The compiled model's file, if it is one or was found in a cache.
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
    /// The median of the measured runs.
    measured_makespan_ms: f64,
    makespan_error_percent: Option<f64>,
    /// Load of the machine during the measured runs.
    load: LoadLine,
    /// That of the profiled run that is nearest to the median: what is told of nodes, devices, links and blocks is of it.
    profiled_makespan_ms: f64,
    place_ms: f64,
    /// What the plan was chosen from, the shortest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    candidates: Vec<CandidatePlan>,
    /// Copied or streamed, as planned …
    predicted_traffic_bytes: u64,
    /// … and as measured.
    traffic_bytes: u64,
    /// Copied or streamed, as measured.
    transfers: usize,
    traffic: Traffic,
    /// The weights that GPUs are sent in each run.
    staged: Vec<Staged>,
    /// How the run is divided among phases, if it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    phases: Option<Phases>,
    /// Σ |predicted − measured| of Σ measured, of nodes and of copies over links, in the run shown.
    node_error_percent: Option<f64>,
    link_error_percent: Option<f64>,
    /// The node that was off by most.
    worst_node: Option<NodeLine>,
    /// What the predictions rest on.
    costs: CostBasis,
    devices: Vec<DeviceLine>,
    links: Vec<LinkLine>,
    blocks: Vec<BlockLine>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct OutputLine {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    /// Its first 20 elements, if they are texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    texts: Option<Vec<String>>,
}

/// Quality of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Known {
    /// Nine of ten runs are expected within the interval.
    Interval,
    /// A time without an interval.
    Point,
    /// The interval is so wide that it says nothing.
    NotYet,
    /// Later phases were planned only while the model ran.
    UnknownBeforeTheFirstRun,
}

/// Load of the machine.
#[derive(Clone, Copy, Debug, Serialize)]
struct LoadLine {
    #[serde(flatten)]
    load: Load,
    busy: bool,
}

/// The makespans of the measured runs.
#[derive(Clone, Debug, Serialize)]
struct Latency {
    /// Runs before, which do not count.
    warmup: u32,
    /// Measured runs.
    runs: usize,
    /// Whether the first of these was the first of all.
    cold: bool,
    /// The first run of all.
    first: f64,
    median: f64,
    /// Where the median is with this confidence.
    low: f64,
    high: f64,
    confidence: f64,
    min: f64,
    p90: f64,
    p95: f64,
    p99: f64,
    /// Runs a second, one after the other.
    runs_per_second: f64,
}

#[derive(Clone, Debug, Serialize)]
struct NodeLine {
    node: String,
    device: String,
    predicted_ms: f64,
    measured_ms: f64,
    error_percent: Option<f64>,
}

/// On how many nodes' predictions rest on what.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct CostBasis {
    measured: usize,
    fitted: usize,
    roofline: usize,
    assumed: usize,
}

#[derive(Clone, Debug, Serialize)]
struct DeviceLine {
    name: String,
    kind: String,
    nodes: usize,
    predicted_busy_ms: f64,
    busy_ms: f64,
    planned_peak_bytes: u64,
    peak_bytes: u64,
    limit_bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
struct LinkLine {
    from: String,
    to: String,
    transfers: usize,
    streamed: usize,
    bytes: u64,
    busy_ms: f64,
}

impl Report {
    /// The report of a plan that was measured.
    pub(super) fn new(model: String, session: &Session, series: &Series) -> Self {
        let run = &series.run;
        let (plan, plans) = (run.prepared.plan(), run.plans());
        let (predicted, median) = (series.predicted.map(|known| known.makespan * 1e3), series.measured_ms.median);
        let [planned_traffic, traffic] = run.traffic();
        let interval = series.predicted.and_then(|known| known.telling_interval());
        Self {
            model,
            compiled: session.compiled_file().map(lossy),
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

impl fmt::Display for LoadLine {
    /// Nothing unless the machine was busy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        busy(&self.load).map_or(Ok(()), |busy| writeln!(f, "          {busy}"))
    }
}

/// The note on a busy machine; nothing for a quiet one.
pub(super) fn busy(load: &Load) -> Option<String> {
    let Load { processor_ms, waited_ms, wall_ms, pressure_percent } = load;
    let ms = |ms: f64| duration(ms * 1e-3);
    let seen = match (waited_ms, pressure_percent) {
        (Some(waited), _) => format!("our threads ran for {} and waited {} for a core", ms(*processor_ms), ms(*waited)),
        (None, Some(percent)) => {
            format!("some thread waited for a core for {} % of {}", digits(*percent, 0), ms(*wall_ms))
        }
        (None, None) => return None,
    };
    load.is_busy().then(|| format!("busy machine: {seen}; measure again"))
}

impl NodeLine {
    fn new(accuracy: &NodeAccuracy, run: &Run) -> Self {
        Self {
            node: run.plans()[accuracy.plan].program.node(accuracy.node).name.clone(),
            device: run.prepared.plan().device(accuracy.device).name.clone(),
            predicted_ms: accuracy.time.predicted * 1e3,
            measured_ms: accuracy.time.measured * 1e3,
            error_percent: accuracy.time.error().map(|error| 100.0 * error),
        }
    }
}

/// Texts of an output that a report shows.
const MOST_TEXTS: usize = 20;

/// Texts of an output that its line shows, and characters of each.
const SHOWN_TEXTS: usize = 8;
const LONGEST_TEXT: usize = 40;

impl OutputLine {
    fn new(name: &str, tensor: &anabranch_kernels::Tensor, session: &Session) -> Self {
        let labels = session.outputs().iter().find(|output| output.name() == name).and_then(|output| output.labels());
        let texts = labels.and_then(|labels| labels.texts(tensor));
        let TensorSpec { dtype, shape } = tensor.spec();
        let values = tensor.elements::<f32>().unwrap_or(&[]);
        let finite = || values.iter().copied().filter(|v| v.is_finite()).map(f64::from);
        let some = |value: f64| value.is_finite().then_some(value);
        Self {
            name: name.to_owned(),
            dtype: dtype.to_string(),
            shape: shape.dims().to_vec(),
            min: some(finite().fold(f64::INFINITY, f64::min)),
            max: some(finite().fold(f64::NEG_INFINITY, f64::max)),
            mean: some(finite().sum::<f64>() / finite().count() as f64),
            texts: texts.map(|texts| texts.into_iter().take(MOST_TEXTS).map(str::to_owned).collect()),
        }
    }
}

impl Latency {
    fn new(series: &Series) -> Self {
        let Series { warmup, cold, first_ms, measured_ms, ref samples_ms, .. } = *series;
        Self::of(warmup, cold, first_ms, measured_ms, samples_ms)
    }

    fn of(warmup: u32, cold: bool, first: f64, measured: Median, samples: &[f64]) -> Self {
        let Latencies { min, p90, p95, p99, .. } = Latencies::of(samples);
        let Median { median, low, high, confidence } = measured;
        Self {
            warmup,
            runs: samples.len(),
            cold,
            first,
            median,
            low,
            high,
            confidence,
            min,
            p90,
            p95,
            p99,
            runs_per_second: runs_per_second(samples),
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ms: f64| duration(ms * 1e-3);
        match self {
            Self { runs: 1, cold: true, .. } => {
                return write!(f, "one cold run: the plan's first, with all that is done once");
            }
            Self { runs: 1, warmup, .. } => writeln!(f, "one run after {warmup} to warm up; --repeat N makes more")?,
            Self { runs, low, high, confidence, warmup, .. } => {
                let (interval, confidence) = (interval(low * 1e-3, high * 1e-3), digits(100.0 * confidence, 0));
                writeln!(f, "median of {runs} runs after {warmup} to warm up: {interval} ({confidence} % confidence)")?;
            }
        }
        let first = if self.cold { "the first, cold," } else { "the first of all" };
        let [min, p90, p95, p99] = [self.min, self.p90, self.p95, self.p99].map(ms);
        writeln!(f, "          least {min}, p90 {p90}, p95 {p95}, p99 {p99}; {first} took {}", ms(self.first))?;
        write!(f, "          {} runs a second, one after the other", amount(self.runs_per_second))
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

/// The work of each device in all phases of a run. Nodes count once per plan, times once per run.
fn devices(run: &Run) -> Vec<DeviceLine> {
    let (parts, plans, peaks) = (run.parts(), run.plans(), run.peaks());
    let line = |(index, device): (usize, &anabranch::plan::PlanDevice)| {
        let here = |plan: &Plan, node: &NodeId| plan.device_of(*node).index() == index;
        let nodes = |planned: &Planned| planned.program.node_ids().filter(|node| here(planned.plan(), node)).count();
        let predicted = |part: &Part<'_>| {
            let (plan, nodes) = (part.planned.plan(), part.planned.program.node_ids());
            summed(nodes.filter(|node| here(plan, node)).map(|node| plan.predicted().busy[node.index()]))
        };
        let busy = |part: &Part<'_>| {
            let times = part.measured.node_times().filter(|(node, _)| here(part.planned.plan(), node));
            summed(times.map(|(_, seconds)| seconds))
        };
        DeviceLine {
            name: device.name.clone(),
            kind: device.kind.to_string(),
            nodes: plans.iter().map(|planned| nodes(planned)).sum(),
            predicted_busy_ms: summed(parts.iter().map(predicted)) * 1e3,
            busy_ms: summed(parts.iter().map(busy)) * 1e3,
            planned_peak_bytes: planned_peak(&plans, index),
            peak_bytes: peaks[index],
            limit_bytes: device.limit,
        }
    };
    run.prepared.plan().devices().iter().enumerate().map(line).collect()
}

/// The bytes that the plan which takes most of a device takes there.
pub(super) fn planned_peak(plans: &[&Arc<Planned>], device: usize) -> u64 {
    plans.iter().map(|planned| planned.plan().memory().devices()[device].peak()).max().unwrap_or(0)
}

fn links(run: &Run) -> Vec<LinkLine> {
    let mut lines: Vec<LinkLine> = Vec::new();
    for part in run.parts() {
        let plan = part.planned.plan();
        for (id, seconds) in part.measured.transfer_times() {
            let transfer = plan.transfer(id);
            if transfer.route == Route::Shared {
                continue;
            }
            let (from, to) = (&plan.device(transfer.from).name, &plan.device(transfer.to).name);
            let found = lines.iter().position(|line| line.from == *from && line.to == *to);
            let at = found.unwrap_or_else(|| {
                let (from, to) = (from.clone(), to.clone());
                lines.push(LinkLine { from, to, transfers: 0, streamed: 0, bytes: 0, busy_ms: 0.0 });
                lines.len() - 1
            });
            let line = &mut lines[at];
            line.transfers += 1;
            line.streamed += usize::from(transfer.stream().is_some());
            line.bytes += transfer.bytes;
            line.busy_ms += seconds * 1e3;
        }
    }
    lines
}

/// A sum that is 0 without anything, and not −0.
pub(super) fn summed(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ms: f64| duration(ms * 1e-3);
        let Self { latency_ms, costs, .. } = self;
        writeln!(f, "{}: {} nodes placed by {} in {}", self.model, self.nodes, self.strategy, ms(self.place_ms))?;
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
            .map(|percent| format!("; (predicted − measured) / measured: {}", error(percent)));
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
        self.staged.iter().try_for_each(|staged| writeln!(f, "{staged}"))?;
        self.phases.iter().try_for_each(|phases| writeln!(f, "{phases}"))?;
        writeln!(
            f,
            "costs     {} nodes measured, {} fitted, {} roofline, {} assumed when this was predicted",
            costs.measured, costs.fitted, costs.roofline, costs.assumed
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
        self.outputs.iter().try_for_each(|output| output.fmt(f))
    }
}

/// What passes between devices, in words.
pub(super) fn traffic_text(traffic: &Traffic) -> String {
    let Traffic { in_place, copied, streamed } = *traffic;
    let mut text = format!("{} in {} transfers", format_bytes(traffic.moved().bytes), traffic.moved().transfers);
    if streamed.transfers > 0 {
        text += &format!(" ({} copied, {} streamed)", copied.transfers, streamed.transfers);
    }
    if in_place.transfers > 0 {
        text += &format!("; {} read in place ({})", in_place.transfers, format_bytes(in_place.bytes));
    }
    text
}

impl Report {
    /// How long it takes, in a line.
    pub(super) fn brief(&self) -> String {
        let Latency { median, low, high, p95, p99, runs, runs_per_second, .. } = self.latency_ms;
        let [median, p95, p99] = [median, p95, p99].map(|ms| duration(ms * 1e-3));
        let (within, rate) = (interval(low * 1e-3, high * 1e-3), amount(runs_per_second));
        format!("{}: median of {runs} {median} ({within}), p95 {p95}, p99 {p99}, {rate} runs a second", self.model)
    }

    /// The prediction, with its interval if that is useful.
    fn predicted_text(&self) -> String {
        let Some(predicted) = self.predicted_makespan_ms else { return "unknown before the first run".into() };
        let expected = |(low, high): (f64, f64)| format!(" (nine of ten within {})", interval(low * 1e-3, high * 1e-3));
        let about = if self.prediction == Known::NotYet { "about " } else { "" };
        format!("{about}{}{}", duration(predicted * 1e-3), self.predicted_interval_ms.map_or(String::new(), expected))
    }

    /// The figures of the whole, in a line.
    pub(super) fn headline(&self) -> String {
        format!(
            "{} nodes placed by {}; makespan predicted {}, measured {} (the run shown {}); {}",
            self.nodes,
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

impl fmt::Display for OutputLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<_> = self.shape.iter().map(ToString::to_string).collect();
        write!(f, "output {} {}[{}]", self.name, self.dtype, shape.join("×"))?;
        if let (Some(min), Some(mean), Some(max)) = (self.min, self.mean, self.max) {
            write!(f, ": min {min:.4}, mean {mean:.4}, max {max:.4}")?;
        }
        if let Some(texts) = &self.texts {
            let short = |text: &String| text.chars().take(LONGEST_TEXT).collect::<String>().escape_debug().to_string();
            let shown: Vec<String> = texts.iter().take(SHOWN_TEXTS).map(short).collect();
            let more = if texts.len() > SHOWN_TEXTS { ", …" } else { "" };
            write!(f, ": {}{more}", shown.join(", "))?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch::plan::Moved;

    fn latency(samples: &[f64], warmup: u32, cold: bool) -> Latency {
        let measured_ms = Median::of(samples).expect("samples");
        Latency::of(warmup, cold, 99.0, measured_ms, samples)
    }

    #[test]
    fn latencies_are_ranked_and_named() {
        let many = latency(&[9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0], 1, false);
        assert_eq!((many.first, many.min, many.median, many.p90), (99.0, 1.0, 5.5, 9.0));
        assert_eq!((many.p95, many.p99, many.runs_per_second.round()), (10.0, 10.0, 182.0));
        assert!(
            many.to_string().starts_with("median of 10 runs after 1 to warm up: 2.00–9.00 ms (98 % confidence)"),
            "{many}"
        );
        let one = latency(&[9.0], 2, false);
        assert_eq!((one.min, one.median, one.p90), (9.0, 9.0, 9.0));
        assert!(one.to_string().starts_with("one run after 2 to warm up"), "{one}");
        assert!(latency(&[9.0], 0, true).to_string().starts_with("one cold run"));
    }

    #[test]
    fn what_is_read_in_place_is_no_traffic() {
        let moved = |transfers, bytes| Moved { transfers, bytes };
        let traffic = Traffic { in_place: moved(3, 4096), copied: moved(2, 1024), streamed: moved(1, 1024) };
        let text = "2 KiB in 3 transfers (2 copied, 1 streamed); 3 read in place (4 KiB)";
        assert_eq!(traffic_text(&traffic), text);
        assert_eq!(traffic_text(&Traffic::default()), "0 B in 0 transfers");
    }
}
