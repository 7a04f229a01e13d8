//! What the threads of the executor and of flows synchronise with: the standard library's, or, with the feature `schedules` in tests, the model checker's,
//! which explores the orders in which threads can go on (`tests/schedules.rs`).

#[cfg(not(all(test, feature = "schedules")))]
mod primitives {
    pub(crate) use crate::lock::lock;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use std::sync::mpsc::{Receiver, Sender, channel};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread::{self, JoinHandle, Thread, park, park_timeout};
    pub(crate) use std::thread_local;

    /// Starts a named thread that ends within the scope.
    pub(crate) fn start_scoped<'scope>(
        scope: &'scope thread::Scope<'scope, '_>,
        name: String,
        work: impl FnOnce() + Send + 'scope,
    ) -> std::io::Result<()> {
        thread::Builder::new().name(name).spawn_scoped(scope, work).map(drop)
    }
}

#[cfg(all(test, feature = "schedules"))]
mod primitives {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use shuttle::sync::mpsc::{Receiver, Sender, channel};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{self, JoinHandle, Thread, park};
    pub(crate) use shuttle::thread_local;
    use std::sync::PoisonError;
    use std::time::Duration;

    /// As [`crate::lock::lock`].
    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As with the standard library's threads, without the name.
    pub(crate) fn start_scoped<'scope>(
        scope: &'scope thread::Scope<'scope, '_>,
        _: String,
        work: impl FnOnce() + Send + 'scope,
    ) -> std::io::Result<()> {
        scope.spawn(work);
        Ok(())
    }

    /// A sleep that the clock ends soon may end at any time. One of seconds counts as one that no clock ends, so that the checker finds
    /// the wake-ups that are lost.
    pub(crate) fn park_timeout(most: Duration) {
        if most < Duration::from_secs(1) { thread::yield_now() } else { park() }
    }
}

pub(crate) use primitives::*;
