//! Folds of consecutive rows of `f32`, as many rows at a time as a vector has lanes.
//!
//! Joining the lanes of a short row takes longer than folding its elements. The lanes of [`LANES`] rows are therefore
//! joined together: each step joins the neighbours in two vectors, and its results fill one vector. Each row still has
//! the tree of [`joined`], so that its fold has the same bits.

use super::vector::{Isa, LANES, joined};

/// Maximum elements of rows that are folded together: in longer rows, joining lanes takes little of the time.
pub const LONGEST: usize = 256;

/// Fold in each lane of a vector. All functions are inlined always.
pub trait VectorFold: Copy {
    /// Fold of no elements.
    const EMPTY: f32;

    /// Returns an element that changes no fold.
    fn absent(self) -> f32;

    /// Folds one more element in.
    fn add<I: Isa>(self, so_far: I::Vector, x: I::Vector) -> I::Vector;

    /// Folds two results into one.
    fn join<I: Isa>(a: I::Vector, b: I::Vector) -> I::Vector;
}

/// Folds [`LANES`] consecutive rows of equal length. Lane `i` of the result is row `i`, folded by `fold(i)`.
#[inline(always)]
pub fn fold_rows<I: Isa, F: VectorFold>(rows: &[f32], fold: impl Fn(usize) -> F) -> I::Vector {
    let mut folds = [I::splat(F::EMPTY); LANES];
    for (at, (to, row)) in folds.iter_mut().zip(rows.chunks_exact(rows.len() / LANES)).enumerate() {
        *to = lanes_of::<I, F>(row, fold(at));
    }
    joined_rows::<I>(folds, F::join::<I>)
}

/// Folds one row, with the bits of [`fold_rows`].
#[inline(always)]
pub fn fold_row<I: Isa, F: VectorFold>(row: &[f32], fold: F) -> f32 {
    joined::<I>(lanes_of::<I, F>(row, fold), F::join::<I>)
}

/// Folds a row into the lanes of a vector.
#[inline(always)]
fn lanes_of<I: Isa, F: VectorFold>(row: &[f32], fold: F) -> I::Vector {
    let (mut low, mut high) = (I::splat(F::EMPTY), I::splat(F::EMPTY));
    let (blocks, rest) = row.as_chunks::<{ 2 * LANES }>();
    for block in blocks {
        let halves = block.as_chunks().0;
        low = fold.add::<I>(low, I::load(&halves[0]));
        high = fold.add::<I>(high, I::load(&halves[1]));
    }
    let (first, second) = rest.split_at(rest.len().min(LANES));
    if !first.is_empty() {
        low = fold.add::<I>(low, part::<I>(first, fold.absent()));
    }
    if !second.is_empty() {
        high = fold.add::<I>(high, part::<I>(second, fold.absent()));
    }
    F::join::<I>(low, high)
}

/// Loads at most [`LANES`] elements; the remaining lanes are `beyond`.
#[inline(always)]
fn part<I: Isa>(from: &[f32], beyond: f32) -> I::Vector {
    match from.first_chunk() {
        Some(from) => I::load(from),
        None => I::load_part(from, I::splat(beyond)),
    }
}

/// Joins all lanes of each vector into one lane of the result, in the order of the vectors.
#[inline(always)]
fn joined_rows<I: Isa>(mut rows: [I::Vector; LANES], join: impl Fn(I::Vector, I::Vector) -> I::Vector) -> I::Vector {
    let mut count = LANES;
    while count > 1 {
        count /= 2;
        for at in 0..count {
            let (first, second) = (rows[2 * at], rows[2 * at + 1]);
            rows[at] = join(I::even(first, second), I::odd(first, second));
        }
    }
    rows[0]
}
