//! Waits for a GPU, and detects its loss.
//!
//! A wait ends when a submission, or all work that was queued at some moment ([`Ahead`]), is finished. It also ends if
//! the run is stopped, or if the GPU is lost.

use crate::error::{Failure, FailureSite};
use crate::run_channels::Halt;
use crate::worker::Site;
use anabranch_base::error_kind::ErrorKind;
use anabranch_kernels::KernelError;
use anabranch_kernels::gpu::{Gpu, caught, is_race};
use anabranch_plan::ExecError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest wait for the device before the stop flag is checked. Each slice that ends before the device is done gives
/// wgpu's race ([`is_race`]) a chance, so that slices are long.
const SLICE: Duration = Duration::from_millis(250);

/// Failure of a GPU, with the kind of a lost device if a fault was reported to its handlers. A poll comes first: a loss
/// shows in other calls before it is reported, and only a poll reports it.
pub(crate) fn failure(gpu: &Gpu, place: FailureSite, error: KernelError) -> Failure {
    let _ = gpu.poll(None);
    match gpu.fault() {
        Some(fault) => gone(gpu, place, &fault),
        None => Failure::at(place, error),
    }
}

/// Checks that no fault was reported to the GPU's handlers.
pub(crate) fn healthy(gpu: &Gpu, place: FailureSite) -> Result<(), Failure> {
    match gpu.fault() {
        None => Ok(()),
        Some(fault) => Err(failure(gpu, place, KernelError::Gpu(fault))),
    }
}

/// The failure of a GPU with this fault. It is opened again after a lack of memory, too, because wgpu does not say
/// which result is missing.
fn gone(gpu: &Gpu, place: FailureSite, fault: &str) -> Failure {
    if gpu.is_short_of_memory() {
        let what = format!("the work of a run ({fault})");
        return Failure::at(place, KernelError::DeviceMemory { what });
    }
    const LOST: &str = "the device was lost";
    let text = if fault.starts_with(LOST) { fault.to_owned() } else { format!("{LOST}: {fault}") };
    Failure::at(place, ExecError::new(ErrorKind::DeviceFailure, text))
}

/// Waits until a submission is finished.
pub(crate) fn wait_for_work(gpu: &Gpu, submission: &wgpu::SubmissionIndex, site: Site<'_>) -> Result<(), Halt> {
    let done = told_when_done(gpu);
    wait_for(gpu, submission, site, || done.load(Ordering::Acquire))
}

/// Everything in a GPU's queue at one moment.
pub(crate) struct Ahead {
    last: wgpu::SubmissionIndex,
    done: Arc<AtomicBool>,
}

impl Ahead {
    /// Captures everything submitted so far.
    pub(crate) fn of(gpu: &Gpu) -> Self {
        Self { last: gpu.queue().submit([]), done: told_when_done(gpu) }
    }

    /// Waits until it is finished.
    pub(crate) fn wait(&self, gpu: &Gpu, site: Site<'_>) -> Result<(), Halt> {
        wait_for(gpu, &self.last, site, || self.done.load(Ordering::Acquire))
    }
}

fn told_when_done(gpu: &Gpu) -> Arc<AtomicBool> {
    let done = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&done);
    gpu.queue().on_submitted_work_done(move || told.store(true, Ordering::Release));
    done
}

/// Polls until `done`, at least until the submission is finished.
pub(crate) fn wait_for(
    gpu: &Gpu,
    submission: &wgpu::SubmissionIndex,
    site: Site<'_>,
    done: impl Fn() -> bool,
) -> Result<(), Halt> {
    while !done() {
        site.stop.check()?;
        poll(gpu, wgpu::PollType::Wait { submission_index: Some(submission.clone()), timeout: Some(SLICE) }, site)?;
    }
    Ok(())
}

/// Runs the callbacks of what is done, without waiting.
pub(crate) fn look(gpu: &Gpu, site: Site<'_>) -> Result<(), Halt> {
    poll(gpu, wgpu::PollType::Poll, site)
}

fn poll(gpu: &Gpu, kind: wgpu::PollType, site: Site<'_>) -> Result<(), Halt> {
    let lost = match caught(|| gpu.device().poll(kind)) {
        Ok(Ok(_) | Err(wgpu::PollError::Timeout)) => gpu.fault(),
        Ok(Err(error)) => Some(error.to_string()),
        Err(payload) if is_race(&*payload) => gpu.fault(),
        Err(_) => Some(gpu.fault().unwrap_or_else(|| "the device was lost while it was polled".into())),
    };
    let Some(fault) = lost else { return Ok(()) };
    // The pool then opens the GPU again, even if the loss is reported later.
    gpu.condemn(&fault);
    Err(gone(gpu, site.place, &fault).into())
}
