//! A buffer that host and GPU take turns in.

use crate::execute::error::{Failure, Place};
use crate::execute::exchange::Halt;
use crate::execute::gpu::{GpuSide, failure, wait_for};
use crate::execute::worker::Site;
use anabranch_kernels::KernelError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const AWAY: u8 = 0;
const MAPPED: u8 = 1;
const REFUSED: u8 = 2;

/// The staging buffers of one end of a link.
#[derive(Clone, Copy, Debug)]
pub(in crate::execute) struct Pieces {
    /// Bytes of each.
    pub(in crate::execute) bytes: u64,
    /// How many there are.
    pub(in crate::execute) depth: u64,
}

/// A mappable buffer, and whether it is the host's turn.
pub(super) struct Staging {
    pub(super) buffer: wgpu::Buffer,
    /// Set by the callback of the mapping, on whichever thread polls.
    state: Arc<AtomicU8>,
    /// The last copy from or into it.
    submission: Option<wgpu::SubmissionIndex>,
}

impl Staging {
    /// A buffer of `size` bytes that the host reads, or writes: that one is mapped from the start.
    pub(super) fn new(side: &GpuSide, size: u64, mode: wgpu::MapMode) -> Self {
        let writes = matches!(mode, wgpu::MapMode::Write);
        let usage = if writes {
            wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC
        } else {
            wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST
        };
        let buffer = side.gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some("staging"),
            size,
            usage,
            mapped_at_creation: writes,
        });
        let state = Arc::new(AtomicU8::new(if writes { MAPPED } else { AWAY }));
        Self { buffer, state, submission: None }
    }

    /// Lets the GPU do `commands` with the buffer, and then asks for it back.
    pub(super) fn submit(&mut self, side: &GpuSide, commands: wgpu::CommandBuffer, mode: wgpu::MapMode, bytes: u64) {
        self.state.store(AWAY, Ordering::Relaxed);
        self.submission = Some(side.gpu.queue().submit([commands]));
        let state = Arc::clone(&self.state);
        self.buffer.map_async(mode, ..bytes, move |result| {
            state.store(if result.is_ok() { MAPPED } else { REFUSED }, Ordering::Release);
        });
    }

    /// Waits until it is the host's turn.
    pub(super) fn wait(&self, side: &GpuSide, site: Site<'_>) -> Result<(), Halt> {
        let state = || self.state.load(Ordering::Acquire);
        if let Some(submission) = &self.submission {
            wait_for(&side.gpu, submission, site, || state() != AWAY)?;
        }
        match state() {
            MAPPED => Ok(()),
            _ => Err(refused(side, site.place, "a staging buffer could not be mapped".into()).into()),
        }
    }
}

/// The failure of a staging buffer.
pub(super) fn refused(side: &GpuSide, at: Place, reason: String) -> Failure {
    failure(&side.gpu, at, KernelError::Gpu(reason))
}
