//! The ready items of every device, and which of them is next under a rule.

use super::successors::SuccessorQueues;
use crate::graph::{DatumId, TaskId};
use crate::order::{Flow, Item, Rule};
use crate::platform::DeviceId;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// An item with the number that ranks it: greater first, then the smaller position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ranked {
    pub(super) rank: f64,
    pub(super) position: usize,
}

impl Eq for Ranked {}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.total_cmp(&other.rank).then(other.position.cmp(&self.position))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A queue for each device: a heap where ranks stay, groups where they change from decision to decision.
pub(super) enum Queues<'f> {
    Heaps { heaps: Vec<BinaryHeap<Ranked>>, ranks: Option<&'f [f64]> },
    Successors(SuccessorQueues<'f>),
}

impl<'f> Queues<'f> {
    pub(super) fn under(rule: &'f Rule, flow: &'f Flow<'f>) -> Self {
        let heaps = vec![BinaryHeap::new(); flow.problem().platform().device_count()];
        match rule {
            Rule::Earliest => Queues::Heaps { heaps, ranks: None },
            Rule::Greatest(ranks) => Queues::Heaps { heaps, ranks: Some(ranks) },
            Rule::SuccessorRank { otherwise } => Queues::Successors(SuccessorQueues::new(flow, otherwise)),
        }
    }

    /// Adds an item that has become ready at `now`.
    pub(super) fn push(&mut self, device: DeviceId, item: Item, position: usize, now: f64) {
        match self {
            Queues::Successors(queues) => queues.push(device, item),
            Queues::Heaps { heaps, ranks } => {
                let rank = ranks.map_or(-now, |ranks| ranks[position]);
                heaps[device.index()].push(Ranked { rank, position });
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
