//! Columns of a panel of B: corrections of their sums, and their grids in `f32`.

use super::block::Row;
use super::output::{Parameters, certain};
use anabranch_cpu_base::layout::quads::PANEL;
use anabranch_cpu_base::vector::LANES;

/// Rows from which on it is worth converting the grids of a panel's columns.
const CONVERTED: usize = 4;

/// Parameters of the columns of a panel; those of absent columns are zeros.
pub(super) struct Columns {
    summands: Row,
    /// Multiples of the sums of A's rows that are subtracted.
    zeros: Row,
    pub(super) scales: [f32; PANEL],
    pub(super) offsets: [f32; PANEL],
    /// Least result of [`certain`] of all columns, or −1.
    pub(super) certain: i32,
}

impl Columns {
    /// Returns the columns of these parameters, for so many rows. Packing added `moved` to B's numbers.
    pub(super) fn new(parameters: &Parameters<'_>, moved: i32, rows: usize) -> Self {
        let [mut summands, mut zeros] = [Row::ZEROS; 2];
        summands.0[..parameters.summands.len()].copy_from_slice(parameters.summands);
        for (j, zero) in zeros.0[..parameters.summands.len()].iter_mut().enumerate() {
            *zero = moved.wrapping_add(parameters.zero_point(j));
        }
        let ([mut scales, mut offsets], mut least) = ([[0.0; PANEL]; 2], -1);
        if rows >= CONVERTED && !parameters.scales.is_empty() {
            least = i32::MAX;
            for (j, (scale, offset)) in parameters.scales.iter().zip(parameters.offsets).enumerate() {
                (scales[j], offsets[j]) = (*scale as f32, *offset as f32);
                least = least.min(certain(*scale, *offset).unwrap_or(-1));
            }
        }
        Self { summands, zeros, scales, offsets, certain: least }
    }

    /// Returns the sums of a row with this total, corrected for the first `count` columns.
    #[inline(always)]
    pub(super) fn corrected(&self, sums: &Row, total: Option<i32>, count: usize) -> Row {
        let mut made = Row::ZEROS;
        // Whole registers are corrected: loops of a known length have no rest.
        for v in 0..count.div_ceil(LANES) {
            let mut lanes = [0; LANES];
            let (sums, summands, zeros) = (sums.register(v), self.summands.register(v), self.zeros.register(v));
            match total {
                Some(total) => {
                    for u in 0..LANES {
                        lanes[u] = sums[u].wrapping_add(summands[u]).wrapping_sub(total.wrapping_mul(zeros[u]));
                    }
                }
                None => {
                    for u in 0..LANES {
                        lanes[u] = sums[u].wrapping_add(summands[u]);
                    }
                }
            }
            made.0[v * LANES..][..LANES].copy_from_slice(&lanes);
        }
        made
    }
}
