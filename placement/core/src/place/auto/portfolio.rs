//! Every constructive strategy and the best split, each with its makespan under PCT.

use super::super::{PlaceError, Placement, Reason, STRATEGIES, strategy_by_name};
use super::simulated;
use super::split::split;
use crate::order::Pct;
use crate::place::evaluator::Evaluator;
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Names of the split into pieces and of the placement by levels where names of strategies stand.
const PIECES: &str = "pieces";
const LEVELS: &str = "levels";

/// A strategy's placement and its makespan under PCT.
pub(super) struct Entry {
    pub(super) makespan: f64,
    pub(super) placement: Placement,
}

/// Returns the placements of all strategies that find one, and the [split](split()), best first; on a tie, the first in
/// [`STRATEGIES`], and the split last.
///
/// # Errors
/// Returns the first strategy's error if nothing finds a placement.
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
    if let Some(device_of) = split(problem) {
        let makespan = evaluator.evaluate(&device_of, f64::INFINITY).unwrap_or(f64::INFINITY);
        let reasons = vec![Reason::Rule("device of its piece of the graph"); device_of.len()];
        entries.push(Entry { makespan, placement: Placement { strategy: PIECES, device_of, reasons, planned: None } });
    }
    entries.sort_by(|one, other| one.makespan.total_cmp(&other.makespan));
    match refusal {
        Some(error) if entries.is_empty() => Err(error),
        _ => Ok(entries),
    }
}

/// Enters the placement by levels.
///
/// # Errors
/// If the caller wants no placement any more.
pub(super) fn enter(
    problem: &Problem<'_>,
    entries: &mut Vec<Entry>,
    device_of: Vec<DeviceId>,
) -> Result<(), PlaceError> {
    let makespan = simulated(problem, &device_of, &Pct)?.makespan;
    let reasons = vec![Reason::Rule("device of its part of a smaller graph"); device_of.len()];
    entries.push(Entry { makespan, placement: Placement { strategy: LEVELS, device_of, reasons, planned: None } });
    entries.sort_by(|one, other| one.makespan.total_cmp(&other.makespan));
    Ok(())
}
