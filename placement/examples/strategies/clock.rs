//! Clock for the seconds of work, on a machine that also does other things.

use std::time::Instant;

/// Processor time of this thread if the system reports it (Linux), else wall time.
pub(crate) struct Clock {
    start: Instant,
    busy: Option<f64>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock { start: Instant::now(), busy: busy_seconds() }
    }

    /// Returns the seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        match (self.busy, busy_seconds()) {
            (Some(before), Some(now)) => now - before,
            _ => self.start.elapsed().as_secs_f64(),
        }
    }
}

/// Returns the processor time of this thread so far, in seconds.
fn busy_seconds() -> Option<f64> {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: u64 = line.split(' ').next()?.parse().ok()?;
    Some(nanoseconds as f64 * 1e-9)
}
