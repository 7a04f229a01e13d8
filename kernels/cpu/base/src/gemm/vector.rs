//! Product of a matrix and a vector, which takes as long as reading the matrix.

use super::view::View;
use crate::vector::{Isa, LANES, Loop, vectorised};
use std::array::from_fn;

/// Partial sums of a dot product: two vectors of the widest kind.
const CHAINS: usize = 32;

/// Rows or columns of the matrix that are read at once, because memory serves several streams faster than one.
const TOGETHER: usize = 4;

/// Elements of the result that stay in the L1 cache while the matrix's rows are added to them.
pub(super) const RUN: usize = 1024;

/// Whether [`matrix_vector`] can read this matrix.
pub(crate) fn is_readable(matrix: View<'_>) -> bool {
    matrix.column_stride() == 1 || matrix.row_stride() == 1
}

/// Computes rows `first..first + out.len()` of `matrix · vector`. One of the matrix's strides is 1.
///
/// # Panics
/// If the sizes do not fit together, or both strides differ from 1.
pub fn matrix_vector(matrix: View<'_>, vector: &[f32], first: usize, out: &mut [f32]) {
    assert!(matrix.columns() == vector.len() && first + out.len() <= matrix.rows(), "sizes of a matrix-vector product");
    assert!(is_readable(matrix), "neither the rows nor the columns are contiguous");
    if vector.is_empty() {
        out.fill(0.0);
    } else if matrix.column_stride() == 1 {
        vectorised(Dots { rows: matrix, vector, first, out });
    } else {
        for (index, out) in out.chunks_mut(RUN).enumerate() {
            vectorised(Combination { columns: matrix, factors: vector, first: first + index * RUN, out });
        }
    }
}

/// Dot products of rows with one vector.
struct Dots<'a> {
    rows: View<'a>,
    vector: &'a [f32],
    first: usize,
    out: &'a mut [f32],
}

impl Loop for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { rows, vector, first, out } = self;
        for (group, out) in out.chunks_mut(TOGETHER).enumerate() {
            let start = first + group * TOGETHER;
            // A group at the end repeats its last row.
            let row = |i: usize| &rows.from(start + i.min(out.len() - 1), 0)[..vector.len()];
            let sums = dots::<I>([row(0), row(1), row(2), row(3)], vector);
            out.copy_from_slice(&sums[..out.len()]);
        }
    }
}

/// Returns the dot products of four rows with one vector, all of equal length: first whole blocks, then smaller blocks,
/// then the rest.
#[inline(always)]
fn dots<I: Isa>(rows: [&[f32]; TOGETHER], vector: &[f32]) -> [f32; TOGETHER] {
    let (blocks, tail) = vector.split_at(vector.len() / CHAINS * CHAINS);
    let (small_blocks, rest) = tail.split_at(tail.len() / 8 * 8);
    let from = |start: usize| rows.map(|row| &row[start..]);
    let sums = block_dots::<I, CHAINS>(rows, blocks);
    let small = block_dots::<I, 8>(from(blocks.len()), small_blocks);
    let last = block_dots::<I, 1>(from(vector.len() - rest.len()), rest);
    from_fn(|i| sums[i] + small[i] + last[i])
}

/// Returns the dot products of the first elements of four rows with a vector, in `WIDTH` chains. The vector's length is
/// a multiple of `WIDTH`.
#[inline(always)]
fn block_dots<I: Isa, const WIDTH: usize>(rows: [&[f32]; TOGETHER], vector: &[f32]) -> [f32; TOGETHER] {
    let [a, b, c, d] = rows.map(|row| row.as_chunks::<WIDTH>().0);
    // The compiler keeps one array per row in registers; it would not do so with an array of arrays.
    let [mut of_a, mut of_b, mut of_c, mut of_d] = [[0f32; WIDTH]; TOGETHER];
    for ((((x, a), b), c), d) in vector.as_chunks::<WIDTH>().0.iter().zip(a).zip(b).zip(c).zip(d) {
        for i in 0..WIDTH {
            of_a[i] = I::fused(a[i], x[i], of_a[i]);
            of_b[i] = I::fused(b[i], x[i], of_b[i]);
            of_c[i] = I::fused(c[i], x[i], of_c[i]);
            of_d[i] = I::fused(d[i], x[i], of_d[i]);
        }
    }
    [pairwise_sum(of_a), pairwise_sum(of_b), pairwise_sum(of_c), pairwise_sum(of_d)]
}

