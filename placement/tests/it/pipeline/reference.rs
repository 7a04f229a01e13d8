//! Enumeration of all mappings of small problems.

use anabranch_placement::pipeline::{Goal, Interval, Mapping, Performance, Problem, Sharing, evaluate};

/// Returns every valid mapping, with its performance.
pub(crate) fn all_mappings(problem: &Problem) -> Vec<(Mapping, Performance)> {
    let mut found = Vec::new();
    extend(problem, &mut Vec::new(), 0, &mut found);
    found
}

fn extend(problem: &Problem, intervals: &mut Vec<Interval>, used: u32, found: &mut Vec<(Mapping, Performance)>) {
    let start = intervals.last().map_or(0, |interval| interval.stages.end);
    if start == problem.stage_count() {
        let mapping = Mapping { intervals: intervals.clone() };
        found.extend(evaluate(problem, &mapping).ok().map(|performance| (mapping, performance)));
        return;
    }
    for set in (1u32..1 << problem.processor_count()).filter(|set| set & used == 0) {
        let processors: Vec<usize> = (0..problem.processor_count()).filter(|it| set >> it & 1 == 1).collect();
        let ways = match processors.len() {
            1 => vec![Sharing::Single],
            _ => vec![Sharing::Replicated, Sharing::DataParallel],
        };
        for end in start + 1..=problem.stage_count() {
            for &sharing in &ways {
                intervals.push(Interval { stages: start..end, processors: processors.clone(), sharing });
                extend(problem, intervals, used | set, found);
                intervals.pop();
            }
        }
    }
}

/// Returns the best performance for a goal.
pub(crate) fn best(all: &[(Mapping, Performance)], goal: Goal) -> Option<Performance> {
    let admitted = all.iter().map(|(_, performance)| *performance).filter(|&performance| goal.admits(performance));
    admitted.reduce(|best, next| if goal.prefers(next, best) { next } else { best })
}
