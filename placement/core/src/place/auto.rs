//! Auto: every constructive strategy, and then a local search from the best placement.
//!
//! First all strategies place. If memory is limited, so does a dynamic programme that splits the graph into contiguous
//! pieces. A large graph is also placed by levels, from a contracted graph to the whole graph. In this case the
//! searches below have half of their steps. All placements are evaluated under PCT.
//!
//! The best placement is then rebuilt as a whole several times. After that the first search changes it step by step.
//! Most steps rebuild a stretch of the schedule; the others move a block of the critical path to the device with the
//! best estimate. Each of these changes is evaluated exactly as in the simulator, and late acceptance keeps or rejects
//! it.
//!
//! The second search changes sequences of tasks together with their devices, by simulated annealing. It starts from the
//! best schedule so far. It knows neither contention nor costs of sends. So its result is simulated under the rules of
//! the problem, with an order that devices keep exactly. It replaces the placement if it is shorter.
//!
//! The result is the best seen, so it is never worse than any strategy's placement under PCT.
//!
//! A problem, a number of evaluations and a seed determine the placement on every machine. Memory: some vectors as long
//! as tasks, edges and transfers.

mod acceptance;
mod assigned;
mod current;
mod estimate;
mod inputs;
mod levels;
mod moves;
mod portfolio;
mod rebuild;
mod search;
mod sequence;
mod split;

use super::{AUTO, PlaceError, Placement, Placer, Reason};
use crate::bound::{LowerBound, lower_bound};
use crate::order::{InOrder, Order, Pct};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::random::Random;
use crate::rules::Rules;
use crate::schedule::Schedule;
use crate::simulate::{SimulateError, simulate};
use anabranch_base::interruption;
use levels::Levels;
use portfolio::{Entry, portfolio};
use search::Search;
use sequence::{Sequence, SequenceSearch};
use std::ops::RangeInclusive;

/// Total cost of all evaluations if no number is given: tasks and edges of each evaluation, times devices plus a
/// constant.
const COST: u64 = 6_000_000_000;
/// Cost of the work that does not depend on devices, as a number of devices.
const OTHER_COST: u64 = 100;
/// Fewest and most evaluations if no number is given.
const EVALUATIONS: RangeInclusive<u64> = 200..=10_000;
/// Number of steps of the search over sequences for each evaluation of the search over placements.
const STEPS: u64 = 80;
/// Rounds of that search. Each starts warm again from the best sequence.
const ROUNDS: u64 = 8;
/// Tasks and edges of the steps of that search between two looks for an interruption.
const INTERRUPTION: u64 = 1 << 22;
/// Least relative improvement by which a sequence replaces a placement under PCT.
const PRECISION: f64 = 1e-12;

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
    /// Strategies that found a placement, with their makespans under PCT, best first. The name `pieces` is that of the
    /// split into contiguous pieces, and `levels` that of the placement by levels.
    pub portfolio: Vec<(&'static str, f64)>,
    /// Placements of the strategies and of the searches, with their makespans, best first; never empty. They differ in
    /// devices, but for the first two: these may have the same devices in another order.
    pub different: Vec<(f64, Placement)>,
    /// Number of placements that the search evaluated.
    pub evaluations: u64,
}

impl Auto {
    /// Returns the most placements that are evaluated for `problem`. If no number is given, the time stays within about
    /// a minute for graphs of any size.
    pub fn budget(&self, problem: &Problem<'_>) -> u64 {
        self.evaluations.unwrap_or_else(|| (COST / cost(problem)).clamp(*EVALUATIONS.start(), *EVALUATIONS.end()))
    }

    /// Searches from the best strategy's placement. It calls `progress` with the number of evaluations and the least
    /// makespan: after each step of the first search, and if the second search finds a shorter schedule.
    ///
    /// # Errors
    /// Returns an error if no strategy finds a placement.
    pub fn improve(&self, problem: &Problem<'_>, progress: impl FnMut(u64, f64)) -> Result<Improved, PlaceError> {
        self.improve_until(problem, &|| false, progress)
    }

