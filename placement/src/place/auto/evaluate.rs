//! The makespan of many placements of one problem, one after the other: what [`simulate`] says under PCT, several times as fast.
//!
//! The same events as the simulator's happen at the same times, but in vectors that stay allocated, with one event for each task
//! that has to wait for transfers instead of one for each transfer. An evaluation ends as soon as the makespan is known to
//! exceed a limit: when something starts or becomes ready so late that what follows from it ends after the limit.
//!
//! Where links are contended, the simulator itself is asked.

use super::network::Network;
use crate::graph::{DatumId, TaskId};
use crate::order::Pct;
use crate::platform::DeviceId;
use crate::problem::Problem;
use crate::simulate::{LinkContention, SimulateOptions, simulate};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times are sums of rounded numbers, in another order than those of what follows; so much, relatively, is still no excess.
const ROUNDING: f64 = 1e-9;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// The device has finished its item.
    Done(DeviceId),
    /// The last of a task's inputs has arrived.
    Ready(TaskId),
    /// A datum has arrived without delay.
    Arrived(u32),
}

/// When everything happens under the placement that was evaluated last.
pub(super) struct Evaluator<'p> {
    network: Network<'p>,
    options: SimulateOptions,
    limit: f64,
    /// Whether something can no longer end within the limit.
    late: bool,
    now: f64,
    /// Times as bits: they are not negative, so that bits compare as numbers do.
    events: BinaryHeap<Reverse<(u64, Happening)>>,
    /// By device: the item that it does.
    running: Vec<Option<usize>>,
    /// By device: rank and, of equals first the smaller, item.
    ready: Vec<BinaryHeap<(u64, Reverse<u32>)>>,
    /// One bit a device: whether it may have something to start.
    awake: Vec<u64>,
    /// The devices that were awake when a round of instant items began.
    visited: Vec<u64>,
    /// By task: inputs that are not on their way yet.
    missing: Vec<u32>,
    /// By task: when the last of its inputs that are on their way arrives.
    arrival: Vec<f64>,
    start: Vec<f64>,
    sequence: Vec<u32>,
    makespan: f64,
}

impl<'p> Evaluator<'p> {
    pub(super) fn new(problem: &'p Problem<'p>, options: SimulateOptions) -> Self {
        let devices = problem.platform().device_count();
        Evaluator {
            network: Network::new(problem, &options),
            options,
            limit: f64::INFINITY,
            late: false,
            now: 0.0,
            events: BinaryHeap::new(),
            running: vec![None; devices],
            ready: vec![BinaryHeap::new(); devices],
            awake: vec![0; devices.div_ceil(64)],
            visited: Vec::new(),
            missing: Vec::new(),
            arrival: Vec::new(),
            start: Vec::new(),
            sequence: Vec::new(),
            makespan: 0.0,
        }
    }

    /// The makespan under PCT with task `t` on `device_of[t]`, which must be able to run it; `None` if it exceeds `limit`.
    pub(super) fn evaluate(&mut self, device_of: &[DeviceId], limit: f64) -> Option<f64> {
        self.network.fill(device_of);
        self.limit = limit * (1.0 + ROUNDING);
        self.reset();
        let within = match self.options.contention {
            LinkContention::None => self.run(),
            LinkContention::Serial => self.ask_simulator(device_of),
        };
        (within && self.makespan <= limit).then_some(self.makespan)
    }

    fn reset(&mut self) {
        let graph = self.network.problem().graph();
        (self.now, self.makespan, self.late) = (0.0, 0.0, false);
        self.events.clear();
        self.running.fill(None);
        self.ready.iter_mut().for_each(BinaryHeap::clear);
        self.awake.fill(0);
        self.missing.clear();
        self.missing.extend(graph.task_ids().map(|task| graph.inputs(task).len() as u32));
        self.arrival.clear();
        self.arrival.resize(graph.task_count(), 0.0);
        self.start.clear();
        self.start.resize(self.network.item_count(), 0.0);
        self.sequence.clear();
    }

    /// Runs everything; returns whether all of it ended within the limit.
    fn run(&mut self) -> bool {
        for task in self.network.problem().graph().task_ids() {
            if self.missing[task.index()] == 0 {
                self.make_ready(self.network.item(task));
            }
        }
        while !self.late {
            self.do_instant_items();
            self.start_items();
            let Some(&Reverse((time, _))) = self.events.peek() else {
                break;
            };
            self.now = f64::from_bits(time);
            self.apply_events();
        }
        !self.late
    }

    /// Applies every event of this moment; returns whether there was one.
    fn apply_events(&mut self) -> bool {
        let mut any = false;
        while let Some(&Reverse((time, what))) = self.events.peek() {
            if f64::from_bits(time) > self.now {
                break;
            }
            self.events.pop();
            any = true;
            match what {
                Happening::Ready(task) => self.make_ready(self.network.item(task)),
                Happening::Arrived(send) => self.arrive(send as usize),
                Happening::Done(device) => {
                    self.wake(device);
                    if let Some(item) = self.running[device.index()].take() {
                        self.complete(item);
                    }
                }
            }
        }
        any
    }

