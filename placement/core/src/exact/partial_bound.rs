//! Lower bound of the schedules that continue a partial schedule.
//!
//! Every remaining task starts no earlier than its device is free, and no earlier than the last start. From there,
//! starts are as early as in [`Paths`]. Work is as in [`Weights`], but each device has only the time from then to the
//! makespan.

use super::state::State;
use crate::bound::{Feeder, Paths, Weights, earliest};
use crate::graph::{DatumId, TaskId};
use crate::platform::DeviceId;
use crate::problem::Problem;

/// Bounds for the continuations of a [`State`].
pub(super) struct PartialBound<'p> {
    problem: &'p Problem<'p>,
    paths: Paths,
    weights: Vec<Vec<f64>>,
    /// Times of transfers, by datum, sender and receiver.
    transfers: Vec<f64>,
    /// Earliest starts of remaining tasks, by task and device.
    starts: Vec<f64>,
    /// Producers that a task waits for. This and the next two fields are scratch memory.
    feeders: Vec<(TaskId, Feeder)>,
    joined: Vec<Feeder>,
    here: Vec<Feeder>,
}

impl<'p> PartialBound<'p> {
    pub(super) fn new(problem: &'p Problem<'p>) -> Self {
        let cells = problem.graph().task_count() * problem.platform().device_count();
        PartialBound {
            problem,
            paths: Paths::new(problem),
            weights: Weights::of(problem).vectors().map(<[f64]>::to_vec).collect(),
            transfers: transfers(problem),
            starts: vec![f64::INFINITY; cells],
            feeders: Vec::new(),
            joined: Vec::new(),
            here: Vec::new(),
        }
    }

    /// Returns the least time from the end of `task` on `device` to the end of the schedule.
    pub(super) fn tail(&self, task: TaskId, device: DeviceId) -> f64 {
        self.paths.tail(task, device)
    }

    /// Returns a lower bound of all schedules that continue `state`; infinite if there are none.
    pub(super) fn bound(&mut self, state: &State<'p>) -> f64 {
        let (graph, platform) = (self.problem.graph(), self.problem.platform());
        let last = state.last().map_or(0.0, |(_, span)| span.start);
        let free: Vec<f64> = platform.device_ids().map(|device| state.device(device).free.max(last)).collect();
        let mut bound = free.iter().copied().fold(0.0, f64::max);
        let occupied = |weights: &Vec<f64>| weights.iter().zip(&free).map(|(weight, free)| weight * free).sum();
        let mut works: Vec<f64> = self.weights.iter().map(occupied).collect();
        for &task in graph.topological() {
            if state.span(task).is_none() {
                bound = bound.max(self.least_end(state, task, &free));
                for (work, weights) in works.iter_mut().zip(&self.weights) {
                    *work += self.share(state, task, weights);
                }
            }
        }
        works.into_iter().fold(bound, f64::max)
    }

    /// Returns the least end of a path through `task`, on its best device. Stores the task's starts.
    fn least_end(&mut self, state: &State<'_>, task: TaskId, free: &[f64]) -> f64 {
        let (graph, platform) = (self.problem.graph(), self.problem.platform());
        let mut least = f64::INFINITY;
        for device in platform.device_ids() {
            let start = match state.admits(graph.unit(task), device) {
                true => self.start(state, task, device).max(free[device.index()]),
                false => f64::INFINITY,
            };
            self.starts[task.index() * platform.device_count() + device.index()] = start;
            least = least.min(start + self.problem.time(task, device) + self.paths.tail(task, device));
        }
        least
    }

    /// Returns the earliest time at which the inputs of `task` can be on `device`. The starts of the tasks before it
    /// must be stored.
    fn start(&mut self, state: &State<'_>, task: TaskId, device: DeviceId) -> f64 {
        let graph = self.problem.graph();
        let mut start = 0.0f64;
        let mut feeders = std::mem::take(&mut self.feeders);
        feeders.clear();
        for &datum in graph.inputs(task) {
            let producer = graph.producer(datum);
            match state.span(producer) {
                Some(span) => start = start.max(span.end + self.transfer(datum, span.device, device)),
                None => feeders.push((producer, self.feeder(datum, task, device))),
            }
        }
        // A producer of several data runs once.
        feeders.sort_by_key(|&(producer, _)| producer);
        self.joined.clear();
        for group in feeders.chunk_by(|one, other| one.0 == other.0) {
            let remote = group.iter().map(|(_, feeder)| feeder.remote).fold(0.0, f64::max);
            self.joined.push(Feeder { remote, ..group[0].1 });
        }
        self.feeders = feeders;
        start.max(earliest(&mut self.joined, &mut self.here))
    }

    /// Returns the producer of `datum`, which is not scheduled yet, as a feeder of a task on `device`.
    fn feeder(&self, datum: DatumId, task: TaskId, device: DeviceId) -> Feeder {
        let (graph, platform) = (self.problem.graph(), self.problem.platform());
        let producer = graph.producer(datum);
        let start = |device: DeviceId| self.starts[producer.index() * platform.device_count() + device.index()];
        let arrival =
            |from: DeviceId| start(from) + self.problem.time(producer, from) + self.transfer(datum, from, device);
        let elsewhere = platform.device_ids().filter(|&from| from != device).map(arrival);
        let together = graph.unit(producer) == graph.unit(task);
        let remote = if together { f64::INFINITY } else { elsewhere.fold(f64::INFINITY, f64::min) };
        Feeder { remote, release: start(device), time: self.problem.time(producer, device) }
    }

    fn transfer(&self, datum: DatumId, from: DeviceId, to: DeviceId) -> f64 {
        let devices = self.problem.platform().device_count();
        self.transfers[(datum.index() * devices + from.index()) * devices + to.index()]
    }

    /// Returns the least weighted time of a remaining task over the devices that are open to it.
    fn share(&self, state: &State<'_>, task: TaskId, weights: &[f64]) -> f64 {
        let unit = self.problem.graph().unit(task);
        let devices = self.problem.platform().device_ids().filter(|&device| state.admits(unit, device));
        let shares = devices.map(|device| weights[device.index()] * self.problem.time(task, device));
        shares.fold(f64::INFINITY, f64::min)
    }
}

fn transfers(problem: &Problem<'_>) -> Vec<f64> {
    let (graph, platform) = (problem.graph(), problem.platform());
    let mut transfers = Vec::new();
    for datum in graph.datum_ids() {
        for from in platform.device_ids() {
            transfers.extend(platform.device_ids().map(|to| problem.transfer_time(graph.bytes(datum), from, to)));
        }
    }
    transfers
}
