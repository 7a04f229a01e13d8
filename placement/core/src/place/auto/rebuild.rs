//! Repeated list scheduling: some units are free to move, the others stay on their devices.
//!
//! The method is HEFT with some differences. Tasks go by their path computation times in the placement that is rebuilt.
//! The score of a device is the end of the task there plus the consequences: transfers to the devices of its consumers,
//! and their path computation times there. So each rebuild corrects the assumptions of the one before. After each task
//! its device stays reserved for as many sends as the task had. A unit of several tasks is scored as a whole when its
//! first task is placed.

use super::super::timeline::Timeline;
use super::assigned::Assigned;
use crate::graph::{TaskId, UnitId};
use crate::place::evaluator::Evaluator;
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Weights of the score of a device, in addition to the end of the task there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weights {
    /// Weight of the time from that end to the end of everything that depends on the task.
    pub(super) foresight: f64,
    /// Weight of the device time used: sends, and the other members of the unit with their transfers.
    pub(super) thrift: f64,
    /// Weight of the task's time there times a random number, so that rebuilds differ.
    pub(super) noise: f64,
}

/// Partial list schedule, and memory that the next one reuses.
pub(super) struct Builder<'p> {
    problem: &'p Problem<'p>,
    timelines: Vec<Timeline>,
    /// End of each task.
    end: Vec<f64>,
    /// Number of predecessors of each task that are not placed yet.
    missing: Vec<u32>,
    /// Whether each unit has a device.
    decided: Vec<bool>,
    /// Ready tasks, by the bits of their path computation times.
    ready: BinaryHeap<(u64, Reverse<TaskId>)>,
    /// For each device, the arrival of the inputs of the current task.
    arrival: Vec<f64>,
}

impl<'p> Builder<'p> {
    pub(super) fn new(problem: &'p Problem<'p>) -> Self {
        Builder {
            problem,
            timelines: Vec::new(),
            end: vec![0.0; problem.graph().task_count()],
            missing: Vec::new(),
            decided: Vec::new(),
            ready: BinaryHeap::new(),
            arrival: Vec::new(),
        }
    }

    /// Moves `free` units in `assigned`, whose placement is that of `evaluator`. `O(V log V + E)`, and `O(devices)` for
    /// each free unit and its edges. Tasks after the last free unit are not scheduled.
    pub(super) fn rebuild(
        &mut self,
        evaluator: &Evaluator<'_>,
        free: &[bool],
        weights: Weights,
        assigned: &mut Assigned<'_>,
        random: &mut Random,
    ) {
        self.reset(evaluator);
        let mut open = free.iter().filter(|&&free| free).count();
        while open > 0
            && let Some((_, Reverse(task))) = self.ready.pop()
        {
            let unit = self.problem.graph().unit(task);
            if !std::mem::replace(&mut self.decided[unit.index()], true) && free[unit.index()] {
                let to = self.choose(evaluator, weights, task, assigned, random);
                assigned.move_unit(unit, to);
                open -= 1;
            }
            self.run(evaluator, task, assigned.device_of());
            for &next in self.problem.graph().successors(task) {
                self.missing[next.index()] -= 1;
                if self.missing[next.index()] == 0 {
                    self.make_ready(evaluator, next);
                }
            }
        }
    }

    fn reset(&mut self, evaluator: &Evaluator<'_>) {
        let graph = self.problem.graph();
        self.timelines.clear();
        self.timelines.resize(self.problem.platform().device_count(), Timeline::new());
        self.arrival.resize(self.timelines.len(), 0.0);
        self.missing.clear();
        self.missing.extend(graph.task_ids().map(|task| graph.predecessors(task).len() as u32));
        self.decided.clear();
        self.decided.resize(graph.unit_count(), false);
        self.ready.clear();
        for task in graph.task_ids().filter(|&task| graph.predecessors(task).is_empty()) {
            self.make_ready(evaluator, task);
        }
    }

    fn make_ready(&mut self, evaluator: &Evaluator<'_>, task: TaskId) {
        let rank = evaluator.rank(evaluator.placed().item(task));
        self.ready.push((rank.to_bits(), Reverse(task)));
    }

