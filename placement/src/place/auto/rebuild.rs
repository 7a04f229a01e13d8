//! List scheduling anew: some units are free to go elsewhere, the others stay on their devices.
//!
//! As HEFT, with three differences. Sends take time on the sender's device, at the first gap after the datum is there. A device is
//! judged by when the task would end there and by what follows then: the transfers to where its consumers are in the placement
//! that is rebuilt, and their path computation times there (forward-backward improvement, Li and Willis 1992, with placements
//! instead of a single machine's order). And a unit of several tasks is judged as a whole when its first task comes up.

use super::network::Network;
use super::super::timeline::Timeline;
use crate::graph::{TaskId, UnitId};
use crate::platform::DeviceId;
use crate::problem::Problem;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use super::moves::Left;

/// How a schedule is rebuilt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish<'w> {
    /// By task: the greatest of those that are ready goes first.
    pub(super) priority: &'w [f64],
    /// By unit: whether it may change its device.
    pub(super) free: &'w [bool],
    /// What counts of the time after a task; of 0, 1 is all.
    pub(super) foresight: f64,
    /// What counts of the time that sends and the other members of a unit take.
    pub(super) thrift: f64,
}

/// A list schedule in the making, and room for the next.
pub(super) struct Builder<'p> {
    problem: &'p Problem<'p>,
    timelines: Vec<Timeline>,
    end: Vec<f64>,
    missing: Vec<u32>,
    decided: Vec<bool>,
    /// By datum: where it has been sent, and when it is there.
    sent: Vec<Vec<(DeviceId, f64)>>,
    ready: BinaryHeap<(u64, Reverse<TaskId>)>,
    scores: Vec<f64>,
}

impl<'p> Builder<'p> {
    pub(super) fn new(problem: &'p Problem<'p>) -> Self {
        let graph = problem.graph();
        Builder {
            problem,
            timelines: Vec::new(),
            end: vec![0.0; graph.task_count()],
            missing: Vec::new(),
            decided: Vec::new(),
            sent: vec![Vec::new(); graph.datum_count()],
            ready: BinaryHeap::new(),
            scores: Vec::new(),
        }
    }

    /// Moves free units in `device_of`, which is the placement of `network`, and accounts for them in `left`.
    pub(super) fn rebuild(
        &mut self,
        network: &Network<'_>,
        wish: &Wish<'_>,
        device_of: &mut [DeviceId],
        left: &mut Left,
    ) {
        self.reset(wish);
        while let Some((_, Reverse(task))) = self.ready.pop() {
            let unit = self.problem.graph().unit(task);
            if !std::mem::replace(&mut self.decided[unit.index()], true) && wish.free[unit.index()] {
                let to = self.choose(network, wish, task, unit, device_of, left);
                left.move_unit(self.problem, unit, device_of, to);
            }
            self.occupy(network, task, device_of);
            for &next in self.problem.graph().successors(task) {
                self.missing[next.index()] -= 1;
                if self.missing[next.index()] == 0 {
                    self.ready.push((wish.priority[next.index()].to_bits(), Reverse(next)));
                }
            }
        }
    }

    fn reset(&mut self, wish: &Wish<'_>) {
        let graph = self.problem.graph();
        self.timelines.clear();
        self.timelines.resize(self.problem.platform().device_count(), Timeline::new());
        self.missing.clear();
        self.missing.extend(graph.task_ids().map(|task| graph.predecessors(task).len() as u32));
        self.decided.clear();
        self.decided.resize(graph.unit_count(), false);
        self.sent.iter_mut().for_each(Vec::clear);
        let sources = graph.task_ids().filter(|&task| graph.predecessors(task).is_empty());
        self.ready.extend(sources.map(|task| (wish.priority[task.index()].to_bits(), Reverse(task))));
    }

    fn choose(
        &mut self,
        network: &Network<'_>,
        wish: &Wish<'_>,
        task: TaskId,
        unit: UnitId,
        device_of: &[DeviceId],
        left: &Left,
    ) -> DeviceId {
        let mut scores = std::mem::take(&mut self.scores);
        scores.clear();
        scores.resize(self.problem.platform().device_count(), 0.0);
        self.arrivals(network, wish, task, device_of, &mut scores);
        let stays = device_of[task.index()];
        let mut best = (f64::INFINITY, stays);
        for to in self.problem.feasible(unit) {
            if to != stays && !left.admits(self.problem, &[unit], device_of, to) {
                continue;
            }
            let score = self.score(network, wish, task, unit, device_of, to, scores[to.index()]);
            if score < best.0 {
                best = (score, to);
            }
        }
        self.scores = scores;
        best.1
    }

