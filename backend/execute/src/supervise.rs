//! Supervision of a run by its caller's thread, between and during its own work: cancellation, time, and progress.

use super::error::{Failure, FailureSite};
use super::run_channels::{Doing, RunChannels, Stop};
use super::{CancelToken, RunOptions};
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::sync::{AtomicBool, Mutex, lock};
use anabranch_kernels::cpu::Interrupt;
use anabranch_plan::ExecError;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time between two checks of the caller's token while its thread sleeps.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// The shortest sleep.
const SHORTEST: Duration = Duration::from_micros(100);

/// Conditions that end a run: its caller's token, and its time since the call.
#[derive(Clone, Copy, Debug)]
pub struct Deadline<'a> {
    cancel: Option<&'a CancelToken>,
    timeout: Option<Duration>,
    origin: Instant,
}

impl<'a> Deadline<'a> {
    /// Creates the deadline of a run that was requested at `origin`, unless its options give an earlier time.
    pub fn new(options: &'a RunOptions, origin: Instant) -> Self {
        Self { cancel: options.cancel.as_ref(), timeout: options.timeout, origin: options.asked.unwrap_or(origin) }
    }

    /// Creates a deadline that never ends a run.
    pub fn none() -> Self {
        Self { cancel: None, timeout: None, origin: Instant::now() }
    }

    /// Whether there is any condition to check.
    pub(super) fn is_set(&self) -> bool {
        self.cancel.is_some() || self.timeout.is_some()
    }

    /// Returns the reason that the run must end now, if any.
    pub fn verdict(&self) -> Option<ExecError> {
        if self.cancel.is_some_and(CancelToken::is_cancelled) {
            return Some(ExecError::new(ErrorKind::Cancelled, "cancelled"));
        }
        let timeout = self.timeout.filter(|timeout| self.origin.elapsed() >= *timeout)?;
        Some(ExecError::new(ErrorKind::Timeout, format!("the run did not end within {timeout:?}")))
    }

    /// Whether the run has to end, for work before it; `None` if there is nothing to look at.
    pub fn watch(&self) -> Option<Interrupt> {
        self.interrupt(&Stop::default())
    }

    /// Returns the question that kernels ask: does the run have to end, or is `stop` set? Returns `None` if nothing can
    /// end the run. Once the answer is yes, it stays yes, also for a part that was skipped.
    pub(super) fn interrupt(&self, stop: &Stop) -> Option<Interrupt> {
        if !self.is_set() {
            return None;
        }
        let (cancel, stop) = (self.cancel.cloned(), stop.clone());
        // A time too far off for the clock never comes.
        let end = self.timeout.and_then(|timeout| self.origin.checked_add(timeout));
        let now = move || {
            let cancelled = cancel.as_ref().is_some_and(CancelToken::is_cancelled);
            cancelled || stop.is_set() || end.is_some_and(|end| Instant::now() >= end)
        };
        let over = AtomicBool::new(false);
        Some(Arc::new(move || {
            let is_over = over.load(Ordering::Relaxed) || now();
            if is_over {
                over.store(true, Ordering::Relaxed);
            }
            is_over
        }))
    }

    /// Longest sleep before the next check; `None` if there are no conditions.
    pub fn sleep(&self) -> Option<Duration> {
        let left = self.timeout.map(|timeout| timeout.saturating_sub(self.origin.elapsed()).max(SHORTEST));
        let tick = self.cancel.map(|_| TICK);
        left.into_iter().chain(tick).min()
    }
}

/// The first failure of a run, and the worker that caused it.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    blame: Mutex<Option<Blame>>,
    /// The worker that has left the run before its end, and what it was at; of several the first that was at something.
    left: Mutex<Option<(u32, FailureSite)>>,
}

#[derive(Debug)]
pub(super) struct Blame {
    pub(super) worker: Option<u32>,
    pub(super) failure: Failure,
}

impl Verdict {
    /// Ends a run: records the reason, if it is the first, and tells all workers.
    pub(super) fn fail(&self, worker: Option<u32>, failure: Failure, channels: &RunChannels) {
        lock(&self.blame).get_or_insert(Blame { worker, failure });
        channels.stop.set(true);
        channels.wake_all();
    }

