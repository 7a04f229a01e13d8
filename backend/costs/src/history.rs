//! History of one measured time: a bounded list of recent samples, and sums over the samples that count.
//!
//! Predictions use the median of the recent samples, so that outliers do not change them. If the newest samples agree
//! with each other and differ from the older samples, the machine has changed, and the older samples fade. Samples from
//! right after a start include cold caches and the compilation of kernels. They are kept apart and predict only if
//! there are no other samples.

use super::robust::{mad, median};
use anabranch_base::quantile::{ascending, lower_quartile};
use serde::{Deserialize, Serialize};

/// Longest time in nanoseconds, 300 years: sums of times, and of their squares, stay finite.
pub(crate) const MOST_NANOSECONDS: f64 = 1e19;

/// Most samples that are kept.
pub const RECENT: usize = 16;

/// Number of the newest samples that must agree on a change.
const NEWEST: usize = 3;

/// A change must exceed this share of the older median …
const DRIFT_SHARE: f64 = 0.1;

/// … and this many standard deviations, estimated from the older samples.
const DRIFT_DEVIATIONS: f64 = 4.0;

/// Standard deviation of normally distributed samples over their median absolute deviation.
const SIGMA_OF_MAD: f64 = 1.4826;

/// 90 % of normally distributed samples lie within this many standard deviations.
const NINE_OF_TEN: f64 = 1.645;

/// Least relative difference between runs of an idle machine from one minute to the next.
const LEAST_SCATTER: f64 = 0.05;

/// Standard error of a median over that of a mean, for normally distributed samples.
const MEDIAN_OVER_MEAN: f64 = 1.2533;

/// Two-sided 95 % quantiles of Student's distribution, for 1 to 15 degrees of freedom.
const STUDENT: [f64; RECENT - 1] =
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131];

/// Largest factor by which the usual run counts as disturbed; beyond it the least sample is an outlier.
const MOST_DISTURBED: f64 = 2.0;

/// One measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The time in nanoseconds. Only positive, finite times are accepted.
    pub nanoseconds: f64,
    /// Whether the sample is from the first run after a start.
    pub cold: bool,
    /// Time of the measurement, in seconds since 1970.
    pub at: u64,
}

/// The history of one measured time, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct History {
    /// Number of warm samples since the last change.
    pub count: u64,
    /// Mean of these samples.
    pub mean: f64,
    /// Population variance of these samples, in square nanoseconds.
    pub variance: f64,
    /// Least of all warm samples, including those before the last change.
    pub min: f64,
    /// Time of the last sample, in seconds since 1970.
    pub measured_at: u64,
    /// The last warm samples, the newest last; at most 16. They are fewer than `count` if only sums were imported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<f64>,
    /// Samples from right after a start.
    #[serde(default, skip_serializing_if = "Cold::is_empty")]
    pub cold: Cold,
    /// Number of samples that no longer count, because the time has changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub faded: u64,
}

/// Samples from right after starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cold {
    /// Number of samples.
    pub count: u64,
    /// Their mean, in nanoseconds.
    pub mean: f64,
    /// Their minimum, in nanoseconds.
    pub min: f64,
}

/// A time that a history predicts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Predicted time in nanoseconds.
    pub nanoseconds: f64,
    /// Half-width of its 95 % confidence interval, relative to it; 1 for a single sample, which has no interval.
    pub half_width: f64,
    /// Factor within which 90 % of other runs lie.
    pub uncertainty: f64,
    /// Number of samples used.
    pub samples: u64,
    /// Whether all of them are cold.
    pub cold: bool,
}

impl Estimate {
    /// Returns the predicted time in seconds.
    pub fn seconds(&self) -> f64 {
        self.nanoseconds * 1e-9
    }
}

impl History {
    /// Adds a sample, and returns whether it was accepted.
    ///
    /// Zero, negative, infinite and NaN times are rejected. O([`RECENT`] log [`RECENT`]).
    pub fn add(&mut self, sample: Sample) -> bool {
        let time = sample.nanoseconds;
        if !(time.is_finite() && time > 0.0) {
            return false;
        }
        self.measured_at = self.measured_at.max(sample.at);
        if sample.cold {
            self.cold.add(time);
            return true;
        }
        self.sum(time);
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push(time);
        if self.has_drifted() {
            self.fade();
        }
        true
    }

