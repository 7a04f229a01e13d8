//! Waits for another thread: polls for a while, then sleeps until woken.
//!
//! The waiter announces that it sleeps and then polls once more. The waker changes the awaited state and then checks
//! whether a thread sleeps. All four accesses are sequentially consistent. At least one of the two threads therefore
//! sees the other's write, and no wake-up is lost. An `unpark` before `park` counts, and a spurious wake-up only leads
//! to another poll.

use crate::sync::{AtomicBool, Mutex, Thread, lock, park, park_timeout, thread};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Polls between two readings of the clock, because reading the clock takes longer than a poll.
const ROUNDS: u32 = 64;

/// Time of polling after which the waiter yields its core to other threads between two polls.
const ALONE: Duration = Duration::from_micros(50);

/// Waits this short are always worth polling: falling asleep and waking up takes longer.
const SHORT: Duration = Duration::from_micros(10);

/// Longest time to sleep; `None` to sleep until woken.
pub type Sleep = Option<Duration>;

/// The thread that waits at one place, if any. It has two cache lines of its own, because processors fetch lines in
/// pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Waiter {
    asleep: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Waiter {
    /// Registers the calling thread as the waiter.
    pub fn enter(&self) {
        *lock(&self.thread) = Some(thread::current());
    }

    /// Wakes the thread if it sleeps, and returns whether it slept. Call this after the change that the thread waits
    /// for.
    pub fn wake(&self) -> bool {
        let slept = self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst);
        if slept {
            lock(&self.thread).iter().for_each(Thread::unpark);
        }
        slept
    }

    /// Returns once `ready` holds; `ready` must use sequentially consistent loads.
    ///
    /// Polls for the time `spin`, then sleeps. Before each sleep, `before` returns for how long. The thread that called
    /// [`enter`](Self::enter) calls this.
    pub fn wait(&self, spin: Duration, ready: impl Fn() -> bool, mut before: impl FnMut() -> Sleep) {
        if spin_until(spin, &ready) {
            return;
        }
        loop {
            self.asleep.store(true, Ordering::SeqCst);
            if ready() {
                break;
            }
            let sleep = before();
            if ready() {
                break;
            }
            match sleep {
                None => park(),
                Some(most) => park_timeout(most),
            }
            if ready() {
                break;
            }
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}

/// Polls for at most `time`, and returns whether it is `ready`.
///
/// Stops earlier if another thread takes the core meanwhile: polling on would use that thread's time, and a waiter that
/// never sleeps is descheduled when its work arrives.
pub fn spin_until(time: Duration, ready: &impl Fn() -> bool) -> bool {
    if ready() {
        return true;
    }
    if time.is_zero() {
        return false;
    }
    let since = Instant::now();
    loop {
        for _ in 0..ROUNDS {
            std::hint::spin_loop();
            if ready() {
                return true;
            }
        }
        let waited = since.elapsed();
        if waited >= time {
            return false;
        }
        if waited >= ALONE {
            std::thread::yield_now();
            if since.elapsed() - waited >= ALONE {
                return ready();
            }
        }
    }
}

/// Time to poll for an event that the plan expects after `expected`; at most `bound`.
///
/// A wait that is long anyway gets the shortest time.
pub fn spin_for(expected: Duration, bound: Duration) -> Duration {
    let twice = expected.saturating_mul(2);
    if expected > bound { SHORT.min(bound) } else { twice.clamp(SHORT.min(bound), bound) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn no_wake_up_is_lost() {
        for spin in [Duration::ZERO, Duration::from_micros(2)] {
            let (waiters, count) = (Arc::new([Waiter::default(), Waiter::default()]), Arc::new(AtomicU32::new(0)));
            let turns = |own: u32, waiters: Arc<[Waiter; 2]>, count: Arc<AtomicU32>| {
                waiters[own as usize].enter();
                for turn in (own..2000).step_by(2) {
                    waiters[own as usize].wait(spin, || count.load(Ordering::SeqCst) >= turn, || None);
                    count.fetch_add(1, Ordering::SeqCst);
                    waiters[1 - own as usize].wake();
                }
            };
            std::thread::scope(|scope| {
                for own in 0..2 {
                    let (waiters, count) = (Arc::clone(&waiters), Arc::clone(&count));
                    scope.spawn(move || turns(own, waiters, count));
                }
            });
            assert_eq!(count.load(Ordering::SeqCst), 2000);
        }
    }

    #[test]
    fn spins_are_as_long_as_what_is_expected_within_bounds() {
        let bound = Duration::from_micros(50);
        for (expected, spin) in [(0, 10), (3, 10), (20, 40), (40, 50), (1000, 10)] {
            assert_eq!(spin_for(Duration::from_micros(expected), bound), Duration::from_micros(spin));
        }
        assert_eq!(spin_for(Duration::from_micros(20), Duration::ZERO), Duration::ZERO);
    }
}
