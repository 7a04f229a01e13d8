//! Queues for the maximum successor rank: the ready item that frees most others now goes first.
//!
//! An item's rank (see [`Msr`](crate::order::Msr)) has two parts. One changes only when an input arrives: the points
//! for successors, for other devices and for the tasks that the item frees. The other part, 5 points for each device
//! that it would wake, changes whenever a device starts or ends an item. So the ready items of a device are kept in
//! groups that would wake the same devices. Within a group the order is stable, and a decision compares the best item
//! of each group.
//!
//! A decision takes `O(groups)`: at most the number of ready items, but usually few, because all items that free
//! nothing form one group. An arrival takes `O(log)` of the ready items, and constant time if the task still waits for
//! more than one producer.

use crate::graph::{DatumId, TaskId};
use crate::order::PlacedGraph;
use crate::platform::DeviceId;
use crate::total::Total;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Points for a successor that an idle device could start at once.
const WAKES_DEVICE: f64 = 5.0;

/// Devices of the successors that an item frees, ascending, each with the number of these successors.
type Wakes = Vec<(DeviceId, u32)>;

fn add(wakes: &mut Wakes, target: DeviceId) {
    match wakes.binary_search_by_key(&target, |&(device, _)| device) {
        Ok(place) => wakes[place].1 += 1,
        Err(place) => wakes.insert(place, (target, 1)),
    }
}

/// An item with its rank: greater points first, then the longer path to the end, then the smaller number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Scored {
    points: Total,
    otherwise: Total,
    item: Reverse<usize>,
}

/// Missing inputs of a task, as sums that show whether they have one producer, or are one datum.
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

    /// Returns the producer of all missing inputs, if it is only one. Numbers are all equal if and only if the square
    /// of their sum is their count times the sum of their squares (Cauchy and Schwarz).
    fn only_producer(&self) -> Option<TaskId> {
        let sum = u128::from(self.producers);
        let alike = self.count > 0 && sum * sum == u128::from(self.count) * self.squares;
        alike.then(|| TaskId((self.producers / u64::from(self.count)) as u32))
    }

    /// Returns the missing datum, if it is only one.
    fn only_datum(&self) -> Option<DatumId> {
        (self.count == 1).then_some(DatumId(self.data))
    }
}

/// Ready items of every device.
pub(super) struct SuccessorQueues {
    /// For each item, the number that breaks ties between ranks.
    otherwise: Vec<f64>,
    /// Groups of each device; no group is empty.
    groups: Vec<BTreeMap<Wakes, BTreeSet<Scored>>>,
    /// For each ready item, its points without woken devices, and the devices that it would wake.
    ready: Vec<Option<(f64, Wakes)>>,
    /// Missing inputs of each task.
    awaited: Vec<Awaited>,
}

impl SuccessorQueues {
    pub(super) fn new(placed: &PlacedGraph<'_>, otherwise: &[f64]) -> Self {
        let graph = placed.problem().graph();
        let awaited = graph.task_ids().map(|task| {
            let mut awaited = Awaited::default();
            graph.inputs(task).iter().for_each(|&datum| awaited.add(datum, graph.producer(datum)));
            awaited
        });
        SuccessorQueues {
            otherwise: otherwise.to_vec(),
            groups: vec![BTreeMap::new(); placed.problem().platform().device_count()],
            ready: vec![None; placed.item_count()],
            awaited: awaited.collect(),
        }
    }

    pub(super) fn push(&mut self, placed: &PlacedGraph<'_>, item: usize) {
        let (points, wakes) = match placed.task(item) {
            None => self.rank(placed, item, placed.sends().receivers(item), |awaited| awaited.count == 1),
            Some(task) => {
                let successors = placed.problem().graph().successors(task);
                self.rank(placed, item, successors, |awaited| awaited.only_producer() == Some(task))
            }
        };
        self.insert(placed.device(item), item, points, wakes);
    }

    /// Returns the points of an item without woken devices, and the devices of the successors that it frees.
    fn rank(
        &self,
        placed: &PlacedGraph<'_>,
        item: usize,
        successors: &[TaskId],
        frees: impl Fn(&Awaited) -> bool,
    ) -> (f64, Wakes) {
        let mut wakes = Wakes::new();
        let mut points = 0.0;
        for &successor in successors {
            let target = placed.device_of(successor);
            points += if target == placed.device(item) { 1.0 } else { 2.0 };
            if frees(&self.awaited[successor.index()]) {
                points += 1.0;
                add(&mut wakes, target);
            }
        }
        (points, wakes)
    }

    fn scored(&self, item: usize, points: f64) -> Scored {
        Scored { points: Total(points), otherwise: Total(self.otherwise[item]), item: Reverse(item) }
    }

    fn insert(&mut self, device: DeviceId, item: usize, points: f64, wakes: Wakes) {
        let scored = self.scored(item, points);
        self.groups[device.index()].entry(wakes.clone()).or_default().insert(scored);
        self.ready[item] = Some((points, wakes));
    }

