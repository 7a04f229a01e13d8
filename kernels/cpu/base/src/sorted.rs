//! Sorting on a team: runs of a fixed length are sorted, then merged in pairs, each merge in pieces.
//!
//! Lengths alone decide runs and pieces, and each piece is one part of a run of the team. The work can therefore be
//! interrupted within a millisecond or two, and the result does not depend on the number of threads.

use super::Team;
use bytemuck::Pod;
use std::cmp::Ordering;
use std::ops::{BitOr, Shl, Shr};

/// Key with the position of its element: ordered by key, then by position.
pub trait Ranked:
    Ord + Pod + Send + Sync + BitOr<Output = Self> + Shl<u32, Output = Self> + Shr<u32, Output = Self>
{
    /// Greatest value.
    const LAST: Self;

    /// Joins a key and a position, which must fit.
    fn new(key: u64, position: usize) -> Self;

    /// Returns the key.
    fn key(self) -> u64;

    /// Returns the position.
    fn position(self) -> usize;
}

/// Half a word each, for keys and positions less than 2³².
impl Ranked for u64 {
    const LAST: Self = u64::MAX;

    #[inline(always)]
    fn new(key: u64, position: usize) -> Self {
        key << 32 | position as u64
    }

    #[inline(always)]
    fn key(self) -> u64 {
        self >> 32
    }

    #[inline(always)]
    fn position(self) -> usize {
        self as u32 as usize
    }
}

/// A word each.
impl Ranked for u128 {
    const LAST: Self = u128::MAX;

    #[inline(always)]
    fn new(key: u64, position: usize) -> Self {
        u128::from(key) << 64 | position as u128
    }

    #[inline(always)]
    fn key(self) -> u64 {
        (self >> 64) as u64
    }

    #[inline(always)]
    fn position(self) -> usize {
        self as usize
    }
}

/// Sorts `items` on a team, in runs of `run` items. Items that compare equal may be reordered.
///
/// `spare` is overwritten. If the team is interrupted, the order of both is undefined. O(n log n) comparisons.
///
/// # Panics
/// If `spare` differs from `items` in length.
pub fn sort<T: Copy + Send + Sync>(
    team: &Team,
    items: &mut [T],
    spare: &mut [T],
    run: usize,
    compare: impl Fn(&T, &T) -> Ordering + Sync,
) {
    assert_eq!(items.len(), spare.len(), "as much spare memory as there are items");
    let run = run.max(1);
    team.run_pieces(items, run, &|_, piece| piece.sort_unstable_by(&compare));
    let (mut from, mut to, mut width, mut is_spare) = (items, spare, run, false);
    while width < from.len() {
        let sorted = &*from;
        team.run_pieces(to, run, &|index, piece| {
            let start = index * run;
            let pair = &sorted[start - start % (2 * width)..];
            let pair = &pair[..pair.len().min(2 * width)];
            let (left, right) = pair.split_at(pair.len().min(width));
            merge(left, right, start % (2 * width), piece, &compare);
        });
        (from, to) = (to, from);
        is_spare = !is_spare;
        width *= 2;
    }
    if is_spare {
        let sorted = &*from;
        team.run_pieces(to, run, &|index, piece| piece.copy_from_slice(&sorted[index * run..][..piece.len()]));
    }
}

/// Writes the merge of both sorted lists from position `start` on, as much as fits.
fn merge<T: Copy>(left: &[T], right: &[T], start: usize, piece: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut i = of_left(left, right, start, &compare);
    let (mut j, mut at) = (start - i, 0);
    while i < left.len() && j < right.len() && at < piece.len() {
        let is_right = compare(&right[j], &left[i]).is_lt();
        piece[at] = if is_right { right[j] } else { left[i] };
        i += usize::from(!is_right);
        j += usize::from(is_right);
        at += 1;
    }
    let rest = &mut piece[at..];
    let from_left = rest.len().min(left.len() - i);
    rest[..from_left].copy_from_slice(&left[i..][..from_left]);
    let beyond = rest.len() - from_left;
    rest[from_left..].copy_from_slice(&right[j..][..beyond]);
}

/// Returns the number of elements of the left list among the first `count` of the merge of two sorted lists. O(log
/// count).
fn of_left<T>(left: &[T], right: &[T], count: usize, compare: impl Fn(&T, &T) -> Ordering) -> usize {
    let (mut low, mut high) = (count.saturating_sub(right.len()), count.min(left.len()));
    while low < high {
        let middle = low.midpoint(high);
        match compare(&right[count - middle - 1], &left[middle]).is_lt() {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn numbers(count: usize, different: u64) -> Vec<u64> {
        let mut state = 7u64;
        let next = |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % different
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn any_length_run_and_number_of_threads_sorts() {
        for threads in [1, 3] {
            let team = Team::new(threads, |_| {});
            for (count, run) in [(0, 4), (1, 4), (4, 4), (5, 4), (17, 1), (64, 4), (1000, 7), (1001, 1000), (3000, 64)]
            {
                for different in [1, 5, u64::MAX] {
                    let mut items: Vec<u64> = numbers(count, different);
                    let mut want = items.clone();
                    want.sort_unstable();
                    let mut spare = vec![0; count];
                    sort(&team, &mut items, &mut spare, run, u64::cmp);
                    assert_eq!(items, want, "{count} items in runs of {run}");
                }
            }
        }
    }

    #[test]
    fn an_interruption_at_any_look_ends_the_sort() {
        for most in 0..60 {
            let (team, looks) = (Team::solo(), Arc::new(AtomicUsize::new(0)));
            let asked = Arc::clone(&looks);
            let _watched = team.watch(Arc::new(move || asked.fetch_add(1, Ordering::Relaxed) >= most));
            let mut items = numbers(100, 50);
            sort(&team, &mut items, &mut [0; 100], 8, u64::cmp);
            assert!(looks.load(Ordering::Relaxed) > most.min(50));
        }
    }

    #[test]
    fn keys_and_positions_come_back() {
        assert_eq!((u64::new(7, 9).key(), u64::new(7, 9).position()), (7, 9));
        assert_eq!((u128::new(u64::MAX, 9).key(), u128::new(u64::MAX, 9).position()), (u64::MAX, 9));
        assert!(u64::new(7, 9) < u64::new(8, 0) && u64::new(7, 9) < u64::new(7, 10));
    }
}
