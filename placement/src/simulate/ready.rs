//! The ready items of every device, and which of them is next under a rule.

use super::successors::SuccessorQueues;
use crate::graph::{DatumId, TaskId};
use crate::order::{PlacedGraph, Rule};
use crate::platform::DeviceId;
use crate::total::Total;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An item behind what ranks it: the greatest rank first, then the smaller tie-breaker, then the smaller item.
type Ranked = (Total, Reverse<u64>, Reverse<usize>);

/// A queue for each device: a heap where ranks stay, groups where they change from decision to decision.
#[derive(Default)]
pub(super) struct Queues {
    heaps: Vec<BinaryHeap<Ranked>>,
    successors: Option<SuccessorQueues>,
}

impl Queues {
    pub(super) fn reset(&mut self, placed: &PlacedGraph<'_>, rule: &Rule) {
        self.heaps.iter_mut().for_each(BinaryHeap::clear);
        self.heaps.resize_with(placed.problem().platform().device_count(), BinaryHeap::new);
        self.successors = match rule {
            Rule::Earliest { .. } | Rule::Greatest(_) => None,
            Rule::SuccessorRank { otherwise } => Some(SuccessorQueues::new(placed, otherwise)),
        };
    }

    /// Adds an item that has become ready at `now`.
    pub(super) fn push(&mut self, placed: &PlacedGraph<'_>, rule: &Rule, item: usize, now: f64) {
        if let Some(queues) = &mut self.successors {
            return queues.push(placed, item);
        }
        let (rank, tie) = match rule {
            Rule::Earliest { shuffle } => (-now, shuffled(item, *shuffle)),
            _ => (rule.rank(item), 0),
        };
        self.heaps[placed.device(item).index()].push((Total(rank), Reverse(tie), Reverse(item)));
    }

    /// The item that `device` does next; devices that are not `running` are idle if nothing is ready on them.
    pub(super) fn choose(&self, device: DeviceId, running: &[bool]) -> Option<usize> {
        match &self.successors {
            Some(queues) => queues.choose(device, running),
            None => self.heaps[device.index()].peek().map(|&(.., Reverse(item))| item),
        }
    }

    /// Takes out what [`Queues::choose`] has just chosen.
    pub(super) fn remove(&mut self, device: DeviceId, item: usize) {
        match &mut self.successors {
            Some(queues) => _ = queues.remove(device, item),
            None => _ = self.heaps[device.index()].pop(),
        }
    }

    /// Notes that `datum` has come to `task`.
    pub(super) fn deliver(&mut self, placed: &PlacedGraph<'_>, datum: DatumId, task: TaskId) {
        if let Some(queues) = &mut self.successors {
            queues.deliver(placed, datum, task);
        }
    }
}

/// A number that looks random, different for every item (the finaliser of SplitMix64, which is one to one).
fn shuffled(item: usize, seed: u64) -> u64 {
    let mut mixed = (item as u64).wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
