//! What is known of one measured time: a bounded list of recent samples, and sums over those that count.
//!
//! Predictions rest on the median of the recent samples, so that a spike changes nothing. When the newest samples agree with each
//! other and not with the older ones, the machine has changed, and the older ones fade. What was measured right after a start,
//! with cold caches and kernels that were compiled on the way, is kept apart and predicts only where nothing else is known.

use super::robust::{mad, median};
use serde::{Deserialize, Serialize};

/// Nanoseconds of a time at most, 300 years: sums of times, and of their squares, stay finite.
pub(crate) const MOST_NANOSECONDS: f64 = 1e19;

/// Samples kept at most.
pub const RECENT: usize = 16;

/// So many of the newest samples must agree on a change.
const NEWEST: usize = 3;

/// A change is one of more than this part of the older median …
const DRIFT_SHARE: f64 = 0.1;

/// … and of more than so many standard deviations, estimated from the older samples.
const DRIFT_DEVIATIONS: f64 = 4.0;

/// The standard deviation of normally distributed samples over their median absolute deviation.
const SIGMA_OF_MAD: f64 = 1.4826;

/// Nine of ten normally distributed samples lie within so many standard deviations.
const NINE_OF_TEN: f64 = 1.645;

/// Runs of a machine at rest differ by this part at least from one minute to the next.
const LEAST_SCATTER: f64 = 0.05;

/// The standard error of a median over that of a mean, for normally distributed samples.
const MEDIAN_OVER_MEAN: f64 = 1.2533;

/// Two-sided 95 % quantiles of Student's distribution, for 1 to 15 degrees of freedom.
const STUDENT: [f64; RECENT - 1] =
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131];

/// By this factor at most the usual run is taken to be disturbed: more is a wild sample.
const MOST_DISTURBED: f64 = 2.0;

/// One measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The time. Only positive, finite ones are taken.
    pub nanoseconds: f64,
    /// Whether it is from the first run after a start.
    pub cold: bool,
    /// When it was taken, in seconds since 1970.
    pub at: u64,
}

/// The history of one measured time, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Warm samples since the last change.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Their population variance, in square nanoseconds.
    pub variance: f64,
    /// The least of all warm ones, of those before the last change as well.
    pub min: f64,
    /// When the last sample was taken, in seconds since 1970.
    pub measured_at: u64,
    /// The last warm samples, the newest last; at most [`RECENT`]. Fewer than `count` where only sums were handed down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<f64>,
    /// Samples taken right after a start.
    #[serde(default, skip_serializing_if = "Cold::is_empty")]
    pub cold: Cold,
    /// Samples that no longer count, because the time has changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub faded: u64,
}

/// What was measured right after starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cold {
    /// How often.
    pub count: u64,
    /// The mean, in nanoseconds.
    pub mean: f64,
    /// The least, in nanoseconds.
    pub min: f64,
}

/// A time that a history predicts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Nanoseconds.
    pub nanoseconds: f64,
    /// Half the width of its 95 % confidence interval, relative to it; 1 where one sample says nothing of that.
    pub half_width: f64,
    /// The factor within which nine of ten other runs lie.
    pub spread: f64,
    /// Samples that it rests on.
    pub samples: u64,
    /// Whether all of them are cold.
    pub cold: bool,
}

impl History {
    /// Adds a sample; whether it was taken. Zero, negative, infinite and NaN are no times. O([`RECENT`] log [`RECENT`]).
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

