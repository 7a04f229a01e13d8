//! Emulates a slower CPU device: stretches each piece of work by a factor.

use crate::supervise::TICK;
use std::time::{Duration, Instant};

/// Remaining time below which the wait spins, because a sleeping thread wakes up some tens of microseconds late.
const SPUN: Duration = Duration::from_micros(100);

/// A piece of work that a slower device would still be doing.
pub(super) struct Slow {
    start: Instant,
    times: f64,
}

impl Slow {
    /// Starts a piece of work that takes `times` times its own time.
    pub(super) fn start(times: f64) -> Self {
        Self { start: Instant::now(), times }
    }

    /// Waits until the slower device would be done, or until `left` says that the run has ended.
    pub(super) fn finish(self, left: impl Fn() -> bool) {
        let end = self.start.elapsed().mul_f64(self.times);
        while let Some(rest) = end.checked_sub(self.start.elapsed()).filter(|rest| !rest.is_zero()) {
            if left() {
                return;
            }
            match rest.checked_sub(SPUN) {
                Some(sleep) if !sleep.is_zero() => std::thread::sleep(sleep.min(TICK)),
                _ => std::hint::spin_loop(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_as_many_times_longer() {
        let start = Instant::now();
        let slow = Slow::start(5.0);
        std::thread::sleep(Duration::from_millis(2));
        let worked = start.elapsed();
        slow.finish(|| false);
        assert!(start.elapsed() >= worked * 4);
    }

    #[test]
    fn work_that_nobody_wants_any_more_is_not_waited_for() {
        let slow = Slow::start(1e12);
        std::thread::sleep(Duration::from_millis(1));
        let looks = std::cell::Cell::new(0);
        slow.finish(|| looks.replace(looks.get() + 1) == 3);
        assert_eq!(looks.get(), 4);
    }
}
