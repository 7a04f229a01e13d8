//! Search over sequences: devices and the order of tasks change together.
//!
//! A placement under PCT never lets a device wait while one of its tasks is ready, and some problems have their best
//! schedule only if a device waits. So this search keeps a sequence of all tasks next to the placement. Each task
//! starts once its data are there and the tasks before it on its device have ended. Every schedule whose tasks cannot
//! start earlier in the same order has such a sequence, an optimal one too.
//!
//! A step moves one task to another position of the sequence, its unit to another device, or both. Or it moves a
//! connected block of tasks from their device to another, or exchanges the devices of two units. Some moves start from
//! the critical path. Simulated annealing decides (Kirkpatrick, Gelatt and Vecchi 1983): the temperature falls
//! geometrically from [`WARM`] to [`COLD`] times the makespan.
//!
//! Transfers take their time and do not contend, and sends cost nothing. Under other rules the result is a suggestion,
//! and the caller simulates it.

use super::assigned::Assigned;
use super::inputs::Inputs;
use crate::bound::Paths;
use crate::graph::{TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::random::Random;
use crate::schedule::Schedule;

/// First temperatures of the rounds, in turn, and their last one, as shares of the makespan.
const WARM: [f64; 2] = [0.02, 0.2];
const COLD: f64 = 0.0002;
/// Share of moves that start from the critical path.
const CRITICAL: f64 = 0.4;
/// Share of moves that exchange the devices of two units.
const EXCHANGES: f64 = 0.1;
/// Share of moves of blocks, and most further tasks that a block tries to take.
const BLOCKS: f64 = 0.4;
const LONGEST: u64 = 6;

/// Order and device of every task.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sequence {
    pub(super) order: Vec<TaskId>,
    pub(super) device_of: Vec<DeviceId>,
}

impl Sequence {
    /// Returns the sequence of a schedule.
    pub(super) fn of(schedule: &Schedule) -> Self {
        let device_of = schedule.tasks.iter().map(|span| span.device).collect();
        Sequence { order: schedule.order.clone(), device_of }
    }
}

/// Search that proceeds from one sequence to the next.
pub(super) struct SequenceSearch<'p> {
    problem: &'p Problem<'p>,
    random: Random,
    paths: Paths,
    inputs: Inputs,
    assigned: Assigned<'p>,
    order: Vec<TaskId>,
    /// Position of each task in the order.
    position: Vec<usize>,
    /// Ends and causes of the current sequence, and of the tried one.
    current: Times,
    tried: Times,
    free: Vec<(f64, u32)>,
    makespan: f64,
    /// Tasks of a critical path of the current sequence; empty if it is not known.
    critical: Vec<TaskId>,
    best: Sequence,
    best_makespan: f64,
}

/// End of each task, and the task that it waited for.
#[derive(Clone, Default)]
struct Times {
    end: Vec<f64>,
    cause: Vec<u32>,
}

/// No task.
const NONE: u32 = u32::MAX;

impl<'p> SequenceSearch<'p> {
    /// Starts from a sequence that keeps all constraints; `None` if the problem is too large for a search.
    pub(super) fn new(problem: &'p Problem<'p>, start: Sequence, random: Random) -> Option<Self> {
        let (tasks, devices) = (problem.graph().task_count(), problem.platform().device_count());
        let inputs = Inputs::of(problem)?;
        let mut search = SequenceSearch {
            problem,
            random,
            paths: Paths::new(problem),
            inputs,
            assigned: Assigned::new(problem, start.device_of.clone()),
            position: vec![0; tasks],
            order: start.order.clone(),
            current: Times { end: vec![0.0; tasks], cause: vec![NONE; tasks] },
            tried: Times::default(),
            free: vec![(0.0, NONE); devices],
            makespan: f64::INFINITY,
            critical: Vec::new(),
            best: start,
            best_makespan: f64::INFINITY,
        };
        search.number(0, tasks);
        search.makespan = search.evaluate(0, f64::INFINITY)?;
        search.best_makespan = search.makespan;
        std::mem::swap(&mut search.current, &mut search.tried);
        Some(search)
    }