/// Returns the sum of all chains: first of every eighth, then of the results pairwise.
#[inline(always)]
fn pairwise_sum<const WIDTH: usize>(sums: [f32; WIDTH]) -> f32 {
    let mut eight = [0.0; 8];
    for (i, sum) in sums.iter().enumerate() {
        eight[i % 8] += sum;
    }
    let [a, b, c, d]: [f32; 4] = from_fn(|i| eight[i] + eight[i + 4]);
    (a + c) + (b + d)
}

/// Linear combination `out = Σ factor · column`, over a run of elements.
struct Combination<'a> {
    columns: View<'a>,
    factors: &'a [f32],
    first: usize,
    out: &'a mut [f32],
}

impl Loop for Combination<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        self.out.fill(0.0);
        // Columns that are a multiple of a page apart share the cache's sets: more than eight evict each other.
        let done = self.add_by::<I, TOGETHER>(0);
        self.add_by::<I, 1>(done);
    }
}

impl Combination<'_> {
    /// Adds the columns from `done` on by so many at a time, and returns the number of columns that were added.
    #[inline(always)]
    fn add_by<I: Isa, const COUNT: usize>(&mut self, mut done: usize) -> usize {
        let length = self.out.len();
        while done + COUNT <= self.factors.len() {
            let columns: [&[f32]; COUNT] = from_fn(|at| &self.columns.from(self.first, done + at)[..length]);
            add::<I, COUNT>(columns, &self.factors[done..done + COUNT], self.out);
            done += COUNT;
        }
        done
    }
}

/// Adds columns, each multiplied by its factor, in their order.
#[inline(always)]
fn add<I: Isa, const COUNT: usize>(columns: [&[f32]; COUNT], factors: &[f32], out: &mut [f32]) {
    let mut wide = [I::splat(0.0); COUNT];
    for c in 0..COUNT {
        wide[c] = I::splat(factors[c]);
    }
    let whole = out.len() / LANES;
    let (blocks, rest) = out.as_chunks_mut::<LANES>();
    let column_blocks = columns.map(|column| &column.as_chunks::<LANES>().0[..whole]);
    for (at, block) in blocks.iter_mut().enumerate() {
        let mut sum = I::load(block);
        for c in 0..COUNT {
            sum = I::fused_lanes(wide[c], I::load(&column_blocks[c][at]), sum);
        }
        I::store(sum, block);
    }
    for (at, sum) in rest.iter_mut().enumerate() {
        for c in 0..COUNT {
            *sum = I::fused(factors[c], columns[c][whole * LANES + at], *sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_and_all_lengths_agree_with_the_definition() {
        let value = |i: usize| ((i * 29 + 7) % 13) as f32 - 6.0;
        let data: Vec<f32> = (0..200 * 150).map(value).collect();
        for (rows, depth) in [(1, 1), (3, 64), (200, 150), (17, 3), (5, 131), (40, 29), (2, 0), (0, 4)] {
            for transposed in [false, true] {
                let matrix = View::new(&data, rows, depth, transposed);
                let vector = &data[7..7 + depth];
                for first in [0, rows / 3] {
                    let mut out = vec![f32::NAN; rows - first];
                    matrix_vector(matrix, vector, first, &mut out);
                    let row = |i: usize| (0..depth).map(|p| matrix.from(i, p)[0] * vector[p]).sum::<f32>();
                    // Small integers: every order of summation is exact.
                    assert_eq!(out, (first..rows).map(row).collect::<Vec<_>>(), "{rows}×{depth}, {transposed}");
                }
            }
        }
    }
}
