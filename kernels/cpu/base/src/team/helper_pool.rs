//! Helpers of a team, and the protocol by which they join a job.
//!
//! One word, [`Shared::state`], says whether a job is open, which job it is, and how many helpers are in it. The caller
//! publishes a job and works on it until no part is left. Then it closes the job so that no helper can join any more,
//! and waits for the helpers that are still in it. A helper that sleeps through a job therefore costs the caller only
//! the wake-up call.

use super::SPIN;
use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Bit of the state: helpers may join the job. The bits below count the helpers in it.
const OPEN: u64 = 1 << 32;
/// Bit of the state: helpers must end.
const ENDING: u64 = 1 << 33;
/// First bit of the job's number in the state.
const JOB: u64 = 1 << 34;

type Body<'a> = &'a (dyn Fn(usize) + Sync);
type Payload = Box<dyn Any + Send>;

/// Helper threads, waiting for jobs.
pub(super) struct HelperPool {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
}

/// Work to do: a pointer to the caller's [`Body`] without its lifetime, and the number of parts.
#[derive(Clone, Copy)]
struct Job {
    body: *const (),
    parts: usize,
}

/// Word on a cache line of its own (two lines, because processors fetch lines in pairs).
#[repr(align(128))]
struct Padded<T>(T);

struct Shared {
    state: Padded<AtomicU64>,
    /// Unclaimed parts in the share of each member.
    shares: Vec<Padded<Share>>,
    /// Whether a call is in progress.
    busy: AtomicBool,
    job: UnsafeCell<Job>,
    /// Panic of the lowest-numbered part that panicked.
    panic: Mutex<Option<(usize, Payload)>>,
    sleepers: Vec<Padded<Sleeper>>,
    /// Time in nanoseconds for which a helper looks for a job before it sleeps.
    linger: AtomicU64,
}

/// Consecutive parts of a job, counted from the first of them: `next` in the upper half, `end` in the lower half.
struct Share(AtomicU64);

/// Sleeping state of one helper.
struct Sleeper {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

// SAFETY: `job` is the only field that is not `Sync` by itself. Only the caller that holds `busy` writes it, while the
// state is closed with no helper in it. Only helpers that joined while the state was open read it, and `state` orders
// joining and publishing. The body that it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; a `Job` is a pointer to a `Sync` body and a number.
unsafe impl Send for Shared {}

impl HelperPool {
    /// Starts `helpers` threads, or fewer if the system refuses; `None` if no thread starts.
    pub(super) fn new(helpers: usize, on_start: impl Fn(usize) + Send + Sync + 'static) -> Option<Self> {
        let sleeper = |_| Padded(Sleeper { asleep: AtomicBool::new(false), thread: OnceLock::new() });
        let shared = Arc::new(Shared {
            state: Padded(AtomicU64::new(0)),
            shares: (0..=helpers).map(|_| Padded(Share(AtomicU64::new(0)))).collect(),
            busy: AtomicBool::new(false),
            job: UnsafeCell::new(Job { body: std::ptr::null(), parts: 0 }),
            panic: Mutex::new(None),
            sleepers: (0..helpers).map(sleeper).collect(),
            linger: AtomicU64::new(SPIN.as_nanos() as u64),
        });
        let on_start = Arc::new(on_start);
        let start = |index: usize| {
            let (shared, on_start) = (Arc::clone(&shared), Arc::clone(&on_start));
            let main = move || {
                on_start(index + 1);
                drop(on_start);
                shared.help(index);
            };
            thread::Builder::new().name(format!("helper {}", index + 1)).spawn(main).ok()
        };
        let handles: Vec<_> = (0..helpers).map_while(start).collect();
        for (sleeper, handle) in shared.sleepers.iter().zip(&handles) {
            // Cannot fail: only this loop sets the thread of a sleeper.
            let _ = sleeper.0.thread.set(handle.thread().clone());
        }
        (!handles.is_empty()).then_some(Self { shared, handles })
    }

    pub(super) fn helpers(&self) -> usize {
        self.handles.len()
    }

