//! Sharing of buffers between values that are never alive at the same time.
//!
//! Greedy by size (Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference", shared objects):
//! values are taken from the largest to the smallest, and each moves into the smallest slot whose tenants are all gone
//! before it comes or come after it has gone. No slot then ever grows. Lifetimes are closed intervals of places in the total
//! order; a tenant that ends at a place and one that begins at the same place are alive together, for a node must not write
//! what it reads.

/// A value that wants a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guest {
    /// Bytes.
    pub(super) bytes: u64,
    /// The place at which it comes to be.
    pub(super) from: u32,
    /// The place of its last use.
    pub(super) until: u32,
    /// Never shares its slot.
    pub(super) alone: bool,
}

/// A slot and its tenants' lifetimes, by time.
struct Slot {
    bytes: u64,
    taken: Vec<(u32, u32)>,
    alone: bool,
}

impl Slot {
    /// Where among the tenants `guest` would fit in time.
    fn gap(&self, guest: &Guest) -> Option<usize> {
        let at = self.taken.partition_point(|taken| taken.1 < guest.from);
        let free = self.taken.get(at).is_none_or(|next| guest.until < next.0);
        (free && !self.alone && !guest.alone).then_some(at)
    }
}

/// The slot of each guest, and the bytes of each slot. O(guests × slots).
pub(super) fn assign(guests: &[Guest]) -> (Vec<usize>, Vec<u64>) {
    let mut by_size: Vec<usize> = (0..guests.len()).collect();
    by_size.sort_by_key(|at| (std::cmp::Reverse(guests[*at].bytes), guests[*at].from, *at));
    let mut slots: Vec<Slot> = Vec::new();
    let mut slot_of = vec![0; guests.len()];
    for at in by_size {
        let guest = &guests[at];
        // Slots were opened from large to small, so the last that fits is the tightest.
        let fit = slots.iter().enumerate().rev().find_map(|(slot, s)| s.gap(guest).map(|gap| (slot, gap)));
        let (slot, gap) = fit.unwrap_or_else(|| {
            slots.push(Slot { bytes: guest.bytes, taken: Vec::new(), alone: guest.alone });
            (slots.len() - 1, 0)
        });
        slots[slot].taken.insert(gap, (guest.from, guest.until));
        slot_of[at] = slot;
    }
    (slot_of, slots.into_iter().map(|slot| slot.bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(bytes: u64, from: u32, until: u32) -> Guest {
        Guest { bytes, from, until, alone: false }
    }

    #[test]
    fn a_chain_takes_turns_in_two_slots() {
        let guests: Vec<_> = (0..10).map(|at| guest(100 - u64::from(at), at, at + 1)).collect();
        assert_eq!(assign(&guests).1, [100, 99]);
    }

    #[test]
    fn neighbours_in_time_share_only_without_a_common_place() {
        assert_eq!(assign(&[guest(8, 0, 3), guest(8, 4, 5)]).1, [8]);
        assert_eq!(assign(&[guest(8, 0, 4), guest(8, 4, 5)]).1, [8, 8]);
    }

    #[test]
    fn small_values_move_into_gaps_of_large_slots() {
        let (slot_of, slots) = assign(&[guest(4, 3, 4), guest(9, 0, 2), guest(9, 5, 6), guest(5, 0, 2)]);
        assert_eq!(slots, [9, 5]);
        assert_eq!(slot_of, [1, 0, 0, 1]);
    }

    #[test]
    fn who_is_alone_stays_alone() {
        let alone = Guest { alone: true, ..guest(8, 0, 1) };
        assert_eq!(assign(&[guest(8, 2, 3), alone, Guest { from: 5, until: 6, ..alone }]).1.len(), 3);
    }
}
