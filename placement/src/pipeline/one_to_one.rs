//! H5, *BS121*: the optimal mapping of one stage to each processor, by a search for the least period at which a
//! matching exists.
//!
//! For a given period, a stage and a processor either fit or do not. All stages find processors if the bipartite graph
//! has a matching that covers them. The paper scans the processors by speed; augmenting paths decide the question for
//! tables of times too. If there are fewer processors than stages, intervals of equal length replace stages. The result
//! is optimal if all links are identical; otherwise each transfer counts as over the slowest link.

use super::estimate::Estimate;
use super::greedy::{equal_lengths, one_each};
use super::mapping::Mapping;
use std::ops::Range;

/// Returns the mapping with the least period. `O(log(n p))` matchings of `O(n² p)`.
pub(super) fn h5(estimate: &Estimate<'_>) -> Option<Mapping> {
    let processors = &estimate.by_speed;
    let intervals = equal_lengths(estimate.problem.stage_count(), processors.len());
    let periods: Vec<Vec<f64>> = intervals
        .iter()
        .map(|stages| processors.iter().map(|&processor| estimate.period(processor, stages.clone())).collect())
        .collect();
    let mut candidates: Vec<f64> = periods.iter().flatten().copied().filter(|period| period.is_finite()).collect();
    candidates.sort_by(f64::total_cmp);
    candidates.dedup();
    let least = candidates.partition_point(|&period| matching(&periods, period).is_none());
    let matched = matching(&periods, *candidates.get(least)?)?;
    let pair = |(stages, place): (Range<usize>, usize)| (stages, processors[place]);
    Some(one_each(intervals.into_iter().zip(matched).map(pair).collect()))
}

/// Returns the column of each row, such that no period exceeds `most`.
fn matching(periods: &[Vec<f64>], most: f64) -> Option<Vec<usize>> {
    let mut row_of = vec![None; periods[0].len()];
    for row in 0..periods.len() {
        let mut seen = vec![false; row_of.len()];
        if !augment(periods, most, row, &mut row_of, &mut seen) {
            return None;
        }
    }
    let mut column_of = vec![0; periods.len()];
    for (column, row) in row_of.into_iter().enumerate() {
        if let Some(row) = row {
            column_of[row] = column;
        }
    }
    Some(column_of)
}

fn augment(periods: &[Vec<f64>], most: f64, row: usize, row_of: &mut [Option<usize>], seen: &mut [bool]) -> bool {
    // The slowest processors come last and are tried first, as in the paper's scan.
    for column in (0..row_of.len()).rev() {
        if periods[row][column] <= most && !std::mem::replace(&mut seen[column], true) {
            let free = match row_of[column] {
                None => true,
                Some(other) => augment(periods, most, other, row_of, seen),
            };
            if free {
                row_of[column] = Some(row);
                return true;
            }
        }
    }
    false
}
