//! Filters of convolutions of 8-bit integers, as rows of a left-hand matrix.
//!
//! The layout packs them: their rows, and after all rows their sums.

use anabranch_cpu_base::elements::elements;
use anabranch_cpu_base::layout::FilterSizes;

/// Packed filters.
#[derive(Clone, Copy)]
pub(super) struct Filters<'a> {
    rows: &'a [u8],
    sums: &'a [i32],
    row_bytes: usize,
}

impl<'a> Filters<'a> {
    pub(super) fn new(packed: &'a [u8], sizes: FilterSizes) -> Self {
        let (rows, sums) = packed.split_at(sizes.count * sizes.row_bytes());
        Self { rows, sums: elements(sums), row_bytes: sizes.row_bytes() }
    }

    /// Returns the rows of `count` filters from `first` on.
    pub(super) fn rows(&self, first: usize, count: usize) -> &'a [u8] {
        &self.rows[first * self.row_bytes..][..count * self.row_bytes]
    }

    /// Returns the sum of the numbers of a filter.
    pub(super) fn sum(&self, filter: usize) -> i32 {
        self.sums[filter]
    }
}