    /// See [`Team::linger`](super::Team::linger).
    pub(super) fn linger(&self, time: Duration) {
        // Relaxed: a helper that reads it late only sleeps earlier or later.
        self.shared.linger.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Runs all parts of `body` on the helpers and the calling thread; see [`Team::run`](super::Team::run).
    pub(super) fn run(&self, parts: usize, body: Body<'_>) {
        let shared = &*self.shared;
        // A share counts in 32 bits; a job with more parts could never end.
        if u32::try_from(parts).is_err() || shared.busy.swap(true, Ordering::Acquire) {
            return (0..parts).for_each(body);
        }
        shared.publish(Job { body: std::ptr::from_ref(&body).cast(), parts });
        shared.work(0, body, parts);
        shared.close();
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        shared.busy.store(false, Ordering::Release);
        if let Some((_, payload)) = panic {
            resume_unwind(payload);
        }
    }
}

impl Drop for HelperPool {
    fn drop(&mut self) {
        self.shared.state.0.fetch_or(ENDING, Ordering::SeqCst);
        for handle in self.handles.drain(..) {
            handle.thread().unpark();
            // A helper catches the panics of its parts; a panic of `on_start` has been reported already.
            let _ = handle.join();
        }
    }
}

impl Shared {
    /// Opens a job and wakes the first helpers, which wake the others.
    fn publish(&self, job: Job) {
        // SAFETY: the caller holds `busy`, and all helpers left the last job before it was closed (`close`). No helper
        // reads the cell until the state is opened below.
        unsafe { *self.job.get() = job };
        for (member, share) in self.shares.iter().enumerate() {
            share.0.fill(self.share(member, job.parts).len());
        }
        let closed = self.state.0.load(Ordering::Relaxed);
        // Sequentially consistent, as are the accesses in `sleep`: either this thread sees that the helper sleeps, or
        // the helper sees the job. Only `ENDING` could be set meanwhile; then `HelperPool` is being dropped and no
        // caller is left.
        self.state.0.store(closed.wrapping_add(JOB) | OPEN, Ordering::SeqCst);
        self.wake(0, job.parts);
        self.wake(1, job.parts);
    }

    /// Wakes a helper if it sleeps and there is a part left for it after the caller and the helpers before it.
    fn wake(&self, helper: usize, parts: usize) {
        if let Some(Padded(sleeper)) = self.sleepers.get(helper)
            && helper + 1 < parts
            && sleeper.asleep.load(Ordering::SeqCst)
            && sleeper.asleep.swap(false, Ordering::SeqCst)
            && let Some(thread) = sleeper.thread.get()
        {
            thread.unpark();
        }
    }

    /// Returns the parts of a job in a member's share. If there are fewer parts than members, the first members get one
    /// each, because they are woken first.
    fn share(&self, member: usize, parts: usize) -> Range<usize> {
        let sharers = self.shares.len().min(parts).max(1);
        let first = |member: usize| (member.min(sharers) as u64 * parts as u64 / sharers as u64) as usize;
        first(member)..first(member + 1)
    }

    /// Claims and runs parts until none is left: the member's own, then unclaimed parts of other members, from the last
    /// on.
    fn work(&self, member: usize, body: Body<'_>, parts: usize) {
        let members = self.shares.len();
        for owner in (member..members).chain(0..member) {
            let (share, first) = (&self.shares[owner].0, self.share(owner, parts).start);
            while let Some(at) = share.claim(owner == member) {
                let part = first + at;
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(part))) {
                    self.keep_panic(part, payload);
                }
            }
        }
    }

    /// Keeps the panic of the lowest-numbered part, so that the reported panic does not depend on the timing of
    /// threads.
    fn keep_panic(&self, part: usize, payload: Payload) {
        let mut kept = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
        let loser = match kept.take() {
            Some(earlier) if earlier.0 < part => {
                *kept = Some(earlier);
                Some(payload)
            }
            earlier => {
                *kept = Some((part, payload));
                earlier.map(|(_, payload)| payload)
            }
        };
        // Dropping a payload could panic again, and nothing would catch that panic here.
        std::mem::forget(loser);
    }

    /// Prevents further helpers from joining and waits until the helpers in the job have left it.
    fn close(&self) {
        let mut state = self.state.0.fetch_and(!OPEN, Ordering::Acquire);
        let mut spinner = Spinner::new();
        while state as u32 != 0 {
            // Yields the core after a while: a helper in the job that has lost its core needs one to finish.
            spinner.spin();
            state = self.state.0.load(Ordering::Acquire);
        }
    }

    /// Main loop of a helper.
    fn help(&self, helper: usize) {
        let mut last = 0;
        let mut spinner = Spinner::new();
        loop {
            let state = self.state.0.load(Ordering::Acquire);
            if state & ENDING != 0 {
                return;
            }
            if state & OPEN != 0 && state / JOB != last {
                if self.join(helper, state) {
                    last = state / JOB;
                    spinner = Spinner::new();
                }
            } else if spinner.spin() >= Duration::from_nanos(self.linger.load(Ordering::Relaxed)) {
                self.sleep(helper, last);
                spinner = Spinner::new();
            }
        }
    }

