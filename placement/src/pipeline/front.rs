//! The mappings of which none is better in period and latency both.

use super::choose::{ChooseOptions, Chosen, choose_with};
use super::evaluate::performance;
use super::exact;
use super::goal::{Goal, within};
use super::problem::Problem;

/// Periods at which the front is looked for where it cannot be proven.
const PERIODS: usize = 24;

/// The front, by ascending latency, and whether it is proven to be complete. Where the exact search does not finish, the least latency is sought
/// under periods from the least to that of the least latency.
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