    /// Returns the median of the recent samples; else the imported mean; else the least cold sample.
    pub fn estimate(&self) -> Option<Estimate> {
        if let Some(nanoseconds) = self.median() {
            let samples = self.recent.len() as u64;
            let half_width = self.half_width(nanoseconds);
            let scatter = NINE_OF_TEN * SIGMA_OF_MAD * mad(&self.recent).unwrap_or(0.0) / nanoseconds;
            let uncertainty = 1.0 + scatter.max(half_width).max(LEAST_SCATTER);
            return Some(Estimate { nanoseconds, half_width, uncertainty, samples, cold: false });
        }
        if self.count > 0 {
            let half_width = (1.96 * self.deviation() / (self.count as f64).sqrt() / self.mean).min(1.0);
            let uncertainty = 1.0 + (NINE_OF_TEN * self.deviation() / self.mean).max(half_width).max(LEAST_SCATTER);
            return Some(Estimate {
                nanoseconds: self.mean,
                half_width,
                uncertainty,
                samples: self.count,
                cold: false,
            });
        }
        let Cold { count, min, .. } = self.cold;
        (count > 0).then_some(Estimate {
            nanoseconds: min,
            half_width: 1.0,
            uncertainty: 2.0,
            samples: count,
            cold: true,
        })
    }

    /// Returns the time without disturbance by the rest of the machine: the lower quartile of the recent samples, or a
    /// shorter cold sample.
    ///
    /// Copies and submissions use it, because some of them take hundreds of times longer than usual.
    pub fn undisturbed(&self) -> Option<Estimate> {
        self.at_most(lower_quartile(&ascending(&self.recent)))
    }

    /// Returns the least of all samples, for the overhead of runs.
    ///
    /// Only short runs show the overhead; they have few nodes, inputs and outputs. Longer runs add to it, which is not
    /// a change of the machine.
    pub fn least(&self) -> Option<Estimate> {
        self.at_most((self.count > 0).then_some(self.min))
    }

    /// Returns the estimate with this time in place of its own, or with the least cold sample if that is shorter.
    fn at_most(&self, time: Option<f64>) -> Option<Estimate> {
        let usual = self.estimate()?;
        let cold = if self.cold.count > 0 { self.cold.min } else { f64::INFINITY };
        let nanoseconds = time.unwrap_or(usual.nanoseconds).min(cold);
        let disturbed = (usual.nanoseconds / nanoseconds).min(MOST_DISTURBED);
        Some(Estimate { nanoseconds, uncertainty: usual.uncertainty * disturbed, ..usual })
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.cold.count == 0
    }

    /// Returns the median of the recent samples.
    pub fn median(&self) -> Option<f64> {
        median(&self.recent)
    }

    /// Returns the standard deviation of the samples that count, in nanoseconds.
    pub fn deviation(&self) -> f64 {
        self.variance.max(0.0).sqrt()
    }

    /// Whether the values can be the history of a time.
    pub fn is_sane(&self) -> bool {
        let time = |value: f64| (0.0..=MOST_NANOSECONDS).contains(&value);
        let sums = [self.mean, self.variance.sqrt(), self.min, self.cold.mean, self.cold.min];
        let least = |count: u64, min: f64, mean: f64| count == 0 || (min > 0.0 && min <= mean * (1.0 + 1e-9));
        self.count.max(self.cold.count) > 0
            && sums.into_iter().all(time)
            && least(self.count, self.min, self.mean)
            && least(self.cold.count, self.cold.min, self.cold.mean)
            && self.recent.len() <= RECENT
            && self.recent.len() as u64 <= self.count
            && self.recent.iter().all(|recent| time(*recent) && *recent > 0.0)
    }

