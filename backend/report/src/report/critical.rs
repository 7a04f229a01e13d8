//! The chain of waits that makes the makespan: from the last item to end back to the item that it waited for longest,
//! and so on. It is reported from the run's start to its end, each step with the item that it had waited for.

use super::spans::{Spans, Times};
use anabranch::execute::Lane;
use anabranch::plan::{Plan, Route};
use anabranch::planning::Placed;
use anabranch_placement::graph::{DatumId, TaskId};
use anabranch_placement::platform::DeviceId;
use serde::Serialize;
use std::collections::BTreeMap;

pub(super) struct Chain {
    pub(super) tasks: Vec<bool>,
    pub(super) transfers: Vec<bool>,
    /// Steps from first to last.
    pub(super) steps: Vec<ChainStep>,
}

/// A task or transfer of the chain.
#[derive(Serialize, Debug, PartialEq)]
pub(super) struct ChainStep {
    /// `node` or `transfer`.
    pub(super) kind: &'static str,
    pub(super) index: usize,
    /// Reason of the last wait: the step before.
    pub(super) after: After,
    /// Time from then, or from the run's start, until it began.
    pub(super) pause_ns: u64,
}

/// Reason why a step did not begin earlier.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub(super) enum After {
    /// It had nothing to wait for.
    Start,
    /// It waited for the phase before, and the host's operators after that.
    Host,
    /// Its device was busy.
    Device,
    /// Its link was busy.
    Link,
    /// A value was missing.
    Value,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Task(usize),
    Transfer(usize),
}

pub(super) fn chain(plan: &Plan, placed: &Placed, spans: &Spans) -> Chain {
    let waits = Waits::of(plan, placed, spans);
    let (tasks, transfers) = (vec![false; spans.tasks.len()], vec![false; spans.transfers.len()]);
    let mut chain = Chain { tasks, transfers, steps: Vec::new() };
    let mut at = waits.items.iter().copied().max_by_key(|item| (waits.times(*item).end, waits.times(*item).start));
    while let Some(item) = at {
        let (mark, kind, index) = match item {
            Item::Task(task) => (&mut chain.tasks[task], "node", task),
            Item::Transfer(transfer) => (&mut chain.transfers[transfer], "transfer", transfer),
        };
        if std::mem::replace(mark, true) {
            break;
        }
        // If several ended together, a value says more than a lane.
        let before = waits.before(item).into_iter().max_by_key(|(item, after)| (waits.times(*item).end, *after, *item));
        let ended = before.map_or(0, |(before, _)| waits.times(before).end);
        let after = before.map_or(After::Start, |(_, after)| after);
        chain.steps.push(ChainStep { kind, index, after, pause_ns: waits.times(item).start.saturating_sub(ended) });
        at = before.map(|(item, _)| item);
    }
    chain.steps.reverse();
    chain
}

struct Waits<'a> {
    plan: &'a Plan,
    placed: &'a Placed,
    spans: &'a Spans,
    /// All tasks, and the transfers that move data.
    items: Vec<Item>,
    /// Transfer of each datum to each device.
    sent: BTreeMap<(DatumId, DeviceId), Item>,
    /// The item that ended last on the same device or link before each item began: items on a lane run one after the
    /// other.
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
        for item in waits.items.iter().copied().filter(|item| waits.takes_lane(*item)) {
            lanes.entry(waits.lane(item)).or_default().push(item);
        }
        let previous: Vec<_> =
            lanes.into_values().flat_map(|items| previous(items, |item| waits.times(item))).collect();
        waits.previous.extend(previous);
        waits
    }

    /// Whether an item occupies a device or a link. The model's inputs and outputs do not, nor do values read in place.
    fn takes_lane(&self, item: Item) -> bool {
        match item {
            Item::Task(task) => task < self.plan.predicted().nodes.len(),
            Item::Transfer(at) => self.plan.transfers()[at].route != Route::Shared,
        }
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

    /// Returns the items that an item could have waited for, with the reasons.
    fn before(&self, item: Item) -> Vec<(Item, After)> {
        let (tasks, graph) = (&self.placed.tasks, self.placed.tasks.graph());
        let producer = |datum: DatumId| Item::Task(graph.producer(datum).index());
        let (values, lane): (Vec<Item>, _) = match item {
            Item::Task(task) => {
                let device = self.placed.placement.device_of[task];
                let source = |datum: &DatumId| self.sent.get(&(*datum, device)).copied();
                let inputs = graph.inputs(TaskId(task as u32)).iter();
                (inputs.map(|datum| source(datum).unwrap_or_else(|| producer(*datum))).collect(), After::Device)
            }
            Item::Transfer(at) => {
                (tasks.datum(self.plan.transfers()[at].value).map(producer).into_iter().collect(), After::Link)
            }
        };
        let values = values.into_iter().map(|value| (value, After::Value));
        values.chain(self.previous.get(&item).map(|previous| (*previous, lane))).collect()
    }
}

/// Pairs each item of a lane with the last to end of those that had ended when it began. No item precedes itself, even
/// if it takes no time.
fn previous(mut items: Vec<Item>, times: impl Fn(Item) -> Times) -> Vec<(Item, Item)> {
    items.sort_by_key(|item| (times(*item).end, times(*item).start, *item));
    let mut found = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let start = times(*item).start;
        let ended = items.partition_point(|other| times(*other).end <= start).min(at);
        found.extend(ended.checked_sub(1).map(|last| (*item, items[last])));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_last_before_an_item_is_before_it_on_its_lane() {
        // The third is long and overlaps the second; the last two take no time.
        let spans = [(0, 1), (1, 4), (2, 10), (10, 15), (15, 15), (15, 15)];
        let times = |item: Item| match item {
            Item::Task(task) => Times { ready: 0, start: spans[task].0, end: spans[task].1, busy: 0 },
            Item::Transfer(_) => Times::default(),
        };
        let mut found = previous((0..spans.len()).rev().map(Item::Task).collect(), times);
        found.sort();
        let pairs = [(1, 0), (2, 0), (3, 2), (4, 3), (5, 4)];
        assert!(found == pairs.map(|(item, before)| (Item::Task(item), Item::Task(before))));
    }
}
