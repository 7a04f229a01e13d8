//! The search: moves from the critical path of the current schedule, most promising first, accepted late.
//!
//! A move is accepted where its makespan is no greater than the current one, or than the current one of some steps ago (late
//! acceptance, Burke and Bykov 2017): worse schedules are let in at first and fewer and fewer of them later, with no
//! temperature to set. The evaluation of a move that is not accepted ends early.

use super::current::Current;
use super::estimate::Estimator;
use super::evaluate::Evaluator;
use super::moves::{Block, Left, draw};
use crate::generate::Random;
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::simulate::SimulateOptions;

/// Blocks that are drawn in a round.
const BLOCKS: usize = 12;
/// Moves of a round that are evaluated.
const TRIED: usize = 4;
/// Steps that acceptance looks back.
const HISTORY: usize = 64;

/// A search that goes on from one placement to the next.
pub(super) struct Search<'p> {
    problem: &'p Problem<'p>,
    random: Random,
    /// The evaluation of the current placement.
    evaluator: Evaluator<'p>,
    trial: Evaluator<'p>,
    current: Current,
    estimator: Estimator,
    builder: super::rebuild::Builder<'p>,
    device_of: Vec<DeviceId>,
    left: Left,
    history: Vec<f64>,
    steps: u64,
    best: (f64, Vec<DeviceId>),
}

impl<'p> Search<'p> {
    /// Starts from `device_of`, which must keep all constraints.
    pub(super) fn new(
        problem: &'p Problem<'p>,
        options: SimulateOptions,
        device_of: Vec<DeviceId>,
        random: Random,
    ) -> Self {
        let mut evaluator = Evaluator::new(problem, options);
        let makespan = evaluator.evaluate(&device_of, f64::INFINITY).unwrap_or(f64::INFINITY);
        let mut current = Current::default();
        current.read(&evaluator);
        Search {
            problem,
            random,
            evaluator,
            trial: Evaluator::new(problem, options),
            current,
            estimator: Estimator::new(problem.graph().task_count()),
            builder: super::rebuild::Builder::new(problem),
            left: Left::of(problem, &device_of),
            history: vec![makespan; HISTORY],
            steps: 0,
            best: (makespan, device_of.clone()),
            device_of,
        }
    }

    /// The best placement so far, and its makespan.
    pub(super) fn best(&self) -> (f64, &[DeviceId]) {
        (self.best.0, &self.best.1)
    }

    /// Tries some moves of one critical path, until one is accepted; returns how many were evaluated.
    pub(super) fn round(&mut self) -> u64 {
        let path = self.current.critical_path(&self.evaluator, &mut self.random);
        let mut moves = Vec::new();
        for _ in 0..BLOCKS {
            if let Some(block) = draw(&self.evaluator, &path, &mut self.random) {
                self.rate(block, &mut moves);
            }
        }
        moves.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut evaluated = 0;
        for (_, block, to) in moves.into_iter().take(TRIED) {
            evaluated += 1;
            if self.attempt(&block, to) {
                break;
            }
        }
        evaluated.max(1)
    }

    /// Rebuilds everything in some ways and goes on from the best of the results.
    pub(super) fn rebuild_all(&mut self, times: u64) {
        let free: Vec<bool> =
            self.problem.graph().unit_ids().map(|unit| self.problem.only_feasible(unit).is_none()).collect();
        for step in 0..times as usize {
            let foresight = [1.0, 0.5, 0.0][step % 3];
            let thrift = [1.0, 0.5, 0.0][step / 3 % 3];
            self.rebuild(&free, foresight, thrift, f64::INFINITY);
        }
        if self.current.makespan > self.best.0 {
            self.return_to_best();
        }
        self.history.fill(self.current.makespan);
    }

    fn return_to_best(&mut self) {
        self.device_of.clone_from(&self.best.1);
        self.left = Left::of(self.problem, &self.device_of);
        self.evaluator.evaluate(&self.device_of, f64::INFINITY);
        self.current.read(&self.evaluator);
    }

