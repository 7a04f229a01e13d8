//! Ready tasks of one device, by the keys of [`ready_list`](super::ready_list).

use crate::total::Total;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Ready task on one device. The greatest entry goes first: the smallest key, and of equal keys the smallest place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) key: Reverse<Total>,
    /// Position of the task in the list of all tasks by decreasing urgency.
    pub(super) place: Reverse<u32>,
    /// Arrival of its inputs on the device.
    arrival: Total,
}

impl Entry {
    fn new(key: f64, place: u32, arrival: f64) -> Self {
        Entry { key: Reverse(Total(key)), place: Reverse(place), arrival: Total(arrival) }
    }
}

/// Ready tasks of one device. Entries of tasks that were placed elsewhere stay until they reach the top.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadyQueue {
    /// Time when everything on the device ends.
    pub(super) free: f64,
    /// Tasks whose inputs have arrived, by offset.
    arrived: Sorted,
    /// Tasks that the device would wait for, by arrival plus offset, as if the device were free by then.
    awaited: Sorted,
    /// First entry when it was last looked for, or one with a smaller key that came later. No key is smaller.
    first: Option<Entry>,
    /// Whether an entry with the same key came after `first`.
    is_tied: bool,
}

impl ReadyQueue {
    /// Creates the queue of an idle device from the sources, which are pairs of an offset and a place.
    pub(super) fn of_sources(sources: impl IntoIterator<Item = (f64, u32)>) -> Self {
        let mut entries: Vec<Entry> =
            sources.into_iter().map(|(offset, place)| Entry::new(offset, place, 0.0)).collect();
        entries.sort_unstable();
        let first = entries.last().copied();
        ReadyQueue { arrived: Sorted { entries, ..Sorted::default() }, first, ..ReadyQueue::default() }
    }

    pub(super) fn push(&mut self, offset: f64, arrival: f64, place: u32) {
        if arrival <= self.free {
            self.arrived.push(Entry::new(offset, place, arrival));
        } else {
            self.awaited.push(Entry::new(arrival + offset, place, arrival));
        }
        let entry = Entry::new(self.free.max(arrival) + offset, place, arrival);
        match self.first.map_or(Ordering::Greater, |first| entry.key.cmp(&first.key)) {
            Ordering::Greater => (self.first, self.is_tied) = (Some(entry), false),
            Ordering::Equal => self.is_tied = true,
            Ordering::Less => {}
        }
    }

    /// Returns an entry whose key is at most the smallest key of all tasks that can go to the device.
    pub(super) fn bound(&self) -> Option<Entry> {
        self.first
    }

    /// Whether [`Self::bound`] is the first entry, if its task can still go to the device.
    pub(super) fn is_exact(&self) -> bool {
        !self.is_tied
    }

    /// Finds the entry with the smallest key among those that satisfy `counts`. `offset` returns the offset of a place.
    pub(super) fn find_first(&mut self, counts: impl Fn(u32) -> bool, offset: impl Fn(u32) -> f64) {
        self.arrived.settle(&counts);
        self.awaited.settle(&counts);
        while let Some(&Entry { arrival: Total(arrival), place: Reverse(place), .. }) = self.awaited.peek()
            && (arrival <= self.free || !counts(place))
        {
            self.awaited.pop();
            if counts(place) {
                self.push(offset(place), arrival, place);
            }
        }
        while self.arrived.peek().is_some_and(|entry| !counts(entry.place.0)) {
            self.arrived.pop();
        }
        let arrived = self.arrived.peek();
        let arrived = arrived.map(|entry| Entry { key: Reverse(Total(self.free + entry.key.0.0)), ..*entry });
        (self.first, self.is_tied) = (arrived.max(self.awaited.peek().copied()), false);
    }
}

/// Priority queue of which most entries are sorted, so that most of them are removed in constant time.
#[derive(Debug, Clone, Default)]
struct Sorted {
    /// Ascending entries.
    entries: Vec<Entry>,
    /// Entries that came later, at most a part of the others.
    recent: BinaryHeap<Entry>,
}

impl Sorted {
    /// Least number of recent entries that are worth sorting.
    const LEAST: usize = 64;
    /// Sorted entries for each recent one from which on sorting pays.
    const SHARE: usize = 4;

    fn push(&mut self, entry: Entry) {
        self.recent.push(entry);
    }

    fn peek(&self) -> Option<&Entry> {
        self.recent.peek().max(self.entries.last())
    }

    fn pop(&mut self) {
        if self.recent.peek() > self.entries.last() {
            self.recent.pop();
        } else {
            self.entries.pop();
        }
    }

    /// Sorts all entries that satisfy `counts`, and drops the others, if many are not sorted.
    fn settle(&mut self, counts: impl Fn(u32) -> bool) {
        if self.recent.len() < Self::LEAST || self.recent.len() * Self::SHARE < self.entries.len() {
            return;
        }
        self.entries.retain(|entry| counts(entry.place.0));
        let sorted = self.entries.len();
        self.entries.extend(self.recent.drain().filter(|entry| counts(entry.place.0)));
        self.entries[sorted..].sort_unstable();
        // The stable sort finds both ascending parts and merges them.
        self.entries.sort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with all pairs, of which those that count and have the smallest key are searched each time.
    #[test]
    fn the_first_entry_is_the_smallest_of_those_that_count() {
        arbtest::arbtest(|random| {
            let mut draw = |most: u16| random.int_in_range(0..=most).map(f64::from);
            let mut tasks: Vec<(f64, f64, bool)> = Vec::new();
            for _ in 0..draw(100)? as usize {
                tasks.push((draw(5)? / 3.0, 0.0, true));
            }
            let mut queue = ReadyQueue::of_sources((0..).zip(&tasks).map(|(place, task)| (task.0, place)));
            for _ in 0..draw(300)? as usize {
                let (offset, arrival) = (draw(5)? / 3.0, queue.free + draw(9)? / 7.0 - 0.5);
                queue.push(offset, arrival, tasks.len() as u32);
                tasks.push((offset, arrival, true));
                if draw(3)? == 0.0 {
                    queue.free += draw(2)? / 7.0;
                    let removed = draw(60)? as usize;
                    tasks.iter_mut().filter(|task| task.2).take(removed).for_each(|task| task.2 = false);
                }
                let counting = || (0..).zip(&tasks).filter(|(_, task)| task.2);
                let key = |task: &(f64, f64, bool)| queue.free.max(task.1) + task.0;
                let least = counting().map(|(_, task)| key(task)).reduce(f64::min);
                let bound = queue.bound().map(|entry| entry.key.0.0);
                assert!(least.is_none_or(|least| bound.is_some_and(|bound| bound <= least)), "{bound:?} {least:?}");
                if draw(1)? == 0.0 {
                    queue.find_first(|place| tasks[place as usize].2, |place| tasks[place as usize].0);
                    assert_eq!(queue.bound().map(|entry| entry.key.0.0), least);
                    let found = queue.bound().map(|entry| entry.place.0 as usize);
                    assert!(found.is_none_or(|place| tasks[place].2));
                }
            }
            Ok(())
        })
        .budget_ms(300);
    }
}
