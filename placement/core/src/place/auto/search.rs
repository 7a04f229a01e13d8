//! Search steps: rebuilds of windows of the schedule, and moves from its critical path.

use super::acceptance::LateAcceptance;
use super::assigned::Assigned;
use super::current::Current;
use super::estimate::Estimator;
use super::moves::{Block, draw};
use super::rebuild::{Builder, Weights};
use crate::place::evaluator::Evaluator;
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::random::Random;

/// Share of steps that rebuild a window; the others move a block.
const WINDOWS: f64 = 0.7;
/// Share of all tasks in the longest window.
const WIDEST: f64 = 0.15;
/// Greatest slack of a rebuilt task, as a share of the makespan.
const SLACKEST: f64 = 0.3;
/// Greatest noise in the rebuild of a window.
const NOISE: f64 = 0.5;
/// Number of blocks to compare before one moves.
const BLOCKS: usize = 24;
/// Relative amount by which an estimate may be lowered in a comparison, so that the choice of block varies.
const BLUR: f64 = 0.02;

/// Foresight and thrift of the full rebuilds. Each starts from the result of the one before; the last entry comes
/// first.
const FULL_REBUILDS: [(f64, f64); 9] =
    [(0.0, 0.0), (0.5, 0.0), (1.0, 0.0), (0.0, 0.5), (0.5, 0.5), (1.0, 0.5), (0.0, 1.0), (0.5, 1.0), (1.0, 1.0)];

/// Search that proceeds from one placement to the next.
pub(super) struct Search<'p> {
    problem: &'p Problem<'p>,
    random: Random,
    assigned: Assigned<'p>,
    /// Evaluation of `assigned`.
    evaluator: Evaluator<'p>,
    current: Current,
    tried: Assigned<'p>,
    /// Evaluation of `tried`.
    trial: Evaluator<'p>,
    builder: Builder<'p>,
    estimator: Estimator,
    /// Weights of the full rebuilds that remain.
    full_rebuilds: Vec<Weights>,
    acceptance: LateAcceptance,
    best: Vec<DeviceId>,
    best_makespan: f64,
    evaluations: u64,
}

impl<'p> Search<'p> {
    /// Starts from `device_of`, which must keep all constraints.
    pub(super) fn new(problem: &'p Problem<'p>, device_of: &[DeviceId], random: Random) -> Self {
        let assigned = Assigned::new(problem, device_of.to_vec());
        let mut search = Search {
            problem,
            random,
            tried: assigned.clone(),
            assigned,
            evaluator: Evaluator::new(problem),
            current: Current::default(),
            trial: Evaluator::new(problem),
            builder: Builder::new(problem),
            estimator: Estimator::new(problem.graph().task_count()),
            full_rebuilds: FULL_REBUILDS.map(|(foresight, thrift)| Weights { foresight, thrift, noise: 0.0 }).to_vec(),
            acceptance: LateAcceptance::new(f64::INFINITY),
            best: device_of.to_vec(),
            best_makespan: f64::INFINITY,
            evaluations: 0,
        };
        search.attempt(f64::INFINITY);
        search.acceptance = LateAcceptance::new(search.best_makespan);
        search
    }

    /// Tries one change of the current placement: first each kind of full rebuild, then smaller changes.
    pub(super) fn step(&mut self) {
        if let Some(weights) = self.full_rebuilds.pop() {
            return self.rebuild_all(weights);
        }
        let limit = self.acceptance.limit(self.current.makespan);
        if self.random.chance(WINDOWS) {
            self.rebuild_window(limit);
        } else {
            self.move_block(limit);
        }
        self.acceptance.end_step(self.current.makespan);
    }

    /// Rebuilds everything. After the last full rebuild the search continues from the best placement.
    fn rebuild_all(&mut self, weights: Weights) {
        let free = vec![true; self.problem.graph().unit_count()];
        self.rebuild(&free, weights, f64::INFINITY);
        if self.full_rebuilds.is_empty() {
            self.tried = Assigned::new(self.problem, self.best.clone());
            self.attempt(f64::INFINITY);
            self.acceptance = LateAcceptance::new(self.best_makespan);
        }
    }