    /// Rebuilds the units that start within a stretch of the schedule.
    pub(super) fn rebuild_window(&mut self) -> bool {
        let graph = self.problem.graph();
        let network = self.evaluator.network();
        let count = graph.task_count() as f64;
        let width: f64 = std::env::var("WIDE").ok().and_then(|n| n.parse().ok()).unwrap_or(0.1);
        let length = (count * width).max(8.0).powf(self.random.uniform(0.4, 1.0)) as usize;
        let sequence = self.evaluator.sequence();
        let first = self.random.below(sequence.len() as u64) as usize;
        let mut free = vec![false; graph.unit_count()];
        let tasks = sequence[first.saturating_sub(length / 2)..].iter().filter_map(|&item| network.task(item as usize));
        for task in tasks.take(length) {
            let unit = graph.unit(task);
            free[unit.index()] = self.problem.only_feasible(unit).is_none();
        }
        let foresight = self.random.uniform(0.5, 1.0);
        let thrift = self.random.uniform(0.0, 1.0);
        let slot = (self.steps % HISTORY as u64) as usize;
        self.steps += 1;
        let limit = self.history[slot].max(self.current.makespan);
        let accepted = self.rebuild(&free, foresight, thrift, limit).is_some();
        if self.current.makespan < self.history[slot] {
            self.history[slot] = self.current.makespan;
        }
        accepted
    }

    /// Rebuilds with free units; returns the makespan if it is within the limit.
    fn rebuild(&mut self, free: &[bool], foresight: f64, thrift: f64, limit: f64) -> Option<f64> {
        let graph = self.problem.graph();
        let network = self.evaluator.network();
        let priority: Vec<f64> = graph.task_ids().map(|task| network.rank(network.item(task))).collect();
        let mut device_of = self.device_of.clone();
        let mut left = self.left.clone();
        let wish = super::rebuild::Wish { priority: &priority, free, foresight, thrift };
        self.builder.rebuild(network, &wish, &mut device_of, &mut left);
        let makespan = self.trial.evaluate(&device_of, limit)?;
        std::mem::swap(&mut self.trial, &mut self.evaluator);
        self.current.read(&self.evaluator);
        self.device_of = device_of;
        self.left = left;
        if makespan < self.best.0 {
            self.best.0 = makespan;
            self.best.1.clone_from(&self.device_of);
        }
        Some(makespan)
    }

    /// The best device of a block, or the one it is meant for.
    fn rate(&mut self, block: Block, moves: &mut Vec<(f64, Block, DeviceId)>) {
        let first = self.device_of[block.tasks[0].index()];
        let mut best: Option<(f64, DeviceId)> = None;
        let devices = self.problem.feasible(block.units[0]).filter(|&to| block.to.is_none_or(|only| only == to));
        for to in devices.filter(|&to| to != first) {
            if !self.left.admits(self.problem, &block.units, &self.device_of, to) {
                continue;
            }
            let limit = best.map_or(f64::INFINITY, |(best, _)| best);
            let way = self.estimator.estimate(&self.evaluator, &self.current, &block.tasks, to, f64::INFINITY);
            let way = way * self.random.uniform(1.0, 1.05);
            if way < limit {
                best = Some((way, to));
            }
        }
        if let Some((way, to)) = best {
            moves.push((way, block, to));
        }
    }

    /// Moves `block` to `to` if that is acceptable.
    fn attempt(&mut self, block: &Block, to: DeviceId) -> bool {
        let problem = self.problem;
        let members = |&unit: &_| problem.graph().members(unit)[0];
        let before: Vec<DeviceId> = block.units.iter().map(|unit| self.device_of[members(unit).index()]).collect();
        for &unit in &block.units {
            self.left.move_unit(problem, unit, &mut self.device_of, to);
        }
        let slot = (self.steps % HISTORY as u64) as usize;
        self.steps += 1;
        let limit = self.history[slot].max(self.current.makespan);
        let accepted = self.trial.evaluate(&self.device_of, limit);
        match accepted {
            Some(makespan) => {
                std::mem::swap(&mut self.trial, &mut self.evaluator);
                self.current.read(&self.evaluator);
                if makespan < self.best.0 {
                    self.best.0 = makespan;
                    self.best.1.clone_from(&self.device_of);
                }
            }
            None => {
                for (&unit, &device) in block.units.iter().zip(&before) {
                    self.left.move_unit(problem, unit, &mut self.device_of, device);
                }
            }
        }
        if self.current.makespan < self.history[slot] {
            self.history[slot] = self.current.makespan;
        }
        accepted.is_some()
    }
}
