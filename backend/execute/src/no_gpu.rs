//! Replaces the modules `gpu` and `link` in a build without the feature `gpu`: every link has an end on a GPU, and
//! there is none.

use super::run_channels::Halt;
use super::worker::{Log, Run, Worker};
use super::worker_program::LinkProgram;
use anabranch_kernels::cpu::Team;
use anabranch_kernels::gpu::{Gpu, GpuBuffer};
use anabranch_plan::{ExecError, Plan};
use std::sync::Arc;

/// State of a GPU, which no value of this build has.
#[derive(Clone, Copy)]
pub(super) enum GpuSide {}

/// The worker of a link.
pub(super) enum LinkWorker {}

impl LinkWorker {
    pub(super) fn new(
        _: LinkProgram,
        _: &Arc<Plan>,
        _: impl FnOnce() -> Arc<Team>,
        _: [Option<Arc<GpuSide>>; 2],
    ) -> Result<Self, ExecError> {
        Err(ExecError::internal("a plan has a link, and this build has no GPUs"))
    }
}

impl Worker for LinkWorker {
    fn follow(&mut self, _: &Run<'_>) -> Result<(), Halt> {
        match *self {}
    }

    fn log(&mut self) -> &mut Log {
        match *self {}
    }

    fn let_go(&mut self) {
        match *self {}
    }
}

/// Copies the first bytes of a buffer to the host.
pub(super) fn download(gpu: &Gpu, _: &GpuBuffer, _: &mut [u8]) -> Result<(), Halt> {
    match *gpu {}
}