    /// Does everything that takes no time before any device commits itself.
    fn do_instant_items(&mut self) {
        loop {
            let mut any = self.apply_events();
            self.visited.clone_from(&self.awake);
            for word in 0..self.visited.len() {
                for device in devices(word, self.visited[word]) {
                    while let Some(item) = self.take_next(device, |time| time == 0.0) {
                        self.record_start(item);
                        self.complete(item);
                        any = true;
                    }
                }
            }
            if !any {
                return;
            }
        }
    }

    /// Starts the next item of every device that is free.
    fn start_items(&mut self) {
        for word in 0..self.awake.len() {
            for device in devices(word, std::mem::take(&mut self.awake[word])) {
                if let Some(item) = self.take_next(device, |_| true) {
                    self.record_start(item);
                    self.running[device.index()] = Some(item);
                    let end = self.now + self.network.time(item);
                    self.events.push(Reverse((end.to_bits(), Happening::Done(device))));
                }
            }
        }
    }

    /// Takes the device's next item out of its queue, if the device is free and the item's time is as wanted.
    fn take_next(&mut self, device: DeviceId, wanted: impl Fn(f64) -> bool) -> Option<usize> {
        if self.running[device.index()].is_some() {
            return None;
        }
        let &(_, Reverse(item)) = self.ready[device.index()].peek()?;
        if !wanted(self.network.time(item as usize)) {
            return None;
        }
        self.ready[device.index()].pop();
        Some(item as usize)
    }

    fn record_start(&mut self, item: usize) {
        self.start[item] = self.now;
        self.sequence.push(item as u32);
        if item >= self.network.sends().len() {
            self.makespan = self.makespan.max(self.now + self.network.time(item));
        }
        self.late |= self.now + self.network.rest(item) > self.limit;
    }

    /// What follows from an item that has been done.
    fn complete(&mut self, item: usize) {
        let Some(task) = self.network.task(item) else {
            return self.transfer(item);
        };
        let graph = self.network.problem().graph();
        for &datum in graph.outputs(task) {
            self.deliver_local(datum);
            for send in self.network.sends_of(datum) {
                if self.options.send_costs.send_operations > 0.0 {
                    self.make_ready(send);
                } else {
                    self.start[send] = self.now;
                    self.transfer(send);
                }
            }
        }
    }

    fn deliver_local(&mut self, datum: DatumId) {
        for at in 0..self.network.local_consumers(datum).len() {
            self.deliver(self.network.local_consumers(datum)[at]);
        }
    }

    /// The send at `send` takes its link.
    fn transfer(&mut self, send: usize) {
        let arrival = self.now + self.network.sends()[send].transfer;
        if arrival <= self.now {
            self.events.push(Reverse((arrival.to_bits(), Happening::Arrived(send as u32))));
            return;
        }
        for at in 0..self.network.receivers(send).len() {
            let task = self.network.receivers(send)[at];
            let latest = &mut self.arrival[task.index()];
            *latest = latest.max(arrival);
            self.deliver(task);
        }
    }

    fn arrive(&mut self, send: usize) {
        for at in 0..self.network.receivers(send).len() {
            self.deliver(self.network.receivers(send)[at]);
        }
    }

    /// One more input of `task` is there or on its way.
    fn deliver(&mut self, task: TaskId) {
        self.missing[task.index()] -= 1;
        if self.missing[task.index()] > 0 {
            return;
        }
        let arrival = self.arrival[task.index()];
        if arrival <= self.now {
            self.make_ready(self.network.item(task));
        } else {
            self.late |= arrival + self.network.rest(self.network.item(task)) > self.limit;
            self.events.push(Reverse((arrival.to_bits(), Happening::Ready(task))));
        }
    }

    fn make_ready(&mut self, item: usize) {
        let device = self.network.device(item);
        let rank = self.network.rank(item);
        self.ready[device.index()].push((rank.to_bits(), Reverse(item as u32)));
        self.wake(device);
    }

    fn wake(&mut self, device: DeviceId) {
        self.awake[device.index() / 64] |= 1 << (device.index() % 64);
    }

    fn ask_simulator(&mut self, device_of: &[DeviceId]) -> bool {
        let Ok(schedule) = simulate(self.network.problem(), device_of, &Pct, &self.options) else {
            return false;
        };
        for (send, span) in schedule.transfers.iter().enumerate() {
            self.start[send] = span.send_start;
        }
        for (task, span) in self.network.problem().graph().task_ids().zip(&schedule.tasks) {
            let item = self.network.item(task);
            self.start[item] = span.start;
        }
        self.makespan = schedule.makespan;
        self.sequence_by_start();
        true
    }

    /// Items by start, and those that start together as they are connected.
    fn sequence_by_start(&mut self) {
        let graph = self.network.problem().graph();
        for &task in graph.topological() {
            self.sequence.push(self.network.item(task) as u32);
            if self.options.send_costs.send_operations > 0.0 {
                let sends = graph.outputs(task).iter().flat_map(|&datum| self.network.sends_of(datum));
                self.sequence.extend(sends.map(|send| send as u32));
            }
        }
        let times = |&item: &u32| (self.start[item as usize], self.network.time(item as usize));
        self.sequence.sort_by(|one, other| {
            let (one, other) = (times(one), times(other));
            one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
        });
    }

