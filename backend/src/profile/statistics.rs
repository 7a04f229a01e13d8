//! Running statistics of one measured time.

use serde::{Deserialize, Serialize};

/// Count, mean and variance of times in nanoseconds, updated one sample at a time (Welford 1962), and the least sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Samples taken.
    pub count: u64,
    /// Their mean, in nanoseconds.
    pub mean: f64,
    /// Their population variance, in square nanoseconds.
    pub variance: f64,
    /// The least of them, in nanoseconds.
    pub min: f64,
    /// When the last was taken, in seconds since 1970.
    pub measured_at: u64,
}

impl Statistics {
    /// Adds a sample. One that is not a time (negative, infinite, NaN) is ignored.
    pub fn add(&mut self, nanoseconds: f64, now: u64) {
        if !nanoseconds.is_finite() || nanoseconds < 0.0 {
            return;
        }
        self.min = if self.count == 0 { nanoseconds } else { self.min.min(nanoseconds) };
        self.count += 1;
        let count = self.count as f64;
        let before = nanoseconds - self.mean;
        self.mean += before / count;
        self.variance += (before * (nanoseconds - self.mean) - self.variance) / count;
        self.measured_at = now;
    }

    /// The standard deviation, in nanoseconds.
    pub fn deviation(&self) -> f64 {
        self.variance.max(0.0).sqrt()
    }

    /// Whether these can be the statistics of times.
    pub fn is_sane(&self) -> bool {
        let figures = [self.mean, self.variance, self.min];
        self.count > 0 && figures.iter().all(|f| f.is_finite() && *f >= 0.0) && self.min <= self.mean * (1.0 + 1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_variance_are_those_of_the_samples() {
        let mut statistics = Statistics::default();
        for (second, sample) in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter().enumerate() {
            statistics.add(sample, second as u64);
        }
        assert_eq!((statistics.count, statistics.min, statistics.measured_at), (8, 2.0, 7));
        assert!((statistics.mean - 5.0).abs() < 1e-12);
        assert!((statistics.deviation() - 2.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_not_a_time_is_ignored() {
        let mut statistics = Statistics::default();
        for sample in [f64::NAN, f64::INFINITY, -1.0] {
            statistics.add(sample, 1);
        }
        assert_eq!(statistics, Statistics::default());
        assert!(!statistics.is_sane());
    }
}
