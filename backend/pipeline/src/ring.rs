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
use std::time::{Duration, Instant};

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
        let mut state = self.wait_for_room(number, None);
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

    /// Waits until data set `number` has room, for at most `most`, and returns whether it has. A closed channel needs
    /// no room.
    pub(super) fn has_room_within(&self, number: u64, most: Duration) -> bool {
        let state = self.wait_for_room(number, Some(most));
        state.closed || self.has_room(&state, number)
    }

    fn has_room(&self, state: &State<T>, number: u64) -> bool {
        number.saturating_sub(state.next) < self.capacity
    }

    /// Waits until data set `number` has room or the channel is closed, for at most `most`.
    fn wait_for_room(&self, number: u64, most: Option<Duration>) -> MutexGuard<'_, State<T>> {
        let (mut state, mut gather) = (lock(&self.state), self.gather);
        let since = Instant::now();
        while !state.closed && !self.has_room(&state, number) {
            let left = most.map(|most| most.saturating_sub(since.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            // All data sets before that number leave without this one.
            let not_full_at = number - self.capacity + gather;
            state.not_full_at = Some(state.not_full_at.map_or(not_full_at, |known| known.min(not_full_at)));
            let bound = (gather > 1).then_some(LINGER);
            let waited;
            (state, waited) = wait(&self.not_full, state, bound.into_iter().chain(left).min());
            gather = if waited { 1 } else { gather };
        }
        state
    }

    /// Waits until [`take`](Self::take) without a turn need not wait, for at most `most`, and returns whether that is
    /// so.
    pub(super) fn has_item_within(&self, most: Duration) -> bool {
        let (mut state, mut is_patient) = (lock(&self.state), self.gather > 1);
        let since = Instant::now();
        loop {
            if state.closed || state.is_at_end() || state.places.front().is_some_and(Option::is_some) {
                return true;
            }
            let left = most.saturating_sub(since.elapsed());
            if left.is_zero() {
                return false;
            }
            state = self.wait_for_head(state, &mut is_patient, Some(left));
        }
    }

    /// Waits for the next data set and takes it. With a turn, takes only this taker's data sets.
    pub(super) fn take(&self, turn: Option<Turn>) -> Taken<T> {
        let mut state = lock(&self.state);
        let mut is_patient = self.gather > 1;
        loop {
            if state.closed {
                return Taken::Closed;
            }
            let number = state.next;
            if state.is_at_end() {
                return Taken::End(number);
            }
            let is_mine = turn.is_none_or(|Turn { taker, of }| number % of == taker);
            if let Some(item) = is_mine.then(|| state.leave()).flatten() {
                if state.not_full_at.take_if(|not_full_at| *not_full_at <= number + 1).is_some() {
                    self.not_full.notify_all();
                }
                self.wake_takers(&state);
                return Taken::Item(number, item);
            }
            state = self.wait_for_head(state, &mut is_patient, None);
        }
    }

    /// Waits once for a change at the head, for at most `most`. The first wait of a patient taker is for several data
    /// sets.
    fn wait_for_head<'a>(
        &self,
        mut state: MutexGuard<'a, State<T>>,
        is_patient: &mut bool,
        most: Option<Duration>,
    ) -> MutexGuard<'a, State<T>> {
        if std::mem::take(is_patient) {
            state.gathering += 1;
            (state, _) = wait(&self.head, state, most.into_iter().chain([LINGER]).min());
            state.gathering -= 1;
        } else {
            state.waiting_for_head += 1;
            (state, _) = wait(&self.head, state, most);
            state.waiting_for_head -= 1;
        }
        state
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
        let at_end = state.is_at_end();
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

/// Waits at a condition, for at most `most`. Returns whether that time has passed.
fn wait<'a, S>(condition: &Condvar, state: MutexGuard<'a, S>, most: Option<Duration>) -> (MutexGuard<'a, S>, bool) {
    match most {
        Some(most) => {
            let (state, waited) = condition.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner);
            (state, waited.timed_out())
        }
        None => (condition.wait(state).unwrap_or_else(PoisonError::into_inner), false),
    }
}

impl<T> State<T> {
    /// Whether all data sets have left.
    fn is_at_end(&self) -> bool {
        self.total == Some(self.next)
    }

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
    fn bounded_waits_end_by_time_or_by_the_event() {
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(60));
        for gather in [1, 4] {
            let since = Instant::now();
            let ring = Ring::new(8, gather);
            assert!(ring.has_room_within(7, Duration::ZERO) && !ring.has_room_within(8, short));
            assert!(!ring.has_item_within(Duration::ZERO) && !ring.has_item_within(short));
            ring.put(1, 1).expect("room");
            assert!(!ring.has_item_within(short), "the next data set has not come");
            ring.put(0, 0).expect("room");
            assert!(ring.has_item_within(Duration::ZERO));
            assert_eq!(ring.take(None), Taken::Item(0, 0));
            assert!(ring.has_room_within(8, Duration::ZERO) && !ring.has_room_within(9, Duration::ZERO));
            thread::scope(|scope| {
                let waits = scope.spawn(|| ring.has_room_within(9, long));
                assert_eq!(ring.take(None), Taken::Item(1, 1));
                assert!(waits.join().expect("no panic"));
                let waits = scope.spawn(|| ring.has_item_within(long));
                ring.put(2, 2).expect("room");
                assert!(waits.join().expect("no panic"));
                assert_eq!(ring.take(None), Taken::Item(2, 2));
                let waits = scope.spawn(|| ring.has_item_within(long));
                ring.finish(3);
                assert!(waits.join().expect("no panic"), "the end is one");
            });
            assert!(since.elapsed() < long, "an event ends a wait before its time");
            ring.close();
            assert!(ring.has_item_within(Duration::ZERO) && ring.has_room_within(100, Duration::ZERO));
        }
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