    /// Searches as [`Auto::improve`], but ends with the best placement so far once `over` says so.
    pub(super) fn improve_until(
        &self,
        problem: &Problem<'_>,
        over: &dyn Fn() -> bool,
        mut progress: impl FnMut(u64, f64),
    ) -> Result<Improved, PlaceError> {
        let mut entries = portfolio(problem)?;
        let movable = problem.graph().unit_ids().any(|unit| problem.only_feasible(unit).is_none());
        let mut evaluations = if movable { self.budget(problem) } else { 0 };
        let levels = Levels { seed: self.seed, cost: evaluations.saturating_mul(cost(problem)), over };
        let by_levels = if evaluations > 0 { levels.place(problem)? } else { None };
        if let Some(device_of) = by_levels {
            evaluations = evaluations.div_ceil(2);
            portfolio::enter(problem, &mut entries, device_of)?;
        }
        let first = entries.first().expect("a portfolio is never empty");
        let bound = lower_bound(problem);
        let mut search = Search::new(problem, &first.placement.device_of, Random::new(self.seed));
        explored(&mut search, evaluations, bound.value, over, &mut progress)?;
        let mut schedule = simulated(problem, search.best(), &Pct)?;
        let explained = |device_of: &[DeviceId], makespan| {
            explain(self.name(), &first.placement, device_of, [first.makespan, makespan])
        };
        let mut different = vec![(schedule.makespan, explained(search.best(), schedule.makespan))];
        if evaluations > 0 && schedule.makespan > bound.value {
            let start = Sequence::of(shortest(problem, &schedule, &entries));
            let found = self.in_sequence(problem, start, bound.value, evaluations.saturating_mul(STEPS), over)?;
            let strict = simulated(problem, &found.device_of, &InOrder::new(&found.order))?;
            if strict.makespan < schedule.makespan * (1.0 - PRECISION) {
                let placement = explained(&found.device_of, strict.makespan);
                let placement = Placement { planned: Some(strict.clone()), ..placement };
                different.insert(0, (strict.makespan, placement));
                schedule = strict;
                progress(search.evaluations(), schedule.makespan);
            }
        }
        let portfolio = entries.iter().map(|entry| (entry.placement.strategy, entry.makespan)).collect();
        for entry in entries {
            if different.iter().all(|(_, known)| known.device_of != entry.placement.device_of) {
                different.push((entry.makespan, entry.placement));
            }
        }
        Ok(Improved { schedule, bound, portfolio, different, evaluations: search.evaluations() })
    }

    /// Searches over sequences from `start` on for a number of steps, or until the bound is reached.
    fn in_sequence(
        &self,
        problem: &Problem<'_>,
        start: Sequence,
        bound: f64,
        steps: u64,
        over: &dyn Fn() -> bool,
    ) -> Result<Sequence, PlaceError> {
        let Some(mut search) = SequenceSearch::new(problem, start.clone(), Random::stream(self.seed, 1)) else {
            return Ok(start);
        };
        let round = (steps / ROUNDS).max(1);
        let size = (problem.graph().task_count() + problem.graph().edge_count()) as u64;
        let look = (INTERRUPTION / size.max(1)).max(1);
        for step in 0..steps {
            if search.best_makespan() <= bound {
                break;
            }
            if step.is_multiple_of(look) {
                if interruption::is_due() {
                    return Err(PlaceError::Interrupted);
                }
                if over() {
                    break;
                }
            }
            if step % round == 0 {
                search.return_to_best();
            }
            search.step(step / round, (step % round) as f64 / round as f64);
        }
        Ok(search.best().clone())
    }
}

/// Returns the cost of an evaluation.
fn cost(problem: &Problem<'_>) -> u64 {
    let size = (problem.graph().task_count() + problem.graph().edge_count()) as u64;
    (size * (problem.platform().device_count() as u64 + OTHER_COST)).max(1)
}

/// Searches for a number of evaluations, until the bound is reached or `over` says so.
fn explored(
    search: &mut Search<'_>,
    evaluations: u64,
    bound: f64,
    over: &dyn Fn() -> bool,
    mut progress: impl FnMut(u64, f64),
) -> Result<(), PlaceError> {
    while search.evaluations() < evaluations && search.best_makespan() > bound && !over() {
        if interruption::is_due() {
            return Err(PlaceError::Interrupted);
        }
        search.step();
        progress(search.evaluations(), search.best_makespan());
    }
    Ok(())
}

/// Returns the shortest of `schedule` and the plans of the strategies. Plans count neither contention nor costs of
/// sends, so they are left out under such rules.
fn shortest<'a>(problem: &Problem<'_>, schedule: &'a Schedule, entries: &'a [Entry]) -> &'a Schedule {
    let plans = entries.iter().filter_map(|entry| entry.placement.planned.as_ref());
    let plans = plans.filter(|plan| *problem.rules() == Rules::default() && plan.makespan < schedule.makespan);
    plans.min_by(|one, other| one.makespan.total_cmp(&other.makespan)).unwrap_or(schedule)
}

/// Simulates a placement that keeps all constraints.
pub(super) fn simulated(
    problem: &Problem<'_>,
    device_of: &[DeviceId],
    order: &dyn Order,
) -> Result<Schedule, PlaceError> {
    match simulate(problem, device_of, order) {
        Ok(schedule) => Ok(schedule),
        Err(SimulateError::Interrupted) => Err(PlaceError::Interrupted),
        Err(error) => unreachable!("every task is on a device that can run it, after its inputs: {error}"),
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
        AUTO
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
