//! Statistics of the times of runs.

use anabranch_base::quantile::{ascending, nearest_rank};
use serde::{Deserialize, Serialize};

/// Times of runs in milliseconds. Percentiles are nearest ranks: the least time that at least this share of the runs
/// does not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Shortest time.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Longest time.
    pub max: f64,
}

impl Latencies {
    /// Computes the statistics of these samples; zeros if there are none. `O(n log n)`.
    pub fn of(samples: &[f64]) -> Self {
        let sorted = ascending(samples);
        let at = |place: usize| sorted.get(place).copied().unwrap_or_default();
        let ranked = |share: f64| at(nearest_rank(sorted.len() as u64, share) as usize - 1);
        let [p50, p90, p95, p99] = [0.5, 0.9, 0.95, 0.99].map(ranked);
        Self { min: at(0), p50, p90, p95, p99, max: at(sorted.len().saturating_sub(1)) }
    }
}

/// Returns the runs per second of consecutive runs with these milliseconds; 0 if there are none.
pub fn runs_per_second(samples: &[f64]) -> f64 {
    let total: f64 = samples.iter().sum();
    if total > 0.0 { 1e3 * samples.len() as f64 / total } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let many: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let found = Latencies::of(&many);
        assert_eq!((found.min, found.p50, found.p90, found.max), (1.0, 100.0, 180.0, 200.0));
        assert_eq!((found.p95, found.p99), (190.0, 198.0));
        let one = Latencies::of(&[7.0]);
        assert!([one.min, one.p50, one.p90, one.p95, one.p99, one.max].into_iter().all(|ms| ms == 7.0));
        assert_eq!(Latencies::of(&[]), Latencies::default());
        assert_eq!((runs_per_second(&[250.0, 150.0]), runs_per_second(&[])), (5.0, 0.0));
    }
}
