//! Event loop of the simulator.

use super::links::{Links, Pair};
use super::ready::Queues;
use super::routes::Routes;
use super::running::Running;
use crate::device_sets::DeviceSets;
use crate::graph::{DatumId, TaskId};
use crate::network::Network;
use crate::order::{PlacedGraph, Rule};
use crate::platform::DeviceId;
use crate::rules::{LinkContention, Slowdowns};
use crate::schedule::{Schedule, Span, TransferSpan};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Inputs of a simulation.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'r> {
    pub(crate) placed: &'r PlacedGraph<'r>,
    pub(crate) rule: &'r Rule,
    /// Time limit, and for each item the least time from its start to the end of everything that depends on it. The run
    /// stops if it cannot meet the limit.
    pub(crate) limit: Option<(f64, &'r [f64])>,
    /// Whether the start of a transfer announces its arrival to the waiting tasks. Then there is one event per waiting
    /// task instead of one per transfer. It must be false if links are contended, or if each arrival changes ranks.
    pub(crate) foresight: bool,
}

impl<'r> Scene<'r> {
    /// Creates inputs without a limit.
    pub(crate) fn new(placed: &'r PlacedGraph<'r>, rule: &'r Rule) -> Self {
        let contention = placed.problem().rules().contention;
        let foresight = contention == LinkContention::None && !matches!(rule, Rule::SuccessorRank { .. });
        Scene { placed, rule, limit: None, foresight }
    }

    fn slowdowns(&self) -> &'r Slowdowns {
        &self.placed.problem().rules().slowdowns
    }
}

/// Events by time as bits. Times are not negative, so their bits compare as the numbers do.
pub(super) type Events = BinaryHeap<Reverse<(u64, Happening)>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    /// A device has finished an item.
    Done(usize),
    /// The latest announced input of a task has arrived.
    Ready(TaskId),
    /// A transfer no longer occupies its link, and arrives later.
    Freed(usize),
    /// A send has arrived; a transfer without delay also frees its link.
    Arrived(usize),
}

/// State of a simulation at one moment, in vectors that stay allocated between runs.
#[derive(Default)]
pub(crate) struct Engine {
    now: f64,
    events: Events,
    running: Running,
    ready: Queues,
    /// Devices that may have an item to start.
    awake: DeviceSets,
    /// Devices that were awake when a round began.
    visited: DeviceSets,
    /// Inputs of each task.
    inputs: Vec<Inputs>,
    links: Links,
    /// Used instead of `links` if the platform has a network.
    routes: Routes,
    /// Whether the limit can no longer be met.
    late: bool,
    start: Vec<f64>,
    /// End of each item.
    end: Vec<f64>,
    transfer_start: Vec<f64>,
    sequence: Vec<usize>,
    makespan: f64,
}

/// Inputs of a task that have not arrived.
#[derive(Debug, Clone, Copy)]
struct Inputs {
    /// Number of inputs that have neither arrived nor been announced.
    missing: u32,
    /// Arrival of the latest announced input.
    arrival: f64,
}

impl Engine {
    /// Runs the simulation to the end; returns whether it ended within the limit.
    pub(crate) fn run(&mut self, scene: &Scene<'_>) -> bool {
        self.reset(scene);
        for task in scene.placed.problem().graph().task_ids() {
            if self.inputs[task.index()].missing == 0 {
                self.make_ready(scene, scene.placed.item(task));
            }
        }
        while !self.late {
            self.do_instant_items(scene);
            self.start_items(scene);
            self.running.retime(scene.slowdowns(), self.now, &mut self.events);
            let Some(&Reverse((time, _))) = self.events.peek() else {
                break;
            };
            self.now = f64::from_bits(time);
            self.apply_events(scene);
        }
        !self.late
    }

    fn reset(&mut self, scene: &Scene<'_>) {
        let graph = scene.placed.problem().graph();
        let devices = scene.placed.problem().platform().device_count();
        (self.now, self.makespan, self.late) = (0.0, 0.0, false);
        self.events.clear();
        self.sequence.clear();
        self.ready.reset(scene.placed, scene.rule);
        let contended = scene.placed.problem().rules().contention != LinkContention::None;
        self.links.reset(if contended && network(scene).is_none() { devices } else { 0 });
        self.routes = Routes::default();
        (self.awake, self.visited) = (DeviceSets::empty(1, devices), DeviceSets::empty(1, devices));
        self.running.reset(devices);
        refill(&mut self.start, scene.placed.item_count(), 0.0);
        refill(&mut self.end, scene.placed.item_count(), 0.0);
        refill(&mut self.transfer_start, scene.placed.sends().count(), 0.0);
        self.inputs.clear();
        let missing = graph.task_ids().map(|task| graph.inputs(task).len() as u32);
        self.inputs.extend(missing.map(|missing| Inputs { missing, arrival: 0.0 }));
    }

