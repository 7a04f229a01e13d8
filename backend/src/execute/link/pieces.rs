//! Where the pieces of a value come from and go to on a link.

use super::download::Sink;
use super::upload::Upload;
use crate::execute::error::{Failure, Place};
use crate::execute::exchange::{Halt, Wait};
use crate::execute::script::{Feed, LinkStep};
use crate::execute::worker::{Run, Site};
use anabranch_kernels::Buffer;
use std::sync::Arc;

/// A transfer under way.
pub(super) struct Moving<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) step: &'a LinkStep,
    /// Nanoseconds that went by in waiting for chunks and for empty buffers.
    pub(super) waited: u64,
}

impl Moving<'_> {
    /// What interrupts it, and what is to blame if it fails.
    pub(super) fn site(&self) -> Site<'_> {
        self.run.site(Place::Transfer(self.step.transfer))
    }

    /// The next chunk of a value that is being made.
    pub(super) fn next_chunk(&mut self, feed: &Feed) -> Result<Option<Arc<Buffer>>, Halt> {
        let before = self.run.now();
        let chunk = self.run.next_chunk(feed.queue, feed.wait)?;
        self.waited += self.run.now() - before;
        Ok(chunk)
    }

    /// An empty buffer of the link's ring.
    fn free_buffer(&mut self) -> Result<Arc<Buffer>, Halt> {
        let before = self.run.now();
        let buffer = self.run.free_buffer(0, self.step.room)?;
        self.waited += self.run.now() - before;
        Ok(buffer)
    }

    /// Tells the reader of a stream that a chunk is there.
    fn send(&self, buffer: Option<Arc<Buffer>>) {
        if let Some(reader) = self.step.reader {
            self.run.exchange.send(reader, buffer);
        }
    }
}

/// Takes a value's pieces from a GPU to their target.
pub(super) struct Load<'a, 'm, 't> {
    pub(super) moving: &'a mut Moving<'m>,
    pub(super) target: &'a mut Target<'t>,
}

impl Sink for Load<'_, '_, '_> {
    fn is_made(&mut self, must: bool) -> Result<bool, Halt> {
        let Some(feed) = &self.moving.step.feed else { return Ok(true) };
        let made = must || self.moving.run.port().is_ready(Wait::Channel(feed.wait));
        if made {
            self.moving.next_chunk(feed)?;
        }
        Ok(made)
    }

    fn take(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Halt> {
        self.target.take(self.moving, offset, bytes)
    }
}

/// Where the pieces of a value go.
pub(super) enum Target<'a> {
    /// Into a slot of a GPU.
    Gpu(&'a mut Upload, u32),
    /// Into a slot of a CPU device.
    Cpu(&'a mut Buffer),
    /// Through the ring to a node of a CPU device.
    Ring,
}

impl Target<'_> {
    /// Takes a piece: its offset in the value, and its bytes.
    pub(super) fn take(&mut self, moving: &mut Moving<'_>, offset: usize, bytes: &[u8]) -> Result<(), Halt> {
        match self {
            Self::Gpu(upload, slot) => {
                upload.write(*slot, offset, bytes, moving.site())?;
                moving.send(None);
            }
            Self::Cpu(landing) => landing.bytes_mut()[offset..offset + bytes.len()].copy_from_slice(bytes),
            Self::Ring => {
                let mut buffer = moving.free_buffer()?;
                let chunk = Arc::get_mut(&mut buffer);
                let chunk = chunk.ok_or_else(|| Failure::internal("a chunk's buffer is still read"))?;
                chunk.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
                moving.send(Some(buffer));
            }
        }
        Ok(())
    }
}