    /// Returns the best sequence.
    pub(super) fn best(&self) -> &Sequence {
        &self.best
    }

    /// Returns the makespan of the best sequence.
    pub(super) fn best_makespan(&self) -> f64 {
        self.best_makespan
    }

    /// Tries one change; `progress` goes from 0 to 1 over the round.
    pub(super) fn step(&mut self, round: u64, progress: f64) {
        let warm = WARM[round as usize % WARM.len()];
        let temperature = self.best_makespan * warm * (COLD / warm).powf(progress);
        let limit = self.makespan - temperature * (1.0 - self.random.fraction()).ln();
        match self.random.fraction() {
            kind if kind < EXCHANGES => self.exchange(limit),
            kind if kind < EXCHANGES + BLOCKS => self.move_block(limit),
            _ => self.shift(limit),
        }
    }

    /// Returns to the best sequence.
    pub(super) fn return_to_best(&mut self) {
        self.order.clone_from(&self.best.order);
        self.assigned = Assigned::new(self.problem, self.best.device_of.clone());
        self.number(0, self.order.len());
        self.accept(0, f64::INFINITY);
    }

    /// Moves a task in the order, and most of the time its unit to another device.
    fn shift(&mut self, limit: f64) {
        let task = self.draw_task();
        let unit = self.problem.graph().unit(task);
        let from = self.assigned.device(unit);
        let to = self.draw_device(unit);
        let place = self.position[task.index()];
        let goal = if to == from || self.random.chance(0.5) { self.draw_position(task) } else { place };
        if (to == from && goal == place) || !self.assigned.admits(&[unit], to) {
            return;
        }
        let first = self.first_change(&[unit], from != to).min(place.min(goal));
        self.rotate(place, goal);
        self.assigned.move_unit(unit, to);
        if !self.accept(first, limit) {
            self.assigned.move_unit(unit, from);
            self.rotate(goal, place);
        }
    }

    /// Moves a task to another device, together with tasks on its device that are connected to it.
    fn move_block(&mut self, limit: f64) {
        let graph = self.problem.graph();
        let mut task = self.draw_task();
        let (from, to) = (self.assigned.device(graph.unit(task)), self.draw_device(graph.unit(task)));
        let mut units = vec![graph.unit(task)];
        for _ in 0..2 + self.random.below(LONGEST) {
            let near = if self.random.chance(0.5) { graph.predecessors(task) } else { graph.successors(task) };
            let Some(&next) = near.get(self.random.below(near.len() as u64) as usize) else { continue };
            if self.assigned.device(graph.unit(next)) == from {
                task = next;
                units.push(graph.unit(next));
            }
        }
        units.sort_unstable();
        units.dedup();
        if to == from || !self.assigned.admits(&units, to) {
            return;
        }
        let first = self.first_change(&units, true);
        units.iter().for_each(|&unit| self.assigned.move_unit(unit, to));
        if !self.accept(first, limit) {
            units.iter().for_each(|&unit| self.assigned.move_unit(unit, from));
        }
    }

    /// Exchanges the devices of two units.
    fn exchange(&mut self, limit: f64) {
        let graph = self.problem.graph();
        let one = graph.unit(self.draw_task());
        let other = graph.unit(TaskId(self.random.below(self.order.len() as u64) as u32));
        let first = self.first_change(&[one, other], true);
        if self.assigned.exchange(one, other) && !self.accept(first, limit) {
            self.assigned.exchange(one, other);
        }
    }

    /// Returns the first position in the order of a task of `units` if they move; else the last position.
    fn first_change(&self, units: &[UnitId], moves: bool) -> usize {
        let members = units.iter().flat_map(|&unit| self.problem.graph().members(unit));
        let positions = members.map(|member| self.position[member.index()]).filter(|_| moves);
        positions.min().unwrap_or(usize::MAX)
    }