    /// Applies every event of this moment; returns whether there was one.
    fn apply_events(&mut self, scene: &Scene<'_>) -> bool {
        let mut any = false;
        while let Some(&Reverse((time, what))) = self.events.peek()
            && f64::from_bits(time) <= self.now
        {
            self.events.pop();
            match what {
                Happening::Ready(task) => self.make_ready(scene, scene.placed.item(task)),
                Happening::Freed(send) => self.free_link(scene, send),
                Happening::Arrived(send) => self.arrive(scene, send),
                Happening::Done(item) => {
                    let device = scene.placed.device(item);
                    if !self.running.finish(scene.slowdowns(), device, item, time) {
                        continue;
                    }
                    self.awake.insert(0, device);
                    self.complete(scene, item);
                }
            }
            any = true;
        }
        any
    }

    /// Runs all items without duration, and the items that become possible by them, before any device starts another
    /// item.
    fn do_instant_items(&mut self, scene: &Scene<'_>) {
        loop {
            while let Some(send) = self.next_transfer(scene) {
                self.start_transfer(scene, send);
            }
            let mut any = self.apply_events(scene);
            let devices = self.awake_now();
            for device in devices.iter(0) {
                while let Some(item) = self.take_next(scene, device, |time| time == 0.0) {
                    self.record_start(scene, item);
                    self.complete(scene, item);
                    any = true;
                }
            }
            self.visited = devices;
            if !any {
                return;
            }
        }
    }

    /// Returns the next transfer that can start; occupies its links.
    fn next_transfer(&mut self, scene: &Scene<'_>) -> Option<usize> {
        match network(scene) {
            Some(network) => self.routes.next(network),
            None => self.links.next(),
        }
    }

    /// Starts the next item of every device that is free.
    fn start_items(&mut self, scene: &Scene<'_>) {
        let devices = self.awake_now();
        self.awake.clear();
        for device in devices.iter(0) {
            if let Some(item) = self.take_next(scene, device, |_| true) {
                self.record_start(scene, item);
                let times = [self.now, scene.placed.time(item)];
                self.running.start(scene.slowdowns(), device, item, times, &mut self.events);
            }
        }
        self.visited = devices;
    }

    /// Returns the awake devices, in the memory of `visited`, which must be given back.
    fn awake_now(&mut self) -> DeviceSets {
        let mut devices = std::mem::take(&mut self.visited);
        devices.copy_from(&self.awake);
        devices
    }

    /// Removes the device's next item from its queue, if the device is free and the item's time satisfies `wanted`.
    fn take_next(&mut self, scene: &Scene<'_>, device: DeviceId, wanted: impl Fn(f64) -> bool) -> Option<usize> {
        if self.running.busy()[device.index()] {
            return None;
        }
        let item = self.ready.choose(device, self.running.busy()).filter(|&item| wanted(scene.placed.time(item)))?;
        self.ready.remove(device, item);
        Some(item)
    }

    fn record_start(&mut self, scene: &Scene<'_>, item: usize) {
        self.start[item] = self.now;
        self.sequence.push(item);
        self.give_up_if_late(scene, self.now, item);
    }

    /// Stops the run if `item` cannot start before `start` and therefore misses the limit.
    fn give_up_if_late(&mut self, scene: &Scene<'_>, start: f64, item: usize) {
        if let Some((limit, rest)) = scene.limit {
            self.late |= start + rest[item] > limit;
        }
    }

    /// Processes the end of an item.
    fn complete(&mut self, scene: &Scene<'_>, item: usize) {
        let placed = scene.placed;
        self.end[item] = self.now;
        let Some(task) = placed.task(item) else {
            return self.release_transfer(scene, item);
        };
        self.makespan = self.makespan.max(self.now);
        for &datum in placed.problem().graph().outputs(task) {
            for &consumer in placed.sends().local_consumers(datum) {
                self.deliver(scene, datum, consumer);
            }
            for send in placed.sends().of_datum(datum) {
                if placed.send_costs().send_operations > 0.0 {
                    self.make_ready(scene, send);
                } else {
                    (self.start[send], self.end[send]) = (self.now, self.now);
                    self.release_transfer(scene, send);
                }
            }
        }
    }

    fn release_transfer(&mut self, scene: &Scene<'_>, send: usize) {
        if is_serial(scene, send) {
            let (pair, rank) = (pair(scene, send), scene.rule.rank(send));
            match network(scene) {
                Some(_) => self.routes.wait(pair, send, rank, self.now),
                None => self.links.wait(pair, send, rank, self.now),
            }
        } else {
            self.start_transfer(scene, send);
        }
    }

