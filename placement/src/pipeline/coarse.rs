//! Coarser chain with fewer stages, for which the exact search is feasible.

use super::mapping::Mapping;
use super::problem::Problem;
use super::stages::{Stage, Stages};
use crate::total::Total;

/// Problem whose stages are runs of the stages of another problem.
#[derive(Debug)]
pub(super) struct Coarse {
    pub(super) problem: Problem,
    /// First stage of each run; the last entry is the number of stages.
    starts: Vec<usize>,
}

impl Coarse {
    /// Joins the two neighbours with the least common time until `most` stages are left. Returns `None` if the chain is
    /// short enough already, or if no processor can run one of the runs. `O(stages² × processors)`.
    pub(super) fn new(problem: &Problem, most: usize) -> Option<Self> {
        if problem.stage_count() <= most {
            return None;
        }
        let mut starts: Vec<usize> = (0..=problem.stage_count()).collect();
        while starts.len() > most + 1 {
            let seconds = |&place: &usize| Total(least_seconds(problem, starts[place - 1], starts[place + 1]));
            let place = (1..starts.len() - 1).min_by_key(seconds)?;
            starts.remove(place);
        }
        let stages = starts.windows(2).map(|run| joined(problem, run[0], run[1])).collect();
        let data = starts.iter().map(|&start| problem.stages().data[start]).collect();
        let problem = Problem::new(Stages::new(stages, data), problem.processors().clone(), problem.rules()).ok()?;
        Some(Coarse { problem, starts })
    }

    /// Translates a mapping of the runs to the stages of the original chain.
    pub(super) fn fine(&self, mut mapping: Mapping) -> Mapping {
        for interval in &mut mapping.intervals {
            interval.stages = self.starts[interval.stages.start]..self.starts[interval.stages.end];
        }
        mapping
    }
}

fn least_seconds(problem: &Problem, start: usize, end: usize) -> f64 {
    (0..problem.processor_count()).map(|it| problem.seconds(it, start..end)).fold(f64::INFINITY, f64::min)
}

fn joined(problem: &Problem, start: usize, end: usize) -> Stage {
    let run = &problem.stages().stages[start..end];
    let time = |processor| Some(problem.seconds(processor, start..end)).filter(|seconds| seconds.is_finite());
    // The share is that of the first processor that can run the stages. It may be inexact, because the resulting
    // mapping is evaluated on the original stages.
    let able = (0..problem.processor_count()).find(|&processor| problem.seconds(processor, start..end) > 0.0);
    let share = able.map_or(0.0, |it| problem.serial_seconds(it, start..end) / problem.seconds(it, start..end));
    Stage {
        name: run[0].name.clone(),
        kind: run.iter().map(|stage| stage.kind).min().unwrap_or_default(),
        times: (0..problem.processor_count()).map(time).collect(),
        serial: share.clamp(0.0, 1.0),
        weights: run.iter().fold(0, |sum, stage| sum.saturating_add(stage.weights)),
        activations: run.iter().map(|stage| stage.activations).max().unwrap_or(0),
    }
}
