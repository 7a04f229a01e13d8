//! Synchronisation primitives of the executor's and the flows' threads, from the standard library.
//!
//! With `--cfg shuttle`, they are the primitives of a model checker, which explores thread interleavings
//! (`scripts/schedules`).

#[cfg(shuttle)]
pub use checked::*;
#[cfg(not(shuttle))]
pub use standard::*;

#[cfg(not(shuttle))]
mod standard {
    pub use crate::lock::lock;
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
    pub use std::sync::mpsc::{Receiver, Sender, channel};
    pub use std::sync::{Condvar, Mutex, MutexGuard};
    pub use std::thread::{self, JoinHandle, Thread, park, park_timeout};
    pub use std::thread_local;
}

#[cfg(shuttle)]
mod checked {
    pub use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
    pub use shuttle::sync::mpsc::{Receiver, Sender, channel};
    pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub use shuttle::thread::{self, JoinHandle, Thread, park};
    pub use shuttle::thread_local;
    use std::sync::PoisonError;
    use std::time::Duration;

    /// Locks a mutex as [`crate::lock::lock`] does.
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Yields if the clock would end the sleep soon.
    ///
    /// A sleep of seconds counts as endless, so that the checker finds lost wake-ups.
    pub fn park_timeout(most: Duration) {
        if most < Duration::from_secs(1) { thread::yield_now() } else { park() }
    }
}

/// Starts a thread that ends within the scope. Only the standard library's thread gets the name.
///
/// # Errors
/// If the system cannot create a thread.
pub fn start_scoped<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: String,
    work: impl FnOnce() + Send + 'scope,
) -> std::io::Result<()> {
    #[cfg(shuttle)]
    {
        drop(name);
        scope.spawn(work);
        Ok(())
    }
    #[cfg(not(shuttle))]
    thread::Builder::new().name(name).spawn_scoped(scope, work).map(drop)
}
