//! What the threads of the executor and of flows synchronise with: the standard library's; in tests, what is made while a model checker runs is
//! the checker's instead, which explores the orders in which threads can go on (`tests/schedules.rs`).

#[cfg(test)]
mod either;

#[cfg(test)]
pub(crate) use either::*;

#[cfg(not(test))]
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

#[cfg(not(test))]
pub(crate) use primitives::*;
