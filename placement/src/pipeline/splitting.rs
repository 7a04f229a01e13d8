//! H6, *SPL*, and its relatives: start on the fastest processor, then split the interval with the longest period again
//! and again. Each split uses the fastest free processors. Source: Benoit, Rehn-Sonigo and Robert, *Multi-criteria
//! scheduling of pipeline workflows*, 2007.
//!
//! | name | parts | chosen split | name in the source |
//! |---|---|---|---|
//! | `h6` | 2 | with the shortest longest period | H6-SPL; *Sp mono P* and, under a latency, *Sp mono L* |
//! | `h6-bi` | 2 | with the least increase in latency per decrease of the period | *Sp bi P*, *Sp bi L* |
//! | `h6-3` | 3 | as `h6` | *3-Explo mono* |
//! | `h6-3-bi` | 3 | as `h6-bi` | *3-Explo bi* |
//!
//! A heuristic ends if the period is short enough or if no split shortens the longest period. Splits beyond the allowed
//! latency are skipped. Under a limit on the period, `h6-bi` searches for the least latency that it must be allowed.

use super::estimate::Estimate;
use super::evaluate::{Performance, performance, periods};
use super::goal::{Goal, within};
use super::greedy::one_each;
use super::longest::{Take, h7};
use super::mapping::Mapping;
use crate::total::Total;
use std::ops::Range;

/// Rule by which a split is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefer {
    Period,
    Ratio,
}

/// Number of halvings of the allowed latency.
const HALVINGS: usize = 10;

pub(super) fn h6(estimate: &Estimate<'_>, parts: usize, take: Prefer, goal: Goal) -> Option<Mapping> {
    let mut limits = goal.limits();
    if goal == Goal::Latency {
        return start(estimate);
    }
    if matches!(goal, Goal::Period | Goal::PeriodWithin { .. }) {
        limits.period = 0.0;
    }
    let found = split(estimate, parts, take, limits)?;
    if (parts, take) != (2, Prefer::Ratio) || !matches!(goal, Goal::LatencyWithin { .. }) {
        return Some(found);
    }
    let value = |mapping: &Mapping| performance(estimate.problem, mapping);
    let (mut low, mut best) = (0.0, found);
    for _ in 0..HALVINGS {
        let latency = (low + value(&best).latency) / 2.0;
        match split(estimate, parts, take, Performance { latency, ..limits }) {
            Some(found) if within(value(&found).period, limits.period) && value(&found).latency <= latency => {
                best = found
            }
            _ => low = latency,
        }
    }
    Some(best)
}

/// Returns all stages on the fastest processor that can run them. If there is none, returns intervals that are as long
/// as possible.
fn start(estimate: &Estimate<'_>) -> Option<Mapping> {
    let stages = estimate.problem.stage_count();
    let able = estimate.by_speed.iter().find(|&&it| estimate.problem.seconds(it, 0..stages).is_finite());
    able.map(|&processor| one_each(vec![(0..stages, processor)])).or_else(|| h7(estimate, Take::Longest, 0.0))
}

fn split(estimate: &Estimate<'_>, parts: usize, take: Prefer, limits: Performance) -> Option<Mapping> {
    let mut mapping = start(estimate)?;
    loop {
        let periods = periods(estimate.problem, &mapping);
        let longest = (0..periods.len()).max_by_key(|&place| Total(periods[place]))?;
        if within(periods[longest], limits.period) {
            return Some(mapping);
        }
        let used: Vec<usize> = mapping.intervals.iter().map(|interval| interval.processors[0]).collect();
        let free = estimate.by_speed.iter().copied().filter(|processor| !used.contains(processor));
        let processors: Vec<usize> = [used[longest]].into_iter().chain(free.take(parts - 1)).collect();
        let interval = mapping.intervals[longest].stages.clone();
        if processors.len() < parts || interval.len() < parts {
            return Some(mapping);
        }
        let slack = limits.latency - performance(estimate.problem, &mapping).latency;
        let Some(pairs) = best_split(estimate, (interval, periods[longest]), &processors, take, slack) else {
            return Some(mapping);
        };
        mapping.intervals.splice(longest..=longest, one_each(pairs).intervals);
    }
}

type Pairs = Vec<(Range<usize>, usize)>;

/// Returns the best split whose parts all have shorter periods than the interval; the first processor is the interval's
/// own.
fn best_split(
    estimate: &Estimate<'_>,
    (interval, period): (Range<usize>, f64),
    processors: &[usize],
    take: Prefer,
    slack: f64,
) -> Option<Pairs> {
    let problem = estimate.problem;
    let before = problem.seconds(processors[0], interval.clone());
    let mut best: Option<(f64, Pairs)> = None;
    for ranges in cuts(&interval, processors.len()) {
        for order in orders(processors) {
            let periods =
                ranges.iter().zip(&order).map(|(range, &processor)| estimate.period(processor, range.clone()));
            let longest = periods.clone().fold(0.0, f64::max);
            if longest >= period || within(period, longest) {
                continue;
            }
            let computes =
                ranges.iter().zip(&order).map(|(range, &processor)| problem.seconds(processor, range.clone()));
            let passes =
                ranges.iter().zip(&order).skip(1).map(|(range, &processor)| estimate.incoming(processor, range.start));
            let longer = computes.sum::<f64>() + passes.sum::<f64>() - before;
            let key = match take {
                Prefer::Period => longest,
                Prefer::Ratio => periods.map(|own| longer / (period - own)).fold(f64::NEG_INFINITY, f64::max),
            };
            if longer <= slack && best.as_ref().is_none_or(|best| key < best.0) {
                best = Some((key, ranges.iter().cloned().zip(order).collect()));
            }
        }
    }
    best.map(|(_, pairs)| pairs)
}

/// Returns all cuts of an interval into two or three parts.
fn cuts(interval: &Range<usize>, parts: usize) -> Vec<Vec<Range<usize>>> {
    let Range { start, end } = *interval;
    let pairs = (start + 1..end).map(|cut| vec![start..cut, cut..end]);
    if parts == 2 {
        return pairs.collect();
    }
    pairs
        .flat_map(|pair| (pair[0].end + 1..end).map(move |cut| vec![start..pair[0].end, pair[0].end..cut, cut..end]))
        .collect()
}

/// Returns all orders of two or three processors.
fn orders(processors: &[usize]) -> Vec<Vec<usize>> {
    match *processors {
        [a, b] => vec![vec![a, b], vec![b, a]],
        [a, b, c] => [[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]].map(Vec::from).into(),
        _ => Vec::new(),
    }
}
