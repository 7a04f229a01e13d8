//! Knows the threads that belong to executors: a run must not be asked for from within one, where it would wait for itself.

use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread, for as long as it lives.
pub(super) fn enter() {
    INSIDE.set(true);
}

/// Whether the calling thread belongs to an executor.
pub(super) fn is_inside() -> bool {
    INSIDE.get()
}
