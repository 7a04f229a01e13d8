//! A bounded channel between two stages that keeps the order of the data sets. They leave by ascending number, however
//! many threads send and take them.
//!
//! A sender of data set `n` waits while `n` is `capacity` or more beyond the next to leave. The least number in flight
//! therefore never waits for room, and a line of such channels cannot come to a standstill by itself.
//!
//! If data sets take less time than waking a thread, several are handed on at a time (`gather`). A thread that waits
//! for room is woken once there is room for so many, a thread that waits for data sets once so many are there. After
//! [`LINGER`] one is enough: a thread that both sends and takes may not come to give more room.

use anabranch_base::lock::lock;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest time that a thread waits for several data sets, or for room for several.
pub(super) const LINGER: Duration = Duration::from_micros(500);

/// The channel. Any number of threads send and take.
pub(super) struct Ring<T> {
    state: Mutex<State<T>>,
    not_full: Condvar,
    head: Condvar,
    capacity: u64,
    gather: u64,
}

struct State<T> {
    /// Data sets from `next` on that have come.
    places: VecDeque<Option<T>>,
    next: u64,
    /// Total number of data sets, once it is known.
    total: Option<u64>,
    closed: bool,
    /// Value of `next` at which threads that wait for room are woken.
    not_full_at: Option<u64>,
    /// Takers that wait for the next data set, and takers that wait for several.
    waiting_for_head: u32,
    gathering: u32,
}

/// Result of [`Ring::take`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken<T> {
    /// The next data set, with its number.
    Item(u64, T),
    /// All data sets have left; this is their number.
    End(u64),
    /// The channel was closed.
    Closed,
}

/// Position of one of several takers: it takes every `of`-th data set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) taker: u64,
    pub(super) of: u64,
}

impl<T> Ring<T> {
    /// Makes an empty channel for `capacity` data sets, at least one. It hands on `gather` at a time, at most half its
    /// capacity.
    pub(super) fn new(capacity: usize, gather: usize) -> Self {
        let state = State {
            places: VecDeque::new(),
            next: 0,
            total: None,
            closed: false,
            not_full_at: None,
            waiting_for_head: 0,
            gathering: 0,
        };
        let (not_full, head) = Default::default();
        let gather = gather.min(capacity / 2).max(1) as u64;
        Self { state: Mutex::new(state), not_full, head, capacity: capacity.max(1) as u64, gather }
    }

    /// Number of data sets that it has room for.
    pub(super) fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Number of data sets in it.
    pub(super) fn waiting(&self) -> usize {
        lock(&self.state).places.iter().flatten().count()
    }

    /// Sends data set `number`, which was not sent before. Waits for room.
    ///
    /// # Errors
    /// Returns the data set, if the channel was closed.
    pub(super) fn put(&self, number: u64, item: T) -> Result<(), T> {
        let (mut state, mut gather) = (lock(&self.state), self.gather);
        while !state.closed && number - state.next >= self.capacity {
            // All data sets before that number leave without this one.
            let not_full_at = number - self.capacity + gather;
            state.not_full_at = Some(state.not_full_at.map_or(not_full_at, |known| known.min(not_full_at)));
            state = if gather > 1 {
                let (state, waited) = self.not_full.wait_timeout(state, LINGER).unwrap_or_else(PoisonError::into_inner);
                gather = if waited.timed_out() { 1 } else { gather };
                state
            } else {
                self.not_full.wait(state).unwrap_or_else(PoisonError::into_inner)
            };
        }
        if state.closed {
            return Err(item);
        }
        let place = (number - state.next) as usize;
        while state.places.len() <= place {
            state.places.push_back(None);
        }
        state.places[place] = Some(item);
        if (place as u64) < self.gather {
            self.wake_takers(&state);
        }
        Ok(())
    }

    /// Waits for the next data set and takes it. With a turn, takes only this taker's data sets.
    pub(super) fn take(&self, turn: Option<Turn>) -> Taken<T> {
        let mut state = lock(&self.state);
        let mut is_patient = self.gather > 1;
        loop {
            if state.closed {
                return Taken::Closed;
            }
            if let Some(total) = state.total.filter(|total| *total == state.next) {
                return Taken::End(total);
            }
            let number = state.next;
            let is_mine = turn.is_none_or(|Turn { taker, of }| number % of == taker);
            if let Some(item) = is_mine.then(|| state.leave()).flatten() {
                if state.not_full_at.take_if(|not_full_at| *not_full_at <= number + 1).is_some() {
                    self.not_full.notify_all();
                }
                self.wake_takers(&state);
                return Taken::Item(number, item);
            }
            if std::mem::take(&mut is_patient) {
                state.gathering += 1;
                (state, _) = self.head.wait_timeout(state, LINGER).unwrap_or_else(PoisonError::into_inner);
                state.gathering -= 1;
            } else {
                state.waiting_for_head += 1;
                state = self.head.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.waiting_for_head -= 1;
            }
        }
    }

    /// Announces that no data sets from `total` on will come.
    pub(super) fn finish(&self, total: u64) {
        lock(&self.state).total = Some(total);
        self.head.notify_all();
    }

