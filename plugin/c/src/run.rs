//! Runs and plans.

use super::abi::{
    anabranch_cancel, anabranch_output_buffer, anabranch_result, anabranch_session, anabranch_status, anabranch_tensor,
};
use super::cancel::TOKENS;
use super::open::{Open, SESSIONS, placed};
use super::result::{Made, RESULTS};
use super::status::{Failure, Result, guarded};
use super::tensors::{OutputMemory, inputs, output_memory};
use super::text::written;
use anabranch::{DType, Inputs, Outputs, RunOptions, Shape, Tensor, TensorSpec, borrowed};
use std::ffi::c_char;
use std::ptr;
use std::time::{Duration, Instant};

/// Runs the model. On success `result` is a handle, which anabranch_result_free() closes; on failure it is null.
///
/// `inputs` are `input_count` tensors in any order, identified by their names. Inputs with a default in the model may
/// be left out. `cancel` is a token, or null. A run that takes longer than `timeout_ms` milliseconds ends with
/// ANABRANCH_STATUS_TIMEOUT; 0 means no limit.
///
/// The first run with new shapes of inputs makes a plan for them. Any thread, at any time: runs of one session are
/// serialized, since each uses all the devices of its plan. No thread may write the inputs until the call returns.
/// Nothing refers to them afterwards.
///
/// # Safety
/// `inputs` must point to `input_count` tensors with valid pointers, or be null. `result` must point to a writable
/// pointer, or be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_run(
    session: *const anabranch_session,
    inputs: *const anabranch_tensor,
    input_count: usize,
    cancel: *const anabranch_cancel,
    timeout_ms: u64,
    result: *mut *mut anabranch_result,
) -> anabranch_status {
    guarded(|| {
        // SAFETY: by this function's contract.
        let result = unsafe { placed(result, ptr::null_mut()) }?;
        let open = SESSIONS.get(session)?;
        // SAFETY: by this function's contract: the inputs are used until this call returns.
        let (inputs, _) = unsafe { self::inputs(&open, inputs, input_count) }?;
        let run = open.session.run_with(&inputs, &options(&open, cancel, timeout_ms)?)?;
        *result = RESULTS.open(Made::of(run, open.profile));
        Ok(())
    })
}

/// Runs the model like anabranch_run(), and writes outputs to the memory in `outputs`.
///
/// `outputs` are `output_count` entries in any order, identified by the outputs' names; other outputs are not returned.
/// Types, shapes and sizes must be exactly the outputs'. If they follow from the inputs' shapes, they are checked
/// before the run. After a failure the memory's content is undefined.
///
/// Any thread, at any time, as anabranch_run(). Until the call returns, no thread may write the inputs, nor read or
/// write the outputs' memory.
///
/// # Safety
/// `inputs` must point to `input_count` tensors, and `outputs` to `output_count` entries, with valid pointers, or be
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_run_into(
    session: *const anabranch_session,
    inputs: *const anabranch_tensor,
    input_count: usize,
    outputs: *const anabranch_output_buffer,
    output_count: usize,
    cancel: *const anabranch_cancel,
    timeout_ms: u64,
) -> anabranch_status {
    guarded(|| {
        let begun = Instant::now();
        let open = SESSIONS.get(session)?;
        // SAFETY: by this function's contract: inputs and outputs' memory are used until this call returns.
        let (inputs, ranges) = unsafe { self::inputs(&open, inputs, input_count) }?;
        // SAFETY: by this function's contract.
        let memory = unsafe { output_memory(&open, outputs, output_count, &ranges) }?;
        // The token is looked up once: if it is freed during the call, the run keeps it.
        let asked = options(&open, cancel, timeout_ms)?;
        let left = || {
            let mut options = asked.clone();
            options.timeout = options.timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
            options
        };
        open.session.outlasting(|| {
            let prepared = open.session.prepare_with(&inputs, &left())?;
            if prepared.rest().is_none() {
                let outputs = prepared.program.outputs.iter().map(|output| (&*output.name, &output.spec));
                if let Err(failure) = check(outputs, &memory) {
                    return Ok(Err(failure));
                }
            }
            // SAFETY: by this function's contract.
            let mut made = Outputs::over(memory.iter().map(|output| unsafe { over(output.as_ref()) }).collect());
            open.session.run_prepared_into(&prepared, &inputs, &mut made, &left())?;
            // SAFETY: by this function's contract; a tensor over the memory is that output's own, or gone.
            Ok(unsafe { leave(&made, &memory) })
        })?
    })
}

