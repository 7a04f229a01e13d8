//! Ratio of times after and before a change, with a distribution-free confidence interval.

use anabranch_base::quantile::ascending;
use serde::{Deserialize, Serialize};

/// Normal quantile of an interval of 95 %.
const QUANTILE: f64 = 1.959_963_984_540_054;

/// Ratio of later samples to earlier samples: below 1 the later samples are smaller.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of the quotients of every later sample and every earlier one. If there are two in the middle, their
    /// geometric mean.
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Probability that such intervals hold the true ratio, if all samples are independent.
    pub confidence: f64,
}

impl Ratio {
    /// Fewest samples of each kind: with fewer, the approximation of the interval's ranks does not hold.
    pub const FEWEST: usize = 5;

    /// Computes the ratio of `now` to `before`, with an interval of 95 % confidence. `O((n + m)·log(n + m))`: no
    /// quotient is kept.
    ///
    /// Returns `None` if either has fewer than [`Self::FEWEST`] samples, or a sample is not positive.
    ///
    /// The estimator of Hodges and Lehmann (1963) in logarithms: the interval holds the ratios that a rank-sum test of
    /// Mann and Whitney does not reject. Its ranks are those of the test's normal approximation (Hollander, Wolfe and
    /// Chicken 2014, section 4.3). An outlier moves neither the estimate nor the interval by much.
    pub fn of(before: &[f64], now: &[f64]) -> Option<Self> {
        let (before, now) = (sorted(before)?, sorted(now)?);
        let (n, m) = (before.len() as f64, now.len() as f64);
        let (pairs, spread) = (n * m, (n * m * (n + m + 1.0) / 12.0).sqrt());
        let rank = (pairs / 2.0 - QUANTILE * spread).floor().max(1.0) as u64;
        let (all, at) = (pairs as u64, |rank: u64| quotient(&before, &now, rank));
        let ratio = (at(all.div_ceil(2)) * at(all / 2 + 1)).sqrt();
        Some(Self { ratio, low: at(rank), high: at(all + 1 - rank), confidence: 0.95 })
    }

    /// Whether the interval excludes a ratio of 1.
    pub fn is_clear(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

fn sorted(samples: &[f64]) -> Option<Vec<f64>> {
    let sound = samples.len() >= Ratio::FEWEST && samples.iter().all(|sample| *sample > 0.0 && sample.is_finite());
    sound.then(|| ascending(samples))
}

/// Returns the `rank`-th least (from 1) of the quotients of each of `now` and each of `before`, both ascending.
///
/// Found by bisection in the order of floating-point numbers, which for positive numbers is the order of their bits.
fn quotient(before: &[f64], now: &[f64], rank: u64) -> f64 {
    let (Some((least, greatest)), Some((first, last))) =
        (before.first().zip(before.last()), now.first().zip(now.last()))
    else {
        return f64::NAN;
    };
    let (mut low, mut high) = ((first / greatest).to_bits(), (last / least).to_bits());
    while low < high {
        let middle = low + (high - low) / 2;
        match at_most(before, now, f64::from_bits(middle)) >= rank {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    f64::from_bits(low)
}

/// Number of quotients that are at most `ratio`.
fn at_most(before: &[f64], now: &[f64], ratio: f64) -> u64 {
    let (mut count, mut below) = (0, 0);
    for earlier in before {
        while now.get(below).is_some_and(|later| later / earlier <= ratio) {
            below += 1;
        }
        count += below as u64;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns pseudo-random numbers from 0 to 1 (SplitMix64; Steele et al. 2014), different for each seed.
    fn noise(seed: u64) -> impl Iterator<Item = f64> {
        let mut state = seed << 32;
        std::iter::repeat_with(move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        })
    }

    /// Returns realistic times: most near each other, few much longer.
    fn times(seed: u64, count: usize, scale: f64) -> Vec<f64> {
        noise(seed).take(count).map(|part| scale * (1.0 + 0.02 * part + 0.5 * part.powi(40))).collect()
    }

    #[test]
    fn ranks_are_those_of_all_quotients() {
        for (seed, [n, m]) in [[5, 5], [6, 9], [20, 20], [3, 50]].into_iter().enumerate() {
            let (before, now) = (times(seed as u64, n, 3.0), times(100 + seed as u64, m, 2.0));
            let mut quotients: Vec<f64> = before.iter().flat_map(|b| now.iter().map(move |a| a / b)).collect();
            quotients.sort_by(f64::total_cmp);
            let (mut before, mut now) = (before, now);
            before.sort_by(f64::total_cmp);
            now.sort_by(f64::total_cmp);
            for rank in 1..=quotients.len() {
                assert_eq!(quotient(&before, &now, rank as u64), quotients[rank - 1], "{rank} of {n} × {m}");
            }
        }
        // Five of each: from the third least to the third greatest of 25, as in the table of Mann and Whitney for 5 %.
        let (before, now) = ([1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0]);
        let found = Ratio::of(&before, &now).expect("enough samples");
        assert_eq!((found.ratio, found.low, found.high), (3.0, 1.0, 5.0));
    }

    #[test]
    fn a_change_is_seen_and_none_is_not_made_up() {
        let (before, slower) = (times(1, 30, 1.0), times(2, 30, 1.1));
        let found = Ratio::of(&before, &slower).expect("enough samples");
        assert!(found.is_clear() && found.low > 1.08 && found.high < 1.12, "{found:?}");
        let back = Ratio::of(&slower, &before).expect("enough samples");
        assert!((back.ratio * found.ratio - 1.0).abs() < 1e-12 && back.high < 1.0, "{back:?}");
        // Among 200 intervals of 95 % between samples of one kind, a few miss.
        let missed = (0..200).filter(|seed| {
            let found = Ratio::of(&times(2 * seed, 12, 1.0), &times(2 * seed + 1, 15, 1.0));
            found.is_some_and(|found| found.is_clear())
        });
        let missed = missed.count();
        assert!((1..=20).contains(&missed), "{missed} of 200");
    }

    #[test]
    fn an_outlier_moves_little_and_few_samples_say_nothing() {
        let (before, mut now) = (times(3, 20, 1.0), times(4, 20, 1.0));
        let greatest = now.iter().copied().fold(0.0, f64::max);
        let usual = Ratio::of(&before, &now).expect("enough samples");
        now.iter_mut().filter(|time| **time == greatest).for_each(|time| *time = 1e6);
        let found = Ratio::of(&before, &now).expect("enough samples");
        let moved = [found.ratio / usual.ratio, found.low / usual.low, found.high / usual.high];
        assert!(moved.iter().all(|moved| (moved - 1.0).abs() < 0.002), "{moved:?}");
        assert_eq!(Ratio::of(&before[..4], &now), None);
        assert_eq!(Ratio::of(&[0.0; 9], &now), None);
    }
}
