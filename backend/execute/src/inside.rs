//! Marks threads that work for executors: a run must not be started from within a run, because it would wait for
//! itself.

use anabranch_base::sync::thread_local;
use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as working for a run until dropped.
pub(super) struct Inside(());

/// Marks the calling thread for its lifetime.
pub(super) fn enter() {
    INSIDE.with(|inside| inside.set(true));
}

/// Marks the calling thread for a run. `None` if it is marked already.
pub(super) fn enter_run() -> Option<Inside> {
    (!INSIDE.with(|inside| inside.replace(true))).then(|| Inside(()))
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(false));
    }
}
