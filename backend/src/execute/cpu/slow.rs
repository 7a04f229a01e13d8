//! A CPU device that stands for a slower one: each piece of work takes so many times longer than it needs.

use std::time::{Duration, Instant};

/// What is left before this is spun, because a sleeping thread wakes some tens of microseconds late.
const SPUN: Duration = Duration::from_micros(100);

/// Work that a slower device would still be at.
pub(super) struct Slow {
    start: Instant,
    times: f64,
}

impl Slow {
    /// Begins a piece of work that takes `times` times as long.
    pub(super) fn start(times: f64) -> Self {
        Self { start: Instant::now(), times }
    }

    /// Waits until the slower device would be done.
    pub(super) fn finish(self) {
        let end = self.start.elapsed().mul_f64(self.times);
        while let Some(left) = end.checked_sub(self.start.elapsed()).filter(|left| !left.is_zero()) {
            match left.checked_sub(SPUN) {
                Some(sleep) if !sleep.is_zero() => std::thread::sleep(sleep),
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
        slow.finish();
        assert!(start.elapsed() >= worked * 4);
    }
}
