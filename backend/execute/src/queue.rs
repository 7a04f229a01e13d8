//! The queue of callers that want to run on the devices of one pool, which serialises their runs.
//!
//! A caller starts at once if nothing runs. A run that ends wakes one waiting caller, unless one is awake already, and
//! does not wait for it. The first caller to arrive takes the turn, so that short runs of several threads do not cost a
//! wake-up each. Once per [`FAIR`] the turn is handed to the longest waiting caller, so that no caller waits for ever.

use super::supervise::Deadline;
use anabranch_base::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Thread, park, park_timeout, thread};
use anabranch_base::wait::spin_until;
use anabranch_plan::ExecError;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use std::time::{Duration, Instant};

/// Time after which a turn is handed over instead of being taken by the first caller.
const FAIR: Duration = Duration::from_millis(1);

/// Time between two checks of a waiting caller that is awake.
const LOOK: Duration = Duration::from_micros(2);

/// The running caller and the waiting callers.
#[derive(Debug)]
pub(super) struct RunQueue {
    taken: Padded<AtomicBool>,
    waiting: AtomicUsize,
    /// Whether a waiting caller was woken and has not checked yet.
    woken: AtomicBool,
    callers: Mutex<Callers>,
}

#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

#[derive(Debug)]
struct Callers {
    line: VecDeque<Arc<Caller>>,
    handed_over: Instant,
}

/// A waiting caller.
#[derive(Debug)]
struct Caller {
    thread: Thread,
    since: Instant,
    /// Whether the turn was handed to the caller.
    granted: AtomicBool,
}

/// The right to run; given back when dropped.
#[derive(Debug)]
pub struct Turn<'a>(&'a RunQueue);

impl RunQueue {
    pub(super) fn new() -> Self {
        Self {
            taken: Padded(AtomicBool::new(false)),
            waiting: AtomicUsize::new(0),
            woken: AtomicBool::new(false),
            callers: Mutex::new(Callers { line: VecDeque::new(), handed_over: Instant::now() }),
        }
    }

    /// Waits for a turn, spinning for at most `spin` at a time.
    ///
    /// # Errors
    /// If the run has to end before it starts.
    pub(super) fn turn(&self, deadline: &Deadline<'_>, spin: Duration) -> Result<Turn<'_>, ExecError> {
        if let Some(error) = deadline.verdict() {
            return Err(error);
        }
        if self.take() {
            return Ok(Turn(self));
        }
        let caller =
            Arc::new(Caller { thread: thread::current(), since: Instant::now(), granted: AtomicBool::new(false) });
        self.callers().line.push_back(Arc::clone(&caller));
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut was_woken = false;
        loop {
            if self.look(&caller, spin) {
                return Ok(Turn(self));
            }
            if let Some(error) = deadline.verdict() {
                return self.leave(&caller, error);
            }
            if was_woken {
                // Another caller may be woken now. If the turn was given back before this store, the following check
                // sees that.
                self.woken.store(false, Ordering::SeqCst);
            }
            if self.look(&caller, Duration::ZERO) {
                return Ok(Turn(self));
            }
            match deadline.sleep() {
                None => park(),
                Some(most) => park_timeout(most),
            }
            was_woken = true;
        }
    }

    /// Whether a waiting caller has the turn now; it is then no longer in the line.
    fn look(&self, caller: &Arc<Caller>, spin: Duration) -> bool {
        let since = Instant::now();
        loop {
            if caller.granted.load(Ordering::SeqCst) {
                return true;
            }
            if self.take() {
                // This caller may be the woken one; another is woken when this turn ends.
                self.remove(caller);
                self.woken.store(false, Ordering::SeqCst);
                return true;
            }
            if since.elapsed() >= spin {
                return false;
            }
            spin_until(LOOK, &|| caller.granted.load(Ordering::SeqCst));
        }
    }

    /// Gives up waiting; passes on a turn that was handed over meanwhile, or a wake-up.
    fn leave(&self, caller: &Arc<Caller>, error: ExecError) -> Result<Turn<'_>, ExecError> {
        if self.remove(caller) {
            self.woken.store(false, Ordering::SeqCst);
            if !self.taken.0.load(Ordering::SeqCst) {
                self.wake_one();
            }
        } else {
            drop(Turn(self));
        }
        Err(error)
    }

    /// Whether a caller has the turn.
    pub(super) fn is_taken(&self) -> bool {
        self.taken.0.load(Ordering::SeqCst)
    }

    fn take(&self) -> bool {
        !self.is_taken() && self.taken.0.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn callers(&self) -> MutexGuard<'_, Callers> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a caller from the line; returns whether it was there.
    fn remove(&self, caller: &Arc<Caller>) -> bool {
        let mut callers = self.callers();
        let place = callers.line.iter().position(|other| Arc::ptr_eq(other, caller));
        if let Some(place) = place {
            callers.line.remove(place);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        place.is_some()
    }

    /// Hands the turn to the longest waiting caller, if it is time for that.
    fn hand_over(&self) -> bool {
        let mut callers = self.callers();
        let now = Instant::now();
        let old = |since: Instant| now.saturating_duration_since(since) >= FAIR;
        if !old(callers.handed_over) || !callers.line.front().is_some_and(|caller| old(caller.since)) {
            return false;
        }
        let Some(caller) = callers.line.pop_front() else { return false };
        callers.handed_over = now;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.woken.store(false, Ordering::SeqCst);
        caller.granted.store(true, Ordering::SeqCst);
        caller.thread.unpark();
        true
    }

    fn wake_one(&self) {
        let callers = self.callers();
        if let Some(caller) = callers.line.front()
            && !self.woken.swap(true, Ordering::SeqCst)
        {
            caller.thread.unpark();
        }
    }

    fn give_back(&self) {
        let someone_waits = || self.waiting.load(Ordering::SeqCst) > 0 && !self.woken.load(Ordering::SeqCst);
        if someone_waits() && self.hand_over() {
            return;
        }
        self.taken.0.store(false, Ordering::SeqCst);
        if someone_waits() {
            self.wake_one();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}
