//! Memory that a part of a kernel works in, private to its thread and reused from kernel to kernel.
//!
//! The number of parts that run at once depends on the number of threads, but a kernel's scratch memory must not. Each
//! thread therefore keeps its buffers, which stay in its core's cache: one for kernels, one for the products inside
//! them, and so forth. A thread that ends leaves its buffers to the next one, since fresh pages would cost much:
//! callers may have a thread for each run.

use anabranch_op::tensor::Buffer;
use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Buffers of threads that have ended.
static LEFT: Mutex<Vec<Vec<Buffer>>> = Mutex::new(Vec::new());

/// Most threads whose buffers are kept after their end.
const MOST_LEFT: usize = 16;

fn left() -> MutexGuard<'static, Vec<Vec<Buffer>>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static OWN: RefCell<Own> = RefCell::new(Own { buffers: left().pop().unwrap_or_default(), depth: 0 });
}

/// Buffers of a thread.
struct Own {
    /// The buffer of each depth of nested calls; empty while it is lent.
    buffers: Vec<Buffer>,
    /// Number of buffers that are lent.
    depth: usize,
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut left = left();
        if left.len() < MOST_LEFT {
            left.push(std::mem::take(&mut self.buffers));
        }
    }
}

/// A buffer that is given back to its thread at the end, also by a panic.
struct Lent(Buffer);

impl Lent {
    fn new(bytes: usize) -> Self {
        let mut lent = Self(OWN.with_borrow_mut(|own| {
            own.depth += 1;
            own.buffers.get_mut(own.depth - 1).map(std::mem::take).unwrap_or_default()
        }));
        if lent.0.len() < bytes {
            // The smaller one goes first. If memory is short, this panics.
            lent.0 = Buffer::default();
            lent.0 = Buffer::zeroed(bytes);
        }
        lent
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        OWN.with_borrow_mut(|own| {
            own.depth -= 1;
            let depth = own.depth;
            if own.buffers.len() <= depth {
                own.buffers.resize_with(depth + 1, Buffer::default);
            }
            own.buffers[depth] = std::mem::take(&mut self.0);
        });
    }
}

/// Runs `body` on `floats` numbers of undefined content, aligned as a [`Buffer`]. The thread keeps the largest buffer
/// that it ever needed, so only the first calls allocate. A call from inside `body` gets memory of its own.
pub fn with_workspace<R>(floats: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    let bytes = floats * size_of::<f32>();
    let mut lent = Lent::new(bytes);
    body(bytemuck::cast_slice_mut(&mut lent.0.bytes_mut()[..bytes]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_workspaces_do_not_overlap() {
        with_workspace(100, |outer| {
            outer.fill(1.0);
            with_workspace(500, |inner| inner.fill(2.0));
            assert_eq!(outer, [1.0; 100]);
        });
    }

    fn address(floats: usize) -> usize {
        with_workspace(floats, |workspace| workspace.as_ptr() as usize)
    }

    #[test]
    fn the_largest_buffer_of_each_depth_is_kept() {
        let largest = address(1000);
        assert_eq!([address(50), address(1000), address(0)], [largest; 3]);
        let inner = || with_workspace(1000, |_| address(2000));
        let largest_inner = inner();
        assert_eq!([address(1000), inner(), address(1000)], [largest, largest_inner, largest]);
    }

    #[test]
    fn a_panic_gives_buffers_back() {
        let (outer, inner) = with_workspace(1000, |outer| (outer.as_ptr() as usize, address(1000)));
        let panics = || with_workspace(1000, |_| with_workspace(1000, |_| panic!("expected")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(with_workspace(1000, |again| (again.as_ptr() as usize, address(1000))), (outer, inner));
    }

    #[test]
    fn a_thread_gets_the_buffers_of_one_that_has_ended() {
        // More than any other test asks for, and other threads may end meanwhile.
        let floats = 1 << 22;
        let of_thread = || std::thread::spawn(move || address(floats)).join().expect("no panic");
        let found: Vec<usize> = (0..2 * MOST_LEFT).map(|_| of_thread()).collect();
        assert!(found.windows(2).any(|pair| pair[0] == pair[1]), "{found:?}");
    }
}