    /// Returns the best device for the unit of `task`; on a tie, the first.
    fn choose(
        &mut self,
        evaluator: &Evaluator<'_>,
        weights: Weights,
        task: TaskId,
        assigned: &Assigned<'_>,
        random: &mut Random,
    ) -> DeviceId {
        let unit = self.problem.graph().unit(task);
        let device_of = assigned.device_of();
        let mut arrival = std::mem::take(&mut self.arrival);
        self.find_arrivals(evaluator, task, device_of, &mut arrival);
        let least_rest = weights.foresight * least_rest(evaluator, task);
        let mut best = (f64::INFINITY, assigned.device(unit));
        for to in self.problem.feasible(unit) {
            let (arrival, time) = (arrival[to.index()], self.problem.time(task, to));
            if arrival + time + least_rest >= best.0 || !assigned.admits(&[unit], to) {
                continue;
            }
            let end = self.timelines[to.index()].earliest(arrival, self.occupied(evaluator, task, to)) + time;
            if end + least_rest >= best.0 {
                continue;
            }
            let Consequences { rest, cost } = Consequences::of(evaluator, task, to, device_of);
            let noise = weights.noise * time * random.fraction();
            let score = end + weights.foresight * rest + weights.thrift * cost + noise;
            if score < best.0 {
                best = (score, to);
            }
        }
        self.arrival = arrival;
        best.1
    }

    /// Computes the time when all inputs of `task` would be on each device that is feasible for it.
    fn find_arrivals(&self, evaluator: &Evaluator<'_>, task: TaskId, device_of: &[DeviceId], arrival: &mut [f64]) {
        let graph = self.problem.graph();
        arrival.fill(0.0);
        for &datum in graph.inputs(task) {
            let producer = graph.producer(datum);
            let from = device_of[producer.index()];
            let end = self.end[producer.index()];
            for to in self.problem.feasible(graph.unit(task)) {
                let latest = &mut arrival[to.index()];
                *latest = latest.max(end + evaluator.placed().crossing_time(graph.bytes(datum), from, to));
            }
        }
    }

    /// Returns the time of `task` on `device`, with as many sends as it had.
    fn occupied(&self, evaluator: &Evaluator<'_>, task: TaskId, device: DeviceId) -> f64 {
        let outputs = self.problem.graph().outputs(task).iter();
        let sends: usize = outputs.map(|&datum| evaluator.placed().sends().of_datum(datum).len()).sum();
        self.problem.time(task, device) + sends as f64 * evaluator.placed().send_time(device)
    }

    /// Runs `task` in the first gap after its inputs.
    fn run(&mut self, evaluator: &Evaluator<'_>, task: TaskId, device_of: &[DeviceId]) {
        let graph = self.problem.graph();
        let device = device_of[task.index()];
        let mut arrival: f64 = 0.0;
        for &datum in graph.inputs(task) {
            let producer = graph.producer(datum);
            let crossing = evaluator.placed().crossing_time(graph.bytes(datum), device_of[producer.index()], device);
            arrival = arrival.max(self.end[producer.index()] + crossing);
        }
        let occupied = self.occupied(evaluator, task, device);
        let timeline = &mut self.timelines[device.index()];
        let start = timeline.earliest(arrival, occupied);
        timeline.occupy(start, occupied);
        self.end[task.index()] = start + self.problem.time(task, device);
    }
}

/// Returns the time from the end of `task` to the end of everything that depends on it, without transfer times.
fn least_rest(evaluator: &Evaluator<'_>, task: TaskId) -> f64 {
    let graph = evaluator.placed().problem().graph();
    let consumers = graph.outputs(task).iter().flat_map(|&datum| graph.consumers(datum));
    consumers.map(|&consumer| evaluator.rest(evaluator.placed().item(consumer))).fold(0.0, f64::max)
}

/// Consequences of a task's being on a device.
struct Consequences {
    /// Time from its end to the end of everything that depends on it, without waiting for devices.
    rest: f64,
    /// Time of its sends, of the sends to it, of the other members of its unit, and of their transfers.
    cost: f64,
}

