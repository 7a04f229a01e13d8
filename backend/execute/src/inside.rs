//! Knows the threads that are at work for executors: a run must not be asked for from within one, where it would wait for itself.

use anabranch_base::sync::thread_local;
use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread is at work for a run until this is dropped.
pub(super) struct Inside(());

/// Marks the calling thread, for as long as it lives.
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