    /// Adds the samples of another history of the same time. The recent samples of the history measured last come last,
    /// and stay.
    pub fn merge(&mut self, other: &Self) {
        // An equal history is the same samples once more.
        if self == other {
            return;
        }
        let (ours, theirs) = (self.count as f64, other.count as f64);
        if other.count > 0 {
            let shift = other.mean - self.mean;
            let all = ours + theirs;
            self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
            self.variance =
                (ours * self.variance + theirs * other.variance + shift * shift * ours * theirs / all) / all;
            self.mean += shift * theirs / all;
            self.count = self.count.saturating_add(other.count);
        }
        let (older, newer) = match self.measured_at <= other.measured_at {
            true => (&self.recent, &other.recent),
            false => (&other.recent, &self.recent),
        };
        let all: Vec<f64> = older.iter().chain(newer).copied().collect();
        self.recent = all[all.len().saturating_sub(RECENT)..].to_vec();
        self.measured_at = self.measured_at.max(other.measured_at);
        self.faded = self.faded.saturating_add(other.faded);
        self.cold.merge(&other.cold);
    }

    /// Adds a time to the sums only.
    pub(super) fn sum(&mut self, time: f64) {
        self.min = if self.count == 0 { time } else { self.min.min(time) };
        self.count = self.count.saturating_add(1);
        let before = time - self.mean;
        self.mean += before / self.count as f64;
        self.variance += (before * (time - self.mean) - self.variance) / self.count as f64;
    }

    /// Whether the newest samples all lie on one side of the older samples' median, and differ clearly from it.
    fn has_drifted(&self) -> bool {
        let Some((older, newest)) = self.recent.split_last_chunk::<NEWEST>() else { return false };
        let (Some(before), Some(after), Some(deviation)) = (median(older), median(newest), mad(older)) else {
            return false;
        };
        let one_side = newest.iter().all(|time| *time > before) || newest.iter().all(|time| *time < before);
        // One or two samples have no meaningful deviation.
        let deviation = if older.len() < NEWEST { before } else { deviation };
        let least = (DRIFT_SHARE * before).max(DRIFT_DEVIATIONS * SIGMA_OF_MAD * deviation);
        one_side && (after - before).abs() > least
    }

    /// Forgets all but the newest samples.
    fn fade(&mut self) {
        let newest = self.recent.split_off(self.recent.len() - NEWEST);
        let before = self.count - NEWEST as u64;
        self.faded = self.faded.saturating_add(before);
        let least = self.min;
        (self.count, self.mean, self.variance) = (0, 0.0, 0.0);
        newest.iter().for_each(|time| self.sum(*time));
        self.min = least.min(self.min);
        self.recent = newest;
    }

    fn half_width(&self, median: f64) -> f64 {
        let count = self.recent.len();
        let Some(quantile) = count.checked_sub(2).and_then(|at| STUDENT.get(at)) else { return 1.0 };
        let sigma = SIGMA_OF_MAD * mad(&self.recent).unwrap_or(0.0);
        (MEDIAN_OVER_MEAN * quantile * sigma / (count as f64).sqrt() / median).min(1.0)
    }
}

impl Cold {
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn add(&mut self, time: f64) {
        self.min = if self.count == 0 { time } else { self.min.min(time) };
        self.count = self.count.saturating_add(1);
        self.mean += (time - self.mean) / self.count as f64;
    }

