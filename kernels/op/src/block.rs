//! Several buffers in one mapping: large pages hold buffers that are smaller than a page.

use crate::tensor::{ALIGNMENT, Buffer, pages};
use memmap2::MmapMut;
use std::ops::Range;
use std::sync::Arc;

/// Memory of buffers that are made together, and are given back together when the last of them is dropped.
///
/// Small pages slow the reading of buffers that caches do not hold: the processor looks up each page.
#[derive(Debug)]
pub struct Block {
    pages: MmapMut,
    parts: Vec<Range<usize>>,
}

impl Block {
    /// Allocates zero bytes for buffers of these sizes, or returns `None` if there is not enough memory.
    pub fn try_zeroed(sizes: impl IntoIterator<Item = usize>) -> Option<Self> {
        let mut end: usize = 0;
        let mut parts = Vec::new();
        for bytes in sizes {
            let start = end.checked_next_multiple_of(ALIGNMENT)?;
            end = start.checked_add(bytes)?;
            parts.push(start..end);
        }
        Some(Self { pages: pages(end.max(1)).ok()?, parts })
    }

    /// Returns the bytes of each buffer for writing.
    pub fn parts_mut(&mut self) -> Vec<&mut [u8]> {
        let (mut rest, mut at) = (&mut self.pages[..], 0);
        let mut all = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let (own, after) = rest.split_at_mut(part.end - at);
            all.push(&mut own[part.start - at..]);
            (rest, at) = (after, part.end);
        }
        all
    }

    /// Returns the buffers. A buffer that is written later is copied first.
    pub fn into_buffers(self) -> Vec<Buffer> {
        let pages = Arc::new(self.pages);
        self.parts.into_iter().map(|part| Buffer::part(&pages, part)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_aligned_and_apart_and_copied_when_written() {
        let sizes = [1, 64, 0, 100, 5000];
        let mut block = Block::try_zeroed(sizes).expect("little memory");
        for (at, part) in block.parts_mut().into_iter().enumerate() {
            assert_eq!((part.len(), part.iter().all(|byte| *byte == 0)), (sizes[at], true));
            part.fill(at as u8 + 1);
        }
        let mut buffers = block.into_buffers();
        let mut written = buffers[3].clone();
        for (at, buffer) in buffers.iter_mut().enumerate() {
            assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(buffer.bytes(), vec![at as u8 + 1; sizes[at]]);
        }
        buffers[4].bytes_mut()[0] = 9;
        written.bytes_mut()[99] = 9;
        assert_eq!((buffers[3].bytes(), buffers[4].bytes()[..2].to_vec()), (&[4; 100][..], vec![9, 5]));
        assert!(Block::try_zeroed([usize::MAX, 1]).is_none() && Block::try_zeroed([]).is_some());
    }
}
