//! Filters of convolutions of 8-bit integers, as rows of a left-hand matrix.
//!
//! A filter's numbers are signed and lie in the order of the windows, element by element with all its channels. They
//! are padded with zeros to a multiple of four. The sums of the filters follow after all filters.

use crate::elements::elements_mut;

/// Returns the bytes of a filter's row.
#[inline]
pub const fn row_bytes(depth: usize) -> usize {
    depth.next_multiple_of(4)
}

/// Returns the bytes of packed filters of `depth` numbers.
#[inline]
pub const fn filter_bytes(filters: usize, depth: usize) -> usize {
    filters * (row_bytes(depth) + size_of::<i32>())
}

/// Packs whole filters of `[depth / taps, taps]` numbers; the first is filter `first` of all. 128 is added to all
/// numbers if `flip`. O(bytes).
pub fn pack_filters(raw: &[u8], first: usize, [filters, depth, taps]: [usize; 3], flip: bool, packed: &mut [u8]) {
    let mask = if flip { 0x80 } else { 0 };
    let (rows, sums) = packed.split_at_mut(filters * row_bytes(depth));
    let sums = elements_mut::<i32>(sums)[first..].iter_mut();
    let rows = rows[first * row_bytes(depth)..].chunks_exact_mut(row_bytes(depth).max(1));
    for ((filter, row), sum) in raw.chunks_exact(depth.max(1)).zip(rows).zip(sums) {
        for (channel, numbers) in filter.chunks_exact(taps).enumerate() {
            for (number, to) in numbers.iter().zip(row[channel..].iter_mut().step_by(depth / taps)) {
                *to = number ^ mask;
            }
        }
        row[depth..].fill(0);
        *sum = row.iter().map(|number| i32::from(*number as i8)).sum();
    }
}
