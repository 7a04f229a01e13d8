//! Working times of a replica and durations of data sets, kept in bounded memory for any number of them.

use anabranch_base::quantile::nearest_rank;
use std::collections::VecDeque;
use std::time::Duration;

/// Most spans kept per replica: the last ones.
const MOST_SPANS: usize = 2048;

/// Work of one replica on one data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageSpan {
    /// Number of the data set.
    pub data_set: u64,
    /// Time at which the replica began with it, from the start of the pipeline.
    pub start: Duration,
    /// Time at which the replica finished it.
    pub end: Duration,
}

/// Working times of a replica.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// Number of data sets.
    pub(super) count: u64,
    /// Total time at work.
    pub(super) busy: Duration,
    /// The last spans.
    pub(super) spans: VecDeque<StageSpan>,
}

impl Times {
    pub(super) fn add(&mut self, data_set: u64, start: Duration, end: Duration) {
        (self.count, self.busy) = (self.count + 1, self.busy + (end - start));
        if self.spans.len() == MOST_SPANS {
            self.spans.pop_front();
        }
        self.spans.push_back(StageSpan { data_set, start, end });
    }
}

/// Durations counted in buckets, each 2 % wider than the one before. Gives quantiles of any number of durations in 10
/// KiB, exact to 1 %.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    most: Duration,
}

/// From a tenth of a microsecond up to some hours.
const LEAST: f64 = 1e-7;
const STEP: f64 = 1.02;
const BUCKETS: usize = 1280;

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0, most: Duration::ZERO }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, time: Duration) {
        let place = (time.as_secs_f64().max(LEAST) / LEAST).ln() / STEP.ln();
        self.buckets[(place as usize).min(BUCKETS - 1)] += 1;
        (self.count, self.most) = (self.count + 1, self.most.max(time));
    }

    /// Returns the least time, in seconds, that this share of all durations does not exceed; 0 if there are none.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let wanted = nearest_rank(self.count, share);
        let mut below = 0;
        for (place, count) in self.buckets.iter().enumerate() {
            below += count;
            if below >= wanted {
                // The middle of the bucket, but no more than the longest duration seen.
                let middle = LEAST * STEP.powf(place as f64 + 0.5);
                return middle.min(self.most.as_secs_f64());
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_hundredth() {
        let mut histogram = Histogram::default();
        (1..=10_000u64).for_each(|time| histogram.add(Duration::from_micros(time)));
        for share in [0.01, 0.5, 0.95, 0.99] {
            let (found, want) = (histogram.quantile(share), 1e-2 * share);
            assert!((found / want - 1.0).abs() <= 0.0101, "{share}: {found} for {want}");
        }
        assert_eq!(histogram.quantile(1.0), 1e-2);
        assert_eq!(Histogram::default().quantile(0.5), 0.0);
        histogram.add(Duration::from_secs(1_000_000));
        assert!(histogram.quantile(1.0) > 1000.0);
    }

    #[test]
    fn only_the_last_spans_are_kept() {
        let mut times = Times::default();
        let at = Duration::from_nanos;
        (0..5000).for_each(|number| times.add(number, at(number * 10), at(number * 10 + 3)));
        assert_eq!((times.count, times.busy, times.spans.len()), (5000, at(15_000), MOST_SPANS));
        assert_eq!(times.spans.back().map(|span| span.data_set), Some(4999));
    }
}
