//! Ready items of every device, and the choice of the next one under a rule.

use super::successors::SuccessorQueues;
use crate::graph::{DatumId, TaskId};
use crate::order::{PlacedGraph, Rule};
use crate::platform::DeviceId;
use crate::total::Total;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An item with its rank: the greatest rank first, then the smaller tie-breaker, then the smaller item.
type Ranked = (Total, Reverse<u64>, Reverse<usize>);

/// Queue of each device: a heap if ranks are fixed, groups if they change between decisions.
#[derive(Default)]
pub(super) struct Queues {
    heaps: Vec<BinaryHeap<Ranked>>,
    successors: Option<SuccessorQueues>,
    /// Sequences to follow, if the order must be kept.
    in_order: Option<Sequences>,
}

/// Tasks of each device that have not started, the next one last. Items below `tasks` are sends and have no sequence.
struct Sequences {
    tasks: usize,
    waiting: Vec<Vec<usize>>,
}

impl Queues {
    pub(super) fn reset(&mut self, placed: &PlacedGraph<'_>, rule: &Rule) {
        self.heaps.iter_mut().for_each(BinaryHeap::clear);
        self.heaps.resize_with(placed.problem().platform().device_count(), BinaryHeap::new);
        self.successors = match rule {
            Rule::Earliest { .. } | Rule::Greatest(_) | Rule::InOrder(_) => None,
            Rule::SuccessorRank { otherwise } => Some(SuccessorQueues::new(placed, otherwise)),
        };
        self.in_order = match rule {
            Rule::InOrder(ranks) => Some(Sequences::of(placed, ranks)),
            Rule::Earliest { .. } | Rule::Greatest(_) | Rule::SuccessorRank { .. } => None,
        };
    }

    /// Adds an item that has become ready at `now`.
    pub(super) fn push(&mut self, placed: &PlacedGraph<'_>, rule: &Rule, item: usize, now: f64) {
        if let Some(queues) = &mut self.successors {
            return queues.push(placed, item);
        }
        let (rank, tie) = match rule {
            Rule::Earliest { shuffle } => (-now, shuffle.map_or(0, |seed| shuffled(item, seed))),
            _ => (rule.rank(item), 0),
        };
        self.heaps[placed.device(item).index()].push((Total(rank), Reverse(tie), Reverse(item)));
    }

    /// Returns the next item of `device`. Devices that are not `running` count as idle if they have no ready item.
    pub(super) fn choose(&self, device: DeviceId, running: &[bool]) -> Option<usize> {
        match &self.successors {
            Some(queues) => queues.choose(device, running),
            None => {
                let item = self.heaps[device.index()].peek().map(|&(.., Reverse(item))| item);
                item.filter(|&item| self.in_order.as_ref().is_none_or(|sequences| sequences.admit(device, item)))
            }
        }
    }

    /// Removes the item that [`Queues::choose`] has just returned.
    pub(super) fn remove(&mut self, device: DeviceId, item: usize) {
        match &mut self.successors {
            Some(queues) => _ = queues.remove(device, item),
            None => _ = self.heaps[device.index()].pop(),
        }
        if let Some(sequences) = &mut self.in_order {
            sequences.start(device, item);
        }
    }

    /// Records that `datum` has arrived at `task`.
    pub(super) fn deliver(&mut self, placed: &PlacedGraph<'_>, datum: DatumId, task: TaskId) {
        if let Some(queues) = &mut self.successors {
            queues.deliver(placed, datum, task);
        }
    }
}

impl Sequences {
    fn of(placed: &PlacedGraph<'_>, ranks: &[f64]) -> Self {
        let mut waiting = vec![Vec::new(); placed.problem().platform().device_count()];
        let mut items: Vec<usize> = placed.problem().graph().task_ids().map(|task| placed.item(task)).collect();
        items.sort_by_key(|&item| (Total(ranks[item]), Reverse(item)));
        items.into_iter().for_each(|item| waiting[placed.device(item).index()].push(item));
        Sequences { tasks: placed.sends().count(), waiting }
    }

    fn admit(&self, device: DeviceId, item: usize) -> bool {
        item < self.tasks || self.waiting[device.index()].last() == Some(&item)
    }

    fn start(&mut self, device: DeviceId, item: usize) {
        if item >= self.tasks {
            self.waiting[device.index()].pop();
        }
    }
}

/// Returns a pseudo-random number, different for every item (the finaliser of SplitMix64, which is one to one).
fn shuffled(item: usize, seed: u64) -> u64 {
    let mut mixed = (item as u64).wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
