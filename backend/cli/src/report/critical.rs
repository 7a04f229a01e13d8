//! The chain of waits that makes the makespan: from what ends last back to what it waited for longest, until nothing is waited for.

use super::spans::Spans;
use anabranch::plan::Plan;
use anabranch::planning::Placed;
use anabranch_placement::graph::TaskId;
use anabranch_placement::platform::DeviceId;
use std::collections::BTreeMap;

/// Which tasks and which transfers are on the chain.
pub(super) struct Chain {
    pub(super) tasks: Vec<bool>,
    pub(super) transfers: Vec<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Task(usize),
    Transfer(usize),
}

/// A device or a link: what is on it runs one after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Device(DeviceId),
    Link(DeviceId, DeviceId),
}

/// The chain of these times.
pub(super) fn chain(plan: &Plan, placed: &Placed, spans: &Spans) -> Chain {
    let waits = Waits::of(plan, placed, spans);
    let mut chain = Chain { tasks: vec![false; spans.tasks.len()], transfers: vec![false; spans.transfers.len()] };
    let mut at = waits.all().max_by_key(|item| (waits.end(*item), waits.start(*item)));
    while let Some(item) = at {
        let mark = match item {
            Item::Task(task) => &mut chain.tasks[task],
            Item::Transfer(transfer) => &mut chain.transfers[transfer],
        };
        if std::mem::replace(mark, true) {
            break;
        }
        at = waits.before(item).max_by_key(|item| (waits.end(*item), *item));
    }
    chain
}

/// What waits for what.
struct Waits<'a> {
    plan: &'a Plan,
    placed: &'a Placed,
    spans: &'a Spans,
    /// The transfer of a value, given by its producer's datum, to a device.
    sent: BTreeMap<(u32, DeviceId), usize>,
    /// What was on the same lane just before.
    lane: BTreeMap<Item, Item>,
}

impl<'a> Waits<'a> {
    fn of(plan: &'a Plan, placed: &'a Placed, spans: &'a Spans) -> Self {
        let sent = plan.transfers().iter().enumerate().filter_map(|(index, transfer)| {
            Some(((placed.tasks.datum(transfer.value)?.index() as u32, transfer.to), index))
        });
        let mut waits = Self { plan, placed, spans, sent: sent.collect(), lane: BTreeMap::new() };
        let mut lanes: BTreeMap<Lane, Vec<Item>> = BTreeMap::new();
        for item in waits.all() {
            lanes.entry(waits.lane_of(item)).or_default().push(item);
        }
        for items in lanes.values_mut() {
            items.sort_by_key(|item| (waits.start(*item), waits.end(*item)));
            waits.lane.extend(items.windows(2).map(|pair| (pair[1], pair[0])));
        }
        waits
    }

    fn all(&self) -> impl Iterator<Item = Item> + use<'a> {
        let spans = self.spans;
        let moved = (0..spans.transfers.len()).filter(|transfer| spans.transfers[*transfer].is_some());
        (0..spans.tasks.len()).map(Item::Task).chain(moved.map(Item::Transfer))
    }

    fn lane_of(&self, item: Item) -> Lane {
        match item {
            Item::Task(task) => Lane::Device(self.placed.placement.device_of[task]),
            Item::Transfer(at) => Lane::Link(self.plan.transfers()[at].from, self.plan.transfers()[at].to),
        }
    }

    fn start(&self, item: Item) -> u64 {
        match item {
            Item::Task(task) => self.spans.tasks[task].start,
            Item::Transfer(transfer) => self.spans.transfers[transfer].map_or(0, |times| times.start),
        }
    }

    fn end(&self, item: Item) -> u64 {
        match item {
            Item::Task(task) => self.spans.tasks[task].end,
            Item::Transfer(transfer) => self.spans.transfers[transfer].map_or(0, |times| times.end),
        }
    }

    /// What an item could have waited for.
    fn before(&self, item: Item) -> impl Iterator<Item = Item> {
        let graph = self.placed.tasks.graph();
        let needed: Vec<Item> = match item {
            Item::Task(task) => {
                let device = self.placed.placement.device_of[task];
                let source = |datum: &anabranch_placement::graph::DatumId| {
                    let sent = self.sent.get(&(datum.index() as u32, device)).copied();
                    match sent.filter(|at| self.spans.transfers[*at].is_some()) {
                        Some(transfer) => Item::Transfer(transfer),
                        None => Item::Task(graph.producer(*datum).index()),
                    }
                };
                graph.inputs(TaskId(task as u32)).iter().map(source).collect()
            }
            Item::Transfer(transfer) => {
                let transfer = &self.plan.transfers()[transfer];
                let datum = self.placed.tasks.datum(transfer.value);
                datum.map(|datum| Item::Task(graph.producer(datum).index())).into_iter().collect()
            }
        };
        needed.into_iter().chain(self.lane.get(&item).copied())
    }
}
