//! Memory of dropped buffers, kept for later buffers of the same sizes: the system gives fresh pages at the cost of a
//! fault each, which takes longer than many kernels that write them.

use crate::tensor::{Buffer, Memory};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

/// Maximum bytes that are spare.
const MOST_SPARE: usize = 16 << 20;

/// Keeps the memory of its dropped buffers, as much as is [expected](Self::expect), until it [is full](Self::fill) or
/// dropped itself.
///
/// Up to 16 MiB more are spare: a caller that holds the former result during a run drops two at the end.
#[derive(Default)]
pub struct Recycler(Mutex<Vec<Size>>);

/// Free memory of one size.
struct Size {
    bytes: usize,
    most: usize,
    /// Number that is kept beyond `most`.
    spare: usize,
    free: Vec<Memory>,
}

impl Recycler {
    /// Keeps one more free memory of this size.
    pub fn expect(&self, bytes: usize) {
        let mut sizes = self.sizes();
        let spare: usize = sizes.iter().map(|size| size.spare * size.bytes).sum();
        let at = sizes.iter().position(|size| size.bytes == bytes).unwrap_or_else(|| {
            sizes.push(Size { bytes, most: 0, spare: 0, free: Vec::new() });
            sizes.len() - 1
        });
        let size = &mut sizes[at];
        size.most += 1;
        if size.spare < size.most && bytes <= MOST_SPARE - spare {
            size.spare += 1;
        }
        // A buffer that is dropped when memory is short allocates nothing.
        size.free.reserve((size.most + size.spare).saturating_sub(size.free.len()));
    }

    /// Frees all memory but what is spare, and expects none.
    pub fn fill(&self) {
        let mut sizes = self.sizes();
        let mut free = Vec::new();
        sizes.retain_mut(|size| {
            // Sizes that were not expected since it was last full are of no use.
            let expected = mem::take(&mut size.most) > 0;
            let kept = if expected { size.spare.min(size.free.len()) } else { 0 };
            free.extend(size.free.drain(kept..));
            expected
        });
        drop(sizes);
        // The memory is freed without the lock.
        drop(free);
    }

    /// Returns a buffer of arbitrary bytes, whose memory comes back when it is dropped. `None` if memory is short.
    pub fn buffer(self: &Arc<Self>, bytes: usize) -> Option<Buffer> {
        let free = self.sizes().iter_mut().find(|size| size.bytes == bytes).and_then(|size| size.free.pop());
        Buffer::of(free, bytes, Arc::downgrade(self))
    }

    fn sizes(&self) -> MutexGuard<'_, Vec<Size>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives a dropped buffer's memory back, if its recycler is still there and wants it.
pub(crate) fn give_back(home: &Weak<Recycler>, memory: Memory, bytes: usize) {
    let Some(recycler) = home.upgrade() else { return };
    // No destructor waits: the thread with the lock may not be there any more, as in a forked process.
    let mut sizes = match recycler.0.try_lock() {
        Ok(sizes) => sizes,
        Err(TryLockError::Poisoned(sizes)) => sizes.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    let size = sizes.iter_mut().find(|size| size.bytes == bytes && size.free.len() < size.most + size.spare);
    let excess = match size {
        Some(size) => {
            size.free.push(memory);
            None
        }
        None => Some(memory),
    };
    // Pages are given back to the system without the lock, and the recycler's own may be the last reference.
    drop(sizes);
    drop(excess);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_dropped_buffer_is_that_of_the_next_of_its_size() {
        for bytes in [100, 1 << 20] {
            let recycler = Arc::new(Recycler::default());
            recycler.expect(bytes);
            let mut first = recycler.buffer(bytes).expect("memory");
            first.bytes_mut().fill(7);
            let start = first.bytes().as_ptr();
            let other = recycler.buffer(bytes).expect("memory");
            assert!(other.bytes().as_ptr() != start && other.bytes().iter().all(|byte| *byte == 0), "fresh");
            drop(first);
            assert_ne!(recycler.buffer(bytes + 64).expect("memory").bytes().as_ptr(), start, "another size");
            let again = recycler.buffer(bytes).expect("memory");
            assert!(again.len() == bytes && again.bytes().as_ptr() == start && again.bytes()[0] == 7);
        }
    }

    #[test]
    fn no_more_memory_is_kept_than_was_expected_and_is_spare() {
        let recycler = Arc::new(Recycler::default());
        let free = || recycler.sizes().iter().map(|size| size.free.len()).sum::<usize>();
        let drop_four = |bytes| drop([(); 4].map(|()| recycler.buffer(bytes).expect("memory")));
        recycler.expect(64);
        drop_four(64);
        assert_eq!(free(), 2, "one is spare");
        drop_four(128);
        assert_eq!(free(), 2, "no buffer of that size was expected");
        recycler.expect(64);
        drop_four(64);
        assert_eq!(free(), 4, "two are spare");
        recycler.fill();
        assert_eq!(free(), 2, "spare memory is kept once more");
        recycler.fill();
        assert_eq!(free(), 0, "none is expected any more");
        recycler.expect(MOST_SPARE);
        recycler.expect(64);
        drop_four(64);
        assert_eq!(free(), 1, "another size takes all that may be spare");
        recycler.fill();
        assert_eq!(free(), 0);
    }

    #[test]
    fn buffers_outlive_their_recycler_and_copies_have_none() {
        let recycler = Arc::new(Recycler::default());
        recycler.expect(4096);
        let buffer = recycler.buffer(4096).expect("memory");
        drop(buffer.clone());
        assert!(recycler.sizes()[0].free.is_empty(), "a copy has memory of its own");
        drop(recycler);
        assert_eq!(buffer.bytes().len(), 4096);
    }

    #[test]
    fn threads_drop_and_take_at_once() {
        let recycler = Arc::new(Recycler::default());
        recycler.expect(256);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let recycler = &recycler;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let mut buffer = recycler.buffer(256).expect("memory");
                        buffer.bytes_mut().fill(thread);
                        assert!(buffer.bytes().iter().all(|byte| *byte == thread), "nobody else writes it");
                    }
                });
            }
        });
    }
}
