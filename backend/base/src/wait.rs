//! Waiting for another thread: look again and again for a while, then sleep until woken.
//!
//! The waiter says that it sleeps and looks once more; the waker changes what is waited for and then looks whether anybody
//! sleeps. All four accesses are sequentially consistent, so that one of the two sees the other and no wake-up is lost.
//! `unpark` before `park` counts, and a sleep that ends for another reason only leads to another look.

use crate::sync::{AtomicBool, Mutex, Thread, lock, park, park_timeout, thread};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Looks between two looks at the clock, which takes longer than a look at what is waited for.
const ROUNDS: u32 = 64;

/// After so long who looks gives the core to any other thread that wants it, between two looks.
const ALONE: Duration = Duration::from_micros(50);

/// Waits as short as this are always worth their looks: falling asleep and waking takes longer.
const SHORT: Duration = Duration::from_micros(10);

/// What a sleeper is to do: how long to sleep at most. `None` to sleep until it is woken.
pub type Sleep = Option<Duration>;

/// The thread that waits at one place, if one does. It has two cache lines of its own, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Waiter {
    asleep: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Waiter {
    /// The calling thread is the one that waits here from now on.
    pub fn enter(&self) {
        *lock(&self.thread) = Some(thread::current());
    }

    /// Wakes the thread if it sleeps; whether it did. To be called after the change that it waits for.
    pub fn wake(&self) -> bool {
        let slept = self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst);
        if slept {
            lock(&self.thread).iter().for_each(Thread::unpark);
        }
        slept
    }

    /// Returns once `ready`, which looks with sequentially consistent loads. Looks again and again for as long as `spin`, then
    /// sleeps; before each sleep `before` is asked for how long. To be called by the thread that entered.
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

/// Looks for as long as `time`; whether it is `ready`. Less where another thread takes the core meanwhile: looking on would take its time,
/// and who never sleeps is late when there is something to do.
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

/// How long to look for something that the plan expects to take `expected`, of at most `bound`: a wait that is long anyway is not
/// worth more looks than a short one.
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