    /// Joins the job of `state`, works on it and leaves it. Returns `false` if the state has changed meanwhile.
    fn join(&self, helper: usize, state: u64) -> bool {
        if self.state.0.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        // SAFETY: the exchange found the job open and counted this helper in. Until the helper has left, the caller
        // neither changes the cell nor returns, which keeps `body` alive.
        let (body, parts) = unsafe {
            let job = *self.job.get();
            (*job.body.cast::<Body<'_>>(), job.parts)
        };
        self.wake(2 * helper + 2, parts);
        self.wake(2 * helper + 3, parts);
        self.work(helper + 1, body, parts);
        self.state.0.fetch_sub(1, Ordering::Release);
        true
    }

    /// Sleeps until there may be a job other than `last`.
    fn sleep(&self, helper: usize, last: u64) {
        let sleeper = &self.sleepers[helper].0;
        sleeper.asleep.store(true, Ordering::SeqCst);
        let state = self.state.0.load(Ordering::SeqCst);
        let idle = state & ENDING == 0 && (state & OPEN == 0 || state / JOB == last);
        if idle {
            thread::park();
        }
        sleeper.asleep.store(false, Ordering::SeqCst);
    }
}

impl Share {
    /// Makes `count` parts, fewer than 2³², claimable. The job that has them is published later.
    fn fill(&self, count: usize) {
        self.0.store(count as u64, Ordering::Relaxed);
    }

    /// Claims the first or the last unclaimed part. The job's state orders the data that the part reads.
    fn claim(&self, first: bool) -> Option<usize> {
        let parts = |share: u64| (share >> 32, share & u64::from(u32::MAX));
        let take = |share| match parts(share) {
            (next, end) if next >= end => None,
            (next, end) if first => Some((next + 1) << 32 | end),
            (next, end) => Some(next << 32 | (end - 1)),
        };
        let claimed = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map(parts).ok();
        claimed.map(|(next, end)| if first { next as usize } else { end as usize - 1 })
    }
}

/// Waits in a loop at first; after [`SPIN`] it also yields the core to other threads.
struct Spinner {
    rounds: u32,
    since: Option<Instant>,
}

impl Spinner {
    fn new() -> Self {
        Self { rounds: 0, since: None }
    }

    /// Waits for a moment and returns the total time of waiting. Most calls return zero, because reading the clock
    /// takes longer than reading the state. Returns the maximum if another thread took the core. The helper should then
    /// sleep: spinning on would take the other thread's time, and a busy core would make the helper late for new work.
    fn spin(&mut self) -> Duration {
        std::hint::spin_loop();
        self.rounds += 1;
        if !self.rounds.is_multiple_of(64) {
            return Duration::ZERO;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let waited = since.elapsed();
        if waited >= SPIN {
            thread::yield_now();
            if since.elapsed() - waited >= SPIN {
                return Duration::MAX;
            }
        }
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_claimed_from_both_ends() {
        let share = Share(AtomicU64::new(0));
        assert_eq!(share.claim(true), None);
        for count in [1, 2, 5] {
            share.fill(count);
            let (first, last) = (share.claim(true), share.claim(false));
            assert_eq!((first, last), (Some(0), (count > 1).then(|| count - 1)));
            let rest: Vec<_> = std::iter::from_fn(|| share.claim(true)).collect();
            assert!(rest.into_iter().eq(1..(count - 1).max(1)));
            assert_eq!([share.claim(true), share.claim(false)], [None; 2]);
        }
    }

    #[test]
    fn shares_are_consecutive_and_nearly_equal() {
        let helpers = HelperPool::new(2, |_| {}).expect("two threads");
        for parts in [0, 1, 2, 3, 100] {
            let shares: Vec<_> = (0..3).map(|member| helpers.shared.share(member, parts)).collect();
            assert!(shares.iter().cloned().flatten().eq(0..parts), "{shares:?}");
            assert!(parts > 3 || shares.iter().take(parts).all(|share| share.len() == 1), "{shares:?}");
            assert!(shares.iter().all(|share| share.len().abs_diff(parts / 3) <= 1), "{shares:?}");
        }
    }

    #[test]
    fn members_begin_with_their_own_parts() {
        let helpers = HelperPool::new(1, |_| {}).expect("a thread");
        let takers = Mutex::new(vec![None; 10]);
        helpers.run(10, &|part| {
            takers.lock().expect("no part panics")[part] = Some(thread::current().id());
            // Each thread waits until the other has begun, because one thread could take all parts.
            while takers
                .lock()
                .expect("no part panics")
                .iter()
                .flatten()
                .collect::<std::collections::HashSet<_>>()
                .len()
                < 2
            {
                thread::yield_now();
            }
        });
        let takers = takers.into_inner().expect("no part panics");
        assert_eq!(takers[0], Some(thread::current().id()), "the caller is member 0");
        assert_ne!(takers[5], takers[0], "the helper's share begins with part 5");
    }
}
