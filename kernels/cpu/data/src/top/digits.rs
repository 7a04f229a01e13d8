//! Top-k of a row for large k: parallel radix selection by the digits of pairs of key and index.
//!
//! Each pass counts the next digit of the pairs whose earlier digits equal those of the pair that is sought. Passes end
//! as soon as there are only few more pairs than needed up to the greatest pair with these digits. These pairs are
//! collected and sorted.

use super::{BLOCK, PART, TopKernel};
use anabranch_cpu_base::Team;
use anabranch_cpu_base::sorted::Ranked;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bits of a digit.
const DIGIT: u32 = 11;

/// Maximum pairs that are collected beyond those that are needed.
const BEYOND: usize = PART / 4;

impl TopKernel {
    /// Returns the number of pairs that [`by_digits`](Self::by_digits) works with.
    pub(super) fn digits_pairs(&self) -> usize {
        2 * (self.kept + BEYOND)
    }

    /// Returns the first pairs of a row, in order. O(count), plus sorting of the kept pairs.
    pub(super) fn by_digits<'p, R: Ranked>(
        &self,
        team: &Team,
        source: &[u8],
        group: usize,
        scratch: &'p mut [R],
    ) -> &'p [R] {
        let parts = self.count.div_ceil(PART);
        let bound = self.bound::<R>(team, source, group);
        let mut counts = vec![0usize; parts];
        team.run_pieces(&mut counts, 1, &|part, count| {
            self.each::<R>(source, group, part, |pair| count[0] += usize::from(pair <= bound));
        });
        let (pairs, spare) = scratch.split_at_mut(self.kept + BEYOND);
        // An interruption may have left parts uncounted, or a bound that is too great.
        let found = counts.iter().sum::<usize>().min(pairs.len());
        let (mut rest, mut targets) = (&mut pairs[..found], Vec::with_capacity(parts));
        for count in counts {
            let (target, after) = rest.split_at_mut(count.min(rest.len()));
            targets.push(Mutex::new(target));
            rest = after;
        }
        team.run(parts, &|part| {
            let mut target = targets[part].lock().unwrap_or_else(PoisonError::into_inner);
            let mut places = target.iter_mut();
            self.each::<R>(source, group, part, |pair| {
                if pair <= bound {
                    places.next().into_iter().for_each(|place| *place = pair);
                }
            });
        });
        drop(targets);
        self.sorted_first(team, &mut pairs[..found], spare)
    }

    /// Returns a pair up to which there are as many pairs as needed, or at most `BEYOND` more.
    fn bound<R: Ranked>(&self, team: &Team, source: &[u8], group: usize) -> R {
        let bits = 8 * size_of::<R>() as u32;
        let (mut first, mut known, mut wanted) = (R::new(0, 0), 0, self.kept);
        while known < bits {
            let range = first..first | R::LAST >> known;
            let digit = DIGIT.min(bits - known);
            let shift = bits - known - digit;
            let counts = self.digits(team, source, group, range, shift, digit);
            let (mut chosen, mut before) = (0, 0);
            while chosen + 1 < 1 << digit && before + counts[chosen] < wanted {
                before += counts[chosen];
                chosen += 1;
            }
            wanted = wanted.saturating_sub(before);
            (first, known) = (first | R::new(0, chosen) << shift, known + digit);
            if counts[chosen] <= wanted.saturating_add(BEYOND) {
                break;
            }
        }
        if known < bits { first | R::LAST >> known } else { first }
    }

    /// Counts each value of a digit, which is `shift` bits from the end, among the pairs in `range`, whose end is
    /// included.
    fn digits<R: Ranked>(
        &self,
        team: &Team,
        source: &[u8],
        group: usize,
        range: Range<R>,
        shift: u32,
        digit: u32,
    ) -> [usize; 1 << DIGIT] {
        let all = [const { AtomicUsize::new(0) }; 1 << DIGIT];
        team.run(self.count.div_ceil(PART), &|part| {
            let mut counts = [0u32; 1 << DIGIT];
            self.each::<R>(source, group, part, |pair| {
                if range.start <= pair && pair <= range.end {
                    counts[(pair >> shift).position() & ((1 << digit) - 1)] += 1;
                }
            });
            let counted = all.iter().zip(counts).filter(|(_, count)| *count > 0);
            // Relaxed: the order of integer sums does not matter, and the end of the run publishes them.
            counted.for_each(|(all, count)| _ = all.fetch_add(count as usize, Ordering::Relaxed));
        });
        all.map(AtomicUsize::into_inner)
    }

    /// Calls `take` with each pair of a part of a row.
    #[inline(always)]
    fn each<R: Ranked>(&self, source: &[u8], group: usize, part: usize, mut take: impl FnMut(R)) {
        let (mut pairs, end) = ([R::LAST; BLOCK], self.count.min((part + 1) * PART));
        for start in (part * PART..end).step_by(BLOCK) {
            let pairs = &mut pairs[..BLOCK.min(end - start)];
            self.pairs(source, group, start, pairs);
            pairs.iter().for_each(|pair| take(*pair));
        }
    }
}
