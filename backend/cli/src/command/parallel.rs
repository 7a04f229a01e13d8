//! `run --parallel N`: measures the model with several simultaneous callers.

use anabranch::compare::{Latencies, Median, Together, together};
use anabranch::session::SessionError;
use anabranch_report::text::{amount, count, duration, interval};
use serde::Serialize;
use std::fmt;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Most callers: each is a thread.
const MOST: u32 = 1024;

/// Runs of each caller between two checks of the time.
const EACH: u32 = 5;

/// Measurements of several callers. Times in milliseconds, each including waits for others.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Parallel {
    callers: NonZeroU32,
    runs: usize,
    measured_ms: Median,
    latencies_ms: Latencies,
    runs_per_second: f64,
}

impl Parallel {
    /// Measures for a duration, or a number of runs of each caller.
    pub(super) fn measure(
        callers: NonZeroU32,
        runs: u32,
        time: Option<Duration>,
        run: &(dyn Fn() -> Result<(), SessionError> + Sync),
    ) -> Result<Self, SessionError> {
        let (begun, mut made) = (Instant::now(), Together::default());
        match time {
            None => made = together(callers, runs, run)?,
            Some(time) => {
                while made.latencies_ms.is_empty() || begun.elapsed() < time {
                    made.extend(together(callers, EACH, run)?);
                }
            }
        }
        Ok(Self {
            callers,
            runs: made.latencies_ms.len(),
            measured_ms: Median::of(&made.latencies_ms).unwrap_or_default(),
            latencies_ms: Latencies::of(&made.latencies_ms),
            runs_per_second: made.runs_per_second(),
        })
    }
}

impl fmt::Display for Parallel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { callers, runs, measured_ms: Median { median, low, high, .. }, latencies_ms, runs_per_second } = self;
        let [median, p95, p99] = [*median, latencies_ms.p95, latencies_ms.p99].map(|ms| duration(ms * 1e-3));
        let within = interval(low * 1e-3, high * 1e-3);
        let (callers, runs) = (count(callers.get(), "caller"), count(*runs, "run"));
        writeln!(f, "parallel  {callers} at a time, {runs}: {} runs a second", amount(*runs_per_second))?;
        writeln!(f, "          each waits {median} ({within}), p95 {p95}, p99 {p99}")
    }
}

pub(super) fn parse_callers(text: &str) -> Result<NonZeroU32, String> {
    let callers = text.parse().ok().and_then(NonZeroU32::new).filter(|callers| callers.get() <= MOST);
    callers.ok_or_else(|| format!("write a number from 1 to {MOST}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn every_caller_makes_its_runs_and_all_are_counted() {
        let runs = AtomicU32::new(0);
        let run = || {
            runs.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let four = NonZeroU32::new(4).expect("not zero");
        let measured = Parallel::measure(four, 7, None, &run).expect("nothing fails");
        assert_eq!((measured.runs, runs.load(Ordering::Relaxed)), (28, 28));
        assert!(measured.runs_per_second > 0.0 && measured.latencies_ms.max >= measured.latencies_ms.min);
        let timed = Parallel::measure(four, 7, Some(Duration::from_nanos(1)), &run).expect("nothing fails");
        assert!(timed.runs >= 20 && timed.to_string().contains("4 callers at a time"), "{timed}");
    }

    #[test]
    fn callers_are_few() {
        assert_eq!(parse_callers("4").map(NonZeroU32::get), Ok(4));
        assert!(["", "0", "-1", "1025", "many"].into_iter().all(|text| parse_callers(text).is_err()));
    }
}
