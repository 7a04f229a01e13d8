//! Top-k of many lines at a time, without branches: each element is exchanged into the few that are kept.
//!
//! Lines of a few elements are whole blocks of pairs, and exchanges move the first pairs of each line to its front.
//! Longer lines side by side are passed once, slice by slice, and the pairs that each line keeps are vectors.

use super::{Method, PART, ROWS, TopKernel};
use anabranch_cpu_base::sorted::Ranked;
use anabranch_cpu_base::team::Grid;
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Team, order};

/// Maximum elements of lines that are sorted by exchanges.
const FEW: usize = 8;

/// Pairs of such lines that are made at a time.
const PAIRS: usize = 512;

/// Maximum elements that are kept of lines side by side.
const KEPT: usize = 8;

/// Lines side by side that are passed at a time, and the least number that is worth it. Few in tests, so that tiles are
/// passed in several steps.
const LINES: usize = if cfg!(test) { 8 } else { 64 };
const LEAST_LINES: usize = 8;

/// Least columns of a tile of long lines, and of lines that fit into a part.
const LEAST_COLUMNS: usize = 16;
const COLUMNS: usize = 64;

impl TopKernel {
    /// Whether lines are short enough for [`select_few`](Self::select_few).
    pub(super) fn has_few(&self) -> bool {
        self.count <= FEW && self.inner < LEAST_LINES
    }

    /// Whether there are enough lines side by side for [`select_lines`](Self::select_lines).
    pub(super) fn has_lines(&self) -> bool {
        // Exchanges of pairs of two words have no vectors: more of them take longer than a tournament.
        let most = if self.is_narrow() || self.method() == Method::Sort { KEPT } else { KEPT / 2 };
        self.kept <= most && self.inner >= LEAST_LINES
    }

    /// Selects in lines of a few elements. The pairs of many lines are made together, with positions in all of them.
    pub(super) fn select_few<R: Ranked>(&self, team: &Team, source: &[u8], indices: &mut [i64]) {
        let (stack, made, size) = (self.count * self.inner, self.kept * self.inner, self.dtype.size());
        let stacks = (ROWS / stack).max(1);
        team.run_pieces(indices, stacks * made, &|piece, indices| {
            let mut pairs = [R::LAST; PAIRS];
            let together = PAIRS / stack;
            for (block, indices) in indices.chunks_mut(together * made).enumerate() {
                let pairs = &mut pairs[..indices.len() / made * stack];
                let first = (piece * stacks + block * together) * stack * size;
                order::keys(self.dtype, &source[first..][..pairs.len() * size], pairs, |at, key| {
                    R::new(self.ordered::<R>(key), at)
                });
                let stacks = pairs.chunks_exact_mut(stack).zip(indices.chunks_exact_mut(made));
                for (number, (pairs, places)) in stacks.enumerate() {
                    match self.inner {
                        1 => self.exchange(pairs, 1, |pair| pair.position() - number * stack, places),
                        inner => {
                            for column in 0..inner {
                                let index = |pair: R| (pair.position() - number * stack) / inner;
                                self.exchange(&mut pairs[column..], inner, index, &mut places[column..]);
                            }
                        }
                    }
                }
            }
        });
    }

    /// Moves the first pairs of a line, whose pairs are `step` apart, to its front, and writes their indices.
    #[inline(always)]
    fn exchange<R: Ranked>(&self, pairs: &mut [R], step: usize, index: impl Fn(R) -> usize, places: &mut [i64]) {
        for front in 0..self.kept {
            for at in (front + 1..self.count).rev() {
                let (before, behind) = (pairs[(at - 1) * step], pairs[at * step]);
                (pairs[(at - 1) * step], pairs[at * step]) = (before.min(behind), before.max(behind));
            }
            places[front * step] = index(pairs[front * step]) as i64;
        }
    }

    /// Selects in lines side by side.
    pub(super) fn select_lines<R: Ranked>(&self, team: &Team, source: &[u8], indices: &mut [i64]) {
        let (kept, inner) = (self.kept, self.inner);
        // Long lines have narrow tiles, so that other threads get some and an interruption need not wait for all.
        let least = (PART / self.count).clamp(LEAST_COLUMNS, COLUMNS);
        let tile_columns = (ROWS / self.count).max(least).next_multiple_of(LEAST_COLUMNS);
        let batch = indices.len() / kept / inner;
        let grid = Grid { batch, rows: kept, columns: inner, tile_rows: kept, tile_columns };
        team.run_tiles(indices, grid, &|mut tile| {
            let columns = tile.columns.clone();
            for start in columns.clone().step_by(LINES) {
                let width = LINES.min(columns.end - start);
                let mut first = [[R::LAST; LINES]; KEPT];
                let lines =
                    Lines { kernel: self, source, matrix: tile.matrix, start, width, first: &mut first[..kept] };
                vectorised(lines);
                for (row, first) in first[..kept].iter().enumerate() {
                    let places = &mut tile.row(row)[start - columns.start..][..width];
                    places.iter_mut().zip(first).for_each(|(place, pair)| *place = pair.position() as i64);
                }
            }
        });
    }
}

/// Lines of a matrix from column `start` on, with the pairs that each keeps, in order.
struct Lines<'a, R> {
    kernel: &'a TopKernel,
    source: &'a [u8],
    matrix: usize,
    start: usize,
    width: usize,
    first: &'a mut [[R; LINES]],
}

impl<R: Ranked> Loop for Lines<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Lines { kernel, source, matrix, start, width, first } = self;
        let size = kernel.dtype.size();
        let mut pairs = [R::LAST; LINES];
        // Whole vectors, but not all pairs if there are few lines.
        let lanes = width.next_multiple_of(LEAST_LINES);
        for index in 0..kernel.count {
            let from = ((matrix * kernel.count + index) * kernel.inner + start) * size;
            order::keys(kernel.dtype, &source[from..][..width * size], &mut pairs[..width], |_, key| {
                R::new(kernel.ordered::<R>(key), index)
            });
            for kept in &mut *first {
                for (kept, pair) in kept[..lanes].iter_mut().zip(&mut pairs[..lanes]) {
                    let (before, behind) = ((*kept).min(*pair), (*kept).max(*pair));
                    (*kept, *pair) = (before, behind);
                }
            }
        }
    }
}
