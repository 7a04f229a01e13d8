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
//! In half of the rounds, placements may exceed the memory of devices for a price, as in Gendreau, Hertz and Laporte
//! (1994) routes may exceed a capacity. The price rises over the round. If memory is nearly full, few single moves fit,
//! and the search reaches better placements through placements that do not fit. Only placements that fit are results.
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
/// Price of memory beyond that of a device, at the start and at the end of a round. It is a share of the makespan for
/// the mean demand of a unit.
const CHEAP: f64 = 0.02;
const DEAR: f64 = 1.0;
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
    /// Mean demand of a unit in bytes.
    mean_demand: f64,
    /// Price of a byte beyond the memory of a device, as time; `None` if there must be no such byte.
    price: Option<f64>,
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
            mean_demand: mean_demand(problem),
            price: None,
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
        let price = self.best_makespan / self.mean_demand * CHEAP * (DEAR / CHEAP).powf(progress);
        self.price = (round / WARM.len() as u64 % 2 == 1).then_some(price);
        let limit = self.makespan + self.penalty() - temperature * (1.0 - self.random.fraction()).ln();
        match self.random.fraction() {
            kind if kind < EXCHANGES => self.exchange(limit),
            kind if kind < EXCHANGES + BLOCKS => self.move_block(limit),
            _ => self.shift(limit),
        }
    }

    /// Returns the price of all bytes beyond the memory of their devices.
    fn penalty(&self) -> f64 {
        self.price.map_or(0.0, |price| price * self.assigned.excess() as f64)
    }

    /// Whether `units` may move to `to`.
    fn admits(&self, units: &[UnitId], to: DeviceId) -> bool {
        match self.price {
            Some(_) => self.assigned.are_feasible(units, to),
            None => self.assigned.admits(units, to),
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
        if (to == from && goal == place) || !self.admits(&[unit], to) {
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
        if to == from || !self.admits(&units, to) {
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
        if !self.assigned.may_exchange(one, other) {
            return;
        }
        let first = self.first_change(&[one, other], true);
        self.assigned.exchange(one, other);
        let fits = self.price.is_some() || self.assigned.excess() == 0;
        if !fits || !self.accept(first, limit) {
            self.assigned.exchange(one, other);
        }
    }

    /// Returns the first position in the order of a task of `units` if they move; else the last position.
    fn first_change(&self, units: &[UnitId], moves: bool) -> usize {
        let members = units.iter().flat_map(|&unit| self.problem.graph().members(unit));
        let positions = members.map(|member| self.position[member.index()]).filter(|_| moves);
        positions.min().unwrap_or(usize::MAX)
    }

    /// Evaluates the changed sequence from `first` on, and continues from it if its makespan and penalty together are
    /// within the limit.
    fn accept(&mut self, first: usize, limit: f64) -> bool {
        let Some(makespan) = self.evaluate(first, limit - self.penalty()) else { return false };
        std::mem::swap(&mut self.current, &mut self.tried);
        self.makespan = makespan;
        self.critical.clear();
        if makespan < self.best_makespan && self.assigned.excess() == 0 {
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

/// Returns the mean demand of a unit in bytes, at least 1.
fn mean_demand(problem: &Problem<'_>) -> f64 {
    let graph = problem.graph();
    let all: f64 = graph.unit_ids().map(|unit| problem.demand(unit) as f64).sum();
    (all / graph.unit_count().max(1) as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Task;
    use crate::platform::{Device, DeviceKind};
    use crate::problem::MemoryRule;
    use crate::{cost::TimeTable, loaded::Costs, sample};

    /// Each of three devices holds one of three tasks. All three tasks have to move on to their next device; if two of
    /// them exchange their devices, one of them takes very long.
    #[test]
    fn a_price_of_memory_leads_through_full_devices() {
        let mut builder = sample::tasks(&[]);
        (0..3).for_each(|_| _ = builder.task(Task::new("t").with_memory(10)));
        let devices = vec![Device::new("d", DeviceKind::Cpu).with_memory(10); 3];
        let mut loaded = sample::on(builder.build().unwrap(), devices, MemoryRule::Resident);
        let time = |task: TaskId, device: DeviceId| Some([5.0, 1.0, 100.0][(3 + device.index() - task.index()) % 3]);
        loaded.costs = Costs::Times(TimeTable::from_fn(3, 3, time).unwrap());
        let problem = loaded.problem().unwrap();
        let start = Sequence { order: [0, 1, 2].map(TaskId).to_vec(), device_of: [0, 1, 2].map(DeviceId).to_vec() };
        let mut search = SequenceSearch::new(&problem, start, Random::new(0)).unwrap();
        let mut after = |round| {
            search.return_to_best();
            (0..2000).for_each(|step| search.step(round, f64::from(step) / 2000.0));
            search.best_makespan()
        };
        assert_eq!([0, 1, 2, 3].map(&mut after), [5.0, 5.0, 5.0, 1.0]);
        assert_eq!(search.best().device_of, [1, 2, 0].map(DeviceId));
    }
}
