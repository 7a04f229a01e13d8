//! Top-k of a row for small k: only blocks whose least key is small are searched.
//!
//! Let `k` elements be wanted. Order blocks by their least key, and blocks of equal least keys by position. The first
//! `k` blocks hold the first `k` elements: each of these blocks has an element that comes before all elements of any
//! other block. One pass over the row therefore finds the least keys, and only `k` blocks are searched element by
//! element.

use super::{BLOCK, PART, TopKernel};
use anabranch_cpu_base::sorted::Ranked;
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Team, order};

/// Maximum candidates of a part, unless one block has more.
const CANDIDATES: usize = PART / 16;

impl TopKernel {
    /// Returns the elements of a block: enough that all blocks are at most one part's work.
    fn block(&self) -> usize {
        BLOCK.max(self.count.div_ceil(PART))
    }

    /// Returns the number of blocks of a row.
    pub(super) fn blocks(&self) -> usize {
        self.count.div_ceil(self.block())
    }

    /// Returns the number of pairs that [`by_tournament`](Self::by_tournament) works with: blocks, candidates, and as
    /// many again if they may be sorted.
    pub(super) fn tournament_pairs(&self) -> usize {
        let candidates = self.kept * self.block();
        self.blocks() + if candidates > PART { 2 * candidates } else { candidates }
    }

    /// Returns the first pairs of a row, in order. The least keys take one pass over the row, the rest O(kept · block).
    pub(super) fn by_tournament<'p, R: Ranked>(
        &self,
        team: &Team,
        source: &[u8],
        group: usize,
        scratch: &'p mut [R],
    ) -> &'p [R] {
        let (block, blocks) = (self.block(), self.blocks());
        let (least, rest) = scratch.split_at_mut(blocks);
        let together = PART.div_ceil(block);
        team.run_pieces(least, together, &|piece, least| {
            vectorised(Least { kernel: self, source, group, first: piece * together, least });
        });
        let bound = least.select_nth_unstable(self.kept - 1).1.key();
        let chosen = &least[..self.kept];
        let (candidates, spare) = rest.split_at_mut(self.kept * block);
        let together = CANDIDATES.div_ceil(block);
        team.run_pieces(candidates, together * block, &|piece, candidates| {
            let chosen = chosen[piece * together..].iter().take(candidates.len() / block);
            self.candidates(source, group, chosen, bound, candidates);
        });
        let found = joined(candidates, together * block);
        self.sorted_first(team, &mut candidates[..found], spare)
    }

    /// Writes the pairs of these blocks whose keys are at most `bound`, followed by [`Ranked::LAST`] if there is space.
    fn candidates<'r, R: Ranked>(
        &self,
        source: &[u8],
        group: usize,
        chosen: impl Iterator<Item = &'r R>,
        bound: u64,
        to: &mut [R],
    ) {
        let (mut pairs, mut found) = ([R::LAST; BLOCK], 0);
        for least in chosen {
            // After an interruption there may be no such block.
            let start = least.position().saturating_mul(self.block()).min(self.count);
            let end = self.count.min(start + self.block());
            for start in (start..end).step_by(BLOCK) {
                let pairs = &mut pairs[..BLOCK.min(end - start)];
                self.pairs(source, group, start, pairs);
                for pair in pairs.iter().filter(|pair| pair.key() <= bound) {
                    to[found] = *pair;
                    found += 1;
                }
            }
        }
        to[found..].iter_mut().take(1).for_each(|end| *end = R::LAST);
    }
}

/// Moves the pairs before the first [`Ranked::LAST`] of each piece together, and returns their number.
fn joined<R: Ranked>(pairs: &mut [R], length: usize) -> usize {
    let mut found = 0;
    for start in (0..pairs.len()).step_by(length) {
        let piece = &pairs[start..pairs.len().min(start + length)];
        let own = piece.iter().position(|pair| *pair == R::LAST).unwrap_or(piece.len());
        pairs.copy_within(start..start + own, found);
        found += own;
    }
    found
}

/// Loop that finds the least key of each block from the block `first` on.
struct Least<'a, R> {
    kernel: &'a TopKernel,
    source: &'a [u8],
    group: usize,
    first: usize,
    least: &'a mut [R],
}

impl<R: Ranked> Loop for Least<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel, source, group, first, least } = self;
        let (size, block) = (kernel.dtype.size(), kernel.block());
        for (index, least) in (first..).zip(least) {
            let (start, end) = (index * block, kernel.count.min((index + 1) * block));
            let row = |start: usize| {
                let count = BLOCK.min(end - start);
                &source[(group * kernel.count + start) * size..][..count * size]
            };
            let mut key = R::LAST.key();
            for start in (start..end).step_by(BLOCK) {
                let other = match (kernel.inner, size_of::<R>()) {
                    (1, 8) => {
                        let (flipped, mut keys) = (if kernel.largest { u32::MAX } else { 0 }, [u32::MAX; BLOCK]);
                        order::keys(kernel.dtype, row(start), &mut keys, |_, key| key as u32 ^ flipped);
                        keys.iter().fold(u32::MAX, |one, other| one.min(*other)).into()
                    }
                    (1, _) => {
                        let (flipped, mut keys) = (if kernel.largest { u64::MAX } else { 0 }, [u64::MAX; BLOCK]);
                        order::keys(kernel.dtype, row(start), &mut keys, |_, key| key ^ flipped);
                        keys.iter().fold(u64::MAX, |one, other| one.min(*other))
                    }
                    _ => {
                        let mut pairs = [R::LAST; BLOCK];
                        kernel.pairs(source, group, start, &mut pairs[..BLOCK.min(end - start)]);
                        pairs.iter().fold(u64::MAX, |one, other| one.min(other.key()))
                    }
                };
                key = key.min(other);
            }
            *least = R::new(key, index);
        }
    }
}