    /// Rebuilds the units that have a task with little slack in some stretch of the schedule.
    fn rebuild_window(&mut self, limit: f64) {
        let graph = self.problem.graph();
        let placed = self.evaluator.placed();
        let sequence = self.evaluator.sequence();
        let widest = (WIDEST * graph.task_count() as f64).max(8.0);
        let length = widest.powf(self.random.uniform(0.4, 1.0)) as usize;
        let middle = self.random.below(sequence.len() as u64) as usize;
        let slack = SLACKEST * self.random.fraction().powi(2) * self.current.makespan;
        let window = sequence.iter().skip(middle.saturating_sub(length / 2));
        let mut free = vec![false; graph.unit_count()];
        for task in window.filter_map(|&item| placed.task(item)).take(length) {
            free[graph.unit(task).index()] |= self.current.slack(&self.evaluator, placed.item(task)) <= slack;
        }
        let weights = Weights {
            foresight: self.random.uniform(0.5, 1.0),
            thrift: self.random.fraction(),
            noise: NOISE * self.random.fraction(),
        };
        self.rebuild(&free, weights, limit);
    }

    fn rebuild(&mut self, free: &[bool], weights: Weights, limit: f64) {
        self.tried.copy_from(&self.assigned);
        self.builder.rebuild(&self.evaluator, free, weights, &mut self.tried, &mut self.random);
        self.attempt(limit);
    }

    /// Moves a block of the critical path to the device with the best estimate.
    fn move_block(&mut self, limit: f64) {
        let path = self.current.critical_path(&self.evaluator, &mut self.random);
        let mut best: Option<(f64, Block, DeviceId)> = None;
        for _ in 0..BLOCKS {
            let Some(block) = draw(&self.evaluator, &self.assigned, &path, &mut self.random) else { continue };
            if let Some((way, to)) = self.rate(&block)
                && best.as_ref().is_none_or(|(shortest, ..)| way < *shortest)
            {
                best = Some((way, block, to));
            }
        }
        let Some((_, block, to)) = best else {
            self.evaluations += 1;
            return;
        };
        self.tried.copy_from(&self.assigned);
        block.units.iter().for_each(|&unit| self.tried.move_unit(unit, to));
        self.attempt(limit);
    }

    /// Returns the best device for a block, and the longest path through the block there, slightly randomised.
    fn rate(&mut self, block: &Block) -> Option<(f64, DeviceId)> {
        let mut best: Option<(f64, DeviceId)> = None;
        for &to in &block.to {
            let way = self.estimator.estimate(&self.evaluator, &self.current, &block.tasks, to);
            let way = way * self.random.uniform(1.0 - BLUR, 1.0);
            if best.is_none_or(|(shortest, _)| way < shortest) {
                best = Some((way, to));
            }
        }
        best
    }

    /// Continues from the tried placement if its makespan is within the limit.
    fn attempt(&mut self, limit: f64) {
        self.evaluations += 1;
        let Some(makespan) = self.trial.evaluate(self.tried.device_of(), limit) else { return };
        std::mem::swap(&mut self.trial, &mut self.evaluator);
        std::mem::swap(&mut self.tried, &mut self.assigned);
        self.current.read(&self.evaluator);
        if makespan < self.best_makespan {
            self.best_makespan = makespan;
            self.best.copy_from_slice(self.assigned.device_of());
        }
    }

    /// Returns the number of evaluated placements, plus the steps that found none to evaluate.
    pub(super) fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// Returns the best placement.
    pub(super) fn best(&self) -> &[DeviceId] {
        &self.best
    }

    /// Returns the makespan of the best placement.
    pub(super) fn best_makespan(&self) -> f64 {
        self.best_makespan
    }
}
