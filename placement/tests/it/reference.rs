//! Simulator of the thesis' published code under MSR, as far as its makespans depend on it.
//!
//! It differs from the text (Laich 2017, equation 5.2) in two ways. First, the bonus terms count for send nodes only: a
//! node has one point per successor, where a send counts once per target, and a send has 3 points, or 8 if its target
//! is idle. Second, a device is idle if it has no node in its queue. A node enters the queue when the last of its
//! predecessors has been *chosen*, even if that predecessor will run for long, and a datum enters when it arrives.

use anabranch_placement::graph::TaskId;
use anabranch_placement::order::{PlacedGraph, path_computation_times};
use anabranch_placement::platform::DeviceId;
use anabranch_placement::problem::Problem;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Returns the makespan of `problem`, whose rules are the thesis', with task `t` on `device_of[t]`.
pub(crate) fn msr_makespan(problem: &Problem<'_>, device_of: &[DeviceId]) -> f64 {
    let placed = PlacedGraph::new(problem, device_of);
    Reference::new(&placed).run()
}

/// Event: its time as ordered bits, whether a datum has arrived (else an item has ended), and the item.
type Event = Reverse<(u64, bool, usize)>;

struct Reference<'f> {
    placed: &'f PlacedGraph<'f>,
    path_times: Vec<f64>,
    now: f64,
    events: BinaryHeap<Event>,
    /// Whether each device is busy.
    busy: Vec<bool>,
    ready: Vec<Vec<usize>>,
    arrived: Vec<Vec<usize>>,
    queued: Vec<usize>,
    /// Missing inputs of each task; `open` counts the producers that are not chosen and the remote data that have not
    /// arrived.
    missing: Vec<usize>,
    open: Vec<usize>,
    makespan: f64,
}

impl<'f> Reference<'f> {
    fn new(placed: &'f PlacedGraph<'f>) -> Self {
        let (graph, devices) = (placed.problem().graph(), placed.problem().platform().device_count());
        let missing: Vec<usize> = graph.task_ids().map(|task| graph.inputs(task).len()).collect();
        let mut reference = Reference {
            placed,
            path_times: path_computation_times(placed),
            now: 0.0,
            events: BinaryHeap::new(),
            busy: vec![false; devices],
            ready: vec![Vec::new(); devices],
            arrived: vec![Vec::new(); devices],
            queued: vec![0; devices],
            open: missing.clone(),
            missing,
            makespan: 0.0,
        };
        for task in graph.task_ids().filter(|&task| graph.inputs(task).is_empty()) {
            reference.queued[placed.device_of(task).index()] += 1;
            reference.ready[placed.device_of(task).index()].push(placed.item(task));
        }
        reference
    }

    fn run(mut self) -> f64 {
        loop {
            while (0..self.busy.len()).filter(|&device| self.decide(device)).count() > 0 {}
            let Some(Reverse((first, ..))) = self.events.peek().copied() else { return self.makespan };
            self.now = f64::from_bits(first);
            while let Some(&Reverse((time, arrival, item))) = self.events.peek().filter(|event| event.0.0 == first) {
                self.events.pop();
                if arrival {
                    let target = self.target(item);
                    self.arrived[target].push(item);
                } else {
                    self.busy[self.placed.device(item).index()] = false;
                    self.end(item, f64::from_bits(time));
                }
            }
        }
    }

    fn target(&self, send: usize) -> usize {
        self.placed.sends().all()[send].to.index()
    }

    /// Takes in the arrived data, then starts the best ready item; returns whether anything was done.
    fn decide(&mut self, device: usize) -> bool {
        if self.busy[device] {
            return false;
        }
        let arrived = std::mem::take(&mut self.arrived[device]);
        for &send in &arrived {
            for &task in self.placed.sends().receivers(send) {
                self.announce(task);
                self.deliver(task);
            }
        }
        let best = self.ready[device].iter().copied().enumerate().max_by(|&(_, one), &(_, other)| {
            let by_path = self.path_times[one].total_cmp(&self.path_times[other]);
            self.points(one).cmp(&self.points(other)).then(by_path).then(other.cmp(&one))
        });
        let Some((place, item)) = best else { return !arrived.is_empty() };
        self.ready[device].swap_remove(place);
        self.start(device, item);
        true
    }

    fn points(&self, item: usize) -> usize {
        let (graph, sends) = (self.placed.problem().graph(), self.placed.sends());
        match self.placed.task(item) {
            Some(task) => {
                let of_datum = |&datum| sends.local_consumers(datum).len() + sends.of_datum(datum).len();
                graph.outputs(task).iter().map(of_datum).sum()
            }
            None => {
                let target = self.target(item);
                if self.queued[target] + self.arrived[target].len() == 0 { 8 } else { 3 }
            }
        }
    }

    fn start(&mut self, device: usize, item: usize) {
        self.queued[device] -= 1;
        self.busy[device] = true;
        let end = self.now + self.placed.time(item);
        self.events.push(Reverse((end.to_bits(), false, item)));
        if let Some(task) = self.placed.task(item) {
            for &datum in self.placed.problem().graph().outputs(task) {
                self.queued[device] += self.placed.sends().of_datum(datum).len();
                self.placed.sends().local_consumers(datum).iter().for_each(|&task| self.announce(task));
            }
        }
    }

    fn end(&mut self, item: usize, time: f64) {
        let placed = self.placed;
        match placed.task(item) {
            None => {
                let arrival = time + placed.transfer_time(item);
                self.events.push(Reverse((arrival.to_bits(), true, item)));
            }
            Some(task) => {
                self.makespan = self.makespan.max(time);
                for &datum in placed.problem().graph().outputs(task) {
                    placed.sends().local_consumers(datum).iter().for_each(|&task| self.deliver(task));
                    let device = placed.device_of(task).index();
                    self.ready[device].extend(placed.sends().of_datum(datum));
                }
            }
        }
    }

    /// Records that one more predecessor of `task` has been chosen, or that one more datum has arrived.
    fn announce(&mut self, task: TaskId) {
        self.open[task.index()] -= 1;
        self.queued[self.placed.device_of(task).index()] += usize::from(self.open[task.index()] == 0);
    }

    fn deliver(&mut self, task: TaskId) {
        self.missing[task.index()] -= 1;
        if self.missing[task.index()] == 0 {
            self.ready[self.placed.device_of(task).index()].push(self.placed.item(task));
        }
    }
}
