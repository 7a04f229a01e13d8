//! Sharing of buffers between values that are never alive at the same time.
//!
//! Greedy by size (Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference", shared objects):
//! values are taken from the largest to the smallest, and each moves into the smallest slot whose tenants are all gone
//! before it comes or come after it has gone. No slot then ever grows. Lifetimes are closed intervals of places in the total
//! order; a tenant that ends at a place and one that begins at the same place are alive together, for a node must not write
//! what it reads.
//!
//! Where one worker empties a slot and another fills it, the second would wait for the first, which is late if it works on
//! something long. So a slot is given on between workers only if it is expected to be empty in time, as long as there is
//! memory for more slots.

/// A value that wants a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Guest {
    /// Bytes.
    pub(super) bytes: u64,
    /// The place at which it comes to be.
    pub(super) from: u32,
    /// The place of its last use.
    pub(super) until: u32,
    /// Never shares its slot.
    pub(super) alone: bool,
    /// Another worker says when it is no longer needed.
    pub(super) lent: bool,
    /// Another worker brings it.
    pub(super) lands: bool,
    /// From when until when it is expected to be there. Seconds.
    pub(super) expected: (f64, f64),
}

impl Guest {
    /// Whether `next` may follow without a wait of one worker for another.
    fn leaves_in_time(&self, next: &Self) -> bool {
        !(self.lent || next.lands) || self.expected.1 <= next.expected.0
    }
}

/// A slot and its tenants, by their places.
struct Slot {
    bytes: u64,
    tenants: Vec<Guest>,
    alone: bool,
}

impl Slot {
    /// Where among the tenants `guest` would fit.
    fn gap(&self, guest: &Guest, in_time: bool) -> Option<usize> {
        let at = self.tenants.partition_point(|tenant| tenant.until < guest.from);
        let (before, after) = self.tenants.split_at(at);
        let free = after.first().is_none_or(|next| guest.until < next.from);
        let timely = before.last().is_none_or(|tenant| tenant.leaves_in_time(guest))
            && after.first().is_none_or(|next| guest.leaves_in_time(next));
        (free && (timely || !in_time) && !self.alone && !guest.alone).then_some(at)
    }
}

/// The slot of each guest, and the bytes of each slot. With `in_time` no worker is expected to wait for another for a slot.
/// O(guests × slots).
pub(super) fn assign(guests: &[Guest], in_time: bool) -> (Vec<usize>, Vec<u64>) {
    let mut by_size: Vec<usize> = (0..guests.len()).collect();
    by_size.sort_by_key(|at| (std::cmp::Reverse(guests[*at].bytes), guests[*at].from, *at));
    let mut slots: Vec<Slot> = Vec::new();
    let mut slot_of = vec![0; guests.len()];
    for at in by_size {
        let guest = &guests[at];
        // Slots were opened from large to small, so the last that fits is the tightest.
        let fit = slots.iter().enumerate().rev().find_map(|(slot, s)| s.gap(guest, in_time).map(|gap| (slot, gap)));
        let (slot, gap) = fit.unwrap_or_else(|| {
            slots.push(Slot { bytes: guest.bytes, tenants: Vec::new(), alone: guest.alone });
            (slots.len() - 1, 0)
        });
        slots[slot].tenants.insert(gap, *guest);
        slot_of[at] = slot;
    }
    (slot_of, slots.into_iter().map(|slot| slot.bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(bytes: u64, from: u32, until: u32) -> Guest {
        Guest { bytes, from, until, alone: false, lent: false, lands: false, expected: (0.0, 0.0) }
    }

    #[test]
    fn a_chain_takes_turns_in_two_slots() {
        let guests: Vec<_> = (0..10).map(|at| guest(100 - u64::from(at), at, at + 1)).collect();
        assert_eq!(assign(&guests, true).1, [100, 99]);
    }

    #[test]
    fn neighbours_in_time_share_only_without_a_common_place() {
        assert_eq!(assign(&[guest(8, 0, 3), guest(8, 4, 5)], true).1, [8]);
        assert_eq!(assign(&[guest(8, 0, 4), guest(8, 4, 5)], true).1, [8, 8]);
    }

    #[test]
    fn small_values_move_into_gaps_of_large_slots() {
        let (slot_of, slots) = assign(&[guest(4, 3, 4), guest(9, 0, 2), guest(9, 5, 6), guest(5, 0, 2)], true);
        assert_eq!(slots, [9, 5]);
        assert_eq!(slot_of, [1, 0, 0, 1]);
    }

    #[test]
    fn who_is_alone_stays_alone() {
        let alone = Guest { alone: true, ..guest(8, 0, 1) };
        assert_eq!(assign(&[guest(8, 2, 3), alone, Guest { from: 5, until: 6, ..alone }], true).1.len(), 3);
    }

    #[test]
    fn what_another_worker_reads_for_long_is_not_waited_for_while_there_is_memory() {
        let lent = Guest { lent: true, expected: (0.0, 9.0), ..guest(8, 0, 3) };
        let next = |start| Guest { expected: (start, start + 1.0), ..guest(8, 4, 5) };
        let slots = |next, in_time| assign(&[lent, next], in_time).1.len();
        assert_eq!([slots(next(2.0), true), slots(next(2.0), false), slots(next(9.0), true)], [2, 1, 1]);
        let own = Guest { lent: false, ..lent };
        assert_eq!(assign(&[own, next(2.0)], true).1.len(), 1, "a worker's own steps run in order anyway");
        assert_eq!(assign(&[own, Guest { lands: true, ..next(2.0) }], true).1.len(), 2);
    }
}
