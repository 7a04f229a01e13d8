//! Outputs and report of a run, as a caller reads them.

use super::abi::{anabranch_result, anabranch_status, anabranch_tensor};
use super::handles::Handles;
use super::open::tell;
use super::status::{Failure, guarded};
use super::tensors::code;
use super::text::{c_text, written};
use anabranch::planning::Planned;
use anabranch::session::{Run, RunEvent, RunEvents};
use anabranch::{Tensor, borrowed};
use serde_json::{Value, json};
use std::ffi::{CString, c_char};
use std::sync::Arc;
use std::time::Duration;

/// Open results of callers.
pub(crate) static RESULTS: Handles<anabranch_result, Made> = Handles::new("result");

/// A finished run. It refers to no memory of a caller, and keeps no plan ready.
pub(crate) struct Made {
    outputs: Vec<Output>,
    planned: Arc<Planned>,
    /// Predicted seconds of the whole run, if they were known before.
    predicted: Option<f64>,
    /// Time of the whole run.
    took: Duration,
    /// By device: number of nodes of its plans there, each plan counted once. The plans of all phases if the run was
    /// profiled, otherwise of the first.
    nodes: Vec<usize>,
    /// By device: most bytes that were allocated.
    peaks: Vec<u64>,
    /// Number of later phases, if the plan is the first of several.
    later: usize,
    cold: bool,
    /// Events of a profiled run.
    events: Option<Vec<RunEvent>>,
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
            // An output may share the memory of an input.
            tensor: borrowed::owned(tensor),
        };
        let outputs = run.outputs.iter().map(output).collect();
        let events = profile.then(|| RunEvents::of(&run).events);
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
            report["events"] = json!(events);
        }
        report
    }
}

/// Returns, by device, the number of nodes that the run's plans have there.
fn nodes(run: &Run) -> Vec<usize> {
    let mut nodes = vec![0; run.prepared.plan().devices().len()];
    for planned in run.plans() {
        for node in planned.program.node_ids() {
            nodes[planned.plan().device_of(node).index()] += 1;
        }
    }
    nodes
}

/// Returns the number of outputs of a run, which is that of the model.
///
/// Any thread, at any time.
///
/// # Safety
/// `count` must point to a writable number, or be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_result_count(
    result: *const anabranch_result,
    count: *mut usize,
) -> anabranch_status {
    // SAFETY: by this function's contract.
    guarded(|| unsafe { tell(count, RESULTS.get(result)?.outputs.len()) })
}

/// Returns an output, by its index in the model's order from 0. The pointers in `tensor` belong to the result, and are
/// valid until it is freed. The elements are aligned to 64 bytes.
///
/// Any thread, at any time.
///
/// # Safety
/// `tensor` must point to a writable anabranch_tensor, or be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_result_output(
    result: *const anabranch_result,
    index: usize,
    tensor: *mut anabranch_tensor,
) -> anabranch_status {
    guarded(|| {
        let result = RESULTS.get(result)?;
        let missing = || {
            Failure::argument(format_args!("there is no output {index}; the run has {} outputs", result.outputs.len()))
        };
        let Output { name, dims, tensor: made } = result.outputs.get(index).ok_or_else(missing)?;
        let told = anabranch_tensor {
            name: name.as_ptr(),
            element_type: code(made.dtype()),
            dims: dims.as_ptr(),
            rank: dims.len(),
            data: made.bytes().as_ptr().cast(),
            bytes: made.bytes().len(),
        };
        // SAFETY: by this function's contract.
        unsafe { tell(tensor, told) }
    })
}

/// Returns a report of a run as JSON: predicted and measured milliseconds, and nodes, peak and limit in bytes of each
/// device. With the option `profile`, also the times of each node and transfer, in nanoseconds.
///
/// The report is written to `buffer` with a zero byte at its end, if `capacity` is large enough. `needed` receives the
/// number of required bytes. If `buffer` is null and `capacity` is 0, only `needed` is set; otherwise `needed` may be
/// null.
///
/// Any thread, at any time.
///
/// # Safety
/// `buffer` must have `capacity` writable bytes, or be null. `needed` must point to a writable number, or be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_report(
    result: *const anabranch_result,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> anabranch_status {
    // SAFETY: by this function's contract.
    guarded(|| unsafe { written(&RESULTS.get(result)?.report().to_string(), buffer, capacity, needed) })
}

/// Frees a result and its outputs. Does nothing if it is null.
///
/// Any thread, at any time at which no thread reads its outputs.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_result_free(result: *mut anabranch_result) -> anabranch_status {
    guarded(|| RESULTS.close(result))
}
