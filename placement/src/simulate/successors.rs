//! Queues for the maximum successor rank: which ready item sets most others free right now.
//!
//! Of an item's rank (see [`Msr`](crate::order::Msr)) one part changes only when an input arrives: the points for successors,
//! for other devices and for what the item sets free. The other part, 5 points for each device that it would wake, changes
//! whenever a device starts or ends. So the ready items of a device are kept in groups that would wake the same devices. Within a
//! group the order stays, and a decision compares the best of each group.
//!
//! A decision takes `O(groups)`: at most the ready items, and mostly a few, because what sets nothing free is one group. An
//! arrival takes `O(log)` of the ready items, and constant time where it leaves more than one producer to wait for.

use crate::graph::{DatumId, TaskId};
use crate::order::{Item, PlacedGraph};
use crate::platform::DeviceId;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Points for a successor that an idle device could start at once.
const WAKES_DEVICE: f64 = 5.0;

/// The devices of the successors that an item sets free, ascending, each with their number.
type Wakes = Vec<(DeviceId, u32)>;

fn add(wakes: &mut Wakes, target: DeviceId) {
    match wakes.binary_search_by_key(&target, |&(device, _)| device) {
        Ok(place) => wakes[place].1 += 1,
        Err(place) => wakes.insert(place, (target, 1)),
    }
}

/// Greater points first, then the longer way to the end, then the smaller position.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scored {
    points: f64,
    otherwise: f64,
    position: usize,
}

impl Eq for Scored {}

impl Ord for Scored {
    fn cmp(&self, other: &Self) -> Ordering {
        self.points
            .total_cmp(&other.points)
            .then(self.otherwise.total_cmp(&other.otherwise))
            .then(other.position.cmp(&self.position))
    }
}

impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The inputs of a task that have not arrived, in sums that say whether they are all of one producer, or one datum only.
#[derive(Debug, Clone, Copy, Default)]
struct Awaited {
    count: u32,
    producers: u64,
    squares: u128,
    data: u32,
}

impl Awaited {
    fn add(&mut self, datum: DatumId, producer: TaskId) {
        self.count += 1;
        self.producers += u64::from(producer.0);
        self.squares += u128::from(producer.0) * u128::from(producer.0);
        self.data ^= datum.0;
    }

    fn remove(&mut self, datum: DatumId, producer: TaskId) {
        self.count -= 1;
        self.producers -= u64::from(producer.0);
        self.squares -= u128::from(producer.0) * u128::from(producer.0);
        self.data ^= datum.0;
    }

    /// The producer of all of them, if they have only one. Numbers are all alike exactly if the square of their sum is their
    /// count times the sum of their squares (Cauchy and Schwarz).
    fn only_producer(&self) -> Option<TaskId> {
        let sum = u128::from(self.producers);
        let alike = self.count > 0 && sum * sum == u128::from(self.count) * self.squares;
        alike.then(|| TaskId((self.producers / u64::from(self.count)) as u32))
    }

    /// The datum, if it is only one.
    fn only_datum(&self) -> Option<DatumId> {
        (self.count == 1).then_some(DatumId(self.data))
    }
}

/// The ready items of every device.
pub(super) struct SuccessorQueues<'f> {
    placed: &'f PlacedGraph<'f>,
    otherwise: &'f [f64],
    /// By device; no group is empty.
    groups: Vec<BTreeMap<Wakes, BTreeSet<Scored>>>,
    /// By position: points without woken devices, and which devices would wake; of ready items.
    ready: Vec<Option<(f64, Wakes)>>,
    /// By task.
    awaited: Vec<Awaited>,
}

impl<'f> SuccessorQueues<'f> {
    pub(super) fn new(placed: &'f PlacedGraph<'f>, otherwise: &'f [f64]) -> Self {
        let graph = placed.problem().graph();
        let awaited = graph.task_ids().map(|task| {
            let mut awaited = Awaited::default();
            graph.inputs(task).iter().for_each(|&datum| awaited.add(datum, graph.producer(datum)));
            awaited
        });
        SuccessorQueues {
            placed,
            otherwise,
            groups: vec![BTreeMap::new(); placed.problem().platform().device_count()],
            ready: vec![None; placed.item_count()],
            awaited: awaited.collect(),
        }
    }

    pub(super) fn push(&mut self, device: DeviceId, item: Item) {
        let (points, wakes) = match item {
            Item::Send(send) => self.rank(device, self.placed.sends().receivers(send), |awaited| awaited.count == 1),
            Item::Task(task) => {
                let successors = self.placed.problem().graph().successors(task);
                self.rank(device, successors, |awaited| awaited.only_producer() == Some(task))
            }
        };
        self.insert(device, self.placed.position(item), points, wakes);
    }

