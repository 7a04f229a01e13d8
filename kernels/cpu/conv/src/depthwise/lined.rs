//! Depthwise convolution with large windows on AVX2, from lines: rows of the image copied with the zeros around them.
//!
//! Each element of the window is read once for a block of rows of outputs. AVX2 registers hold half of a vector of
//! [`LANES`] elements, so that the kernel with channels along the vectors has too few registers for its sums.

use crate::lines::Lines;
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::team::with_workspace;
use anabranch_cpu_base::vector::{Isa, LANES, Loop, vectorised};
use anabranch_cpu_map::Uniform;

/// Minimum outputs of a row for which the copies pay.
const ENOUGH: usize = 28;

/// Rows of outputs that are summed at once.
pub(super) const ROWS: usize = 4;

/// Approximate numbers of the lines that exist at once: half of an L1 cache.
const MOST: usize = 4 << 10;

/// Parameters of one shape of convolution, without its data.
pub(super) struct Lined {
    lines: Lines,
    output: [usize; 2],
    plane: usize,
    window: [usize; 2],
    stride: usize,
    /// Positions in the lines at which the elements begin that each column of the window covers.
    offsets: Vec<usize>,
    /// Greatest offset.
    reach: usize,
    /// Rows of outputs whose lines exist at once.
    band: usize,
}

impl Lined {
    /// Returns `None` if rows of the window are not neighbours, if the output is too small, or if the lines of a block
    /// are too long.
    pub(super) fn new(geometry: &Geometry) -> Option<Self> {
        let Geometry { output, window, steps, .. } = *geometry;
        let floats = |rows: usize| Lines::new(geometry, rows).floats();
        if steps.dilations[0] != 1 || output[0] < ROWS || output[1] < ENOUGH || floats(ROWS) > 4 * MOST {
            return None;
        }
        let band =
            (1..=output[0].div_ceil(ROWS)).map(|blocks| blocks * ROWS).take_while(|rows| floats(*rows) <= MOST).last();
        let (stride, band) = (steps.strides[0], band.unwrap_or(ROWS));
        let lines = Lines::new(geometry, band);
        let offsets: Vec<_> = (0..window[1]).map(|column| lines.offset((0, column))).collect();
        let reach = offsets.iter().copied().max()?;
        Some(Self { lines, output, plane: geometry.plane(), window, stride, offsets, reach, band })
    }

    /// Returns the bytes of the offsets.
    pub(super) fn resident_bytes(&self) -> usize {
        size_of_val(&*self.offsets)
    }

    /// Computes output rows from `first` on, as many as `out` holds, of one channel.
    ///
    /// # Panics
    /// If the sizes do not fit together.
    pub(super) fn compute(&self, plane: &[f32], weights: &[f32], finish: &Uniform, first: usize, out: &mut [f32]) {
        assert_eq!(plane.len(), self.plane, "a whole channel");
        assert_eq!(weights.len(), self.window[0] * self.window[1], "a whole window");
        let rows = out.len() / self.output[1];
        assert!(out.len() == rows * self.output[1] && first + rows <= self.output[0], "whole rows");
        with_workspace(self.lines.floats(), |lines| {
            for (band, out) in out.chunks_mut(self.band * self.output[1]).enumerate() {
                let (first, rows) = (first + band * self.band, out.len() / self.output[1]);
                self.lines.fill(plane, first..first + rows.next_multiple_of(ROWS), lines);
                vectorised(Sums { lined: self, lines, weights, finish, out });
            }
        });
    }
}

/// Loop that computes the outputs of a band.
struct Sums<'a> {
    lined: &'a Lined,
    lines: &'a [f32],
    weights: &'a [f32],
    finish: &'a Uniform,
    out: &'a mut [f32],
}

impl Loop for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        let wide = self.lined.output[1];
        for row in (0..self.out.len() / wide).step_by(ROWS) {
            for x in (0..wide).step_by(LANES) {
                // The last vector ends with the row: elements that it shares with the one before are computed twice.
                self.block::<I>(row, x.min(wide - LANES));
            }
        }
    }
}

