//! Who may use a link when transfers share it: one at a time in each direction.

use super::LinkContention;
use super::ready::Ranked;
use crate::platform::DeviceId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// A directed pair of devices.
pub(super) type Pair = (DeviceId, DeviceId);

/// The links in use and the transfers that wait for them.
#[derive(Debug)]
pub(super) struct Links {
    contention: LinkContention,
    links: BTreeMap<Pair, Link>,
    /// Pairs whose link may have something to start.
    awake: BTreeSet<Pair>,
}

#[derive(Debug, Default)]
struct Link {
    busy: bool,
    /// Earliest ready first, then the greatest rank, then the smallest send.
    waiting: BinaryHeap<(Reverse<Time>, Ranked)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Links {
    pub(super) fn new(contention: LinkContention) -> Self {
        Links { contention, links: BTreeMap::new(), awake: BTreeSet::new() }
    }

    /// Whether transfers have to wait for each other.
    pub(super) fn are_shared(&self) -> bool {
        self.contention == LinkContention::Serial
    }

    /// Queues the send `ranked.position`, ready at `now`.
    pub(super) fn wait(&mut self, pair: Pair, ranked: Ranked, now: f64) {
        self.links.entry(pair).or_default().waiting.push((Reverse(Time(now)), ranked));
        self.awake.insert(pair);
    }

    /// The transfer over `pair` has arrived.
    pub(super) fn free(&mut self, pair: Pair) {
        if let Some(link) = self.links.get_mut(&pair) {
            link.busy = false;
            self.awake.insert(pair);
        }
    }

    /// The next send whose link is free, if any; takes the link.
    pub(super) fn next(&mut self) -> Option<usize> {
        while let Some(pair) = self.awake.pop_first() {
            if let Some(link) = self.links.get_mut(&pair)
                && !link.busy
                && let Some((_, ranked)) = link.waiting.pop()
            {
                link.busy = true;
                return Some(ranked.position);
            }
        }
        None
    }
}
