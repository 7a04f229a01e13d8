//! The ready items of every device, and which of them is next under a rule.

use super::successors::SuccessorQueues;
use crate::graph::{DatumId, TaskId};
use crate::order::{Item, PlacedGraph, Rule};
use crate::platform::DeviceId;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// An item with the number that ranks it: greater first, then the smaller tie-breaker, then the smaller position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ranked {
    pub(super) rank: f64,
    pub(super) tie: u64,
    pub(super) position: usize,
}

impl Eq for Ranked {}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.total_cmp(&other.rank).then(other.tie.cmp(&self.tie)).then(other.position.cmp(&self.position))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A queue for each device: a heap where ranks stay, groups where they change from decision to decision.
pub(super) enum Queues<'f> {
    Heaps { heaps: Vec<BinaryHeap<Ranked>>, rule: &'f Rule },
    Successors(SuccessorQueues<'f>),
}

impl<'f> Queues<'f> {
    pub(super) fn under(rule: &'f Rule, placed: &'f PlacedGraph<'f>) -> Self {
        let heaps = vec![BinaryHeap::new(); placed.problem().platform().device_count()];
        match rule {
            Rule::Earliest { .. } | Rule::Greatest(_) => Queues::Heaps { heaps, rule },
            Rule::SuccessorRank { otherwise } => Queues::Successors(SuccessorQueues::new(placed, otherwise)),
        }
    }

    /// Adds an item that has become ready at `now`.
    pub(super) fn push(&mut self, device: DeviceId, item: Item, position: usize, now: f64) {
        match self {
            Queues::Successors(queues) => queues.push(device, item),
            Queues::Heaps { heaps, rule } => {
                let (rank, tie) = match rule {
                    Rule::Earliest { shuffle } => (-now, shuffled(position, *shuffle)),
                    Rule::Greatest(ranks) | Rule::SuccessorRank { otherwise: ranks } => (ranks[position], 0),
                };
                heaps[device.index()].push(Ranked { rank, tie, position });
            }
        }
    }

    /// The position of the item that `device` does next; devices that are not `running` are idle if nothing is ready on them.
    pub(super) fn choose(&self, device: DeviceId, running: &[bool]) -> Option<usize> {
        match self {
            Queues::Heaps { heaps, .. } => heaps[device.index()].peek().map(|next| next.position),
            Queues::Successors(queues) => queues.choose(device, running),
        }
    }

    /// Takes out what [`Queues::choose`] has just chosen.
    pub(super) fn remove(&mut self, device: DeviceId, position: usize) {
        match self {
            Queues::Successors(queues) => queues.remove(device, position),
            Queues::Heaps { heaps, .. } => {
                heaps[device.index()].pop();
            }
        }
    }

    /// Notes that `datum` has come to `task`.
    pub(super) fn deliver(&mut self, datum: DatumId, task: TaskId) {
        if let Queues::Successors(queues) = self {
            queues.deliver(datum, task);
        }
    }
}

/// A number that looks random, different for every position (the finaliser of SplitMix64, which is one to one).
fn shuffled(position: usize, seed: u64) -> u64 {
    let mut mixed = (position as u64).wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
