//! The threads of a pool: each does the part of one worker in one run after the other, for all plans.

use super::engine::Engine;
use super::inside;
use super::worker::Terms;
use anabranch_base::sync::{AtomicU32, JoinHandle, Mutex, lock, thread};
use anabranch_base::wait::Waiter;
use anabranch_plan::ExecError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use std::time::Duration;

/// One worker's part of a run.
pub(super) struct Job {
    pub(super) engine: Arc<Engine>,
    pub(super) worker: u32,
    pub(super) terms: Terms,
}

/// Inbox through which a thread gets its next job.
#[derive(Default)]
pub(super) struct Inbox {
    job: Mutex<Option<Job>>,
    /// Content: [`NOTHING`], [`A_JOB`] or [`THE_END`].
    what: AtomicU32,
    waiter: Waiter,
}

const NOTHING: u32 = 0;
const A_JOB: u32 = 1;
const THE_END: u32 = 2;

/// Number of threads that work for the present run, and its caller, who waits for them.
#[derive(Debug, Default)]
pub(super) struct Busy {
    count: AtomicU32,
    pub(super) caller: Waiter,
}

/// A thread, which ends when this is dropped.
pub(super) struct PoolThread {
    pub(super) inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

impl PoolThread {
    /// Starts a thread that calls `start` first.
    ///
    /// # Errors
    /// If the system starts no more threads.
    pub(super) fn start(
        name: &str,
        busy: &Arc<Busy>,
        start: impl FnOnce() + Send + 'static,
    ) -> Result<Self, ExecError> {
        let inbox = Arc::new(Inbox::default());
        let (own, busy) = (Arc::clone(&inbox), Arc::clone(busy));
        let main = move || {
            start();
            own.serve(&busy);
        };
        let thread = spawn(name, main)?;
        Ok(Self { inbox, thread: Some(thread) })
    }
}

/// Starts a thread that works for runs.
///
/// # Errors
/// If the system starts no more threads.
pub(super) fn spawn(name: &str, main: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, ExecError> {
    let main = move || {
        inside::enter();
        main();
    };
    thread::Builder::new().name(name.to_owned()).spawn(main).map_err(|error| ExecError::no_thread(name, &error))
}

impl Drop for PoolThread {
    fn drop(&mut self) {
        self.inbox.what.store(THE_END, Ordering::SeqCst);
        self.inbox.waiter.wake();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            // No run is in progress, because its caller would hold the pool. The thread therefore ends at once; its
            // panics were caught.
            let _ = thread.join();
        }
    }
}

impl Inbox {
    /// Gives the thread a job. The thread is idle: all jobs of a run end before the next run starts.
    pub(super) fn give(&self, job: Job) {
        *lock(&self.job) = Some(job);
        self.what.store(A_JOB, Ordering::SeqCst);
        self.waiter.wake();
    }

    fn serve(&self, busy: &Busy) {
        self.waiter.enter();
        let mut spin = Duration::ZERO;
        loop {
            // The next run often follows at once.
            self.waiter.wait(spin, || self.what.load(Ordering::SeqCst) != NOTHING, || None);
            if self.what.swap(NOTHING, Ordering::SeqCst) == THE_END {
                return;
            }
            if let Some(job) = lock(&self.job).take() {
                spin = job.terms.spin;
                // No data of a run is left here when its caller is informed of its end. The engine reports panics.
                // Catching them here keeps the count right in every case, even if the job is the last holder of the
                // engine.
                let _ = catch_unwind(AssertUnwindSafe(move || job.engine.work(job.worker, job.terms.clone())));
            }
            busy.leave();
        }
    }
}

impl Busy {
    /// Registers the number of threads that will get a job, with the calling thread as their waiter.
    pub(super) fn enter(&self, threads: u32) {
        self.caller.enter();
        self.count.store(threads, Ordering::SeqCst);
    }

    fn leave(&self) {
        if self.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.caller.wake();
        }
    }

    /// Whether all threads have finished their jobs.
    pub(super) fn is_over(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }
}