    /// When all inputs of `task` would be on each device.
    fn arrivals(
        &self,
        network: &Network<'_>,
        _wish: &Wish<'_>,
        task: TaskId,
        device_of: &[DeviceId],
        arrival: &mut [f64],
    ) {
        let graph = self.problem.graph();
        for &datum in graph.inputs(task) {
            let producer = graph.producer(datum);
            let from = device_of[producer.index()];
            let end = self.end[producer.index()];
            let sent = self.send_end(network, from, end);
            let known = &self.sent[datum.index()];
            for to in self.problem.feasible(graph.unit(task)) {
                let there = if to == from {
                    end
                } else if let Some(&(_, there)) = known.iter().find(|(device, _)| *device == to) {
                    there
                } else {
                    sent + self.problem.transfer_time(graph.bytes(datum), from, to)
                };
                let latest = &mut arrival[to.index()];
                *latest = latest.max(there);
            }
        }
    }

    fn send_end(&self, network: &Network<'_>, from: DeviceId, end: f64) -> f64 {
        end + network.send_time(from)
    }

    #[allow(clippy::too_many_arguments)]
    fn score(
        &self,
        network: &Network<'_>,
        wish: &Wish<'_>,
        task: TaskId,
        unit: UnitId,
        device_of: &[DeviceId],
        to: DeviceId,
        arrival: f64,
    ) -> f64 {
        let problem = self.problem;
        let graph = problem.graph();
        let time = problem.time(task, to);
        let k: usize = graph.outputs(task).iter().map(|&datum| network.sends_of(datum).len()).sum();
        let long = time + k as f64 * network.send_time(to);
        let end = self.timelines[to.index()].earliest(arrival, long).start + time;
        let mut rest: f64 = 0.0;
        let mut cost: f64 = 0.0;
        for &datum in graph.outputs(task) {
            let mut last = (to, 0.0);
            for &consumer in graph.consumers(datum) {
                let device = device_of[consumer.index()];
                if device != last.0 {
                    last = (device, problem.transfer_time(graph.bytes(datum), to, device) + network.send_time(to));
                    cost += network.send_time(to);
                }
                let transfer = if device == to || graph.unit(consumer) == unit { 0.0 } else { last.1 };
                rest = rest.max(transfer + network.rest(network.item(consumer)));
            }
        }
        for &datum in graph.inputs(task) {
            let from = device_of[graph.producer(datum).index()];
            if from != to && !self.sent[datum.index()].iter().any(|(device, _)| *device == to) {
                cost += network.send_time(from);
            }
        }
        let members = graph.members(unit);
        if members.len() > 1 {
            cost += problem.unit_time(unit, to) - time;
            for &member in members.iter().filter(|&&member| member != task) {
                for &datum in graph.inputs(member) {
                    let producer = graph.producer(datum);
                    if graph.unit(producer) != unit && device_of[producer.index()] != to {
                        let from = device_of[producer.index()];
                        cost += problem.transfer_time(graph.bytes(datum), from, to) + network.send_time(from);
                    }
                }
                for &datum in graph.outputs(member) {
                    let mut last = to;
                    for &consumer in graph.consumers(datum) {
                        let device = device_of[consumer.index()];
                        if device != to && device != last && graph.unit(consumer) != unit {
                            cost += problem.transfer_time(graph.bytes(datum), to, device) + network.send_time(to);
                            last = device;
                        }
                    }
                }
            }
        }
        end + wish.foresight * rest + wish.thrift * cost
    }

    /// Sends what `task` needs, and runs it at the first gap after that.
    fn occupy(&mut self, network: &Network<'_>, task: TaskId, device_of: &[DeviceId]) {
        let graph = self.problem.graph();
        let to = device_of[task.index()];
        let mut arrival: f64 = 0.0;
        for &datum in graph.inputs(task) {
            let producer = graph.producer(datum);
            let from = device_of[producer.index()];
            let mut there = self.end[producer.index()];
            if from != to {
                there = match self.sent[datum.index()].iter().find(|(device, _)| *device == to) {
                    Some(&(_, there)) => there,
                    None => self.send(network, there, from, to, graph.bytes(datum)),
                };
                if !self.sent[datum.index()].iter().any(|(device, _)| *device == to) {
                    self.sent[datum.index()].push((to, there));
                }
            }
            arrival = arrival.max(there);
        }
        let time = self.problem.time(task, to);
        let k: usize = graph.outputs(task).iter().map(|&datum| network.sends_of(datum).len()).sum();
        let long = time + k as f64 * network.send_time(to);
        let slot = self.timelines[to.index()].earliest(arrival, long);
        self.timelines[to.index()].occupy(slot, long);
        self.end[task.index()] = slot.start + time;
    }

    fn send(&mut self, network: &Network<'_>, ready: f64, from: DeviceId, to: DeviceId, bytes: u64) -> f64 {
        ready + network.send_time(from) + self.problem.transfer_time(bytes, from, to)
    }
}
