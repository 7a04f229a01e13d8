//! What `anabranch run` tells of a run: predicted beside measured, for the whole and for each device.

use super::blocks::BlockLine;
use super::table::{Table, duration};
use anabranch::device::format_bytes;
use anabranch::profile::CostSource;
use anabranch::session::{Run, Session};
use anabranch_kernels::TensorSpec;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// A report, as text and as JSON. Times in milliseconds, sizes in bytes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    model: String,
    strategy: String,
    nodes: usize,
    outputs: Vec<OutputLine>,
    latency_ms: Latency,
    predicted_makespan_ms: f64,
    measured_makespan_ms: f64,
    place_ms: f64,
    predicted_traffic_bytes: u64,
    traffic_bytes: u64,
    transfers: usize,
    node_error_percent: Option<f64>,
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

#[derive(Clone, Debug, Serialize)]
struct Latency {
    runs: usize,
    first: f64,
    median: f64,
    min: f64,
    p90: f64,
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
    /// The report of the last of some runs, of which all latencies are given, the first run's first.
    pub(super) fn new(model: String, session: &Session, run: &Run, latencies: &[Duration]) -> Self {
        let (plan, measured) = (run.prepared.plan(), &run.measured);
        Self {
            model,
            strategy: plan.strategy().to_owned(),
            nodes: run.prepared.program.nodes.len(),
            outputs: run.outputs.iter().map(|(name, tensor)| OutputLine::new(name, tensor)).collect(),
            latency_ms: Latency::new(latencies),
            predicted_makespan_ms: plan.predicted().makespan * 1e3,
            measured_makespan_ms: milliseconds(measured.makespan),
            place_ms: milliseconds(run.prepared.place_time),
            predicted_traffic_bytes: plan.predicted().traffic,
            traffic_bytes: run.measured.traffic(),
            transfers: plan.transfers().len(),
            node_error_percent: run.accuracy().node_error().map(|error| 100.0 * error),
            costs: CostBasis::of(run),
            devices: devices(run),
            links: links(run),
            blocks: BlockLine::all(&run.prepared, Some(run)),
            notes: session.inventory().notes.clone(),
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
    fn new(latencies: &[Duration]) -> Self {
        let first = latencies.first().copied().map_or(0.0, milliseconds);
        let mut sorted: Vec<f64> = latencies.iter().copied().map(milliseconds).collect();
        sorted.sort_by(f64::total_cmp);
        // The nearest rank: the least latency that at least this share of the runs do not exceed.
        let rank = |share: f64| {
            let place = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Self { runs: sorted.len(), first, median: rank(0.5), min: rank(0.0), p90: rank(0.9) }
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
        let busy: f64 = run.measured.node_times().filter(|(node, _)| here(node)).map(|(_, seconds)| seconds).sum();
        DeviceLine {
            name: device.name.clone(),
            kind: device.kind.to_string(),
            nodes: program.node_ids().filter(here).count(),
            predicted_busy_ms: predicted.map(|seconds| seconds * 1e3).sum(),
            busy_ms: busy * 1e3,
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

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ms: f64| duration(ms * 1e-3);
        let Self { latency_ms, costs, .. } = self;
        writeln!(f, "{}: {} nodes placed by {} in {}", self.model, self.nodes, self.strategy, ms(self.place_ms))?;
        writeln!(
            f,
            "\nmakespan  predicted {}, measured {}",
            ms(self.predicted_makespan_ms),
            ms(self.measured_makespan_ms)
        )?;
        if let Latency { runs: runs @ 2.., first, median, min, p90 } = *latency_ms {
            let (first, median, min, p90) = (ms(first), ms(median), ms(min), ms(p90));
            writeln!(f, "latency   first {first}, median {median}, min {min}, p90 {p90} of {runs} runs")?;
        }
        let (predicted, traffic) = (format_bytes(self.predicted_traffic_bytes), format_bytes(self.traffic_bytes));
        writeln!(f, "traffic   predicted {predicted}, measured {traffic} over {} transfers", self.transfers)?;
        write!(
            f,
            "costs     {} nodes measured, {} fitted, {} roofline, {} assumed",
            costs.measured, costs.fitted, costs.roofline, costs.assumed
        )?;
        match self.node_error_percent {
            Some(error) => writeln!(f, "; node times are off by {error:.0} % on average\n")?,
            None => writeln!(f, "\n")?,
        }
        writeln!(f, "{}", self.device_table())?;
        if !self.links.is_empty() {
            writeln!(f, "{}", self.link_table())?;
        }
        if !self.blocks.is_empty() {
            writeln!(f, "{}", BlockLine::table(&self.blocks))?;
        }
        self.outputs.iter().try_for_each(|output| output.fmt(f))
    }
}

impl Report {
    /// The figures of the whole, in a line.
    pub(super) fn headline(&self) -> String {
        format!(
            "{} nodes placed by {}; makespan predicted {}, measured {}; {} over {} transfers",
            self.nodes,
            self.strategy,
            duration(self.predicted_makespan_ms * 1e-3),
            duration(self.measured_makespan_ms * 1e-3),
            format_bytes(self.traffic_bytes),
            self.transfers
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
        let mut table = Table::new("link | >transfers | >streamed | >bytes | >busy");
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

    #[test]
    fn latencies_are_ranked() {
        let runs: Vec<_> = [9, 1, 2, 3, 4, 5, 6, 7, 8, 10].map(Duration::from_millis).to_vec();
        let latency = Latency::new(&runs);
        assert_eq!((latency.first, latency.min, latency.median, latency.p90), (9.0, 1.0, 5.0, 9.0));
        let one = Latency::new(&runs[..1]);
        assert_eq!((one.first, one.min, one.median, one.p90), (9.0, 9.0, 9.0, 9.0));
    }
}
