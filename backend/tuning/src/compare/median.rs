//! Medians of few samples, with distribution-free confidence intervals.

use anabranch_base::quantile::{ascending, median_by_sum};
use serde::{Deserialize, Serialize};

/// Least confidence of intervals, if there are enough samples.
const CONFIDENCE: f64 = 0.95;

/// Least confidence of intervals that tell medians apart: that of five samples.
const TELLING: f64 = 0.9;

/// Least number of samples for which the ranks of an interval come from the normal approximation. This is long before a
/// half to the power of the number of samples loses its digits.
const MANY: usize = 501;

/// Median of some samples, with a confidence interval for the population's median, in the samples' unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Median {
    /// Median of the samples.
    pub median: f64,
    /// Lower end of the interval: a sample.
    pub low: f64,
    /// Upper end of the interval: a sample.
    pub high: f64,
    /// Probability that the interval holds the population's median: at least 0.95 from 6 samples on. With fewer samples
    /// the interval covers all samples.
    pub confidence: f64,
}

impl Median {
    /// Computes the median of `samples`; `None` if there are none. O(n log n).
    ///
    /// The interval reaches from the `k`-th least to the `k`-th greatest sample, with the greatest `k` that is
    /// confident enough. The median is outside if a fair coin falls on one side less than `k` times in `n` throws, or
    /// on the other (order statistics; David and Nagaraja 2003, section 7.1). For more than 500 samples `k` is
    /// `⌊n/2 − 0.98·√n⌋`, from the normal approximation.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = ascending(samples);
        let (count, median) = (sorted.len(), median_by_sum(&sorted)?);
        let (outside, confidence) = if count < MANY { exact(count) } else { (approximate(count), CONFIDENCE) };
        Some(Self { median, low: sorted[outside], high: sorted[count - 1 - outside], confidence })
    }

    /// Whether the whole interval lies above the other's, and both are confident enough to tell the medians apart.
    pub fn is_above(&self, other: &Self) -> bool {
        self.low > other.high && self.is_telling() && other.is_telling()
    }

    /// Whether there are enough samples to tell it from others: at least five.
    pub fn is_telling(&self) -> bool {
        self.confidence >= TELLING
    }
}

/// Returns the number of samples outside the interval at either end, and its confidence.
fn exact(count: usize) -> (usize, f64) {
    // The probability of exactly `k` heads in `count` throws, and of at most `k`.
    let mut exactly = 0.5f64.powi(count as i32);
    let mut at_most = exactly;
    let mut found = (0, (1.0 - 2.0 * at_most).max(0.0));
    for k in 1..count / 2 {
        exactly *= (count - k + 1) as f64 / k as f64;
        at_most += exactly;
        if 1.0 - 2.0 * at_most < CONFIDENCE {
            break;
        }
        found = (k, 1.0 - 2.0 * at_most);
    }
    found
}

/// Returns the number outside at either end for many samples, with a confidence of 95 %: 0.98 is half the normal
/// quantile of such an interval.
fn approximate(count: usize) -> usize {
    let rank = (count as f64 / 2.0 - 0.98 * (count as f64).sqrt()).floor();
    (rank as usize).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_tables() {
        // (n, k): the interval reaches from the k-th least to the k-th greatest of n; its confidence in percent.
        for (count, k, percent) in
            [(1, 1, 0.0), (2, 1, 50.0), (5, 1, 93.75), (6, 1, 96.88), (9, 2, 96.09), (15, 4, 96.48), (25, 8, 95.67)]
        {
            let samples: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            let found = Median::of(&samples).expect("samples");
            assert_eq!((found.low, found.high), (f64::from(k), f64::from(count + 1 - k)), "{count}");
            assert!((found.confidence * 100.0 - percent).abs() < 0.01, "{count}: {}", found.confidence);
            assert_eq!(found.median, f64::from(count + 1) / 2.0);
        }
        assert_eq!(Median::of(&[]), None);
    }

    #[test]
    fn intervals_of_many_samples_are_narrow() {
        for (count, low, high) in [(1100, 517.0, 584.0), (2000, 956.0, 1045.0), (1_000_000, 499_020.0, 500_981.0)] {
            let samples: Vec<f64> = (1..=count).map(f64::from).collect();
            let found = Median::of(&samples).expect("samples");
            assert_eq!((found.low, found.high, found.confidence), (low, high, 0.95), "{count}");
        }
        // At the boundary between both methods, they differ by at most one rank.
        assert!(exact(500).0.abs_diff(approximate(500)) <= 1 && exact(500).1 >= 0.95);
    }

    #[test]
    fn medians_are_told_apart_by_intervals_that_do_not_touch() {
        let of = |from: f64, count: u32| {
            Median::of(&(0..count).map(|at| from + f64::from(at)).collect::<Vec<_>>()).expect("samples")
        };
        assert!(of(10.0, 5).is_above(&of(1.0, 5)) && !of(1.0, 5).is_above(&of(10.0, 5)));
        assert!(!of(4.0, 5).is_above(&of(1.0, 5)), "they overlap");
        assert!(!of(10.0, 4).is_above(&of(1.0, 5)), "four samples say too little");
    }

    #[test]
    fn an_outlier_moves_neither_median_nor_interval() {
        let mut samples: Vec<f64> = (0..20).map(f64::from).collect();
        let before = Median::of(&samples).expect("samples");
        samples[19] = 1e9;
        assert_eq!(Median::of(&samples), Some(before));
    }
}
