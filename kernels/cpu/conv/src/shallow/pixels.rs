//! Sums with neighbouring outputs of a row along the vectors.

use super::{Kernel, Sums};
use anabranch_cpu_base::vector::{Isa, LANES, Loop};
use anabranch_op::op::shallow::PANEL;

/// Output channels that are computed at once with few registers.
const HALF: usize = PANEL / 2;

/// Vectors of a row that are computed at once, with a panel of output channels.
const VECTORS: usize = 3;

/// [`Sums`] over panels of [`PANEL`] output channels.
pub(super) struct AcrossPixels<'a, 'b>(pub(super) Sums<'a, 'b>);

impl Loop for AcrossPixels<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self(mut sums) = self;
        let wide = sums.kernel.geometry.output[1];
        let vectors = if I::WIDE { VECTORS } else { 1 };
        // Few output channels leave half of a panel empty, independent of the number of registers.
        if sums.finishes.len() <= HALF {
            for row in 0..sums.tile.columns.len() / wide {
                (0..wide).step_by(LANES).for_each(|x| sums.block::<I, HALF, 1>(row, x, 0, 0));
            }
            return;
        }
        // Panels are written one after the other: alternating between all output channels would touch a page for each.
        for panel in (0..sums.finishes.len()).step_by(PANEL) {
            for row in 0..sums.tile.columns.len() / wide {
                for x in (0..wide).step_by(vectors * LANES) {
                    match (wide - x).div_ceil(LANES).min(vectors) {
                        _ if !I::WIDE => {
                            sums.block::<I, HALF, 1>(row, x, panel, 0);
                            sums.block::<I, HALF, 1>(row, x, panel, HALF);
                        }
                        1 => sums.block::<I, PANEL, 1>(row, x, panel, 0),
                        2 => sums.block::<I, PANEL, 2>(row, x, panel, 0),
                        _ => sums.block::<I, PANEL, VECTORS>(row, x, panel, 0),
                    }
                }
            }
        }
    }
}

impl Sums<'_, '_> {
    /// Computes vectors of outputs from a row and a column on, for up to `MAPS` output channels of a panel from `first`
    /// on.
    #[inline(always)]
    fn block<I: Isa, const MAPS: usize, const VECTORS: usize>(
        &mut self,
        row: usize,
        x: usize,
        panel: usize,
        first: usize,
    ) {
        let Kernel { geometry, lines, offsets, .. } = self.kernel;
        let from = &self.lines[row * geometry.steps.strides[0] * lines.length() + x..];
        let mut sums = [[I::splat(0.0); VECTORS]; MAPS];
        let weights = self.weights.from(0, panel).as_chunks::<PANEL>().0;
        for (offset, weights) in offsets.iter().zip(weights) {
            let values = &from[*offset..].as_chunks().0[..VECTORS];
            let values: [I::Vector; VECTORS] = std::array::from_fn(|v| I::load(&values[v]));
            for (sums, weight) in sums.iter_mut().zip(&weights[first..]) {
                let weight = I::splat(*weight);
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum = I::fused_lanes(weight, value, *sum);
                }
            }
        }
        // Loops with constant bounds; otherwise the sums would not stay in registers.
        let wide = geometry.output[1];
        for (m, sums) in sums.into_iter().enumerate() {
            let map = panel + first + m;
            if map >= self.finishes.len() {
                return;
            }
            let [scale, bias, least, greatest] = self.finishes[map].map(|number| I::splat(number));
            let out = &mut self.tile.row(map)[row * wide..][x..wide];
            for (v, sum) in sums.into_iter().enumerate() {
                let sum = I::lesser(greatest, I::greater(least, I::fused_lanes(sum, scale, bias)));
                let out = out.get_mut(v * LANES..).unwrap_or(&mut []);
                match out.first_chunk_mut() {
                    Some(whole) => I::store(sum, whole),
                    None => I::store_part(sum, out),
                }
            }
        }
    }
}
