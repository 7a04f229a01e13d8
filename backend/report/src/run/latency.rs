//! Times of the measured runs.

use crate::text::{amount, digits, duration, interval};
use anabranch::compare::{Latencies, Median, Series, runs_per_second};
use serde::Serialize;
use std::fmt;

/// Makespans of the measured runs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Latency {
    /// Unmeasured runs before.
    pub(super) warmup: u32,
    /// Number of measured runs.
    pub(super) runs: usize,
    /// Whether the first measured run was the first of all.
    pub(super) cold: bool,
    /// Time of the first of all runs.
    pub(super) first: f64,
    pub(super) median: f64,
    /// Interval of the median, with this confidence.
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) confidence: f64,
    pub(super) min: f64,
    pub(super) p90: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
    /// Consecutive runs per second.
    pub(super) runs_per_second: f64,
}

impl Latency {
    pub(super) fn new(series: &Series) -> Self {
        let Series { warmup, cold, first_ms, measured_ms, ref samples_ms, .. } = *series;
        Self::of(warmup, cold, first_ms, measured_ms, samples_ms)
    }

    fn of(warmup: u32, cold: bool, first: f64, measured: Median, samples: &[f64]) -> Self {
        let Latencies { min, p90, p95, p99, .. } = Latencies::of(samples);
        let Median { median, low, high, confidence } = measured;
        Self {
            warmup,
            runs: samples.len(),
            cold,
            first,
            median,
            low,
            high,
            confidence,
            min,
            p90,
            p95,
            p99,
            runs_per_second: runs_per_second(samples),
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ms: f64| duration(ms * 1e-3);
        match self {
            Self { runs: 1, cold: true, .. } => {
                return write!(f, "one cold run: the plan's first, with all that is done once");
            }
            Self { runs: 1, warmup, .. } => writeln!(f, "one run after {warmup} to warm up; --repeat N makes more")?,
            Self { runs, low, high, confidence, warmup, .. } => {
                let (interval, confidence) = (interval(low * 1e-3, high * 1e-3), digits(100.0 * confidence, 0));
                writeln!(f, "median of {runs} runs after {warmup} to warm up: {interval} ({confidence} % confidence)")?;
            }
        }
        let first = if self.cold { "the first, cold," } else { "the first of all" };
        let [min, p90, p95, p99] = [self.min, self.p90, self.p95, self.p99].map(ms);
        writeln!(f, "          least {min}, p90 {p90}, p95 {p95}, p99 {p99}; {first} took {}", ms(self.first))?;
        write!(f, "          {} runs a second, one after the other", amount(self.runs_per_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(samples: &[f64], warmup: u32, cold: bool) -> Latency {
        let measured_ms = Median::of(samples).expect("samples");
        Latency::of(warmup, cold, 99.0, measured_ms, samples)
    }

    #[test]
    fn latencies_are_ranked_and_named() {
        let many = latency(&[9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0], 1, false);
        assert_eq!((many.first, many.min, many.median, many.p90), (99.0, 1.0, 5.5, 9.0));
        assert_eq!((many.p95, many.p99, many.runs_per_second.round()), (10.0, 10.0, 182.0));
        assert!(
            many.to_string().starts_with("median of 10 runs after 1 to warm up: 2.00–9.00 ms (98 % confidence)"),
            "{many}"
        );
        let one = latency(&[9.0], 2, false);
        assert_eq!((one.min, one.median, one.p90), (9.0, 9.0, 9.0));
        assert!(one.to_string().starts_with("one run after 2 to warm up"), "{one}");
        assert!(latency(&[9.0], 0, true).to_string().starts_with("one cold run"));
    }
}