impl Consequences {
    fn of(evaluator: &Evaluator<'_>, task: TaskId, to: DeviceId, device_of: &[DeviceId]) -> Self {
        let graph = evaluator.placed().problem().graph();
        let unit = graph.unit(task);
        let mut consequences = Consequences { rest: 0.0, cost: 0.0 };
        for &datum in graph.outputs(task) {
            let mut last = (to, 0.0);
            for &consumer in graph.consumers(datum) {
                let device = if graph.unit(consumer) == unit { to } else { device_of[consumer.index()] };
                if device != last.0 {
                    last = (device, evaluator.placed().crossing_time(graph.bytes(datum), to, device));
                    consequences.cost += if device == to { 0.0 } else { evaluator.placed().send_time(to) };
                }
                let rest = last.1 + evaluator.rest(evaluator.placed().item(consumer));
                consequences.rest = consequences.rest.max(rest);
            }
        }
        for &datum in graph.inputs(task) {
            let from = device_of[graph.producer(datum).index()];
            consequences.cost += if from == to { 0.0 } else { evaluator.placed().send_time(from) };
        }
        if graph.members(unit).len() > 1 {
            consequences.cost += cost_of_others(evaluator, unit, task, to, device_of);
        }
        consequences
    }
}

/// Returns the time of the members of `unit` other than `task`, and of their transfers from and to other units.
fn cost_of_others(evaluator: &Evaluator<'_>, unit: UnitId, task: TaskId, to: DeviceId, device_of: &[DeviceId]) -> f64 {
    let problem = evaluator.placed().problem();
    let graph = problem.graph();
    let mut cost = 0.0;
    for &member in graph.members(unit).iter().filter(|&&member| member != task) {
        cost += problem.time(member, to);
        for &datum in graph.inputs(member) {
            let producer = graph.producer(datum);
            if graph.unit(producer) != unit {
                cost += evaluator.placed().crossing_time(graph.bytes(datum), device_of[producer.index()], to);
            }
        }
        for &datum in graph.outputs(member) {
            let mut last = to;
            for &consumer in graph.consumers(datum).iter().filter(|&&consumer| graph.unit(consumer) != unit) {
                let device = device_of[consumer.index()];
                if device != last {
                    cost += evaluator.placed().crossing_time(graph.bytes(datum), to, device);
                    last = device;
                }
            }
        }
    }
    cost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    const WEIGHTS: Weights = Weights { foresight: 1.0, thrift: 1.0, noise: 0.0 };

    fn rebuilt(problem: &Problem<'_>, device_of: &[u32], free: &[bool], weights: Weights) -> Vec<u32> {
        let mut assigned = Assigned::new(problem, device_of.iter().copied().map(DeviceId).collect());
        let mut evaluator = Evaluator::new(problem);
        evaluator.evaluate(assigned.device_of(), f64::INFINITY);
        Builder::new(problem).rebuild(&evaluator, free, weights, &mut assigned, &mut Random::new(0));
        assigned.device_of().iter().map(|device| device.0).collect()
    }

    /// The last task of a chain must be on device 1, so the chain goes there at once; without foresight it stays on its
    /// fastest device.
    #[test]
    fn a_rebuild_sees_what_follows() {
        let times = [[Some(2.0), Some(4.0)], [None, Some(4.0)]];
        let loaded = sample::timed(sample::graph(&[4.0, 4.0], &[(0, 1, 90)]), &times);
        let problem = loaded.problem().unwrap();
        assert_eq!(rebuilt(&problem, &[0, 1], &[true; 2], WEIGHTS), [1, 1]);
        let blind = Weights { foresight: 0.0, thrift: 0.0, noise: 0.0 };
        assert_eq!(rebuilt(&problem, &[0, 1], &[true; 2], blind), [0, 1]);
        assert_eq!(rebuilt(&problem, &[0, 1], &[false; 2], WEIGHTS), [0, 1]);
    }

    /// The first member alone would be faster on device 1, but both together are faster on device 0.
    #[test]
    fn a_unit_is_judged_as_a_whole() {
        let mut builder = sample::tasks(&[0.0; 2]);
        builder.colocate(TaskId(0), TaskId(1));
        let times = [[3.0, 2.0], [3.0, 9.0]];
        let loaded = sample::timed(builder.build().unwrap(), &times);
        let problem = loaded.problem().unwrap();
        assert_eq!(rebuilt(&problem, &[1, 1], &[true], WEIGHTS), [0, 0]);
    }

    /// Independent tasks are spread.
    #[test]
    fn work_is_spread_over_idle_devices() {
        let loaded = sample::problem(sample::graph(&[2.0; 6], &[]), &[1.0; 3]);
        let problem = loaded.problem().unwrap();
        let mut devices = rebuilt(&problem, &[0; 6], &[true; 6], WEIGHTS);
        devices.sort_unstable();
        assert_eq!(devices, [0, 0, 1, 1, 2, 2]);
    }
}