    /// Ends the channel: drops the data sets in it and wakes all threads that wait.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let dropped = std::mem::take(&mut state.places);
        drop(state);
        drop(dropped);
        self.not_full.notify_all();
        self.head.notify_all();
    }

    /// Wakes takers if there is something to take. Waking is a system call, so it happens only if a taker waits.
    fn wake_takers(&self, state: &MutexGuard<'_, State<T>>) {
        let at_end = state.total == Some(state.next);
        let are_there = |count: u64| {
            let count = count as usize;
            state.places.len() >= count && state.places.iter().take(count).all(Option::is_some)
        };
        let for_one = state.waiting_for_head > 0 && (at_end || are_there(1));
        if for_one || state.gathering > 0 && (at_end || are_there(self.gather)) {
            self.head.notify_all();
        }
    }
}

impl<T> State<T> {
    /// Returns the next data set, if it is there.
    fn leave(&mut self) -> Option<T> {
        let item = self.places.front_mut()?.take()?;
        self.places.pop_front();
        self.next += 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    #[test]
    fn whoever_sends_the_order_is_kept_and_the_capacity_holds() {
        let (ring, taken) = (Ring::new(3, 1), AtomicU64::new(0));
        thread::scope(|scope| {
            for sender in 0..4u64 {
                let (ring, taken) = (&ring, &taken);
                scope.spawn(move || {
                    for number in (sender..1000).step_by(4) {
                        ring.put(number, number * 7).expect("open");
                        // Other data sets may have left since then, which only widens the window.
                        assert!(number < taken.load(Ordering::SeqCst) + 1 + 3);
                    }
                });
            }
            for number in 0..1000 {
                taken.store(number, Ordering::SeqCst);
                assert_eq!(ring.take(None), Taken::Item(number, number * 7));
            }
        });
        ring.finish(1000);
        assert_eq!(ring.take(None), Taken::End(1000));
    }

    #[test]
    fn takers_in_turn_get_every_so_many() {
        let ring = Ring::new(2, 1);
        thread::scope(|scope| {
            for taker in 0..3 {
                let ring = &ring;
                scope.spawn(move || {
                    let mut expected = taker;
                    while let Taken::Item(number, ()) = ring.take(Some(Turn { taker, of: 3 })) {
                        assert_eq!(number, expected);
                        expected += 3;
                    }
                    assert!(expected >= 100);
                });
            }
            (0..100).for_each(|number| ring.put(number, ()).expect("open"));
            ring.finish(100);
        });
    }

    #[test]
    fn gathered_or_not_all_arrive_and_in_order() {
        for (capacity, gather) in [(2, 1), (8, 4), (8, 100), (3, 2), (64, 32)] {
            let ring = Ring::new(capacity, gather);
            thread::scope(|scope| {
                for sender in 0..3u64 {
                    let ring = &ring;
                    scope.spawn(move || (sender..3001).step_by(3).for_each(|at| ring.put(at, at).expect("open")));
                }
                // One less than the gathered number is left at the end: it arrives all the same.
                (0..3001).for_each(|number| assert_eq!(ring.take(None), Taken::Item(number, number)));
            });
            ring.finish(3001);
            assert_eq!(ring.take(None), Taken::End(3001));
        }
    }

    #[test]
    fn what_waits_is_counted_without_the_gaps() {
        let ring = Ring::new(4, 1);
        ring.put(2, ()).expect("open");
        ring.put(0, ()).expect("open");
        assert_eq!(ring.waiting(), 2);
        assert_eq!(ring.take(None), Taken::Item(0, ()));
        assert_eq!(ring.waiting(), 1);
    }

    #[test]
    fn a_thread_that_sends_and_takes_gets_room_one_by_one() {
        // Two channels with a stage between them, as full as they can be.
        let (before, after) = (Ring::new(64, 32), Ring::new(64, 32));
        let (tell, told) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                while let Taken::Item(number, ()) = before.take(None) {
                    if after.put(number, ()).is_err() {
                        return;
                    }
                }
            });
            scope.spawn(|| {
                (0..128).for_each(|number| before.put(number, ()).expect("open"));
                for number in 128..1000 {
                    assert_eq!(after.take(None), Taken::Item(number - 128, ()));
                    before.put(number, ()).expect("open");
                }
                tell.send(()).expect("awaited");
            });
            let went = told.recv_timeout(Duration::from_secs(60));
            before.close();
            after.close();
            went.expect("no thread waits for ever");
        });
    }

    #[test]
    fn room_without_bounds_is_no_fault() {
        let ring = Ring::new(usize::MAX, 1);
        (0..3).for_each(|number| ring.put(number, ()).expect("open"));
        assert_eq!(ring.take(None), Taken::Item(0, ()));
        ring.put(3, ()).expect("open");
    }

    #[test]
    fn a_closed_channel_keeps_nobody_waiting() {
        let ring = Ring::new(1, 1);
        ring.put(0, "first").expect("room");
        thread::scope(|scope| {
            let full = scope.spawn(|| ring.put(1, "second"));
            thread::sleep(std::time::Duration::from_millis(10));
            ring.close();
            assert_eq!(full.join().expect("no panic"), Err("second"));
        });
        assert_eq!(ring.take(None), Taken::Closed);
    }
}