    /// Evaluates the changed sequence from `first` on, and continues from it if its makespan is within the limit.
    fn accept(&mut self, first: usize, limit: f64) -> bool {
        let Some(makespan) = self.evaluate(first, limit) else { return false };
        std::mem::swap(&mut self.current, &mut self.tried);
        self.makespan = makespan;
        self.critical.clear();
        if makespan < self.best_makespan {
            self.best_makespan = makespan;
            self.best.order.clone_from(&self.order);
            self.best.device_of.copy_from_slice(self.assigned.device_of());
        }
        true
    }

    /// Computes the ends of all tasks from the position `first` on; `None` if the makespan exceeds `limit`.
    fn evaluate(&mut self, first: usize, limit: f64) -> Option<f64> {
        let device_of = self.assigned.device_of();
        self.tried.end.clone_from(&self.current.end);
        self.tried.cause.clone_from(&self.current.cause);
        self.free.fill((0.0, NONE));
        let mut makespan = 0.0f64;
        for &task in &self.order[..first.min(self.order.len())] {
            let end = self.tried.end[task.index()];
            self.free[device_of[task.index()].index()] = (end, task.0);
            makespan = makespan.max(end);
        }
        for &task in self.order.iter().skip(first) {
            let to = device_of[task.index()];
            let (mut start, mut cause) = self.free[to.index()];
            for &(producer, size) in self.inputs.of_task(task) {
                let from = device_of[producer.index()];
                let arrival = self.tried.end[producer.index()] + self.inputs.transfer(size, from, to);
                if arrival > start {
                    (start, cause) = (arrival, producer.0);
                }
            }
            let end = start + self.problem.time(task, to);
            if end + self.paths.tail(task, to) > limit {
                return None;
            }
            self.tried.end[task.index()] = end;
            self.tried.cause[task.index()] = cause;
            self.free[to.index()] = (end, task.0);
            makespan = makespan.max(end);
        }
        (makespan <= limit).then_some(makespan)
    }

    fn draw_task(&mut self) -> TaskId {
        if !self.random.chance(CRITICAL) {
            return TaskId(self.random.below(self.order.len() as u64) as u32);
        }
        if self.critical.is_empty() {
            let mut next = self.order.iter().copied().find(|task| self.current.end[task.index()] >= self.makespan);
            while let Some(task) = next {
                self.critical.push(task);
                next = Some(self.current.cause[task.index()]).filter(|&cause| cause != NONE).map(TaskId);
            }
        }
        self.critical[self.random.below(self.critical.len() as u64) as usize]
    }

    /// Draws a feasible device of `unit`; of ten draws about three are its present one.
    fn draw_device(&mut self, unit: UnitId) -> DeviceId {
        let here = self.assigned.device(unit);
        if self.random.chance(0.3) {
            return here;
        }
        let others = || self.problem.feasible(unit).filter(move |&device| device != here);
        let count = others().count() as u64;
        others().nth(self.random.below(count) as usize).unwrap_or(here)
    }

    /// Draws a position for `task` between its last predecessor and its first successor.
    fn draw_position(&mut self, task: TaskId) -> usize {
        let graph = self.problem.graph();
        let place = |other: &TaskId| self.position[other.index()];
        let first = graph.predecessors(task).iter().map(place).max().map_or(0, |last| last + 1);
        let end = graph.successors(task).iter().map(place).min().unwrap_or(self.order.len());
        first + self.random.below((end - first) as u64) as usize
    }

    /// Moves the task at position `from` to `to`.
    fn rotate(&mut self, from: usize, to: usize) {
        if from < to {
            self.order[from..=to].rotate_left(1);
        } else {
            self.order[to..=from].rotate_right(1);
        }
        self.number(from.min(to), from.max(to) + 1);
    }

    fn number(&mut self, from: usize, end: usize) {
        for place in from..end {
            self.position[self.order[place].index()] = place;
        }
    }
}
