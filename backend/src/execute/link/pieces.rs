//! Where the pieces of a value come from and go to on a link.

use super::arrivals::Arrivals;
use super::download::Sink;
use super::upload::Upload;
use crate::execute::error::{Failure, Place};
use crate::execute::message::{Halt, Mail, Message, Run};
use crate::execute::script::{Feed, LinkStep};
use anabranch_kernels::Buffer;
use std::sync::Arc;

/// What a transfer is carried with.
pub(super) struct Carriage<'a> {
    pub(super) arrivals: &'a mut Arrivals,
    pub(super) mail: &'a Mail,
    pub(super) run: &'a Run,
    pub(super) index: usize,
    pub(super) step: &'a LinkStep,
    /// Nanoseconds that went by in waiting for chunks and for empty buffers.
    pub(super) waited: u64,
}

impl Carriage<'_> {
    /// The place of the transfer.
    pub(super) fn place(&self) -> Place {
        Place::Transfer(self.step.transfer)
    }

    /// The next chunk of a value that is being made.
    pub(super) fn next_chunk(&mut self, feed: &Feed) -> Result<Option<Arc<Buffer>>, Halt> {
        let before = self.run.now();
        let chunk = self.arrivals.next_chunk(self.index, feed.wait, self.mail)?;
        self.waited += self.run.now() - before;
        Ok(chunk)
    }

    /// An empty buffer of the link's ring.
    fn free_buffer(&mut self) -> Result<Arc<Buffer>, Halt> {
        let before = self.run.now();
        let buffer = self.arrivals.free_buffer(self.step.room, self.mail)?;
        self.waited += self.run.now() - before;
        Ok(buffer)
    }

    /// Tells the reader of a stream that a chunk is there.
    fn tell(&self, buffer: Option<Arc<Buffer>>) {
        if let Some((worker, queue)) = self.step.reader {
            self.mail.post(worker, Message::Chunk { queue, buffer });
        }
    }
}

/// Carries a value's pieces from a GPU to their target.
pub(super) struct Load<'a, 'c, 't> {
    pub(super) carriage: &'a mut Carriage<'c>,
    pub(super) target: &'a mut Target<'t>,
}

impl Sink for Load<'_, '_, '_> {
    fn is_made(&mut self, must: bool) -> Result<bool, Halt> {
        let Some(feed) = &self.carriage.step.feed else { return Ok(true) };
        let made = must || self.carriage.arrivals.has_chunk(self.carriage.index, self.carriage.mail)?;
        if made {
            self.carriage.next_chunk(feed)?;
        }
        Ok(made)
    }

    fn take(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Halt> {
        self.target.take(self.carriage, offset, bytes)
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
    pub(super) fn take(&mut self, carriage: &mut Carriage<'_>, offset: usize, bytes: &[u8]) -> Result<(), Halt> {
        match self {
            Self::Gpu(upload, slot) => {
                upload.write(*slot, offset, bytes, (carriage.mail, carriage.place()))?;
                carriage.tell(None);
            }
            Self::Cpu(landing) => landing.bytes_mut()[offset..offset + bytes.len()].copy_from_slice(bytes),
            Self::Ring => {
                let mut buffer = carriage.free_buffer()?;
                let chunk = Arc::get_mut(&mut buffer);
                let chunk = chunk.ok_or_else(|| Failure::internal("a chunk's buffer is still read"))?;
                chunk.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
                carriage.tell(Some(buffer));
            }
        }
        Ok(())
    }
}
