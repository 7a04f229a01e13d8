//! Use of links under contention: one transfer at a time in each direction.

use crate::platform::DeviceId;
use crate::total::Total;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// A directed pair of devices.
pub(super) type Pair = (DeviceId, DeviceId);

/// Links in use, and the transfers that wait for them.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: BTreeMap<Pair, Link>,
    /// Pairs whose link may have a transfer to start.
    awake: BTreeSet<Pair>,
}

#[derive(Debug, Default)]
struct Link {
    busy: bool,
    /// Waiting sends: earliest ready first, then the greatest rank, then the smallest send.
    waiting: BinaryHeap<(Reverse<Total>, Total, Reverse<usize>)>,
}

impl Links {
    /// Queues a send that is ready at `now`.
    pub(super) fn wait(&mut self, pair: Pair, send: usize, rank: f64, now: f64) {
        let link = self.links.entry(pair).or_default();
        link.waiting.push((Reverse(Total(now)), Total(rank), Reverse(send)));
        self.awake.insert(pair);
    }

    /// Frees the link of `pair`.
    pub(super) fn free(&mut self, pair: Pair) {
        if let Some(link) = self.links.get_mut(&pair) {
            link.busy = false;
            self.awake.insert(pair);
        }
    }

    /// Returns the next send whose link is free, if any; occupies the link.
    pub(super) fn next(&mut self) -> Option<usize> {
        while let Some(pair) = self.awake.pop_first() {
            if let Some(link) = self.links.get_mut(&pair)
                && !link.busy
                && let Some((.., Reverse(send))) = link.waiting.pop()
            {
                link.busy = true;
                return Some(send);
            }
        }
        None
    }
}
