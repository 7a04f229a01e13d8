//! Auto: every constructive strategy, and then a search from the best of them.
//!
//! First all strategies place, and what each comes to under PCT is evaluated. The best placement is then rebuilt as a whole, several
//! times over, and after that changed step by step: mostly a stretch of the schedule is rebuilt, else a block of the critical path
//! moves to where it is estimated best. Each change is evaluated as the simulator would, and taken or left by late acceptance.
//! The result is the best placement that was seen, so that it is never worse than any strategy's.
//!
//! A problem, a number of evaluations and a seed give the same placement on every machine. Memory: some vectors as long as
//! tasks, edges and transfers.

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

/// What all evaluations cost together where no number is given: tasks and edges of each, times devices and a constant.
const COST: u64 = 6_000_000_000;
/// Devices that cost as much as all that has nothing to do with devices.
const OTHER_COST: u64 = 100;
/// Fewest and most evaluations where no number is given.
const EVALUATIONS: RangeInclusive<u64> = 200..=10_000;

/// The search, and how far it goes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Auto {
    /// Placements that are evaluated after those of the strategies; `None` for a number that suits the graph, from ten thousand
    /// for hundreds of tasks to a few hundred for tens of thousands on a hundred devices.
    pub evaluations: Option<u64>,
    /// Of the random numbers that it draws.
    pub seed: u64,
}

/// What the search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Improved {
    /// The schedule of the best placement under PCT.
    pub schedule: Schedule,
    /// What no schedule can beat.
    pub bound: LowerBound,
    /// The strategies that found a placement, with their makespans under PCT, best first.
    pub portfolio: Vec<(&'static str, f64)>,
    /// The different placements among those and what the search made of them, with their makespans, best first: at least one.
    pub different: Vec<(f64, Placement)>,
    /// Placements that were evaluated beyond those.
    pub evaluations: u64,
}

impl Auto {
    /// Placements that are evaluated for `problem` at most. Where no number is given, as many as keep the time within about a
    /// minute whatever the size of the graph.
    pub fn budget(&self, problem: &Problem<'_>) -> u64 {
        self.evaluations.unwrap_or_else(|| {
            let size = (problem.graph().task_count() + problem.graph().edge_count()) as u64;
            let cost = size * (problem.platform().device_count() as u64 + OTHER_COST);
            (COST / cost.max(1)).clamp(*EVALUATIONS.start(), *EVALUATIONS.end())
        })
    }

    /// Searches; `progress` is told how many evaluations are done and what the least makespan is.
    ///
    /// # Errors
    /// Where no strategy finds a placement.
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
    /// The best placement.
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

/// The placement `device_of`, where tasks that did not move keep the reasons of the strategy that the search started from.
fn explain(strategy: &'static str, start: &Placement, device_of: &[DeviceId], makespans: [f64; 2]) -> Placement {
    let moved = device_of.iter().zip(&start.device_of).zip(&start.reasons);
    let reasons = moved.map(|((&to, &from), reason)| match to == from {
        true => reason.clone().credited(start.strategy),
        false => Reason::Moved { start: start.strategy, from, makespans },
    });
    Placement { strategy, device_of: device_of.to_vec(), reasons: reasons.collect(), planned: None }
}
