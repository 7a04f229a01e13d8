//! Waiting for a GPU, and knowing when it is gone.

use crate::execute::error::{Failure, Place, RunErrorKind};
use crate::execute::exchange::Halt;
use crate::execute::worker::Site;
use anabranch_kernels::KernelError;
use anabranch_kernels::gpu::{Gpu, caught, is_race};
use std::time::Duration;

/// How long one wait for the device takes at most before the stop flag is looked at. Each end of a slice before the device is done
/// is a chance for wgpu's race ([`is_race`]), so that slices are long.
const SLICE: Duration = Duration::from_millis(250);

/// The failure of a GPU: lost, if it has reported a fault to its handlers. A loss shows itself to other calls before it is
/// reported, which happens in a poll.
pub(in crate::execute) fn failure(gpu: &Gpu, place: Place, error: KernelError) -> Failure {
    let _ = gpu.poll(None);
    match gpu.fault() {
        Some(fault) => Failure::at(place, RunErrorKind::DeviceLost(fault)),
        None => Failure::at(place, error),
    }
}

/// Polls until `done`, at least until the submission is finished.
pub(in crate::execute) fn wait_for(
    gpu: &Gpu,
    submission: &wgpu::SubmissionIndex,
    site: Site<'_>,
    done: impl Fn() -> bool,
) -> Result<(), Halt> {
    while !done() {
        site.stop.check()?;
        let kind = wgpu::PollType::Wait { submission_index: Some(submission.clone()), timeout: Some(SLICE) };
        let lost = match caught(|| gpu.device().poll(kind)) {
            Ok(Ok(_) | Err(wgpu::PollError::Timeout)) => gpu.fault(),
            Ok(Err(error)) => Some(error.to_string()),
            Err(payload) if is_race(&*payload) => gpu.fault(),
            Err(_) => Some(gpu.fault().unwrap_or_else(|| "the device was lost while it was polled".into())),
        };
        if let Some(fault) = lost {
            return Err(Failure::at(site.place, RunErrorKind::DeviceLost(fault)).into());
        }
    }
    Ok(())
}
