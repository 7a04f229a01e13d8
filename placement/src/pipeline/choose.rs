//! Choice of a good mapping for a goal within a few milliseconds.
//!
//! The methods run in this order: heuristics, whole chains replicated, the exact search of a coarser chain, all of this
//! without replicas, and a local search from the best of these. At the end the exact search of the chain itself runs
//! until its steps are used up.

use super::bound::lower_bound;
use super::coarse::Coarse;
use super::evaluate::Performance;
use super::exact::{Exact, ExactOptions, optimum};
use super::goal::{Goal, within};
use super::heuristics::{given, whole};
use super::improve::{Candidate, improve};
use super::mapping::Mapping;
use super::problem::{Problem, Rules};

/// Chosen mapping, with its performance and a lower bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// The mapping.
    pub mapping: Mapping,
    /// Period and latency of the mapping, in seconds.
    pub performance: Performance,
    /// Lower bound over all mappings: a period or a latency in seconds, as the goal has it.
    pub lower_bound: f64,
    /// Name of the method that found the mapping.
    pub how: &'static str,
    /// Whether the mapping is proven to be optimal, up to a part in 10^12.
    pub proven: bool,
}

/// Reason why no mapping was chosen.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ChooseError {
    /// No mapping was found that runs every stage and keeps the memory limits. A mapping may still exist if intervals
    /// share memories, because packing them is as hard as bin packing.
    #[error(
        "no mapping was found that runs every stage within the memory limits; allow more memory or other processors"
    )]
    NoMapping,
    /// The limit on period or latency cannot be reached.
    #[error(
        "no mapping was found within the limit; the nearest has a period of {} s and a latency of {} s",
        nearest.period,
        nearest.latency
    )]
    OutOfReach {
        /// Performance of the mapping that comes nearest to the limit.
        nearest: Performance,
    },
}

/// Effort of the search. The defaults take some milliseconds for 60 stages and 17 processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChooseOptions {
    /// Number of neighbours that the local search evaluates, over all its starts (default: 2000).
    pub neighbours: usize,
    /// Limits of the exact search (default: 100,000 steps).
    pub exact: ExactOptions,
}

impl Default for ChooseOptions {
    fn default() -> Self {
        ChooseOptions { neighbours: 2000, exact: ExactOptions { steps: 100_000 } }
    }
}

/// Number of stages of the coarser chain.
const COARSE: usize = 16;
/// Number of mappings from which the local search starts.
const STARTS: usize = 3;

/// Chooses a mapping for a goal with the default options. The result is deterministic.
///
/// # Errors
/// Returns [`ChooseError::NoMapping`] if no mapping runs everything, and [`ChooseError::OutOfReach`] if none keeps the
/// goal's limits.
pub fn choose(problem: &Problem, goal: Goal) -> Result<Chosen, ChooseError> {
    choose_with(problem, goal, ChooseOptions::default())
}

/// Chooses a mapping for a goal.
///
/// # Errors
/// As [`choose`].
pub fn choose_with(problem: &Problem, goal: Goal, options: ChooseOptions) -> Result<Chosen, ChooseError> {
    let bound = lower_bound(problem, goal);
    let best = search(problem, goal, options, bound);
    let known = best
        .as_ref()
        .filter(|best| goal.admits(best.performance))
        .map_or(f64::INFINITY, |best| best.performance.period);
    let reached = |best: &Candidate| best.is_admitted(goal) && within(goal.key(best.performance).0, bound);
    let (best, proven) = match best {
        Some(best) if reached(&best) => (Some(best), true),
        best => match optimum(problem, goal, known, options.exact) {
            Exact::Optimum(mapping) => (Candidate::new(problem, mapping, "exact search").or(best), true),
            Exact::Infeasible | Exact::Unknown => (best, false),
        },
    };
    let Candidate { mapping, performance, how, .. } =
        best.filter(|best| best.excess == 0).ok_or(ChooseError::NoMapping)?;
    if !goal.admits(performance) {
        return Err(ChooseError::OutOfReach { nearest: performance });
    }
    let lower_bound = if proven { goal.key(performance).0 } else { bound.min(goal.key(performance).0) };
    Ok(Chosen { mapping, performance, lower_bound, how, proven })
}

/// Returns the best mapping of all methods but the exact search of the whole chain.
fn search(problem: &Problem, goal: Goal, options: ChooseOptions, bound: f64) -> Option<Candidate> {
    let found = given(problem, goal, 0);
    let candidate = |(how, mapping)| Candidate::new(problem, mapping, how);
    let mut candidates: Vec<Candidate> = whole(problem).into_iter().chain(found).filter_map(candidate).collect();
    candidates.extend(coarse(problem, goal, options));
    candidates.extend(without_replicas(problem, goal, options));
    let mut starts = Vec::new();
    while starts.len() < STARTS && !candidates.is_empty() {
        let better =
            |best: usize, next: usize| if candidates[next].beats(&candidates[best], goal) { next } else { best };
        let best = (1..candidates.len()).fold(0, better);
        let next = candidates.swap_remove(best);
        candidates.retain(|other| other.mapping != next.mapping);
        starts.push(next);
    }
    let mut best: Option<Candidate> = None;
    for start in starts {
        let better =
            |found: &Candidate, best: &Option<Candidate>| best.as_ref().is_none_or(|best| found.beats(best, goal));
        if better(&start, &best) {
            best = Some(start.clone());
        }
        if best
            .as_ref()
            .is_some_and(|best| goal.admits(best.performance) && within(goal.key(best.performance).0, bound))
        {
            return best;
        }
        let found = improve(problem, start, goal, options.neighbours / STARTS);
        if better(&found, &best) {
            best = Some(found);
        }
    }
    best
}

/// Returns the mapping that is chosen if nothing may be replicated, as far as something may: the smaller space is
/// searched further.
fn without_replicas(problem: &Problem, goal: Goal, options: ChooseOptions) -> Option<Candidate> {
    if !problem.rules().replication {
        return None;
    }
    let rules = Rules { replication: false, ..problem.rules() };
    let single = Problem::new(problem.stages().clone(), problem.processors().clone(), rules).ok()?;
    let chosen = choose_with(&single, goal, options).ok()?;
    Candidate::new(problem, chosen.mapping, chosen.how)
}

fn coarse(problem: &Problem, goal: Goal, options: ChooseOptions) -> Option<Candidate> {
    let coarse = Coarse::new(problem, COARSE)?;
    match optimum(&coarse.problem, goal, f64::INFINITY, options.exact) {
        Exact::Optimum(mapping) => Candidate::new(problem, coarse.fine(mapping), "exact search of a coarser chain"),
        Exact::Infeasible | Exact::Unknown => None,
    }
}
