//! H7a, *BSL*, and H7b, *BSC*: a binary search for the period, at each of which intervals are built from the first stage on.
//!
//! From where the last interval ended, every end on every free processor whose period fits is looked at: H7a takes the one that goes
//! furthest, H7b the one whose period comes closest to what is allowed. Of equals the slowest processor is taken.

use super::estimate::Estimate;
use super::greedy::one_each;
use super::mapping::Mapping;
use crate::total::Total;

/// Which interval is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    Longest,
    Closest,
}

/// Halvings of the period: beyond these, differences are roundings of what costs rest on.
const HALVINGS: usize = 24;

/// `O(halvings × intervals × stages × processors)`.
pub(super) fn h7(estimate: &Estimate<'_>, take: Take, bound: f64) -> Option<Mapping> {
    let stages = estimate.problem.stage_count();
    let whole = estimate.by_speed.iter().map(|&processor| estimate.period(processor, 0..stages));
    let mut high = whole.fold(f64::INFINITY, f64::min);
    if !high.is_finite() {
        high = (0..stages).map(|stage| slowest(estimate, stage)).sum();
    }
    let (mut low, mut best) = (bound, build(estimate, take, high));
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        match build(estimate, take, middle) {
            Some(mapping) => (high, best) = (middle, Some(mapping)),
            None => low = middle,
        }
    }
    best
}

fn slowest(estimate: &Estimate<'_>, stage: usize) -> f64 {
    let periods = estimate.by_speed.iter().map(|&processor| estimate.period(processor, stage..stage + 1));
    periods.filter(|period| period.is_finite()).fold(0.0, f64::max)
}

fn build(estimate: &Estimate<'_>, take: Take, period: f64) -> Option<Mapping> {
    let stages = estimate.problem.stage_count();
    let mut free = estimate.by_speed.clone();
    let (mut start, mut pairs) = (0, Vec::new());
    while start < stages {
        let mut best: Option<((usize, Total), usize, usize)> = None;
        for (place, &processor) in free.iter().enumerate() {
            for end in start + 1..=stages {
                let own = estimate.period(processor, start..end);
                if !own.is_finite() {
                    break;
                }
                let key = (if take == Take::Longest { end } else { 0 }, Total(own));
                if own <= period && best.is_none_or(|(known, ..)| key >= known) {
                    best = Some((key, place, end));
                }
            }
        }
        let (_, place, end) = best?;
        pairs.push((start..end, free.remove(place)));
        start = end;
    }
    Some(one_each(pairs))
}
