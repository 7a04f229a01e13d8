//! Auto: every constructive strategy, and then a local search from the best placement.
//!
//! First all strategies place, and their placements are evaluated under PCT. The best placement is then rebuilt as a
//! whole several times. After that the search changes it step by step. Most steps rebuild a stretch of the schedule;
//! the others move a block of the critical path to the device with the best estimate. Each change is evaluated exactly
//! as in the simulator, and late acceptance keeps or rejects it. The result is the best placement seen, so it is never
//! worse than any strategy's placement.
//!
//! A problem, a number of evaluations and a seed determine the placement on every machine. Memory: some vectors as long
//! as tasks, edges and transfers.

mod acceptance;
mod assigned;
mod current;
mod estimate;
mod evaluate;
mod moves;
mod portfolio;
mod rebuild;
mod search;

use super::{PlaceError, Placement, Placer, Reason};
use crate::bound::{LowerBound, lower_bound};
use crate::order::Pct;
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::random::Random;
use crate::schedule::Schedule;
use crate::simulate::{SimulateError, simulate};
use anabranch_base::interruption;
use portfolio::portfolio;
use search::Search;
use std::ops::RangeInclusive;

/// Total cost of all evaluations if no number is given: tasks and edges of each evaluation, times devices plus a
/// constant.
const COST: u64 = 6_000_000_000;
/// Cost of the work that does not depend on devices, as a number of devices.
const OTHER_COST: u64 = 100;
/// Fewest and most evaluations if no number is given.
const EVALUATIONS: RangeInclusive<u64> = 200..=10_000;

/// Strategy with a local search, and the limits of that search.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Auto {
    /// Number of placements that are evaluated after those of the strategies.
    ///
    /// `None` (default) means a number that suits the graph. It is ten thousand for hundreds of tasks, and a few
    /// hundred for tens of thousands of tasks on a hundred devices.
    pub evaluations: Option<u64>,
    /// Seed of the random numbers (default: 0).
    pub seed: u64,
}

/// Result of the search.
#[derive(Debug, Clone, PartialEq)]
pub struct Improved {
    /// The schedule of the best placement under PCT.
    pub schedule: Schedule,
    /// Lower bound of the makespan of all schedules.
    pub bound: LowerBound,
    /// Strategies that found a placement, with their makespans under PCT, best first.
    pub portfolio: Vec<(&'static str, f64)>,
    /// Different placements of the strategies and of the search, with their makespans, best first; never empty.
    pub different: Vec<(f64, Placement)>,
    /// Number of placements that the search evaluated.
    pub evaluations: u64,
}

impl Auto {
    /// Returns the most placements that are evaluated for `problem`. If no number is given, the time stays within about
    /// a minute for graphs of any size.
    pub fn budget(&self, problem: &Problem<'_>) -> u64 {
        self.evaluations.unwrap_or_else(|| {
            let size = (problem.graph().task_count() + problem.graph().edge_count()) as u64;
            let cost = size * (problem.platform().device_count() as u64 + OTHER_COST);
            (COST / cost.max(1)).clamp(*EVALUATIONS.start(), *EVALUATIONS.end())
        })
    }

    /// Searches from the best strategy's placement. After each step it calls `progress` with the number of evaluations
    /// and the least makespan.
    ///
    /// # Errors
    /// Returns an error if no strategy finds a placement.
    pub fn improve(&self, problem: &Problem<'_>, mut progress: impl FnMut(u64, f64)) -> Result<Improved, PlaceError> {
        let entries = portfolio(problem)?;
        let first = entries.first().expect("a portfolio is never empty");
        let bound = lower_bound(problem);
        let mut search = Search::new(problem, &first.placement.device_of, Random::new(self.seed));
        let evaluations = self.budget(problem);
        let movable = problem.graph().unit_ids().any(|unit| problem.only_feasible(unit).is_none());
        while movable && search.evaluations() < evaluations && search.best_makespan() > bound.value {
            if interruption::is_due() {
                return Err(PlaceError::Interrupted);
            }
            search.step();
            progress(search.evaluations(), search.best_makespan());
        }
        let schedule = match simulate(problem, search.best(), &Pct) {
            Ok(schedule) => schedule,
            Err(SimulateError::Interrupted) => return Err(PlaceError::Interrupted),
            Err(error) => unreachable!("every task is on a device that can run it, and PCT finds an order: {error}"),
        };
        let makespans = [first.makespan, schedule.makespan];
        let mut different = vec![(schedule.makespan, explain(self.name(), &first.placement, search.best(), makespans))];
        let portfolio = entries.iter().map(|entry| (entry.placement.strategy, entry.makespan)).collect();
        for entry in entries {
            if different.iter().all(|(_, known)| known.device_of != entry.placement.device_of) {
                different.push((entry.makespan, entry.placement));
            }
        }
        Ok(Improved { schedule, bound, portfolio, different, evaluations: search.evaluations() })
    }
}

impl Improved {
    /// Returns the best placement.
    pub fn placement(&self) -> &Placement {
        &self.different[0].1
    }
}

impl Placer for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        Ok(self.improve(problem, |_, _| {})?.placement().clone())
    }
}

/// Builds the placement `device_of`. Tasks that did not move keep the reasons of the strategy that the search started
/// from.
fn explain(strategy: &'static str, start: &Placement, device_of: &[DeviceId], makespans: [f64; 2]) -> Placement {
    let moved = device_of.iter().zip(&start.device_of).zip(&start.reasons);
    let reasons = moved.map(|((&to, &from), reason)| match to == from {
        true => reason.clone().credited(start.strategy),
        false => Reason::Moved { start: start.strategy, from, makespans },
    });
    Placement { strategy, device_of: device_of.to_vec(), reasons: reasons.collect(), planned: None }
}