    /// The points of an item on `device` without woken devices, and the devices of the successors that it frees.
    fn rank(&self, device: DeviceId, successors: &[TaskId], frees: impl Fn(&Awaited) -> bool) -> (f64, Wakes) {
        let mut wakes = Wakes::new();
        let mut points = 0.0;
        for &successor in successors {
            let target = self.placed.device_of(successor);
            points += if target == device { 1.0 } else { 2.0 };
            if frees(&self.awaited[successor.index()]) {
                points += 1.0;
                add(&mut wakes, target);
            }
        }
        (points, wakes)
    }

    fn insert(&mut self, device: DeviceId, position: usize, points: f64, wakes: Wakes) {
        let scored = Scored { points, otherwise: self.otherwise[position], position };
        let groups = &mut self.groups[device.index()];
        match groups.get_mut(&wakes) {
            Some(group) => {
                group.insert(scored);
            }
            None => {
                groups.insert(wakes.clone(), BTreeSet::from([scored]));
            }
        }
        self.ready[position] = Some((points, wakes));
    }

    pub(super) fn choose(&self, device: DeviceId, running: &[bool]) -> Option<usize> {
        let idle = |device: DeviceId| !running[device.index()] && self.groups[device.index()].is_empty();
        let best_of = |(wakes, group): (&Wakes, &BTreeSet<Scored>)| {
            let woken: u32 = wakes.iter().filter(|(device, _)| idle(*device)).map(|(_, count)| count).sum();
            group.last().map(|best| Scored { points: best.points + WAKES_DEVICE * f64::from(woken), ..*best })
        };
        self.groups[device.index()].iter().filter_map(best_of).max().map(|best| best.position)
    }

    /// Takes out a ready item.
    pub(super) fn remove(&mut self, device: DeviceId, position: usize) {
        if let Some((points, wakes)) = self.ready[position].take() {
            self.take_out(device, position, points, &wakes);
        }
    }

    fn take_out(&mut self, device: DeviceId, position: usize, points: f64, wakes: &Wakes) {
        let groups = &mut self.groups[device.index()];
        if let Some(group) = groups.get_mut(wakes) {
            group.remove(&Scored { points, otherwise: self.otherwise[position], position });
            if group.is_empty() {
                groups.remove(wakes);
            }
        }
    }

    /// Notes that `datum` has come to `task`; the item that brings all the rest gets its points for that.
    pub(super) fn deliver(&mut self, datum: DatumId, task: TaskId) {
        let awaited = &mut self.awaited[task.index()];
        awaited.remove(datum, self.placed.problem().graph().producer(datum));
        let awaited = *awaited;
        if let Some(producer) = awaited.only_producer() {
            self.free(Item::Task(producer), task);
        }
        if let Some(send) = awaited.only_datum().and_then(|datum| self.send_to(datum, self.placed.device_of(task))) {
            self.free(Item::Send(send), task);
        }
    }

    fn send_to(&self, datum: DatumId, target: DeviceId) -> Option<usize> {
        let sends = self.placed.sends();
        let range = sends.of_datum(datum);
        let place = sends.all()[range.clone()].binary_search_by_key(&target, |send| send.to).ok()?;
        Some(range.start + place)
    }

    /// Notes that `item` frees `task` from now on, if it is ready.
    fn free(&mut self, item: Item, task: TaskId) {
        let position = self.placed.position(item);
        let Some((points, mut wakes)) = self.ready[position].take() else {
            return;
        };
        let device = self.placed.device(item);
        self.take_out(device, position, points, &wakes);
        add(&mut wakes, self.placed.device_of(task));
        self.insert(device, position, points + 1.0, wakes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::OperationsOverSpeed;
    use crate::graph::GraphBuilder;
    use crate::order::SendCosts;
    use crate::problem::{MemoryRule, Problem};
    use crate::sample;
    use arbtest::arbitrary::{Result, Unstructured};

    /// What has happened, kept plainly, and ranks computed anew from equation 5.2 each time.
    struct Plain<'f> {
        placed: &'f PlacedGraph<'f>,
        /// Inputs that have not arrived, by task.
        missing: Vec<Vec<DatumId>>,
        ready: Vec<Item>,
        running: Vec<bool>,
    }

    impl Plain<'_> {
        fn is_idle(&self, device: DeviceId) -> bool {
            !self.running[device.index()] && !self.ready.iter().any(|&item| self.placed.device(item) == device)
        }

        fn rank(&self, item: Item) -> f64 {
            let graph = self.placed.problem().graph();
            let successors = match item {
                Item::Send(send) => self.placed.sends().receivers(send),
                Item::Task(task) => graph.successors(task),
            };
            let brings = |datum: &DatumId| match item {
                Item::Send(send) => self.placed.sends().all()[send].datum == *datum,
                Item::Task(task) => graph.producer(*datum) == task,
            };
            let points = |&successor: &TaskId| {
                let target = self.placed.device_of(successor);
                let freed = self.missing[successor.index()].iter().all(brings);
                let woken = freed && self.is_idle(target);
                1.0 + f64::from(u8::from(target != self.placed.device(item)))
                    + f64::from(u8::from(freed))
                    + 5.0 * f64::from(u8::from(woken))
            };
            successors.iter().map(points).sum()
        }

        fn choose(&self, device: DeviceId, otherwise: &[f64]) -> Option<usize> {
            let mine = self.ready.iter().filter(|&&item| self.placed.device(item) == device);
            let scored = mine.map(|&item| {
                let position = self.placed.position(item);
                Scored { points: self.rank(item), otherwise: otherwise[position], position }
            });
            scored.max().map(|best| best.position)
        }
    }