    pub(super) fn choose(&self, device: DeviceId, running: &[bool]) -> Option<usize> {
        let idle = |device: DeviceId| !running[device.index()] && self.groups[device.index()].is_empty();
        let best_of = |(wakes, group): (&Wakes, &BTreeSet<Scored>)| {
            let woken: u32 = wakes.iter().filter(|(device, _)| idle(*device)).map(|(_, count)| count).sum();
            let points = |best: &Scored| Total(best.points.0 + WAKES_DEVICE * f64::from(woken));
            group.last().map(|best| Scored { points: points(best), ..*best })
        };
        self.groups[device.index()].iter().filter_map(best_of).max().map(|best| best.item.0)
    }

    /// Removes a ready item.
    pub(super) fn remove(&mut self, device: DeviceId, item: usize) -> Option<(f64, Wakes)> {
        let (points, wakes) = self.ready[item].take()?;
        let scored = self.scored(item, points);
        let groups = &mut self.groups[device.index()];
        if let Some(group) = groups.get_mut(&wakes) {
            group.remove(&scored);
            if group.is_empty() {
                groups.remove(&wakes);
            }
        }
        Some((points, wakes))
    }

    /// Records that `datum` has arrived at `task`. An item that brings all remaining inputs gets its points for that.
    pub(super) fn deliver(&mut self, placed: &PlacedGraph<'_>, datum: DatumId, task: TaskId) {
        let awaited = &mut self.awaited[task.index()];
        awaited.remove(datum, placed.problem().graph().producer(datum));
        let (producer, datum) = (awaited.only_producer(), awaited.only_datum());
        let send = datum.and_then(|datum| placed.sends().to(datum, placed.device_of(task)));
        for item in producer.map(|producer| placed.item(producer)).into_iter().chain(send) {
            // From now on the item frees the task, if the item is ready.
            if let Some((points, mut wakes)) = self.remove(placed.device(item), item) {
                add(&mut wakes, placed.device_of(task));
                self.insert(placed.device(item), item, points + 1.0, wakes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::GraphBuilder;
    use crate::rules::Rules;
    use crate::sample;
    use arbtest::arbitrary::{Result, Unstructured};

    /// Straightforward reference: it computes the ranks of equation 5.2 for each decision.
    struct Plain<'f> {
        placed: &'f PlacedGraph<'f>,
        /// Inputs that have not arrived, by task.
        missing: Vec<Vec<DatumId>>,
        ready: Vec<usize>,
        running: Vec<bool>,
    }

    impl Plain<'_> {
        fn is_idle(&self, device: DeviceId) -> bool {
            !self.running[device.index()] && !self.ready.iter().any(|&item| self.placed.device(item) == device)
        }

        fn rank(&self, item: usize) -> f64 {
            let graph = self.placed.problem().graph();
            let task = self.placed.task(item);
            let successors = task.map_or_else(|| self.placed.sends().receivers(item), |task| graph.successors(task));
            let brings = |datum: &DatumId| match task {
                None => self.placed.sends().all()[item].datum == *datum,
                Some(task) => graph.producer(*datum) == task,
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
            mine.copied().max_by_key(|&item| (Total(self.rank(item)), Total(otherwise[item]), Reverse(item)))
        }
    }

    /// Draws a graph with several outputs per task and several consumers per datum on three devices.
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

    /// Makes items ready or delivers data, in any order, to the end; compares every decision on every device.
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
            plain.ready.push(placed.item(task));
            queues.push(placed, placed.item(task));
        }
        while !plain.ready.is_empty() {
            plain.running = vec![random.arbitrary()?, random.arbitrary()?, random.arbitrary()?];
            for device in (0..3).map(DeviceId) {
                assert_eq!(queues.choose(device, &plain.running), plain.choose(device, &otherwise));
            }
            let done = plain.ready.swap_remove(random.int_in_range(0..=plain.ready.len() - 1)?);
            queues.remove(placed.device(done), done);
            let mut delivered: Vec<(DatumId, TaskId)> = Vec::new();
            match placed.task(done) {
                None => {
                    let datum = placed.sends().all()[done].datum;
                    delivered.extend(placed.sends().receivers(done).iter().map(|&task| (datum, task)));
                }
                Some(task) => {
                    for &datum in graph.outputs(task) {
                        delivered.extend(placed.sends().local_consumers(datum).iter().map(|&task| (datum, task)));
                        for send in placed.sends().of_datum(datum) {
                            plain.ready.push(send);
                            queues.push(placed, send);
                        }
                    }
                }
            }
            for (datum, task) in delivered {
                plain.missing[task.index()].retain(|&missing| missing != datum);
                queues.deliver(placed, datum, task);
                if plain.missing[task.index()].is_empty() {
                    plain.ready.push(placed.item(task));
                    queues.push(placed, placed.item(task));
                }
            }
        }
        Ok(())
    }

    #[test]
    fn decisions_are_those_of_ranks_computed_anew() {
        arbtest::arbtest(|random| {
            let (graph, device_of) = draw(random)?;
            let loaded = sample::problem(graph, &[1.0; 3]);
            let problem = loaded.problem().unwrap().under(Rules::THESIS).unwrap();
            compare(&PlacedGraph::new(&problem, &device_of), random)
        })
        .budget_ms(500);
    }
}
