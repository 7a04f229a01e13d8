//! Handles refused memory: the command reports it and ends with the exit code of unusable input, instead of Rust's
//! abort.
//!
//! Tensors and files are allocated fallibly, and the error names their purpose. All other allocations go through here:
//! many small ones, and lists with an entry for each element of a tensor.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;

/// The system's allocator. If it refuses a small request, the process ends.
pub(crate) struct Memory;

/// Refusals of larger requests are passed on: the caller can report an error, otherwise Rust aborts.
const LITTLE: usize = 8 << 20;

/// The exit code of input that cannot be used; here, of too large input.
const CODE: i32 = 2;

thread_local! {
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call is passed to the system's allocator unchanged, and its result is returned unchanged. A call that
// ends the process does not return.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is identical.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.realloc(pointer, layout, size) }, size)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn given(pointer: *mut u8, bytes: usize) -> *mut u8 {
    if pointer.is_null() && bytes <= LITTLE {
        end(bytes);
    }
    pointer
}

/// Reports the refused request and ends the process.
///
/// Nothing here allocates. If the exit itself allocates in the thread that is ending the process, Rust aborts. Another
/// thread waits.
#[cold]
fn end(bytes: usize) {
    static FIRST: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);
    if ENDS.replace(true) {
        return;
    }
    if !FIRST.swap(false, std::sync::atomic::Ordering::Relaxed) {
        loop {
            std::thread::park();
        }
    }
    let _ = writeln!(
        std::io::stderr(),
        "anabranch: out of memory: the system cannot provide {bytes} more bytes; close other programs, use \
         smaller inputs, or raise the memory limit of this process"
    );
    std::process::exit(CODE);
}
