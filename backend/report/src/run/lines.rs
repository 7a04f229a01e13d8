//! Lines of a report: outputs, the machine's load, nodes, devices and links.

use crate::text::{digits, duration};
use anabranch::compare::Load;
use anabranch::learning::NodeAccuracy;
use anabranch::plan::{Plan, Route};
use anabranch::planning::Planned;
use anabranch::program::NodeId;
use anabranch::session::{Part, Run, Session};
use anabranch_kernels::TensorSpec;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// An output, with its range.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OutputLine {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    /// Its first 20 elements, if they are strings.
    #[serde(skip_serializing_if = "Option::is_none")]
    texts: Option<Vec<String>>,
}

/// Load of the machine.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LoadLine {
    #[serde(flatten)]
    pub(super) load: Load,
    pub(super) busy: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct NodeLine {
    pub(super) node: String,
    pub(super) device: String,
    pub(super) predicted_ms: f64,
    pub(super) measured_ms: f64,
    pub(super) error_percent: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct DeviceLine {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) nodes: usize,
    pub(super) predicted_busy_ms: f64,
    pub(super) busy_ms: f64,
    pub(super) planned_peak_bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) limit_bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct LinkLine {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) transfers: usize,
    pub(super) streamed: usize,
    pub(super) bytes: u64,
    pub(super) busy_ms: f64,
}

impl fmt::Display for LoadLine {
    /// Prints nothing unless the machine was busy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        busy(&self.load).map_or(Ok(()), |busy| writeln!(f, "          {busy}"))
    }
}

/// Returns the note on a busy machine; `None` if it was not busy.
pub fn busy(load: &Load) -> Option<String> {
    Some(format!("busy machine: {}; measure again", waits(load)?))
}

/// Returns the note on devices that were measured on a busy machine; `None` if it was not busy.
pub fn busy_calibration(load: &Load) -> Option<String> {
    let waits = waits(load)?;
    Some(format!(
        "the devices were measured on a busy machine ({waits}), so that predictions may be too long; \
         `anabranch calibrate --redo` on an idle machine measures again"
    ))
}

/// Describes how long threads waited for cores; `None` if the machine was not busy.
fn waits(load: &Load) -> Option<String> {
    let Load { processor_ms, waited_ms, wall_ms, pressure_percent } = load;
    let ms = |ms: f64| duration(ms * 1e-3);
    let seen = match (waited_ms.zip(*processor_ms), pressure_percent.zip(*wall_ms)) {
        (Some((waited, ran)), _) => format!("our threads ran for {} and waited {} for a core", ms(ran), ms(waited)),
        (None, Some((percent, wall))) => {
            format!("some thread waited for a core for {} % of {}", digits(percent, 0), ms(wall))
        }
        (None, None) => return None,
    };
    load.is_busy().then_some(seen)
}

/// Returns advice for a machine with one device, on which all plans are alike; `None` if there are several.
pub fn one_device(devices: usize) -> Option<&'static str> {
    (devices == 1).then_some(
        "there is one device. `--cpu-devices core` makes a device of each core, and `--emulate cpu1=4` makes one of them \
         four times slower. `anabranch place --platform one-gpu` shows what a GPU would bring.",
    )
}

impl NodeLine {
    pub(super) fn new(accuracy: &NodeAccuracy, run: &Run) -> Self {
        Self {
            node: run.plans()[accuracy.plan].program.node(accuracy.node).name.clone(),
            device: run.prepared.plan().device(accuracy.device).name.clone(),
            predicted_ms: accuracy.time.predicted * 1e3,
            measured_ms: accuracy.time.measured * 1e3,
            error_percent: accuracy.time.error().map(|error| 100.0 * error),
        }
    }
}

/// Most strings of an output in a report.
const MOST_TEXTS: usize = 20;

/// Most strings of an output in its line, and most characters of each.
const SHOWN_TEXTS: usize = 8;
const LONGEST_TEXT: usize = 40;

impl OutputLine {
    pub(super) fn new(name: &str, tensor: &anabranch_kernels::Tensor, session: &Session) -> Self {
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

/// Returns the work of each device in all phases of a run. Nodes count once per plan, times once per run.
pub(super) fn devices(run: &Run) -> Vec<DeviceLine> {
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
            limit_bytes: device.limit.bytes(),
        }
    };
    run.prepared.plan().devices().iter().enumerate().map(line).collect()
}

/// Returns the greatest peak memory of these plans on a device, in bytes.
pub fn planned_peak(plans: &[&Arc<Planned>], device: usize) -> u64 {
    plans.iter().map(|planned| planned.plan().memory().devices()[device].peak()).max().unwrap_or(0)
}

pub(super) fn links(run: &Run) -> Vec<LinkLine> {
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

/// Returns a sum that is 0, not −0, if there are no values.
pub fn summed(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}