impl Sums<'_> {
    /// Computes a vector of each row of a block, and drops rows beyond the band.
    #[inline(always)]
    fn block<I: Isa>(&mut self, row: usize, x: usize) {
        let Lined { ref lines, window: [high, columns], stride, ref offsets, reach, .. } = *self.lined;
        let (length, down) = (lines.length(), stride * lines.length());
        let from = &self.lines[row * down + x..];
        let furthest = (ROWS - 1) * down + (high - 1) * length + reach + LANES;
        assert!(furthest <= from.len(), "lines of a block");
        let mut sums = [I::splat(0.0); ROWS];
        for (ky, weights) in self.weights.chunks_exact(columns).enumerate().take(high) {
            for (offset, weight) in offsets.iter().zip(weights) {
                let at = from.as_ptr().wrapping_add(ky * length + *offset);
                let weight = I::splat(*weight);
                for row in 0..ROWS {
                    // SAFETY: the check above shows that the block's last line is long enough at the greatest offset.
                    let values = I::load(unsafe { &*at.wrapping_add(row * down).cast() });
                    sums[row] = I::fused_lanes(weight, values, sums[row]);
                }
            }
        }
        let Uniform { scale, bias, least, greatest } = *self.finish;
        let [scale, bias, least, greatest] = [scale, bias, least, greatest].map(|number| I::splat(number));
        let wide = self.lined.output[1];
        let mut out = &mut self.out[row * wide..];
        for sum in sums {
            let sum = I::lesser(greatest, I::greater(least, I::fused_lanes(sum, scale, bias)));
            let Some(whole) = out.get_mut(x..).and_then(|out| out.first_chunk_mut()) else { return };
            I::store(sum, whole);
            out = out.get_mut(wide..).unwrap_or(&mut []);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_cpu_base::geometry::Steps;
    use anabranch_cpu_base::vector::{levels, vectorised_at};

    #[test]
    fn sums_of_every_instruction_set_are_those_of_the_definition() {
        for (size, window, strides, pads, dilation) in [
            ([9, 28], [5, 5], [1, 1], [2, 2, 2, 2], 1),
            ([70, 131], [5, 5], [2, 2], [2, 2, 2, 2], 1),
            ([6, 100], [7, 3], [1, 3], [6, 0, 1, 2], 1),
            ([4, 64], [4, 6], [1, 2], [3, 5, 3, 1], 1),
            ([30, 31], [2, 5], [3, 1], [0, 4, 0, 4], 2),
        ] {
            let steps = Steps { strides, pads, dilations: [1, dilation] };
            let geometry = Geometry::of_image([1, 1, 1], size, window, steps);
            let lined = Lined::new(&geometry).expect("enough outputs, whose lines fit");
            let numbers = |count: usize| (0..count).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect::<Vec<_>>();
            let (plane, weights) = (numbers(size[0] * size[1]), numbers(window[0] * window[1]));
            let finish = Uniform { scale: 2.0, bias: 0.25, least: -1.5, greatest: 4.0 };
            let [high, wide] = geometry.output;
            let want = |at: usize| {
                let terms = (0..weights.len()).map(|tap| {
                    let row = (at / wide * strides[0] + tap / window[1]).wrapping_sub(pads[0]);
                    let column = (at % wide * strides[1] + tap % window[1] * dilation).wrapping_sub(pads[1]);
                    let inside = row < size[0] && column < size[1];
                    let element = if inside { plane[row * size[1] + column] } else { 0.0 };
                    f64::from(element) * f64::from(weights[tap])
                });
                (terms.sum::<f64>() * 2.0 + 0.25).clamp(-1.5, 4.0)
            };
            let check = |out: &[f32], first: usize, how: &str| {
                for (at, found) in out.iter().enumerate() {
                    let want = want(first * wide + at);
                    assert!((f64::from(*found) - want).abs() < 1e-5, "{how}, {at} of {geometry:?}: {found} {want}");
                }
            };
            for level in levels() {
                let rows = high.min(lined.band);
                let mut lines = vec![f32::NAN; lined.lines.floats()];
                lined.lines.fill(&plane, 0..rows.next_multiple_of(ROWS), &mut lines);
                let mut out = vec![f32::NAN; rows * wide];
                let (lines, weights) = (&lines, &weights);
                vectorised_at(level, Sums { lined: &lined, lines, weights, finish: &finish, out: &mut out });
                check(&out, 0, &format!("level {level}"));
            }
            // All bands, and from the middle of a plane on.
            for first in [0, high / 2] {
                let mut out = vec![f32::NAN; (high - first) * wide];
                lined.compute(&plane, &weights, &finish, first, &mut out);
                check(&out, first, "all bands");
            }
        }
    }

    #[test]
    fn other_kernels_have_few_rows_short_ones_and_long_lines() {
        let lined = |size, dilations| {
            let steps = Steps { strides: [1, 1], pads: [0; 4], dilations };
            Lined::new(&Geometry::of_image([1, 1, 1], size, [5, 5], steps)).is_some()
        };
        assert!(lined([40, 40], [1, 1]) && lined([40, 40], [1, 2]));
        assert!(
            !lined([7, 40], [1, 1])
                && !lined([40, 20], [1, 1])
                && !lined([40, 40], [2, 1])
                && !lined([40, 1 << 20], [1, 1])
        );
    }
}
