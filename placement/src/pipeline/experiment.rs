//! The four experiments of Benoit and Robert (*Plan of experiments*): the distance of each heuristic from the optimum
//! and the bound. Chains and processors are random; all links are identical.
//!
//! Speeds are from 1 to 20 and the bandwidth is 10. Mappings are interval mappings without replication, as in the
//! slides.

use super::bound::lower_bound;
use super::choose::choose;
use super::exact::{Exact, ExactOptions, optimum};
use super::goal::Goal;
use super::heuristics::{HEURISTICS, heuristics};
use super::problem::{Problem, ProblemError, Rules};
use super::processors::{Link, Processors};
use super::stages::{Stage, Stages};
use super::{Performance, evaluate};
use crate::random::Random;
use std::ops::RangeInclusive;

/// Distributions of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// `e1` to `e4`.
    pub name: &'static str,
    /// Title in the slides.
    pub about: &'static str,
    /// Sizes of data, uniformly distributed.
    data: RangeInclusive<u64>,
    /// Work of stages, uniformly distributed.
    work: RangeInclusive<u64>,
    /// Size of one unit of work.
    unit: f64,
}

/// The experiments of the slides. Work is drawn in whole numbers; in the last experiment, with work from 0.01 to 10, in
/// hundredths.
pub const EXPERIMENTS: [Experiment; 4] = [
    Experiment { name: "e1", about: "balanced, alike communications", data: 10..=10, work: 1..=20, unit: 1.0 },
    Experiment { name: "e2", about: "balanced, different communications", data: 1..=100, work: 1..=20, unit: 1.0 },
    Experiment { name: "e3", about: "large computations", data: 1..=20, work: 10..=1000, unit: 1.0 },
    Experiment { name: "e4", about: "small computations", data: 1..=20, work: 1..=1000, unit: 0.01 },
];

const BANDWIDTH: f64 = 10.0;
const SPEEDS: RangeInclusive<u64> = 1..=20;

impl Experiment {
    /// Draws a random chain on random processors.
    ///
    /// # Errors
    /// Returns an error if there are no stages or processors, or too many.
    pub fn problem(&self, stages: usize, processors: usize, seed: u64) -> Result<Problem, ProblemError> {
        let mut random = Random::stream(seed, 0x5003);
        let speeds: Vec<f64> = (0..processors).map(|_| random.between(&SPEEDS) as f64).collect();
        let stage = |number: usize| {
            Stage::of_work(format!("S{}", number + 1), random.between(&self.work) as f64 * self.unit, &speeds)
        };
        let list = (0..stages).map(stage).collect();
        let data = (0..=stages).map(|_| random.between(&self.data)).collect();
        let names = (0..processors).map(|number| format!("P{}", number + 1)).collect();
        let processors = Processors::uniform(names, Link { latency: 0.0, bandwidth: BANDWIDTH });
        Problem::new(Stages::new(list, data), processors, Rules { replication: false, ..Rules::default() })
    }
}

/// Objective of an experiment. Limits are factors of the least possible value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sought {
    /// The least period.
    Period,
    /// The least period, with a latency of at most this factor of the least latency.
    PeriodWithin(f64),
    /// The least latency, with a period of at most this factor of the least known period.
    LatencyWithin(f64),
}

/// Results on one problem.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Optimum of the objective, if it was proven.
    pub optimum: Option<f64>,
    /// Lower bound of the objective.
    pub lower_bound: f64,
    /// Objective reached by each heuristic, and by `choose` in the last entry; `None` if the limit is not kept.
    pub reached: Vec<(&'static str, Option<f64>)>,
}

/// Runs every heuristic and [`choose`] on a problem; returns `None` if no mapping is found from which to derive the
/// limit.
pub fn trial(problem: &Problem, sought: Sought, exact: ExactOptions, seed: u64) -> Option<Trial> {
    let goal = goal(problem, sought, exact)?;
    let key = |performance: Performance| goal.admits(performance).then(|| goal.key(performance).0);
    let found = heuristics(problem, goal, seed);
    let of = |&(name, _): &(&'static str, &str)| {
        (name, found.iter().find(|(other, ..)| *other == name).and_then(|(.., performance)| key(*performance)))
    };
    let mut reached: Vec<(&'static str, Option<f64>)> = HEURISTICS.iter().map(of).collect();
    let chosen = choose(problem, goal).ok();
    let known = chosen.as_ref().map_or(f64::INFINITY, |chosen| chosen.performance.period);
    reached.push(("choose", chosen.map(|chosen| goal.key(chosen.performance).0)));
    Some(Trial { optimum: least(problem, goal, known, exact), lower_bound: lower_bound(problem, goal), reached })
}

fn goal(problem: &Problem, sought: Sought, exact: ExactOptions) -> Option<Goal> {
    let of = |goal| Some((choose(problem, goal).ok()?, goal));
    Some(match sought {
        Sought::Period => Goal::Period,
        Sought::PeriodWithin(factor) => {
            Goal::PeriodWithin { latency: factor * of(Goal::Latency)?.0.performance.latency }
        }
        Sought::LatencyWithin(factor) => {
            let (chosen, goal) = of(Goal::Period)?;
            let known = chosen.performance.period;
            Goal::LatencyWithin { period: factor * least(problem, goal, known, exact).unwrap_or(known) }
        }
    })
}

fn least(problem: &Problem, goal: Goal, known: f64, exact: ExactOptions) -> Option<f64> {
    match optimum(problem, goal, known, exact) {
        Exact::Optimum(mapping) => evaluate(problem, &mapping).ok().map(|performance| goal.key(performance).0),
        Exact::Infeasible | Exact::Unknown => None,
    }
}
