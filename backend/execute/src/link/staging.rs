//! Staging buffers that host and GPU use alternately.

use super::upload::Written;
use crate::error::{Failure, FailureSite};
use crate::gpu::{GpuSide, failure, healthy, wait_for};
use crate::run_channels::{Halt, Stop};
use crate::worker::Site;
use anabranch_kernels::KernelError;
use anabranch_kernels::gpu::Gpu;
use anabranch_plan::Ring;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const AWAY: u8 = 0;
const MAPPED: u8 = 1;
const REFUSED: u8 = 2;

/// The GPU end of a link, with its staging buffers.
pub(crate) struct End {
    pub(super) side: Arc<GpuSide>,
    pub(super) staging: Vec<Staging>,
    /// Index of the next staging buffer to be written.
    pub(super) next: usize,
    pub(super) size: Ring,
    /// Values side by side in the first staging buffer: offset and bytes of each that is not read yet.
    pub(super) together: VecDeque<(u64, usize)>,
    /// Pieces in the next staging buffer whose copies are not submitted yet.
    pub(super) written: Vec<Written>,
    mode: wgpu::MapMode,
}

impl End {
    /// Creates an end from which the host reads, or to which it writes.
    pub(crate) fn new(side: Arc<GpuSide>, size: Ring, mode: wgpu::MapMode) -> Result<Self, KernelError> {
        let (together, written) = (VecDeque::new(), Vec::new());
        let mut end = Self { side, staging: Vec::new(), next: 0, size, together, written, mode };
        end.staging = end.fresh()?;
        end.side.gpu.poll(None)?;
        Ok(end)
    }

    /// Creates the staging buffers again, after a failure that may have left them in any state.
    pub(crate) fn renew(&mut self) {
        self.staging.clear();
        self.together.clear();
        self.written.clear();
        match self.fresh() {
            Ok(staging) => self.staging = staging,
            // The engine is then built again, and that reports the error.
            Err(error) => self.side.gpu.condemn(&error.to_string()),
        }
    }

    fn fresh(&self) -> Result<Vec<Staging>, KernelError> {
        let Ring { bytes, depth } = self.size;
        (0..depth).map(|_| Staging::new(&self.side.gpu, bytes, self.mode)).collect()
    }
}

/// A mappable buffer, and whether it is the host's turn.
pub(crate) struct Staging {
    pub(super) buffer: wgpu::Buffer,
    /// Set by the callback of the mapping, on the thread that polls.
    state: Arc<AtomicU8>,
    /// Last copy from or into the buffer.
    submission: Option<wgpu::SubmissionIndex>,
}

impl Staging {
    /// Creates a buffer of `size` bytes that the host reads, or writes; a buffer for writing is mapped from the start.
    pub(crate) fn new(gpu: &Gpu, size: u64, mode: wgpu::MapMode) -> Result<Self, KernelError> {
        let writes = matches!(mode, wgpu::MapMode::Write);
        let usage = if writes {
            wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC
        } else {
            wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST
        };
        let buffer =
            gpu.buffer(&wgpu::BufferDescriptor { label: Some("staging"), size, usage, mapped_at_creation: writes })?;
        let state = Arc::new(AtomicU8::new(if writes { MAPPED } else { AWAY }));
        Ok(Self { buffer, state, submission: None })
    }

    /// Returns the buffer, for commands.
    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Lets the GPU run `commands` with the buffer, and then requests its mapping.
    pub(super) fn submit(&mut self, gpu: &Gpu, commands: wgpu::CommandBuffer, mode: wgpu::MapMode, bytes: u64) {
        self.submitted(gpu.queue().submit([commands]), mode, bytes);
    }

    /// Requests the mapping, after the submission of commands with the buffer.
    pub(crate) fn submitted(&mut self, submission: wgpu::SubmissionIndex, mode: wgpu::MapMode, bytes: u64) {
        self.state.store(AWAY, Ordering::Relaxed);
        self.submission = Some(submission);
        let state = Arc::clone(&self.state);
        self.buffer.map_async(mode, ..bytes, move |result| {
            state.store(if result.is_ok() { MAPPED } else { REFUSED }, Ordering::Release);
        });
    }

    /// Waits until it is the host's turn.
    pub(super) fn wait(&self, gpu: &Gpu, site: Site<'_>) -> Result<(), Halt> {
        let state = || self.state.load(Ordering::Acquire);
        if let Some(submission) = &self.submission {
            wait_for(gpu, submission, site, || state() != AWAY)?;
        }
        match state() {
            MAPPED => Ok(()),
            _ => Err(refused(gpu, site.place, "a staging buffer could not be mapped".into()).into()),
        }
    }

    /// Lets the GPU copy `bytes` bytes of a buffer, from `offset` on, to this buffer.
    pub(crate) fn fetch(&mut self, gpu: &Gpu, source: &wgpu::Buffer, offset: u64, bytes: usize) {
        let padded = (bytes as u64).next_multiple_of(4);
        let mut encoder = gpu.device().create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(source, offset, &self.buffer, 0, padded);
        self.submit(gpu, encoder.finish(), wgpu::MapMode::Read, padded);
    }

    /// Passes on the `bytes` bytes that were fetched, once they have arrived.
    pub(crate) fn read(
        &self,
        gpu: &Gpu,
        bytes: usize,
        site: Site<'_>,
        take: impl FnOnce(&[u8]) -> Result<(), Halt>,
    ) -> Result<(), Halt> {
        self.look(gpu, (0, bytes), site, take)?;
        self.buffer.unmap();
        Ok(())
    }

    /// Passes on `bytes` fetched bytes from `offset` on, once they have arrived, and leaves the buffer mapped. `offset`
    /// is a multiple of 8.
    pub(super) fn look(
        &self,
        gpu: &Gpu,
        (offset, bytes): (u64, usize),
        site: Site<'_>,
        take: impl FnOnce(&[u8]) -> Result<(), Halt>,
    ) -> Result<(), Halt> {
        self.wait(gpu, site)?;
        let view = self.buffer.get_mapped_range(offset..offset + (bytes as u64).next_multiple_of(4));
        let view = view.map_err(|error| refused(gpu, site.place, error.to_string()))?;
        take(&view[..bytes])
    }
}

/// Bytes from a value to the next one beside it, which begins at a multiple of 8, as mapped ranges must.
pub(super) fn step(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(8)
}

/// Creates the failure of a staging buffer.
pub(super) fn refused(gpu: &Gpu, at: FailureSite, reason: String) -> Failure {
    let _ = gpu.poll(None);
    // Only a lost device refuses to map buffers that are used like these, and it may not have reported its loss yet.
    gpu.condemn(&reason);
    failure(gpu, at, KernelError::Gpu(reason))
}

/// Copies the first bytes of a buffer to the host.
pub(crate) fn download(gpu: &Gpu, source: &wgpu::Buffer, bytes: &mut [u8]) -> Result<(), Halt> {
    healthy(gpu, FailureSite::Nowhere)?;
    let site = Site { stop: &Stop::default(), place: FailureSite::Nowhere };
    let staging = Staging::new(gpu, source.size(), wgpu::MapMode::Read);
    let mut staging = staging.map_err(|error| Failure::at(FailureSite::Nowhere, error))?;
    // No range that is mapped is empty.
    let some = bytes.len().max(1);
    staging.fetch(gpu, source, 0, some);
    staging.read(gpu, some, site, |view| {
        bytes.copy_from_slice(&view[..bytes.len()]);
        Ok(())
    })
}
