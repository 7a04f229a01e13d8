//! Runs the heuristics of the paper that map a pipeline's stages to processors. Also lists mappings of all stages to
//! one interval.

use super::estimate::Estimate;
use super::evaluate::{Performance, performance};
use super::goal::Goal;
use super::longest::Take;
use super::mapping::{Mapping, Sharing};
use super::problem::Problem;
use super::splitting::Prefer;
use super::weights::Weights;
use super::{equal, greedy, longest, one_to_one, splitting};

/// Names of the paper's heuristics, with descriptions.
pub const HEURISTICS: [(&str, &str); 12] = [
    ("h1a", "intervals of equal length on random processors"),
    ("h1b", "intervals of random lengths on random processors"),
    ("h2", "intervals of equal length, most computation on the fastest"),
    ("h3", "intervals of equal length, most data on the fastest"),
    ("h4", "intervals of equal length, the longest period on the fastest"),
    ("h5", "one-to-one by binary search (BS121)"),
    ("h6", "splitting the longest period (SPL, Sp mono)"),
    ("h6-bi", "splitting by latency for period (Sp bi)"),
    ("h6-3", "splitting in three (3-Explo mono)"),
    ("h6-3-bi", "splitting in three by latency for period (3-Explo bi)"),
    ("h7a", "binary search, longest intervals (BSL)"),
    ("h7b", "binary search, closest periods (BSC)"),
];

/// Returns the valid mappings of the heuristics, with their performance. If all stages are equal and nothing takes
/// time to transfer, the [dynamic programme](super::equal) follows under the name `equal`.
///
/// Heuristics without limits minimise the period. `seed` is the seed of the random heuristics.
pub fn heuristics(problem: &Problem, goal: Goal, seed: u64) -> Vec<(&'static str, Mapping, Performance)> {
    let valid = given(problem, goal, seed).into_iter().filter(|(_, mapping)| mapping.verify(problem).is_ok());
    valid.map(|(name, mapping)| (name, mapping.clone(), performance(problem, &mapping))).collect()
}

/// Returns the mapping of each heuristic, valid or not.
pub(super) fn given(problem: &Problem, goal: Goal, seed: u64) -> Vec<(&'static str, Mapping)> {
    let estimate = Estimate::new(problem);
    let bound = Weights::new(problem).bound();
    let found = |&(name, _): &(&'static str, _)| Some((name, heuristic(name, &estimate, goal, bound, seed)?));
    let equal = equal::mapping(problem, goal).map(|mapping| ("equal", mapping));
    HEURISTICS.iter().filter_map(found).chain(equal).collect()
}

fn heuristic(name: &str, estimate: &Estimate<'_>, goal: Goal, bound: f64, seed: u64) -> Option<Mapping> {
    match name {
        "h1a" => Some(greedy::h1a(estimate, seed)),
        "h1b" => Some(greedy::h1b(estimate, seed)),
        "h2" => Some(greedy::h2(estimate)),
        "h3" => Some(greedy::h3(estimate)),
        "h4" => Some(greedy::h4(estimate)),
        "h5" => one_to_one::h5(estimate),
        "h6" => splitting::h6(estimate, 2, Prefer::Period, goal),
        "h6-bi" => splitting::h6(estimate, 2, Prefer::Ratio, goal),
        "h6-3" => splitting::h6(estimate, 3, Prefer::Period, goal),
        "h6-3-bi" => splitting::h6(estimate, 3, Prefer::Ratio, goal),
        "h7a" => longest::h7(estimate, Take::Longest, bound),
        "h7b" => longest::h7(estimate, Take::Closest, bound),
        _ => None,
    }
}

/// Returns mappings of all stages to one interval: each processor alone, and the fastest processors shared, in every
/// number.
pub(super) fn whole(problem: &Problem) -> Vec<(&'static str, Mapping)> {
    let (stages, by_speed) = (problem.stage_count(), Estimate::new(problem).by_speed);
    let single = |&processor: &usize| ("one processor", Mapping::whole(stages, vec![processor], Sharing::Single));
    let mut all: Vec<(&'static str, Mapping)> = by_speed.iter().map(single).collect();
    let members = |team: &Vec<usize>| by_speed.iter().copied().filter(|it| team.contains(it)).collect();
    let teams: Vec<Vec<usize>> = match problem.processors().teams() {
        [] => vec![by_speed.clone()],
        teams => teams.iter().map(members).collect(),
    };
    for count in 2..=by_speed.len() {
        all.push(("replicated", Mapping::whole(stages, by_speed[..count].to_vec(), Sharing::Replicated)));
        let groups = teams.iter().filter_map(|team| team.get(..count));
        all.extend(
            groups.map(|group| ("data-parallel", Mapping::whole(stages, group.to_vec(), Sharing::DataParallel))),
        );
    }
    all
}
