//! A cell that holds a buffer on a CPU device.

use anabranch_kernels::Buffer;
use std::sync::Arc;

/// A buffer, or nothing while the buffer is elsewhere.
///
/// Only buffers with readers elsewhere are reference-counted. Checking whether an [`Arc`] is unique is an atomic
/// operation, which takes as long as all other runtime work for a small node.
#[derive(Debug, Default)]
pub(super) enum Cell {
    /// The buffer is in use by a kernel or in flight.
    #[default]
    Empty,
    /// A buffer that never leaves its thread.
    Own(Buffer),
    /// A buffer that may be read elsewhere.
    Shared(Arc<Buffer>),
}

impl Cell {
    /// Creates a zeroed buffer; `shared` if others will read it. `None` if memory is short.
    pub(super) fn zeroed(bytes: u64, shared: bool) -> Option<Self> {
        let buffer = Buffer::try_zeroed(bytes as usize)?;
        Some(if shared { Self::Shared(Arc::new(buffer)) } else { Self::Own(buffer) })
    }

    /// Returns the bytes, if the cell has a buffer.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Empty => None,
            Self::Own(buffer) => Some(buffer.bytes()),
            Self::Shared(buffer) => Some(buffer.bytes()),
        }
    }

    /// Returns the bytes for writing, if nothing else can read them.
    pub(super) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Empty => None,
            Self::Own(buffer) => Some(buffer.bytes_mut()),
            Self::Shared(buffer) => Arc::get_mut(buffer).map(Buffer::bytes_mut),
        }
    }

    /// Returns the buffer for a reader elsewhere.
    pub(super) fn share(&self) -> Option<Arc<Buffer>> {
        match self {
            Self::Shared(buffer) => Some(Arc::clone(buffer)),
            Self::Empty | Self::Own(_) => None,
        }
    }

    /// Takes the buffer out of the cell to give it away.
    pub(super) fn hand_over(&mut self) -> Option<Arc<Buffer>> {
        match std::mem::take(self) {
            Self::Shared(buffer) => Some(buffer),
            Self::Empty | Self::Own(_) => None,
        }
    }

    /// Whether the buffer's memory belongs to the caller.
    pub(super) fn is_borrowed(&self) -> bool {
        matches!(self, Self::Shared(buffer) if buffer.is_borrowed())
    }

    /// Whether the buffer can be written.
    pub(super) fn is_free(&mut self) -> bool {
        self.bytes_mut().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_buffer_is_free_again_when_it_is_given_back() {
        let mut cell = Cell::zeroed(8, true).expect("some bytes");
        let shared = cell.share();
        assert!(shared.is_some() && !cell.is_free());
        drop(shared);
        assert!(cell.is_free());
        assert!(cell.hand_over().is_some() && cell.bytes().is_none());
    }

    #[test]
    fn an_own_buffer_is_never_shared() {
        let mut cell = Cell::zeroed(8, false).expect("some bytes");
        assert!(cell.share().is_none() && cell.is_free());
        assert_eq!(cell.bytes(), Some(&[0; 8][..]));
    }
}
