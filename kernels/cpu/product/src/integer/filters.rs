//! Filters of convolutions of 8-bit integers, as rows of a left-hand matrix.
//!
//! The layout packs them: their rows, and after all rows their sums.

use anabranch_cpu_base::elements::elements;
use anabranch_cpu_base::layout::integers::row_bytes;

/// Packed filters.
#[derive(Clone, Copy)]
pub(super) struct Filters<'a> {
    rows: &'a [u8],
    sums: &'a [i32],
    /// Bytes of a row.
    pub(super) row: usize,
}

impl<'a> Filters<'a> {
    pub(super) fn new(packed: &'a [u8], filters: usize, depth: usize) -> Self {
        let (rows, sums) = packed.split_at(filters * row_bytes(depth));
        Self { rows, sums: elements(sums), row: row_bytes(depth) }
    }

    /// Returns the rows of `count` filters from `first` on.
    pub(super) fn rows(&self, first: usize, count: usize) -> &'a [u8] {
        &self.rows[first * self.row..][..count * self.row]
    }

    /// Returns the sum of the numbers of a filter.
    pub(super) fn sum(&self, filter: usize) -> i32 {
        self.sums[filter]
    }
}
