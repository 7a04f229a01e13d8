//! Sums with output channels along the vectors.

use super::Sums;
use anabranch_cpu_base::gemm;
use anabranch_cpu_base::vector::{Isa, LANES, Loop};

/// Most outputs of a row that are computed at once with many registers: with two vectors of output channels, their sums
/// fill the registers.
const MANY: usize = 14;

/// Outputs of each of two rows that are computed at once, if a row has no more.
const HALF: usize = MANY / 2;

/// Outputs that are computed at once for a short rest of a row, and with few registers.
const FEW: usize = 4;

/// [`Sums`] over panels of a vector of output channels. `made` holds three of them, over all outputs of the tile: two
/// as they are summed, one in the output's order.
pub(super) struct AcrossMaps<'a, 'b> {
    pub(super) sums: Sums<'a, 'b>,
    pub(super) made: &'a mut [f32],
}

impl Loop for AcrossMaps<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { sums, made } = self;
        let (maps, pixels) = (sums.finishes.len(), sums.tile.columns.len());
        let (made, turned) = made.split_at_mut(2 * LANES * pixels);
        let mut panel = 0;
        while panel < maps {
            let vectors = if I::WIDE && maps - panel > LANES {
                sums.panel::<I, 2>(panel, made);
                2
            } else {
                sums.panel::<I, 1>(panel, made);
                1
            };
            for (vector, made) in made.chunks_exact(LANES * pixels).take(vectors).enumerate() {
                let first = panel + vector * LANES;
                let count = LANES.min(maps - first);
                gemm::transpose(made, (LANES, 1), (pixels, count), turned, pixels);
                turned.chunks_exact(pixels).take(count).enumerate().for_each(|(map, run)| {
                    sums.tile.row(first + map).copy_from_slice(run);
                });
            }
            panel += vectors * LANES;
        }
    }
}

impl Sums<'_, '_> {
    /// Computes all outputs of the tile for vectors of output channels from `panel` on. One vector follows the other;
    /// within a vector, the channels of an output lie side by side.
    #[inline(always)]
    fn panel<I: Isa, const VECTORS: usize>(&self, panel: usize, made: &mut [f32]) {
        let (wide, pixels) = (self.kernel.geometry.output[1], self.tile.columns.len());
        // Loops instead of closures that make arrays: the compiler does not inline those.
        let mut ends = [[[0.0; LANES]; 4]; VECTORS];
        for (v, ends) in ends.iter_mut().enumerate() {
            let finishes = self.finishes[panel + v * LANES..].iter().take(LANES);
            for (lane, finish) in finishes.enumerate() {
                for at in 0..4 {
                    ends[at][lane] = finish[at];
                }
            }
        }
        let rows = pixels / wide;
        let mut row = 0;
        if I::WIDE && wide <= HALF {
            while row + 1 < rows {
                match wide {
                    ..=FEW => self.outputs::<I, 2, FEW, VECTORS>([row, 0], panel, &ends, made),
                    _ => self.outputs::<I, 2, HALF, VECTORS>([row, 0], panel, &ends, made),
                };
                row += 2;
            }
        }
        for row in row..rows {
            let mut x = 0;
            while x < wide {
                if !I::WIDE {
                    self.outputs::<I, 1, FEW, VECTORS>([row, x], panel, &ends, made);
                    x += FEW;
                    continue;
                }
                // Blocks of about the same size.
                let left = wide - x;
                x += match left.div_ceil(left.div_ceil(MANY)) {
                    ..=FEW => self.outputs::<I, 1, FEW, VECTORS>([row, x], panel, &ends, made),
                    5..=8 => self.outputs::<I, 1, 8, VECTORS>([row, x], panel, &ends, made),
                    9..=10 => self.outputs::<I, 1, 10, VECTORS>([row, x], panel, &ends, made),
                    11..=12 => self.outputs::<I, 1, 12, VECTORS>([row, x], panel, &ends, made),
                    _ => self.outputs::<I, 1, MANY, VECTORS>([row, x], panel, &ends, made),
                };
            }
        }
    }

    /// Computes up to `OUTPUTS` outputs of each of `ROWS` rows from a column on. Returns how many of a row.
    #[inline(always)]
    fn outputs<I: Isa, const ROWS: usize, const OUTPUTS: usize, const VECTORS: usize>(
        &self,
        [row, x]: [usize; 2],
        panel: usize,
        ends: &[[[f32; LANES]; 4]; VECTORS],
        made: &mut [f32],
    ) -> usize {
        let geometry = &self.kernel.geometry;
        let (wide, pixels) = (geometry.output[1], self.tile.columns.len());
        let down = geometry.steps.strides[0] * self.kernel.lines.length();
        let from: [&[f32]; ROWS] = std::array::from_fn(|r| &self.lines[(row + r) * down + x..]);
        let weights: [&[[f32; LANES]]; VECTORS] =
            std::array::from_fn(|v| self.weights.from(0, panel + v * LANES).as_chunks().0);
        let mut sums = [[[I::splat(0.0); VECTORS]; OUTPUTS]; ROWS];
        for (step, offset) in self.kernel.offsets.iter().enumerate() {
            let weights: [I::Vector; VECTORS] = std::array::from_fn(|v| I::load(&weights[v][step]));
            for (sums, from) in sums.iter_mut().zip(from) {
                let values: &[f32; OUTPUTS] = from[*offset..].first_chunk().expect("lines go on behind a row");
                for (sums, value) in sums.iter_mut().zip(values) {
                    let value = I::splat(*value);
                    for (sum, weight) in sums.iter_mut().zip(weights) {
                        *sum = I::fused_lanes(value, weight, *sum);
                    }
                }
            }
        }
        for (v, [scale, bias, least, greatest]) in ends.iter().enumerate() {
            let (scale, bias) = (I::load(scale), I::load(bias));
            let (least, greatest) = (I::load(least), I::load(greatest));
            // Loops with constant bounds; otherwise the sums would not stay in registers.
            for (r, sums) in sums.iter().enumerate() {
                let made = made[(v * pixels + (row + r) * wide + x) * LANES..].as_chunks_mut().0;
                for (at, sums) in sums.iter().enumerate() {
                    if x + at < wide {
                        let sum = I::fused_lanes(sums[v], scale, bias);
                        I::store(I::lesser(greatest, I::greater(least, sum)), &mut made[at]);
                    }
                }
            }
        }
        OUTPUTS
    }
}
