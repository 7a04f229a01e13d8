//! The event loop of the simulator.

use super::LinkContention;
use super::links::Links;
use super::ready::{Queues, Ranked};
use crate::graph::{DatumId, TaskId};
use crate::order::{Item, PlacedGraph, Rule};
use crate::platform::DeviceId;
use crate::schedule::{Schedule, Span, TransferSpan};
use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};

/// The state of a simulation at one moment.
pub(super) struct Engine<'f> {
    placed: &'f PlacedGraph<'f>,
    rule: &'f Rule,
    now: f64,
    events: BinaryHeap<Event>,
    /// By device.
    running: Vec<bool>,
    ready: Queues<'f>,
    /// Inputs that are not there yet, by task.
    missing: Vec<u32>,
    /// Devices that may have something to start.
    awake: BTreeSet<DeviceId>,
    links: Links,
    schedule: Schedule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Done(Item),
    Arrived(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Event {
    time: f64,
    what: Happening,
}

impl Eq for Event {}

impl Ord for Event {
    /// The earliest event is the greatest, because the heap gives out its greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(other.what.cmp(&self.what))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'f> Engine<'f> {
    pub(super) fn new(placed: &'f PlacedGraph<'f>, rule: &'f Rule, contention: LinkContention) -> Self {
        let graph = placed.problem().graph();
        let count = placed.problem().platform().device_count();
        Engine {
            placed,
            rule,
            now: 0.0,
            events: BinaryHeap::new(),
            running: vec![false; count],
            ready: Queues::under(rule, placed),
            missing: graph.task_ids().map(|task| graph.inputs(task).len() as u32).collect(),
            awake: BTreeSet::new(),
            links: Links::new(contention),
            schedule: blank(placed),
        }
    }

    /// Runs everything and returns what happened.
    pub(super) fn run(mut self) -> Schedule {
        for task in self.placed.problem().graph().task_ids() {
            if self.missing[task.index()] == 0 {
                self.make_ready(Item::Task(task));
            }
        }
        loop {
            self.do_instant_items();
            self.start_items();
            let Some(next) = self.events.peek() else {
                break;
            };
            self.now = next.time;
            self.apply_events();
        }
        let ends = self.schedule.tasks.iter().map(|span| span.end);
        self.schedule.makespan = ends.fold(0.0, f64::max);
        self.schedule.traffic = self.placed.sends().traffic();
        self.schedule
    }

    /// Applies every event of this moment; returns whether there was one.
    fn apply_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.events.peek().copied().filter(|event| event.time <= self.now) {
            self.events.pop();
            any = true;
            match event.what {
                Happening::Done(item) => {
                    let device = self.placed.device(item);
                    self.running[device.index()] = false;
                    self.awake.insert(device);
                    self.complete(item);
                }
                Happening::Arrived(send) => self.arrive(send),
            }
        }
        any
    }

    /// Does everything that takes no time, and what becomes possible by it, before any device commits itself.
    fn do_instant_items(&mut self) {
        loop {
            self.start_transfers();
            let mut any = self.apply_events();
            for device in self.awake.clone() {
                while let Some(item) = self.take_next(device, |time| time == 0.0) {
                    self.record_start(item, 0.0);
                    self.complete(item);
                    any = true;
                }
            }
            if !any {
                return;
            }
        }
    }

    /// Starts the next item of every device that is free.
    fn start_items(&mut self) {
        while let Some(device) = self.awake.pop_first() {
            if let Some(item) = self.take_next(device, |_| true) {
                let time = self.placed.time(item);
                self.record_start(item, time);
                self.running[device.index()] = true;
                self.events.push(Event { time: self.now + time, what: Happening::Done(item) });
            }
        }
    }

    /// Takes the device's next item out of its queue, if the device is free and the item's time is as wanted.
    fn take_next(&mut self, device: DeviceId, wanted: impl Fn(f64) -> bool) -> Option<Item> {
        if self.running[device.index()] {
            return None;
        }
        let position = self.ready.choose(device, &self.running)?;
        let item = self.placed.item(position);
        if !wanted(self.placed.time(item)) {
            return None;
        }
        self.ready.remove(device, position);
        Some(item)
    }

    fn record_start(&mut self, item: Item, time: f64) {
        match item {
            Item::Task(task) => {
                let device = self.placed.device_of(task);
                self.schedule.tasks[task.index()] = Span { device, start: self.now, end: self.now + time };
                self.schedule.order.push(task);
            }
            Item::Send(send) => {
                let transfer = &mut self.schedule.transfers[send];
                (transfer.send_start, transfer.send_end) = (self.now, self.now + time);
            }
        }
    }

    /// What follows from an item that has been done.
    fn complete(&mut self, item: Item) {
        let placed = self.placed;
        match item {
            Item::Send(send) => self.release_transfer(send),
            Item::Task(task) => {
                for &datum in placed.problem().graph().outputs(task) {
                    self.deliver(datum, placed.sends().local_consumers(datum));
                    placed.sends().of_datum(datum).for_each(|send| self.release_send(send));
                }
            }
        }
    }

    fn release_send(&mut self, send: usize) {
        if self.placed.send_costs().send_operations > 0.0 {
            self.make_ready(Item::Send(send));
        } else {
            self.record_start(Item::Send(send), 0.0);
            self.release_transfer(send);
        }
    }

    fn release_transfer(&mut self, send: usize) {
        if !self.links.are_shared() {
            return self.start_transfer(send);
        }
        let rank = match self.rule {
            Rule::Earliest { .. } => 0.0,
            Rule::Greatest(ranks) | Rule::SuccessorRank { otherwise: ranks } => {
                ranks[self.placed.position(Item::Send(send))]
            }
        };
        let pair = self.pair(send);
        self.links.wait(pair, Ranked { rank, tie: 0, position: send }, self.now);
    }

    fn start_transfers(&mut self) {
        while let Some(send) = self.links.next() {
            self.start_transfer(send);
        }
    }

    fn start_transfer(&mut self, send: usize) {
        let transfer = &mut self.schedule.transfers[send];
        (transfer.start, transfer.end) = (self.now, self.now + self.placed.transfer_time(send));
        self.events.push(Event { time: transfer.end, what: Happening::Arrived(send) });
    }

    fn arrive(&mut self, send: usize) {
        if self.links.are_shared() {
            let pair = self.pair(send);
            self.links.free(pair);
        }
        let placed = self.placed;
        self.deliver(placed.sends().all()[send].datum, placed.sends().receivers(send));
    }

    /// `datum` is there for each of `tasks`.
    fn deliver(&mut self, datum: DatumId, tasks: &[TaskId]) {
        for &task in tasks {
            self.ready.deliver(datum, task);
            self.missing[task.index()] -= 1;
            if self.missing[task.index()] == 0 {
                self.make_ready(Item::Task(task));
            }
        }
    }

    fn make_ready(&mut self, item: Item) {
        let device = self.placed.device(item);
        let position = self.placed.position(item);
        self.ready.push(device, item, position, self.now);
        self.awake.insert(device);
    }

    fn pair(&self, send: usize) -> super::links::Pair {
        let send = self.placed.sends().all()[send];
        (send.from, send.to)
    }
}

/// A schedule with every place filled in and every time still 0.
fn blank(placed: &PlacedGraph<'_>) -> Schedule {
    let span = |task| Span { device: placed.device_of(task), start: 0.0, end: 0.0 };
    let transfers = placed.sends().all().iter().map(|send| TransferSpan {
        datum: send.datum,
        from: send.from,
        to: send.to,
        bytes: send.bytes,
        send_start: 0.0,
        send_end: 0.0,
        start: 0.0,
        end: 0.0,
    });
    Schedule {
        tasks: placed.problem().graph().task_ids().map(span).collect(),
        transfers: transfers.collect(),
        order: Vec::with_capacity(placed.task_count()),
        makespan: 0.0,
        traffic: 0,
    }
}
