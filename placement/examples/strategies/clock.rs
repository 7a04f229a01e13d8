//! Seconds that work takes, on a machine that does other things too.

use std::time::Instant;

/// Processor time of this thread where the system tells it (Linux), else the time that has passed.
pub(crate) struct Clock {
    start: Instant,
    busy: Option<f64>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock { start: Instant::now(), busy: busy_seconds() }
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        match (self.busy, busy_seconds()) {
            (Some(before), Some(now)) => now - before,
            _ => self.start.elapsed().as_secs_f64(),
        }
    }
}

/// What this thread has run so far.
fn busy_seconds() -> Option<f64> {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: u64 = line.split(' ').next()?.parse().ok()?;
    Some(nanoseconds as f64 * 1e-9)
}
