//! Shares buffers between values that are never alive at the same time.
//!
//! Greedy by size (Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference", shared
//! objects): values are taken from the largest to the smallest. Each goes to the smallest slot whose lifetimes do not
//! overlap its own, so that no slot ever grows. Lifetimes are closed intervals of positions in the total order. A
//! lifetime that ends at a position overlaps one that begins there, because a node must not overwrite its input.
//!
//! If one worker empties a slot and another fills it, the second would wait for the first, possibly for long. A slot is
//! therefore passed between workers only if it is expected to be empty in time, as long as there is memory for more
//! slots.

/// A value that needs a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lifetime {
    /// Size in bytes.
    pub(super) bytes: u64,
    /// Position at which the value is made.
    pub(super) from: u32,
    /// Position of its last use.
    pub(super) until: u32,
    /// Whether the value never shares its slot.
    pub(super) alone: bool,
    /// Whether another worker has the last use.
    pub(super) read_elsewhere: bool,
    /// Whether another worker delivers the value.
    pub(super) lands: bool,
    /// Expected first and last time in memory, in seconds.
    pub(super) expected: (f64, f64),
}

impl Lifetime {
    /// Whether `next` may follow without one worker waiting for another.
    fn leaves_in_time(&self, next: &Self) -> bool {
        !(self.read_elsewhere || next.lands) || self.expected.1 <= next.expected.0
    }
}

/// A slot and its lifetimes, by their positions.
struct Slot {
    bytes: u64,
    lifetimes: Vec<Lifetime>,
    alone: bool,
}

impl Slot {
    /// Position among the slot's lifetimes at which `lifetime` fits.
    fn gap(&self, lifetime: &Lifetime, in_time: bool) -> Option<usize> {
        let at = self.lifetimes.partition_point(|other| other.until < lifetime.from);
        let (before, after) = self.lifetimes.split_at(at);
        let free = after.first().is_none_or(|next| lifetime.until < next.from);
        let timely = before.last().is_none_or(|other| other.leaves_in_time(lifetime))
            && after.first().is_none_or(|next| lifetime.leaves_in_time(next));
        (free && (timely || !in_time) && !self.alone && !lifetime.alone).then_some(at)
    }
}

/// Returns the slot of each lifetime, and the bytes of each slot. With `in_time`, no worker is expected to wait for
/// another's slot. O(lifetimes × slots).
pub(super) fn assign(lifetimes: &[Lifetime], in_time: bool) -> (Vec<usize>, Vec<u64>) {
    let mut by_size: Vec<usize> = (0..lifetimes.len()).collect();
    by_size.sort_by_key(|at| (std::cmp::Reverse(lifetimes[*at].bytes), lifetimes[*at].from, *at));
    let mut slots: Vec<Slot> = Vec::new();
    let mut slot_of = vec![0; lifetimes.len()];
    for at in by_size {
        let lifetime = &lifetimes[at];
        // Slots were opened from large to small, so that the last one that fits is the tightest.
        let fit = slots.iter().enumerate().rev().find_map(|(slot, s)| s.gap(lifetime, in_time).map(|gap| (slot, gap)));
        let (slot, gap) = fit.unwrap_or_else(|| {
            slots.push(Slot { bytes: lifetime.bytes, lifetimes: Vec::new(), alone: lifetime.alone });
            (slots.len() - 1, 0)
        });
        slots[slot].lifetimes.insert(gap, *lifetime);
        slot_of[at] = slot;
    }
    (slot_of, slots.into_iter().map(|slot| slot.bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(bytes: u64, from: u32, until: u32) -> Lifetime {
        Lifetime { bytes, from, until, alone: false, read_elsewhere: false, lands: false, expected: (0.0, 0.0) }
    }

    #[test]
    fn a_chain_takes_turns_in_two_slots() {
        let lifetimes: Vec<_> = (0..10).map(|at| lifetime(100 - u64::from(at), at, at + 1)).collect();
        assert_eq!(assign(&lifetimes, true).1, [100, 99]);
    }

    #[test]
    fn neighbours_in_time_share_only_without_a_common_place() {
        assert_eq!(assign(&[lifetime(8, 0, 3), lifetime(8, 4, 5)], true).1, [8]);
        assert_eq!(assign(&[lifetime(8, 0, 4), lifetime(8, 4, 5)], true).1, [8, 8]);
    }

    #[test]
    fn small_values_move_into_gaps_of_large_slots() {
        let (slot_of, slots) =
            assign(&[lifetime(4, 3, 4), lifetime(9, 0, 2), lifetime(9, 5, 6), lifetime(5, 0, 2)], true);
        assert_eq!(slots, [9, 5]);
        assert_eq!(slot_of, [1, 0, 0, 1]);
    }

    #[test]
    fn who_is_alone_stays_alone() {
        let alone = Lifetime { alone: true, ..lifetime(8, 0, 1) };
        assert_eq!(assign(&[lifetime(8, 2, 3), alone, Lifetime { from: 5, until: 6, ..alone }], true).1.len(), 3);
    }

    #[test]
    fn what_another_worker_reads_for_long_is_not_waited_for_while_there_is_memory() {
        let read_elsewhere = Lifetime { read_elsewhere: true, expected: (0.0, 9.0), ..lifetime(8, 0, 3) };
        let next = |start| Lifetime { expected: (start, start + 1.0), ..lifetime(8, 4, 5) };
        let slots = |next, in_time| assign(&[read_elsewhere, next], in_time).1.len();
        assert_eq!([slots(next(2.0), true), slots(next(2.0), false), slots(next(9.0), true)], [2, 1, 1]);
        let own = Lifetime { read_elsewhere: false, ..read_elsewhere };
        assert_eq!(assign(&[own, next(2.0)], true).1.len(), 1, "a worker's own steps run in order anyway");
        assert_eq!(assign(&[own, Lifetime { lands: true, ..next(2.0) }], true).1.len(), 2);
    }
}
