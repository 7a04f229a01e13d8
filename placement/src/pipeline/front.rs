//! Pareto front of mappings by period and latency.

use super::bound::lower_bound;
use super::choose::{ChooseError, ChooseOptions, Chosen, choose_with};
use super::evaluate::performance;
use super::exact;
use super::goal::{Goal, within};
use super::problem::Problem;

/// Number of periods to try if the front cannot be proven.
const PERIODS: usize = 24;

/// Returns the front, by ascending latency, and whether it is proven to be complete.
///
/// If the exact search does not finish, the least latency is sought under several periods: from the least period to the
/// period of the mapping with the least latency.
pub fn front(problem: &Problem, options: ChooseOptions) -> (Vec<Chosen>, bool) {
    if let Some(front) = exact::front(problem, options.exact) {
        let chosen = |mapping| {
            let performance = performance(problem, &mapping);
            Chosen { mapping, performance, lower_bound: performance.latency, how: "exact search", proven: true }
        };
        return (front.into_iter().map(chosen).collect(), true);
    }
    let of = |goal| choose_with(problem, goal, options).ok();
    let (Some(quickest), Some(fastest)) = (of(Goal::Latency), of(Goal::Period)) else { return (Vec::new(), false) };
    let (low, high) = (fastest.performance.period, quickest.performance.period);
    let mut found = vec![quickest, fastest];
    for step in 1..PERIODS {
        let period = low * (high / low).powf(step as f64 / PERIODS as f64);
        found.extend(of(Goal::LatencyWithin { period }));
    }
    found.sort_by(|a, b| {
        let key =
            |it: &Chosen| (crate::total::Total(it.performance.latency), crate::total::Total(it.performance.period));
        key(a).cmp(&key(b))
    });
    let mut front: Vec<Chosen> = Vec::new();
    for chosen in found {
        if front.last().is_none_or(|last| !within(last.performance.period, chosen.performance.period)) {
            front.push(chosen);
        }
    }
    (front, false)
}

/// Returns the better of `chosen` and the best of a front, whose search took longer. A front that is proven to be
/// complete contains the optimum.
///
/// # Errors
/// Returns the error in `chosen` if no mapping of the front keeps the goal's limits.
pub fn best_of(
    chosen: Result<Chosen, ChooseError>,
    (front, is_complete): (&[Chosen], bool),
    problem: &Problem,
    goal: Goal,
) -> Result<Chosen, ChooseError> {
    let better = |best: Result<Chosen, ChooseError>, next: &Chosen| match &best {
        Ok(best) if !goal.prefers(next.performance, best.performance) => Ok(best.clone()),
        // The proof of that mapping was for another goal.
        _ => Ok(Chosen { lower_bound: lower_bound(problem, goal), proven: false, ..next.clone() }),
    };
    let best = front.iter().filter(|found| goal.admits(found.performance)).fold(chosen, better)?;
    match is_complete {
        true => Ok(Chosen { lower_bound: goal.key(best.performance).0, proven: true, ..best }),
        false => Ok(best),
    }
}
