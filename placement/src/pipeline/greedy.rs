//! The paper's greedy heuristics, H1 to H4: they form intervals first and assign processors afterwards.
//!
//! | name | intervals | processors |
//! |---|---|---|
//! | H1a | of equal length | at random |
//! | H1b | of random lengths | at random |
//! | H2 | of equal length | most computation on the fastest |
//! | H3 | of equal length | most data in and out on the fastest |
//! | H4 | of equal length | the interval with the longest period on the fastest, then on the next, and so on |

use super::estimate::Estimate;
use super::mapping::{Interval, Mapping, Sharing};
use crate::random::Random;
use crate::total::Total;
use std::cmp::Reverse;
use std::ops::Range;

/// Divides stages into at most `most` intervals, all but the last of one length.
pub(super) fn equal_lengths(stages: usize, most: usize) -> Vec<Range<usize>> {
    let length = stages.div_ceil(most);
    (0..stages).step_by(length).map(|start| start..(start + length).min(stages)).collect()
}

fn random_lengths(stages: usize, most: usize, random: &mut Random) -> Vec<Range<usize>> {
    let count = random.between(&(1..=stages.min(most) as u64)) as usize;
    let mut cuts = std::collections::BTreeSet::from([0, stages]);
    while cuts.len() <= count {
        cuts.insert(random.between(&(1..=stages as u64 - 1)) as usize);
    }
    let cuts: Vec<usize> = cuts.into_iter().collect();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// Returns the mapping of each interval to the processor next to it.
pub(super) fn one_each(mut pairs: Vec<(Range<usize>, usize)>) -> Mapping {
    pairs.sort_by_key(|(stages, _)| stages.start);
    let interval = |(stages, processor)| Interval { stages, processors: vec![processor], sharing: Sharing::Single };
    Mapping { intervals: pairs.into_iter().map(interval).collect() }
}

pub(super) fn h1a(estimate: &Estimate<'_>, seed: u64) -> Mapping {
    let intervals = equal_lengths(estimate.problem.stage_count(), estimate.by_speed.len());
    at_random(estimate, intervals, &mut Random::stream(seed, 1))
}

pub(super) fn h1b(estimate: &Estimate<'_>, seed: u64) -> Mapping {
    let mut random = Random::stream(seed, 2);
    let intervals = random_lengths(estimate.problem.stage_count(), estimate.by_speed.len(), &mut random);
    at_random(estimate, intervals, &mut random)
}

fn at_random(estimate: &Estimate<'_>, intervals: Vec<Range<usize>>, random: &mut Random) -> Mapping {
    let mut processors = estimate.by_speed.clone();
    let mut draw = || processors.swap_remove(random.below(processors.len() as u64) as usize);
    one_each(intervals.into_iter().map(|interval| (interval, draw())).collect())
}

pub(super) fn h2(estimate: &Estimate<'_>) -> Mapping {
    let fastest = estimate.by_speed[0];
    greatest_first(estimate, |stages| estimate.problem.seconds(fastest, stages))
}

pub(super) fn h3(estimate: &Estimate<'_>) -> Mapping {
    let data = &estimate.problem.stages().data;
    greatest_first(estimate, |stages| data[stages.start] as f64 + data[stages.end] as f64)
}

fn greatest_first(estimate: &Estimate<'_>, key: impl Fn(Range<usize>) -> f64) -> Mapping {
    let mut intervals = equal_lengths(estimate.problem.stage_count(), estimate.by_speed.len());
    intervals.sort_by_key(|stages| Reverse(Total(key(stages.clone()))));
    one_each(intervals.into_iter().zip(estimate.by_speed.iter().copied()).collect())
}

pub(super) fn h4(estimate: &Estimate<'_>) -> Mapping {
    let mut intervals = equal_lengths(estimate.problem.stage_count(), estimate.by_speed.len());
    let mut pairs = Vec::new();
    for &processor in &estimate.by_speed {
        let longest = |&place: &usize| Total(estimate.period(processor, intervals[place].clone()));
        let Some(place) = (0..intervals.len()).rev().max_by_key(longest) else { break };
        pairs.push((intervals.remove(place), processor));
    }
    one_each(pairs)
}
