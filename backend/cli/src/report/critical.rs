//! The chain of waits that makes the makespan: from what ends last back to what it waited for longest, until nothing is waited for.

use super::spans::{Spans, Times};
use anabranch::execute::Lane;
use anabranch::plan::Plan;
use anabranch::planning::Placed;
use anabranch_placement::graph::{DatumId, TaskId};
use anabranch_placement::platform::DeviceId;
use std::collections::BTreeMap;

pub(super) struct Chain {
    pub(super) tasks: Vec<bool>,
    pub(super) transfers: Vec<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Task(usize),
    Transfer(usize),
}

pub(super) fn chain(plan: &Plan, placed: &Placed, spans: &Spans) -> Chain {
    let waits = Waits::of(plan, placed, spans);
    let mut chain = Chain { tasks: vec![false; spans.tasks.len()], transfers: vec![false; spans.transfers.len()] };
    let mut at = waits.items.iter().copied().max_by_key(|item| (waits.times(*item).end, waits.times(*item).start));
    while let Some(item) = at {
        let mark = match item {
            Item::Task(task) => &mut chain.tasks[task],
            Item::Transfer(transfer) => &mut chain.transfers[transfer],
        };
        if std::mem::replace(mark, true) {
            break;
        }
        at = waits.before(item).into_iter().max_by_key(|item| (waits.times(*item).end, *item));
    }
    chain
}

struct Waits<'a> {
    plan: &'a Plan,
    placed: &'a Placed,
    spans: &'a Spans,
    /// All tasks, and the transfers that move something.
    items: Vec<Item>,
    /// Of these transfers, the one of a datum to a device.
    sent: BTreeMap<(DatumId, DeviceId), Item>,
    /// What was on the same device or link just before: there, one thing runs after the other.
    previous: BTreeMap<Item, Item>,
}

impl<'a> Waits<'a> {
    fn of(plan: &'a Plan, placed: &'a Placed, spans: &'a Spans) -> Self {
        let tasks = (0..spans.tasks.len()).map(Item::Task);
        let mut waits =
            Self { plan, placed, spans, items: tasks.collect(), sent: BTreeMap::new(), previous: BTreeMap::new() };
        for (at, transfer) in plan.transfers().iter().enumerate().filter(|(at, _)| spans.transfers[*at].is_some()) {
            let datum = placed.tasks.datum(transfer.value);
            waits.sent.extend(datum.map(|datum| ((datum, transfer.to), Item::Transfer(at))));
            waits.items.push(Item::Transfer(at));
        }
        let mut lanes: BTreeMap<Lane, Vec<Item>> = BTreeMap::new();
        for item in &waits.items {
            lanes.entry(waits.lane(*item)).or_default().push(*item);
        }
        for items in lanes.values_mut() {
            items.sort_by_key(|item| (waits.times(*item).start, waits.times(*item).end));
            waits.previous.extend(items.windows(2).map(|pair| (pair[1], pair[0])));
        }
        waits
    }

    fn lane(&self, item: Item) -> Lane {
        match item {
            Item::Task(task) => Lane::Device(self.placed.placement.device_of[task]),
            Item::Transfer(at) => Lane::Link { from: self.plan.transfers()[at].from, to: self.plan.transfers()[at].to },
        }
    }

    fn times(&self, item: Item) -> Times {
        match item {
            Item::Task(task) => self.spans.tasks[task],
            Item::Transfer(transfer) => self.spans.transfers[transfer].unwrap_or_default(),
        }
    }

    /// What an item could have waited for.
    fn before(&self, item: Item) -> Vec<Item> {
        let (tasks, graph) = (&self.placed.tasks, self.placed.tasks.graph());
        let producer = |datum: DatumId| Item::Task(graph.producer(datum).index());
        let mut before: Vec<Item> = match item {
            Item::Task(task) => {
                let device = self.placed.placement.device_of[task];
                let source = |datum: &DatumId| self.sent.get(&(*datum, device)).copied();
                let inputs = graph.inputs(TaskId(task as u32)).iter();
                inputs.map(|datum| source(datum).unwrap_or_else(|| producer(*datum))).collect()
            }
            Item::Transfer(at) => tasks.datum(self.plan.transfers()[at].value).map(producer).into_iter().collect(),
        };
        before.extend(self.previous.get(&item));
        before
    }
}