    /// Draws a graph with several outputs a task and several consumers a datum on three devices.
    fn draw(random: &mut Unstructured<'_>) -> Result<(crate::graph::TaskGraph, Vec<DeviceId>)> {
        let count = random.int_in_range(1..=25u32)?;
        let mut builder: GraphBuilder = sample::tasks(&vec![1.0; count as usize]);
        for producer in 0..count - 1 {
            for _ in 0..random.int_in_range(0..=2u8)? {
                let datum = builder.datum(TaskId(producer), 1);
                for _ in 0..random.int_in_range(1..=3u8)? {
                    builder.consume(datum, TaskId(random.int_in_range(producer + 1..=count - 1)?));
                }
            }
        }
        let mut device_of = Vec::new();
        for _ in 0..count {
            device_of.push(DeviceId(random.int_in_range(0..=2)?));
        }
        Ok((builder.build().expect("edges go upwards"), device_of))
    }

    /// Makes ready or delivers, in any order, until nothing is left; compares every decision on every device.
    fn compare(placed: &PlacedGraph<'_>, random: &mut Unstructured<'_>) -> Result<()> {
        let graph = placed.problem().graph();
        let mut otherwise = Vec::new();
        for _ in 0..placed.item_count() {
            otherwise.push(f64::from(random.int_in_range(0..=2u8)?));
        }
        let missing = graph.task_ids().map(|task| graph.inputs(task).to_vec()).collect();
        let mut plain = Plain { placed, missing, ready: Vec::new(), running: vec![false; 3] };
        let mut queues = SuccessorQueues::new(placed, &otherwise);
        for task in graph.task_ids().filter(|&task| graph.inputs(task).is_empty()) {
            plain.ready.push(Item::Task(task));
            queues.push(placed.device_of(task), Item::Task(task));
        }
        while !plain.ready.is_empty() {
            plain.running = vec![random.arbitrary()?, random.arbitrary()?, random.arbitrary()?];
            for device in (0..3).map(DeviceId) {
                assert_eq!(queues.choose(device, &plain.running), plain.choose(device, &otherwise));
            }
            let done = plain.ready.swap_remove(random.int_in_range(0..=plain.ready.len() - 1)?);
            queues.remove(placed.device(done), placed.position(done));
            let mut delivered: Vec<(DatumId, TaskId)> = Vec::new();
            match done {
                Item::Send(send) => {
                    let datum = placed.sends().all()[send].datum;
                    delivered.extend(placed.sends().receivers(send).iter().map(|&task| (datum, task)));
                }
                Item::Task(task) => {
                    for &datum in graph.outputs(task) {
                        delivered.extend(placed.sends().local_consumers(datum).iter().map(|&task| (datum, task)));
                        for send in placed.sends().of_datum(datum) {
                            plain.ready.push(Item::Send(send));
                            queues.push(placed.device(Item::Send(send)), Item::Send(send));
                        }
                    }
                }
            }
            for (datum, task) in delivered {
                plain.missing[task.index()].retain(|&missing| missing != datum);
                queues.deliver(datum, task);
                if plain.missing[task.index()].is_empty() {
                    plain.ready.push(Item::Task(task));
                    queues.push(placed.device_of(task), Item::Task(task));
                }
            }
        }
        Ok(())
    }

    #[test]
    fn decisions_are_those_of_ranks_computed_anew() {
        arbtest::arbtest(|random| {
            let (graph, device_of) = draw(random)?;
            let platform = sample::platform(&[1.0; 3]);
            let costs = OperationsOverSpeed::new(&graph, &platform);
            let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
            compare(&PlacedGraph::new(&problem, &device_of, SendCosts::THESIS), random)
        })
        .budget_ms(500);
    }
}