    /// A worker was told to leave, or has seen itself that it must.
    pub(super) fn leave(&self, worker: u32, place: FailureSite) {
        let mut left = lock(&self.left);
        if left.is_none_or(|(_, known)| matches!(known, FailureSite::Nowhere)) {
            *left = Some((worker, place));
        }
    }

    /// Why the run has failed, if it has. Who left it has seen the end of its time or its cancellation, of which
    /// `check` knows, too. The end of its time is told with what was at work then.
    pub(super) fn take(&self, check: impl FnOnce()) -> Option<Blame> {
        let left = lock(&self.left).take();
        if left.is_some() && lock(&self.blame).is_none() {
            check();
            let failure = || Failure::internal("a worker has left a run that goes on");
            lock(&self.blame).get_or_insert_with(|| Blame { worker: None, failure: failure() });
        }
        let mut blame = lock(&self.blame).take();
        if let (Some(Blame { worker, failure }), Some((left, place @ FailureSite::Node(_)))) = (&mut blame, left)
            && failure.error.kind == ErrorKind::Timeout
        {
            (*worker, failure.place) = (Some(left), place);
        }
        blame
    }
}

/// The caller of a run as its supervisor.
pub(super) struct Supervisor<'a> {
    pub(super) deadline: Deadline<'a>,
    pub(super) channels: &'a RunChannels,
    pub(super) verdict: &'a Verdict,
    /// Describes the wait-for graph, for the error of a stalled run.
    pub(super) graph: &'a dyn Fn() -> String,
    pub(super) stall_after: Duration,
    /// State of the workers at the last progress, and the time at which it was first seen.
    pub(super) watch: RefCell<Option<(u64, Instant)>>,
}

impl Supervisor<'_> {
    /// Between two steps: ends the run if its time is over.
    pub(super) fn check(&self) {
        if self.deadline.is_set()
            && let Some(error) = self.deadline.verdict()
        {
            self.end(error);
        }
    }

    /// Before the caller's thread sleeps: ends the run if its time is over or it has stalled. Returns how long to
    /// sleep.
    pub(super) fn look(&self) -> Option<Duration> {
        self.check();
        if !self.channels.stop.is_set() && self.is_stalled() {
            let text = format!("the run stalled: {}; this is a bug in Anabranch, please report it", (self.graph)());
            self.end(ExecError::new(ErrorKind::Internal, text));
        }
        let patience = (self.stall_after / 4).max(SHORTEST);
        Some(self.deadline.sleep().map_or(patience, |sleep| sleep.min(patience)))
    }

    fn end(&self, error: ExecError) {
        self.verdict.fail(None, error.into(), self.channels);
    }

    /// Whether all workers of the run have waited long enough, each for one thing that has not come.
    fn is_stalled(&self) -> bool {
        let (mut stuck, mut waiting, mut words) = (true, false, 0u64);
        for (worker, (word, doing)) in self.channels.look().enumerate() {
            // Words count upwards, so that a weighted sum reveals every change; a vector would need an allocation.
            words = words.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(word);
            match doing {
                Doing::Idle => {}
                Doing::Working => stuck = false,
                Doing::Waiting(wait) => {
                    waiting = true;
                    stuck &= !self.channels.port(worker as u32).is_ready(wait);
                }
            }
        }
        stuck &= waiting;
        let mut watch = self.watch.borrow_mut();
        match *watch {
            Some((before, since)) if stuck && before == words => since.elapsed() >= self.stall_after,
            _ => {
                *watch = stuck.then(|| (words, Instant::now()));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_stays_one() {
        let options = RunOptions::default().with_cancel(CancelToken::new());
        let stop = Stop::default();
        let interrupt = Deadline::new(&options, Instant::now()).interrupt(&stop).expect("there is a token");
        assert!(!interrupt());
        stop.set(true);
        assert!(interrupt());
        stop.set(false);
        assert!(interrupt(), "parts were left out");
    }
}
