//! Use of links under contention: one transfer at a time in each direction.

use crate::platform::DeviceId;
use crate::total::Total;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A directed pair of devices.
pub(super) type Pair = (DeviceId, DeviceId);

/// Links in use, and the transfers that wait for them.
#[derive(Debug, Default)]
pub(super) struct Links {
    devices: usize,
    /// Link of each pair: those from device 0 first.
    links: Vec<Link>,
    /// Links that the run has used.
    used: Vec<usize>,
    /// Links that may have a transfer to start, the smallest first; each once.
    awake: BinaryHeap<Reverse<usize>>,
}

#[derive(Debug, Clone, Default)]
struct Link {
    is_used: bool,
    busy: bool,
    is_awake: bool,
    /// Time when the sends of `first` were ready.
    since: f64,
    /// Sends that were ready first: the greatest rank goes first, then the smallest send.
    first: BinaryHeap<(Total, Reverse<usize>)>,
    /// Sends that were ready later, with their times and ranks, in the order of the times.
    later: VecDeque<(f64, f64, usize)>,
}

impl Links {
    /// Frees all links between so many devices, and forgets what waits.
    pub(super) fn reset(&mut self, devices: usize) {
        self.used.drain(..).for_each(|number| self.links[number].reset());
        self.awake.clear();
        self.devices = devices;
        self.links.resize_with(devices * devices, Link::default);
    }

    /// Queues a send that is ready at `now`, which never decreases.
    pub(super) fn wait(&mut self, pair: Pair, send: usize, rank: f64, now: f64) {
        let number = self.number(pair);
        let link = &mut self.links[number];
        if !std::mem::replace(&mut link.is_used, true) {
            self.used.push(number);
        }
        link.push(send, rank, now);
        self.wake(number);
    }

    /// Frees the link of `pair`.
    pub(super) fn free(&mut self, pair: Pair) {
        let number = self.number(pair);
        self.links[number].busy = false;
        self.wake(number);
    }

    /// Returns the next send whose link is free, if any; occupies the link.
    pub(super) fn next(&mut self) -> Option<usize> {
        while let Some(Reverse(number)) = self.awake.pop() {
            let link = &mut self.links[number];
            link.is_awake = false;
            if !link.busy
                && let Some(send) = link.pop()
            {
                link.busy = true;
                return Some(send);
            }
        }
        None
    }

    fn number(&self, (from, to): Pair) -> usize {
        from.index() * self.devices + to.index()
    }

    fn wake(&mut self, number: usize) {
        if !std::mem::replace(&mut self.links[number].is_awake, true) {
            self.awake.push(Reverse(number));
        }
    }
}

impl Link {
    fn reset(&mut self) {
        self.first.clear();
        self.later.clear();
        (self.is_used, self.busy, self.is_awake) = (false, false, false);
    }

    fn push(&mut self, send: usize, rank: f64, now: f64) {
        if self.first.is_empty() && self.later.is_empty() {
            self.since = now;
        }
        if self.later.is_empty() && self.since == now {
            self.first.push((Total(rank), Reverse(send)));
        } else {
            self.later.push_back((now, rank, send));
        }
    }

    /// Removes and returns the next send.
    fn pop(&mut self) -> Option<usize> {
        if self.first.is_empty() {
            self.since = self.later.front()?.0;
            let together = self.later.iter().take_while(|(time, ..)| *time == self.since).count();
            self.first.extend(self.later.drain(..together).map(|(_, rank, send)| (Total(rank), Reverse(send))));
        }
        self.first.pop().map(|(_, Reverse(send))| send)
    }
}
