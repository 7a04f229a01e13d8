//! Every constructive strategy, each with its makespan under PCT.

use super::super::{PlaceError, Placement, STRATEGIES, strategy_by_name};
use crate::place::evaluator::Evaluator;
use crate::problem::Problem;

/// A strategy's placement and its makespan under PCT.
pub(super) struct Entry {
    pub(super) makespan: f64,
    pub(super) placement: Placement,
}

/// Returns the placements of all strategies that find one, best first; on a tie, the first in [`STRATEGIES`].
///
/// # Errors
/// Returns the first strategy's error if none finds a placement.
pub(super) fn portfolio(problem: &Problem<'_>) -> Result<Vec<Entry>, PlaceError> {
    let mut evaluator = Evaluator::new(problem);
    let mut entries = Vec::new();
    let mut refusal = None;
    for strategy in STRATEGIES.iter().filter_map(|&(name, _)| strategy_by_name(name)) {
        match strategy.place(problem) {
            Ok(placement) => {
                let makespan = evaluator.evaluate(&placement.device_of, f64::INFINITY).unwrap_or(f64::INFINITY);
                entries.push(Entry { makespan, placement });
            }
            Err(PlaceError::Interrupted) => return Err(PlaceError::Interrupted),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    entries.sort_by(|one, other| one.makespan.total_cmp(&other.makespan));
    match refusal {
        Some(error) if entries.is_empty() => Err(error),
        _ => Ok(entries),
    }
}
