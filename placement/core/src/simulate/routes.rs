//! Use of a network under contention: a transfer occupies all links of its route (see [`network`](crate::network)).

use super::links::Pair;
use crate::network::Network;
use crate::total::Total;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Waiting transfer: the greatest is the next, which is the earliest ready, then the greatest rank, then the smallest
/// send.
type Waiting = (Reverse<Total>, Total, Reverse<usize>);

/// Links in use, and the transfers that wait for them.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// Transfers by pair of devices, which share a route; no heap is empty.
    waiting: BTreeMap<Pair, BinaryHeap<Waiting>>,
    busy: Vec<bool>,
    /// Whether a transfer or a link has come since the last examination.
    changed: bool,
}

impl Routes {
    /// Queues a send that is ready at `now`.
    pub(super) fn wait(&mut self, pair: Pair, send: usize, rank: f64, now: f64) {
        self.waiting.entry(pair).or_default().push((Reverse(Total(now)), Total(rank), Reverse(send)));
        self.changed = true;
    }

    /// Frees the links of a pair's route.
    pub(super) fn free(&mut self, network: &Network, (from, to): Pair) {
        for &link in network.route(from, to) {
            self.busy[link as usize] = false;
        }
        self.changed = true;
    }

    /// Returns the next send whose links are free, if any; occupies the links. `O(pairs that wait × length of routes)`.
    pub(super) fn next(&mut self, network: &Network) -> Option<usize> {
        if !self.changed {
            return None;
        }
        self.busy.resize(network.links().len(), false);
        let free = |&(from, to): &Pair| network.route(from, to).iter().all(|&link| !self.busy[link as usize]);
        let heads = self.waiting.iter().filter(|(pair, _)| free(pair));
        let Some((_, pair)) = heads.filter_map(|(pair, heap)| Some((*heap.peek()?, *pair))).max() else {
            self.changed = false;
            return None;
        };
        for &link in network.route(pair.0, pair.1) {
            self.busy[link as usize] = true;
        }
        let heap = self.waiting.get_mut(&pair)?;
        let (.., Reverse(send)) = heap.pop()?;
        if heap.is_empty() {
            self.waiting.remove(&pair);
        }
        Some(send)
    }
}