/// Returns the options of a run.
fn options(open: &Open, cancel: *const anabranch_cancel, timeout_ms: u64) -> Result<RunOptions> {
    let mut options = RunOptions::default().with_profile(open.profile);
    if !cancel.is_null() {
        options = options.with_cancel(TOKENS.get(cancel)?.as_ref().clone());
    }
    if timeout_ms > 0 {
        options = options.with_timeout(Duration::from_millis(timeout_ms));
    }
    Ok(options)
}

/// Checks that outputs match the caller's memory.
fn check<'o>(outputs: impl Iterator<Item = (&'o str, &'o TensorSpec)>, memory: &[Option<OutputMemory>]) -> Result<()> {
    for ((name, spec), output) in outputs.zip(memory) {
        if let Some(output) = output.as_ref().filter(|output| output.spec != *spec) {
            return Err(Failure::argument(format_args!(
                "output `{name}` is {spec}, but its buffer is for {}",
                output.spec
            )));
        }
    }
    Ok(())
}

/// Returns the tensor in which a run leaves an output. It has no bytes if the caller gives no memory, or none that can
/// be written directly.
///
/// # Safety
/// As [`borrowed::output`].
unsafe fn over(output: Option<&OutputMemory>) -> Tensor {
    let nothing = || Tensor::zeroed(TensorSpec::new(DType::U8, Shape::new([0]).expect("no elements fit everywhere")));
    let place = output.and_then(|output| Some((output.place?, &output.spec)));
    // SAFETY: by this function's contract.
    place.and_then(|(place, spec)| unsafe { borrowed::output(place, spec) }).unwrap_or_else(nothing)
}

/// Copies the outputs that are not yet in the caller's memory.
///
/// # Safety
/// As [`borrowed::copy_out`], for each output.
unsafe fn leave(made: &Outputs, memory: &[Option<OutputMemory>]) -> Result<()> {
    check(made.iter().map(|(name, tensor)| (name, tensor.spec())), memory)?;
    for (tensor, output) in made.tensors().iter().zip(memory) {
        if let Some(place) = output.as_ref().and_then(|output| output.place) {
            // SAFETY: by this function's contract; the tensor is as large as its memory.
            unsafe { borrowed::copy_out(tensor, place) };
        }
    }
    Ok(())
}

/// Returns the plan for inputs of these shapes, as the JSON that `anabranch place` writes.
///
/// It holds the device of each node with the reason, the order of each device, transfers, predicted times in
/// microseconds and bytes. It can be edited, and passed to a session as the option `place`. The inputs are as in
/// anabranch_run(); later runs with such inputs follow this plan. If shapes depend on computed values, the plan covers
/// only the nodes before them. `buffer`, `capacity` and `needed` are as in anabranch_report().
///
/// Any thread, at any time. Takes as long as planning, once for each set of shapes.
///
/// # Safety
/// `inputs` must point to `input_count` tensors with valid pointers, or be null. `buffer` must have `capacity` writable
/// bytes, or be null. `needed` must point to a writable number, or be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_plan(
    session: *const anabranch_session,
    inputs: *const anabranch_tensor,
    input_count: usize,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> anabranch_status {
    guarded(|| {
        let open = SESSIONS.get(session)?;
        // SAFETY: by this function's contract: the inputs are used until this call returns.
        let (inputs, _): (Inputs, _) = unsafe { self::inputs(&open, inputs, input_count) }?;
        let prepared = open.session.prepare(&inputs)?;
        let text = serde_json::to_string(&prepared.plan_file());
        let text = text.map_err(|error| Failure::new(anabranch_status::Internal, error))?;
        // SAFETY: by this function's contract.
        unsafe { written(&text, buffer, capacity, needed) }
    })
}
