//! Filters of convolutions of 8-bit integers, as rows of a left-hand matrix.
//!
//! A filter's numbers are signed and lie in the order of the windows: column by column, in a column row by row, each
//! with all its channels. Each column is padded with zeros to a multiple of four numbers. The sums of the filters
//! follow after all filters.

use crate::elements::elements_mut;
use serde::{Deserialize, Serialize};

/// Sizes of filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FilterSizes {
    /// Number of filters.
    pub count: usize,
    /// Channels that a filter reads.
    pub channels: usize,
    /// Rows and columns of the window.
    pub window: [usize; 2],
}

impl FilterSizes {
    /// Returns the numbers of a filter.
    #[inline]
    pub const fn depth(&self) -> usize {
        self.channels * self.window[0] * self.window[1]
    }

    /// Returns the quads of a column of the window.
    #[inline]
    pub const fn column_quads(&self) -> usize {
        (self.channels * self.window[0]).div_ceil(4)
    }

    /// Returns the bytes of a packed filter.
    #[inline]
    pub const fn row_bytes(&self) -> usize {
        4 * self.column_quads() * self.window[1]
    }

    /// Returns the bytes of the packed filters and their sums.
    #[inline]
    pub const fn bytes(&self) -> usize {
        self.count * (self.row_bytes() + size_of::<i32>())
    }

    /// Packs whole filters `[channels, rows, columns]`; the first is filter `first` of all. 128 is added to all numbers
    /// if `flip`. O(bytes).
    pub fn pack(&self, raw: &[u8], first: usize, flip: bool, packed: &mut [u8]) {
        let mask = if flip { 0x80 } else { 0 };
        let [high, wide] = self.window;
        let (rows, sums) = packed.split_at_mut(self.count * self.row_bytes());
        let sums = elements_mut::<i32>(sums)[first..].iter_mut();
        let rows = rows[first * self.row_bytes()..].chunks_exact_mut(self.row_bytes().max(1));
        for ((filter, row), sum) in raw.chunks_exact(self.depth().max(1)).zip(rows).zip(sums) {
            row.fill(0);
            for (at, numbers) in filter.chunks_exact(wide).enumerate() {
                let step = at % high * self.channels + at / high;
                let columns = row[step..].iter_mut().step_by(4 * self.column_quads());
                columns.zip(numbers).for_each(|(to, number)| *to = number ^ mask);
            }
            *sum = row.iter().fold(0, |sum: i32, number| sum.wrapping_add(i32::from(*number as i8)));
        }
    }
}
