//! What `anabranch run` tells of a run: predicted beside measured, for the whole and for each device.

use super::blocks::BlockLine;
use super::lossy;
use super::phases::Phases;
use super::staged::Staged;
use super::table::{Table, digits, duration, error, interval};
use crate::text::amount;
use anabranch::compare::{Latencies, Median, Series, runs_per_second};
use anabranch::device::format_bytes;
use anabranch::learning::NodeAccuracy;
use anabranch::plan::{CandidatePlan, Route, Traffic};
use anabranch::profile::CostSource;
use anabranch::session::{Run, Session};
use anabranch_kernels::TensorSpec;
use serde::Serialize;
use std::fmt;
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
    predicted_makespan_ms: f64,
    /// Between which makespans nine of ten runs are expected, as far as anybody knows.
    predicted_interval_ms: Option<(f64, f64)>,
    /// The median of the measured runs.
    measured_makespan_ms: f64,
    makespan_error_percent: Option<f64>,
    /// That of the last run, which was profiled: what is told of nodes, devices, links and blocks is of it.
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
    /// What came after the plan that is told of, if it is not of the whole model.
    #[serde(skip_serializing_if = "Option::is_none")]
    phases: Option<Phases>,
    /// Σ |predicted − measured| of Σ measured, of nodes and of copies over links, by their medians in the profiled runs.
    node_error_percent: Option<f64>,
    link_error_percent: Option<f64>,
    /// The node that was off by most by these medians.
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
        let run = &series.last;
        let (plan, measured) = (run.prepared.plan(), &run.measured);
        let (predicted, median) = (plan.predicted().makespan * 1e3, series.measured_ms.median);
        let traffic = measured.traffic(Some(plan));
        Self {
            model,
            compiled: session.compiled_file().map(lossy),
            strategy: plan.strategy().to_owned(),
            nodes: run.prepared.program.nodes.len(),
            outputs: run.outputs.iter().map(|(name, tensor)| OutputLine::new(name, tensor)).collect(),
            latency_ms: Latency::new(series),
            predicted_makespan_ms: predicted,
            predicted_interval_ms: plan.predicted().interval.map(|(low, high)| (low * 1e3, high * 1e3)),
            measured_makespan_ms: median,
            makespan_error_percent: (median > 0.0).then(|| 100.0 * (predicted - median) / median),
            profiled_makespan_ms: milliseconds(measured.makespan),
            place_ms: milliseconds(run.prepared.place_time),
            candidates: run.prepared.candidates.clone(),
            predicted_traffic_bytes: plan.traffic().moved().bytes,
            traffic_bytes: traffic.moved().bytes,
            transfers: traffic.moved().transfers,
            traffic,
            staged: Staged::all(plan, &run.prepared.program),
            phases: Phases::of(run),
            node_error_percent: series.accuracy.node_error().map(|error| 100.0 * error),
            link_error_percent: series.accuracy.link_error().map(|error| 100.0 * error),
            worst_node: series.accuracy.worst_node().map(|worst| NodeLine::new(worst, run)),
            costs: CostBasis::of(run),
            devices: devices(run),
            links: links(run),
            blocks: BlockLine::all(&run.prepared, Some(run)),
            notes: session.inventory().notes.clone(),
        }
    }
}

impl NodeLine {
    fn new(accuracy: &NodeAccuracy, run: &Run) -> Self {
        Self {
            node: run.prepared.program.node(accuracy.node).name.clone(),
            device: run.prepared.plan().device(accuracy.device).name.clone(),
            predicted_ms: accuracy.time.predicted * 1e3,
            measured_ms: accuracy.time.measured * 1e3,
            error_percent: accuracy.time.error().map(|error| 100.0 * error),
        }
    }
}

impl OutputLine {
    fn new(name: &str, tensor: &anabranch_kernels::Tensor) -> Self {
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
        for node in run.prepared.program.node_ids() {
            let device = run.prepared.plan().device_of(node);
            let cost = run.prepared.placed.costs[node.index()][device.index()];
            match cost.map(|cost| cost.source) {
                Some(CostSource::Measured { .. } | CostSource::Cold { .. }) => basis.measured += 1,
                Some(CostSource::Fitted { .. } | CostSource::OtherKernels { .. }) => basis.fitted += 1,
                Some(CostSource::Roofline | CostSource::Scaled { .. }) => basis.roofline += 1,
                Some(CostSource::Assumed) | None => basis.assumed += 1,
            }
        }
        basis
    }
}

fn devices(run: &Run) -> Vec<DeviceLine> {
    let (plan, program) = (run.prepared.plan(), &run.prepared.program);
    let line = |(index, device): (usize, &anabranch::plan::PlanDevice)| {
        let here = |node: &anabranch::program::NodeId| plan.device_of(*node).index() == index;
        let predicted = program.node_ids().filter(here).map(|n| plan.predicted().busy[n.index()]);
        let busy = run.measured.node_times().filter(|(node, _)| here(node)).map(|(_, seconds)| seconds);
        DeviceLine {
            name: device.name.clone(),
            kind: device.kind.to_string(),
            nodes: program.node_ids().filter(here).count(),
            predicted_busy_ms: summed(predicted) * 1e3,
            busy_ms: summed(busy) * 1e3,
            planned_peak_bytes: plan.memory().devices()[index].peak(),
            peak_bytes: run.measured.peaks[index],
            limit_bytes: device.limit,
        }
    };
    plan.devices().iter().enumerate().map(line).collect()
}

fn links(run: &Run) -> Vec<LinkLine> {
    let plan = run.prepared.plan();
    let mut lines: Vec<LinkLine> = Vec::new();
    for (id, seconds) in run.measured.transfer_times() {
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
        let expected = |(low, high): (f64, f64)| format!(" (nine of ten within {})", interval(low * 1e-3, high * 1e-3));
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
        writeln!(
            f,
            "\nmakespan  predicted {}{}, measured {}; (predicted − measured) / measured: {}",
            ms(self.predicted_makespan_ms),
            self.predicted_interval_ms.map_or(String::new(), expected),
            ms(self.measured_makespan_ms),
            self.makespan_error_percent.map_or("–".into(), error)
        )?;
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
        writeln!(f, "\nin the last run, profiled: {}\n\n{}", ms(self.profiled_makespan_ms), self.device_table())?;
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

    /// The figures of the whole, in a line.
    pub(super) fn headline(&self) -> String {
        format!(
            "{} nodes placed by {}; makespan predicted {}, measured {} (the last run {}); {}",
            self.nodes,
            self.strategy,
            duration(self.predicted_makespan_ms * 1e-3),
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