    pub(super) fn network(&self) -> &Network<'p> {
        &self.network
    }

    /// By item: when it starts.
    pub(super) fn starts(&self) -> &[f64] {
        &self.start
    }

    /// Tasks, and sends where sends take time, by start; each after what it waits for.
    pub(super) fn sequence(&self) -> &[u32] {
        &self.sequence
    }
}

/// The devices whose bits are set in a word.
fn devices(word: usize, mut bits: u64) -> impl Iterator<Item = DeviceId> {
    std::iter::from_fn(move || {
        let device = (bits != 0).then(|| DeviceId(64 * word as u32 + bits.trailing_zeros()))?;
        bits &= bits - 1;
        Some(device)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::CostTable;
    use crate::graph::{GraphBuilder, Task};
    use crate::order::SendCosts;
    use crate::platform::{Device, DeviceKind, Platform};
    use crate::problem::MemoryRule;
    use arbtest::arbitrary::{Result, Unstructured};

    const OPTIONS: [SimulateOptions; 4] = [
        SimulateOptions {
            send_costs: SendCosts { send_operations: 0.0, receive_operations: 0.0 },
            contention: LinkContention::None,
        },
        SimulateOptions {
            send_costs: SendCosts { send_operations: 2.0, receive_operations: 1.0 },
            contention: LinkContention::None,
        },
        SimulateOptions::THESIS,
        SimulateOptions {
            send_costs: SendCosts { send_operations: 1.0, receive_operations: 0.0 },
            contention: LinkContention::Serial,
        },
    ];

    /// A small problem with many ties, times of zero among them, and a placement of it.
    fn with_placement(random: &mut Unstructured<'_>, check: impl FnOnce(&Problem<'_>, &[DeviceId])) -> Result<()> {
        let tasks = random.int_in_range(1..=14u32)?;
        let devices = random.int_in_range(1..=4u32)?;
        let mut builder = GraphBuilder::new();
        let ids: Vec<TaskId> = (0..tasks).map(|_| builder.task(Task::new("t"))).collect();
        for &producer in &ids {
            for _ in 0..random.int_in_range(0..=2u8)? {
                let datum = builder.datum(producer, random.int_in_range(0..=3u64)?);
                for &consumer in &ids[producer.index() + 1..] {
                    if random.ratio(1, 4)? {
                        builder.consume(datum, consumer);
                    }
                }
            }
        }
        let graph = builder.build().unwrap();
        let device = |_| Device::new("d", DeviceKind::Cpu);
        let platform = Platform::uniform((0..devices).map(device).collect(), 0.0, 1.0).unwrap();
        let mut times = Vec::new();
        for _ in 0..tasks * devices {
            times.push(f64::from(random.int_in_range(0..=3u8)?));
        }
        let time = |task: TaskId, device: DeviceId| Some(times[task.index() * devices as usize + device.index()]);
        let costs = CostTable::from_fn(&graph, &platform, time).unwrap();
        let mut device_of = Vec::new();
        for _ in 0..tasks {
            device_of.push(DeviceId(random.int_in_range(0..=devices - 1)?));
        }
        check(&Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap(), &device_of);
        Ok(())
    }

    #[test]
    fn evaluations_are_simulations() {
        arbtest::arbtest(|random| {
            with_placement(random, |problem, device_of| {
                for options in OPTIONS {
                    let mut evaluator = Evaluator::new(problem, options);
                    let schedule = simulate(problem, device_of, &Pct, &options).unwrap();
                    assert_eq!(evaluator.evaluate(device_of, f64::INFINITY), Some(schedule.makespan));
                    let network = evaluator.network();
                    for (task, span) in problem.graph().task_ids().zip(&schedule.tasks) {
                        assert_eq!(evaluator.starts()[network.item(task)], span.start, "{options:?}");
                    }
                    for (send, span) in schedule.transfers.iter().enumerate() {
                        assert_eq!(evaluator.starts()[send], span.send_start);
                        assert_eq!(network.sends()[send].transfer, span.end - span.start);
                    }
                    assert_eq!(evaluator.evaluate(device_of, schedule.makespan), Some(schedule.makespan));
                    assert_eq!(evaluator.evaluate(device_of, schedule.makespan - 0.01), None);
                }
            })
        })
        .budget_ms(800);
    }

    /// One evaluation leaves nothing behind for the next.
    #[test]
    fn an_evaluation_that_ended_early_changes_nothing_later() {
        arbtest::arbtest(|random| {
            with_placement(random, |problem, device_of| {
                let mut evaluator = Evaluator::new(problem, SimulateOptions::THESIS);
                let makespan = evaluator.evaluate(device_of, f64::INFINITY);
                for limit in [0.0, makespan.unwrap_or(0.0) / 2.0] {
                    evaluator.evaluate(device_of, limit);
                    assert_eq!(evaluator.evaluate(device_of, f64::INFINITY), makespan);
                }
            })
        })
        .budget_ms(200);
    }
}
