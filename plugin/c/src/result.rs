//! What a run has made, as a caller reads it.

use super::abi::{anabranch_result, anabranch_status, anabranch_tensor};
use super::handles::Handles;
use super::open::tell;
use super::status::{Failure, guarded};
use super::tensors::code;
use super::text::{c_text, written};
use anabranch::planning::Planned;
use anabranch::session::{Run, events_json};
use anabranch::{Tensor, lent};
use serde_json::{Value, json};
use std::ffi::{CString, c_char};
use std::sync::Arc;
use std::time::Duration;

/// The results that callers have open.
pub(crate) static RESULTS: Handles<anabranch_result, Made> = Handles::new("result");

/// A finished run. Nothing of it is a caller's memory, and no plan is held for it.
pub(crate) struct Made {
    outputs: Vec<Output>,
    planned: Arc<Planned>,
    /// Seconds that were predicted of the whole run, if that was known before.
    predicted: Option<f64>,
    /// How long the whole run took.
    took: Duration,
    /// By device, how many nodes its plans have there, each plan once: those of all phases with a profile, else of the first.
    nodes: Vec<usize>,
    /// By device, the most bytes that were taken.
    peaks: Vec<u64>,
    /// Phases after the plan, if it is of the first of several.
    later: usize,
    cold: bool,
    /// Only with a profile.
    events: Option<Value>,
}

struct Output {
    name: CString,
    dims: Vec<i64>,
    tensor: Tensor,
}

impl Made {
    pub(crate) fn of(run: Run, profile: bool) -> Self {
        let output = |(name, tensor): (&str, &Tensor)| Output {
            name: c_text(name),
            dims: tensor.shape().dims().iter().map(|dim| *dim as i64).collect(),
            // An output may be an input as it is.
            tensor: lent::kept(tensor),
        };
        let outputs = run.outputs.iter().map(output).collect();
        let events = profile.then(|| events_json(&run)["events"].take());
        let later = run.later.as_ref().map_or(0, |later| later.phases);
        Self {
            outputs,
            planned: Arc::clone(run.prepared.planned()),
            nodes: nodes(&run),
            predicted: run.predicted().map(|predicted| predicted.makespan),
            took: run.took(),
            peaks: run.peaks(),
            later,
            cold: run.is_cold(),
            events,
        }
    }

    fn report(&self) -> Value {
        let plan = self.planned.plan();
        let (predicted, measured) = (self.predicted.map(|seconds| seconds * 1e3), self.took.as_secs_f64() * 1e3);
        let device = |(at, device): (usize, &anabranch::plan::PlanDevice)| {
            json!({
                "device": device.name,
                "kind": device.kind,
                "nodes": self.nodes.get(at),
                "peak_bytes": self.peaks.get(at),
                "limit_bytes": device.limit,
            })
        };
        let mut report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "strategy": plan.strategy(),
            "predicted_ms": predicted,
            "measured_ms": measured,
            "cold": self.cold,
            "later_phases": self.later,
            "devices": plan.devices().iter().enumerate().map(device).collect::<Vec<_>>(),
        });
        if let Some(events) = &self.events {
            report["events"] = events.clone();
        }
        report
    }
}

/// By device, how many nodes the run's plans have there.
fn nodes(run: &Run) -> Vec<usize> {
    let mut nodes = vec![0; run.prepared.plan().devices().len()];
    for planned in run.plans() {
        for node in planned.program.node_ids() {
            nodes[planned.plan().device_of(node).index()] += 1;
        }
    }
    nodes
}

/// How many outputs a run has made: as many as the model has.
///
/// Any thread, at any time.
///
/// # Safety
/// `count` must be a place for a number, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_result_count(
    result: *const anabranch_result,
    count: *mut usize,
) -> anabranch_status {
    // SAFETY: as this function's.
    guarded(|| unsafe { tell(count, RESULTS.get(result)?.outputs.len()) })
}

/// An output, by its place in the model's order from 0 on. What `tensor` points to is the result's, and valid until that is freed; its elements
/// are aligned to 64 bytes.
///
/// Any thread, at any time.
///
/// # Safety
/// `tensor` must be a place for one, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_result_output(
    result: *const anabranch_result,
    index: usize,
    tensor: *mut anabranch_tensor,
) -> anabranch_status {
    guarded(|| {
        let result = RESULTS.get(result)?;
        let missing =
            || Failure::argument(format_args!("there is no output {index}; the run made {}", result.outputs.len()));
        let Output { name, dims, tensor: made } = result.outputs.get(index).ok_or_else(missing)?;
        let told = anabranch_tensor {
            name: name.as_ptr(),
            element_type: code(made.dtype()),
            dims: dims.as_ptr(),
            rank: dims.len(),
            data: made.bytes().as_ptr().cast(),
            bytes: made.bytes().len(),
        };
        // SAFETY: as this function's.
        unsafe { tell(tensor, told) }
    })
}

/// What a run did, as JSON: predicted and measured milliseconds, nodes, peak and limit in bytes of each device; with the option `profile` when each
/// node ran and each transfer was made, in nanoseconds. Written to `buffer` with a zero byte at its end, if it has room for that; `needed` is told
/// how many bytes it takes. With a null `buffer` and no `room` only that is told; `needed` may be null otherwise.
///
/// Any thread, at any time.
///
/// # Safety
/// `buffer` must have room for `room` bytes, or be null; `needed` must be a place for a number, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_report(
    result: *const anabranch_result,
    buffer: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> anabranch_status {
    // SAFETY: as this function's.
    guarded(|| unsafe { written(&RESULTS.get(result)?.report().to_string(), buffer, room, needed) })
}

/// Frees a result and its outputs; null is none.
///
/// Any thread, at any time at which nobody reads its outputs.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_result_free(result: *mut anabranch_result) -> anabranch_status {
    guarded(|| RESULTS.close(result))
}
