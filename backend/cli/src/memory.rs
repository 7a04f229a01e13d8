//! What the command does when the system refuses memory: it says so and ends with the code of input that cannot be used, in the place of
//! Rust's abort.
//!
//! Tensors and files are asked for in a way that can be refused, and the refusal names what they were for. What is left are the many small
//! things that no program asks after, and lists of one entry for each element of a tensor, which are refused here.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;

/// The system's allocator; where it refuses little, the process ends.
pub(crate) struct Memory;

/// Of more than this a refusal is passed on: by who asks for so much it can be told as an error, and Rust aborts where it is not.
const LITTLE: usize = 8 << 20;

/// The exit code of input that cannot be used: here, input that is too much.
const CODE: i32 = 2;

thread_local! {
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call goes on to the system's allocator as it is, and what that gives is given back unchanged; a call that ends the process
// does not return.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
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

/// Says what was refused and ends the process. Nothing here allocates; where the end itself does, in a thread that is at it already, Rust
/// aborts, and another thread waits for it.
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
        "anabranch: the system has no memory left for {bytes} bytes more; close other programs, use smaller inputs, or raise the limit \
         that this process runs under"
    );
    std::process::exit(CODE);
}