    fn start_transfer(&mut self, scene: &Scene<'_>, send: usize) {
        self.transfer_start[send] = self.now;
        let time = scene.placed.transfer_time(send);
        let arrival = self.now + time;
        if is_serial(scene, send) {
            let delay = delay(scene, send);
            if delay > 0.0 {
                self.schedule_event(self.now + (time - delay).max(0.0), Happening::Freed(send));
            }
        }
        if !scene.foresight || arrival <= self.now {
            return self.schedule_event(arrival, Happening::Arrived(send));
        }
        for &task in scene.placed.sends().receivers(send) {
            let latest = &mut self.inputs[task.index()].arrival;
            *latest = latest.max(arrival);
            self.deliver(scene, scene.placed.sends().all()[send].datum, task);
        }
    }

    fn free_link(&mut self, scene: &Scene<'_>, send: usize) {
        match network(scene) {
            Some(network) => self.routes.free(network, pair(scene, send)),
            None => self.links.free(pair(scene, send)),
        }
    }

    fn arrive(&mut self, scene: &Scene<'_>, send: usize) {
        if is_serial(scene, send) && delay(scene, send) == 0.0 {
            self.free_link(scene, send);
        }
        for &task in scene.placed.sends().receivers(send) {
            self.deliver(scene, scene.placed.sends().all()[send].datum, task);
        }
    }

    /// Records that `datum` has arrived for `task`, or has been announced.
    fn deliver(&mut self, scene: &Scene<'_>, datum: DatumId, task: TaskId) {
        self.ready.deliver(scene.placed, datum, task);
        let inputs = &mut self.inputs[task.index()];
        inputs.missing -= 1;
        if inputs.missing > 0 {
            return;
        }
        let (arrival, item) = (inputs.arrival, scene.placed.item(task));
        if arrival <= self.now {
            self.make_ready(scene, item);
        } else {
            self.give_up_if_late(scene, arrival, item);
            self.schedule_event(arrival, Happening::Ready(task));
        }
    }

    fn make_ready(&mut self, scene: &Scene<'_>, item: usize) {
        self.ready.push(scene.placed, scene.rule, item, self.now);
        self.awake.insert(0, scene.placed.device(item));
    }

    fn schedule_event(&mut self, time: f64, what: Happening) {
        self.events.push(Reverse((time.to_bits(), what)));
    }

    /// Returns the end of the last task in the last run.
    pub(crate) fn makespan(&self) -> f64 {
        self.makespan
    }

    /// Returns the start of each item in the last run.
    pub(crate) fn starts(&self) -> &[f64] {
        &self.start
    }

    /// Returns the end of each item in the last run, which must have been complete.
    pub(crate) fn ends(&self) -> &[f64] {
        &self.end
    }

    /// Returns tasks, and sends if they take time, in the order of their starts in the last run.
    pub(crate) fn sequence(&self) -> &[usize] {
        &self.sequence
    }

    /// Returns a task that the last run, without a limit, did not reach.
    pub(crate) fn stuck(&self, placed: &PlacedGraph<'_>) -> Option<TaskId> {
        let mut reached = vec![false; placed.item_count()];
        self.sequence.iter().for_each(|&item| reached[item] = true);
        placed.problem().graph().task_ids().find(|&task| !reached[placed.item(task)])
    }

    /// Returns the schedule of the last run, which must have been complete.
    pub(crate) fn schedule(&self, placed: &PlacedGraph<'_>) -> Schedule {
        let task = |task| {
            let item = placed.item(task);
            Span { device: placed.device_of(task), start: self.start[item], end: self.end[item] }
        };
        let transfer = |(send, sent): (usize, &crate::transfer::Send)| {
            let &crate::transfer::Send { datum, from, to, bytes } = sent;
            let (send_start, start) = (self.start[send], self.transfer_start[send]);
            let (send_end, end) = (self.end[send], start + placed.transfer_time(send));
            TransferSpan { datum, from, to, bytes, send_start, send_end, start, end }
        };
        Schedule {
            tasks: placed.problem().graph().task_ids().map(task).collect(),
            transfers: placed.sends().all().iter().enumerate().map(transfer).collect(),
            order: self.sequence.iter().filter_map(|&item| placed.task(item)).collect(),
            makespan: self.makespan,
            traffic: placed.sends().traffic(),
        }
    }
}

fn refill<T: Clone>(list: &mut Vec<T>, count: usize, value: T) {
    list.clear();
    list.resize(count, value);
}

/// Returns the last part of a transfer's time, in which it does not occupy its link.
fn delay(scene: &Scene<'_>, send: usize) -> f64 {
    let (from, to) = pair(scene, send);
    scene.placed.problem().rules().delays.time(from, to)
}

/// Whether a transfer has to wait until its link is free.
fn is_serial(scene: &Scene<'_>, send: usize) -> bool {
    let (from, to) = pair(scene, send);
    scene.placed.problem().is_serial(from, to)
}

fn network<'r>(scene: &Scene<'r>) -> Option<&'r Network> {
    scene.placed.problem().platform().network()
}

fn pair(scene: &Scene<'_>, send: usize) -> Pair {
    let send = scene.placed.sends().all()[send];
    (send.from, send.to)
}
