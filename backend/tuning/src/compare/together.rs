//! Simultaneous runs by several callers of one session.

use anabranch_execute::ExecError;
use anabranch_session::SessionError;
use std::num::NonZeroU32;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Measurements of several simultaneous callers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Together {
    /// Time that each run took its caller, in milliseconds, including waits for others. The runs of one caller are
    /// consecutive.
    pub latencies_ms: Vec<f64>,
    /// Time from the start of the first run to the end of the last.
    pub took: Duration,
}

impl Together {
    /// Adds later measurements.
    pub fn extend(&mut self, later: Self) {
        self.latencies_ms.extend(later.latencies_ms);
        self.took += later.took;
    }

    /// Runs per second of all callers; 0 if there are none.
    pub fn runs_per_second(&self) -> f64 {
        let seconds = self.took.as_secs_f64();
        if seconds > 0.0 { self.latencies_ms.len() as f64 / seconds } else { 0.0 }
    }
}

/// Makes `each` runs from each of `callers` threads, which begin together.
///
/// # Errors
/// The error of the first caller whose run fails; the others end after their current run. Also if the system does not
/// give enough threads.
pub fn together(
    callers: NonZeroU32,
    each: u32,
    run: impl Fn() -> Result<(), SessionError> + Sync,
) -> Result<Together, SessionError> {
    let (gate, failed) = (RwLock::new(()), AtomicBool::new(false));
    let caller = || {
        drop(gate.read());
        let mut latencies = Vec::with_capacity(each as usize);
        for _ in 0..each {
            if failed.load(Ordering::Relaxed) {
                break;
            }
            let begun = Instant::now();
            run().inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            latencies.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        Ok::<_, SessionError>(latencies)
    };
    thread::scope(|scope| {
        let closed = gate.write();
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, caller);
        let (threads, refused): (Vec<_>, Vec<_>) = (0..callers.get()).map(spawn).partition(Result::is_ok);
        failed.store(!refused.is_empty(), Ordering::Relaxed);
        let (begun, mut together) = (Instant::now(), Together::default());
        drop(closed);
        let refused = refused.into_iter().find_map(Result::err);
        let mut error = refused.map(|error| ExecError::no_thread("caller", &error).into());
        for thread in threads.into_iter().flatten() {
            match thread.join() {
                Ok(Ok(latencies)) => together.latencies_ms.extend(latencies),
                Ok(Err(failure)) => _ = error.get_or_insert(failure),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        together.took = begun.elapsed();
        error.map_or(Ok(together), Err)
    })
}
