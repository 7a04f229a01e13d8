//! The free buffers of a ring of chunks.

use super::error::Failure;
use anabranch_kernels::Buffer;
use std::sync::Arc;

/// Buffers that go round between the one that fills them and those that read them. Who fills owns the ring; what is not in it
/// is under way.
#[derive(Debug)]
pub(super) struct Ring {
    /// The last used is on top: that is still in cache.
    free: Vec<Arc<Buffer>>,
    bytes: usize,
    depth: usize,
}

impl Ring {
    /// A ring of `depth` buffers of `bytes` bytes, all free.
    pub(super) fn new(bytes: u64, depth: u64) -> Self {
        let mut ring = Self { free: Vec::new(), bytes: bytes as usize, depth: depth as usize };
        ring.renew();
        ring
    }

    /// Makes all buffers anew, after a failure that may have left them anywhere.
    pub(super) fn renew(&mut self) {
        self.free.clear();
        self.free.extend((0..self.depth).map(|_| Arc::new(Buffer::zeroed(self.bytes))));
    }

    /// A free buffer, if there is one.
    pub(super) fn take(&mut self) -> Option<Arc<Buffer>> {
        self.free.pop()
    }

    /// Takes a reader's credit. The buffer is free when its last reader has given it back; the others' clones are dropped
    /// here, one after the other, so exactly one finds itself alone.
    pub(super) fn give(&mut self, mut buffer: Arc<Buffer>) -> Result<(), Failure> {
        if Arc::get_mut(&mut buffer).is_some() {
            if self.free.len() == self.depth {
                return Err(Failure::internal("a ring got a buffer that is not its own"));
            }
            self.free.push(buffer);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_free_when_its_last_reader_has_given_it_back() {
        let mut ring = Ring::new(8, 2);
        let (one, _) = (ring.take().expect("two are free"), ring.take().expect("two are free"));
        assert!(ring.take().is_none());
        let other = Arc::clone(&one);
        ring.give(one).expect("its own");
        assert!(ring.take().is_none(), "another still reads it");
        ring.give(other).expect("its own");
        assert!(ring.take().is_some() && ring.take().is_none());
    }

    #[test]
    fn a_ring_never_grows() {
        let mut ring = Ring::new(8, 1);
        assert!(ring.give(Arc::new(Buffer::zeroed(8))).is_err());
    }
}
