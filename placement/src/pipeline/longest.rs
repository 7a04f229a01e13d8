//! H7a, *BSL*, and H7b, *BSC*: a binary search for the period; each step builds intervals from the first stage on.
//!
//! An interval begins where the last one ended. Its candidates are all ends on all free processors whose period fits.
//! H7a takes the candidate that goes furthest, H7b the candidate whose period comes closest to the limit. On a tie the
//! slowest processor is taken. If one processor can run all stages, the search begins with its period and always has an
//! answer.

use super::estimate::Estimate;
use super::greedy::one_each;
use super::mapping::Mapping;
use crate::total::Total;

/// Rule by which an interval is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    Longest,
    Closest,
}

/// Number of halvings of the period; further ones resolve only rounding errors of the costs.
const HALVINGS: usize = 24;

/// Searches for the least period that intervals can be built for. `O(halvings × intervals × stages × processors)`.
pub(super) fn h7(estimate: &Estimate<'_>, take: Take, bound: f64) -> Option<Mapping> {
    let stages = estimate.problem.stage_count();
    let whole = estimate.by_speed.iter().map(|&processor| (estimate.period(processor, 0..stages), processor));
    let one = whole.min_by_key(|&(period, _)| Total(period)).filter(|(period, _)| period.is_finite());
    let mut high = one.map_or_else(|| (0..stages).map(|stage| slowest(estimate, stage)).sum(), |(period, _)| period);
    // Slower processors may be taken first and then run out, although one processor alone keeps this period.
    let alone = || one.map(|(_, processor)| one_each(vec![(0..stages, processor)]));
    let (mut low, mut best) = (bound, build(estimate, take, high).or_else(alone));
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
