//! Sources and targets of the pieces of a value on a link.

use super::copy::copy;
use super::staging::End;
use crate::error::{Failure, FailureSite};
use crate::faults::Operation;
use crate::run_channels::{Halt, Wait};
use crate::worker::{Run, Site};
use crate::worker_program::{Feed, LinkStep};
use anabranch_kernels::Buffer;
use anabranch_kernels::cpu::Team;
use std::cell::Cell;
use std::sync::Arc;

/// A transfer in flight.
pub(super) struct Moving<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) step: &'a LinkStep,
    /// Threads that copy large pieces.
    pub(super) copiers: &'a Team,
    /// Nanoseconds spent waiting for chunks, for empty buffers and for staging buffers.
    pub(super) waited: Cell<u64>,
    /// Time at which a GPU started the transfer; 0 if it is unknown.
    pub(super) begun: Cell<u64>,
}

impl Moving<'_> {
    /// Returns the flag that interrupts the transfer, and the place that its failures name.
    pub(super) fn site(&self) -> Site<'_> {
        self.run.site(FailureSite::Transfer(self.step.transfer))
    }

    /// Returns the next chunk of a value that is being made.
    pub(super) fn next_chunk(&self, feed: &Feed) -> Result<Option<Arc<Buffer>>, Halt> {
        self.timed(|| self.run.next_chunk(feed))
    }

    /// Whether the next chunk is submitted to the GPU that makes it; waits for a chunk that `must` come.
    pub(super) fn is_made(&self, must: bool) -> Result<bool, Halt> {
        let Some(feed) = &self.step.feed else { return Ok(true) };
        let made = must || self.run.port().is_ready(Wait::Channel(feed.wait));
        if made {
            self.next_chunk(feed)?;
        }
        Ok(made)
    }

    /// Returns an empty buffer of the link's ring.
    fn free_buffer(&self) -> Result<Arc<Buffer>, Halt> {
        self.timed(|| self.run.free_buffer(0, self.step.buffer_channel))
    }

    /// Waits for a staging buffer. For values that a CPU sends whole, the time is recorded: a GPU that computes delays
    /// the copy.
    fn staging<T>(&self, wait: impl FnOnce() -> T) -> T {
        if self.step.reader.is_none() && self.step.source.is_none() { self.timed(wait) } else { wait() }
    }

    fn timed<T>(&self, wait: impl FnOnce() -> T) -> T {
        let before = self.run.now();
        let result = wait();
        self.waited.set(self.waited.get() + self.run.now() - before);
        result
    }

    /// Informs the reader of a stream that a chunk has arrived.
    fn send(&self, buffer: Option<Arc<Buffer>>) {
        if let Some(reader) = self.step.reader {
            self.run.channels.send(reader, buffer);
        }
    }
}

/// Target of the pieces of a value.
pub(super) enum Target<'a> {
    /// A slot of a GPU.
    Gpu(&'a mut End, u32),
    /// A slot of a CPU device.
    Cpu(&'a mut Buffer),
    /// A node of a CPU device, through the ring.
    Ring,
}

impl Target<'_> {
    /// Accepts a piece: its offset in the value, and its bytes.
    pub(super) fn take(&mut self, moving: &Moving<'_>, offset: usize, bytes: &[u8]) -> Result<(), Halt> {
        let struck = moving.run.strike(Operation::Copy);
        struck.map_err(|error| Failure::at(moving.site().place, error))?;
        match self {
            Self::Gpu(upload, slot) => {
                moving.staging(|| upload.wait(moving.site()))?;
                upload.write(moving.copiers, *slot, offset, bytes, moving.site())?;
                if !moving.step.is_whole() || bytes.len() < moving.step.bytes {
                    upload.send(moving.site())?;
                }
                moving.send(None);
            }
            Self::Cpu(landing) => {
                copy(moving.copiers, bytes, &mut landing.bytes_mut()[offset..offset + bytes.len()]);
            }
            Self::Ring => {
                let mut buffer = moving.free_buffer()?;
                let chunk = Arc::get_mut(&mut buffer);
                let chunk = chunk.ok_or_else(|| Failure::internal("a chunk's buffer is still read"))?;
                copy(moving.copiers, bytes, &mut chunk.bytes_mut()[..bytes.len()]);
                moving.send(Some(buffer));
            }
        }
        Ok(())
    }
}