    /// The median of the recent samples; else the mean that was handed down; else the least of the cold ones.
    pub fn estimate(&self) -> Option<Estimate> {
        if let Some(nanoseconds) = self.median() {
            let samples = self.recent.len() as u64;
            let half_width = self.half_width(nanoseconds);
            let scatter = NINE_OF_TEN * SIGMA_OF_MAD * mad(&self.recent).unwrap_or(0.0) / nanoseconds;
            let spread = 1.0 + scatter.max(half_width).max(LEAST_SCATTER);
            return Some(Estimate { nanoseconds, half_width, spread, samples, cold: false });
        }
        if self.count > 0 {
            let half_width = (1.96 * self.deviation() / (self.count as f64).sqrt() / self.mean).min(1.0);
            let spread = 1.0 + (NINE_OF_TEN * self.deviation() / self.mean).max(half_width).max(LEAST_SCATTER);
            return Some(Estimate { nanoseconds: self.mean, half_width, spread, samples: self.count, cold: false });
        }
        let Cold { count, min, .. } = self.cold;
        (count > 0).then_some(Estimate { nanoseconds: min, half_width: 1.0, spread: 2.0, samples: count, cold: true })
    }

    /// The time that the rest of the machine did not add to: the lower quartile of the recent samples, or a cold one that was shorter. For
    /// copies and submissions, some of which take hundreds of times as long.
    pub fn undisturbed(&self) -> Option<Estimate> {
        let mut sorted = self.recent.clone();
        sorted.sort_by(f64::total_cmp);
        self.at_most(sorted.get(sorted.len().saturating_sub(1) / 4).copied())
    }

    /// The least of all samples. For what every run takes beside its work: runs that are short enough for that to count have few nodes,
    /// inputs and outputs, and longer ones only add to it, which is no change of the machine.
    pub fn least(&self) -> Option<Estimate> {
        self.at_most((self.count > 0).then_some(self.min))
    }

    /// The estimate with this time, or that of a cold sample that was shorter, in its place.
    fn at_most(&self, time: Option<f64>) -> Option<Estimate> {
        let usual = self.estimate()?;
        let cold = if self.cold.count > 0 { self.cold.min } else { f64::INFINITY };
        let nanoseconds = time.unwrap_or(usual.nanoseconds).min(cold);
        let disturbed = (usual.nanoseconds / nanoseconds).min(MOST_DISTURBED);
        Some(Estimate { nanoseconds, spread: usual.spread * disturbed, ..usual })
    }

    /// Whether nothing was ever measured.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.cold.count == 0
    }

    /// The median of the recent samples.
    pub fn median(&self) -> Option<f64> {
        median(&self.recent)
    }

    /// The standard deviation of the samples that count, in nanoseconds.
    pub fn deviation(&self) -> f64 {
        self.variance.max(0.0).sqrt()
    }

    /// Whether this can be the history of a time.
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

    /// Adds what another history of the same time holds; of the recent samples those of the one measured last stay.
    pub fn merge(&mut self, other: &Self) {
        // The same once more tells nothing new.
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

    /// Adds a time to the sums alone.
    pub(super) fn sum(&mut self, time: f64) {
        self.min = if self.count == 0 { time } else { self.min.min(time) };
        self.count = self.count.saturating_add(1);
        let before = time - self.mean;
        self.mean += before / self.count as f64;
        self.variance += (before * (time - self.mean) - self.variance) / self.count as f64;
    }

    /// Whether the newest samples all lie on one side of the older ones' median, and far from it.
    fn has_drifted(&self) -> bool {
        let Some((older, newest)) = self.recent.split_last_chunk::<NEWEST>() else { return false };
        let (Some(before), Some(after), Some(spread)) = (median(older), median(newest), mad(older)) else {
            return false;
        };
        let one_side = newest.iter().all(|time| *time > before) || newest.iter().all(|time| *time < before);
        // The spread of one or two samples says nothing.
        let spread = if older.len() < NEWEST { before } else { spread };
        let far = (DRIFT_SHARE * before).max(DRIFT_DEVIATIONS * SIGMA_OF_MAD * spread);
        one_side && (after - before).abs() > far
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
        // The only warm sample is wild, and shows it by the cold one.
        let mut wild = of(&[6.6e6]);
        wild.add(Sample { cold: true, ..warm(3e3) });
        assert_eq!(both(&wild), [Some(3e3); 2]);
        assert!(wild.least().is_some_and(|estimate| estimate.spread <= 4.0));
        // The least is remembered longer than the recent samples.
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
        // What runs take beside their work is told by the shortest of them.
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