    fn merge(&mut self, other: &Self) {
        if other.count > 0 {
            self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
            let all = self.count.saturating_add(other.count);
            self.mean += (other.mean - self.mean) * other.count as f64 / all as f64;
            self.count = all;
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warm(nanoseconds: f64) -> Sample {
        Sample { nanoseconds, cold: false, at: 7 }
    }

    fn of(samples: &[f64]) -> History {
        let mut history = History::default();
        samples.iter().for_each(|time| assert!(history.add(warm(*time))));
        history
    }

    #[test]
    fn mean_and_variance_are_those_of_the_samples() {
        let history = of(&[9.0, 2.0, 4.0, 5.0, 4.0, 7.0, 4.0, 5.0]);
        assert_eq!((history.count, history.min, history.measured_at), (8, 2.0, 7));
        assert!((history.mean - 5.0).abs() < 1e-12);
        assert!((history.deviation() - 2.0).abs() < 1e-12);
        assert_eq!(history.median(), Some(4.5));
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        let mut history = History::default();
        for time in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            assert!(!history.add(warm(time)));
        }
        assert_eq!(history, History::default());
        assert!(!history.is_sane() && history.estimate().is_none());
    }

    #[test]
    fn spikes_change_no_prediction() {
        let mut history = of(&[100.0; 10]);
        for spike in [1e9, 1e9, 100.0, 1e12, 1.0, 100.0] {
            history.add(warm(spike));
            assert_eq!(history.estimate().map(|e| e.nanoseconds), Some(100.0));
        }
        assert_eq!(history.faded, 0);
    }

    #[test]
    fn what_disturbs_some_runs_is_not_counted() {
        let both = |history: &History| [history.undisturbed(), history.least()].map(|e| e.map(|e| e.nanoseconds));
        let noisy = of(&[400.0, 100.0, 6.6e6, 101.0, 7e6, 102.0, 104.0, 900.0]);
        assert_eq!(both(&noisy), [Some(101.0), Some(100.0)]);
        assert_eq!(both(&of(&[400.0, 100.0, 6.6e6])), [Some(100.0); 2]);
        // The only warm sample is an outlier, as the cold sample shows.
        let mut wild = of(&[6.6e6]);
        wild.add(Sample { cold: true, ..warm(3e3) });
        assert_eq!(both(&wild), [Some(3e3); 2]);
        assert!(wild.least().is_some_and(|estimate| estimate.uncertainty <= 4.0));
        // The least sample is remembered longer than the recent samples.
        let mut longer = of(&[90.0]);
        (0..20).for_each(|_| assert!(longer.add(warm(95.0))));
        assert_eq!(both(&longer), [Some(95.0), Some(90.0)]);
        assert_eq!(both(&History::default()), [None; 2]);
    }

    #[test]
    fn a_lasting_change_is_followed_after_three_samples() {
        let mut history = of(&[100.0, 102.0, 98.0, 101.0, 99.0, 100.0]);
        history.add(warm(200.0));
        history.add(warm(201.0));
        assert!(history.estimate().is_some_and(|e| e.nanoseconds < 103.0));
        history.add(warm(199.0));
        assert_eq!(history.estimate().map(|e| (e.nanoseconds, e.samples)), Some((200.0, 3)));
        assert_eq!((history.count, history.faded), (3, 6));
        assert!((history.mean - 200.0).abs() < 1e-9 && history.is_sane());
        // The shortest runs show the overhead of runs.
        assert_eq!(history.least().map(|e| e.nanoseconds), Some(98.0));
    }

    #[test]
    fn noise_is_no_change() {
        let history = of(&[100.0, 140.0, 80.0, 120.0, 95.0, 130.0, 135.0, 125.0, 90.0, 128.0, 138.0, 121.0]);
        assert_eq!((history.faded, history.count), (0, 12));
    }

    #[test]
    fn cold_samples_predict_only_where_there_are_no_others() {
        let mut history = History::default();
        history.add(Sample { cold: true, ..warm(900.0) });
        assert!(history.estimate().is_some_and(|e| e.cold && e.nanoseconds == 900.0 && e.half_width == 1.0));
        history.add(warm(100.0));
        assert!(history.estimate().is_some_and(|e| !e.cold && e.nanoseconds == 100.0));
        history.add(Sample { cold: true, ..warm(700.0) });
        assert_eq!((history.count, history.cold.count, history.cold.mean), (1, 2, 800.0));
        assert!(history.is_sane());
    }

    #[test]
    fn confidence_grows_with_samples_that_agree() {
        let widths: Vec<f64> = [&[100.0, 110.0, 90.0][..], &[100.0, 110.0, 90.0, 105.0, 95.0, 100.0, 102.0, 98.0]]
            .map(|samples| of(samples).estimate().expect("samples").half_width)
            .to_vec();
        assert!(widths[1] < widths[0] && widths[0] < 1.0, "{widths:?}");
        assert_eq!(of(&[5.0]).estimate().map(|e| e.half_width), Some(1.0));
    }

    #[test]
    fn merged_sums_are_those_of_all_samples() {
        let mut merged = of(&[1.0, 2.0, 3.0]);
        merged.merge(&of(&[4.0, 5.0]));
        let all = of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!((merged.count, merged.min, &merged.recent), (5, 1.0, &all.recent));
        assert!((merged.mean - all.mean).abs() < 1e-12 && (merged.variance - all.variance).abs() < 1e-12);
    }

    #[test]
    fn old_samples_make_room() {
        let history = of(&(0..40).map(|i| 100.0 + f64::from(i % 5)).collect::<Vec<_>>());
        assert_eq!((history.recent.len(), history.count), (RECENT, 40));
    }
}
