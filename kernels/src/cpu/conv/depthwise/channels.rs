//! Depthwise convolution with channels along the vectors, for large windows.
//!
//! The planes of 16 channels are brought into the order of pixels (by blocks in registers) with zeros left and right of each row, so that every
//! element of the window is a plain load wherever the output lies; the sums go back the same way. What that moves is little beside a window of
//! 5 × 5.

use crate::cpu::conv::Geometry;
use crate::cpu::elements::{elements, elements_mut};
use crate::cpu::gemm;
use crate::cpu::lanes::LANES;
use crate::cpu::layout::{Layout, PackedInput, PackedMatrices, Packing};
use crate::cpu::map::Epilogue;
use crate::cpu::team::{Grid, Tile, with_workspace};
use crate::cpu::vector::{Isa, Loop, vectorised};
use crate::cpu::{Call, CpuKernel};
use crate::error::KernelError;
use crate::op::NodeSpec;
use crate::shape::Shape;
use crate::tensor::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// Numbers of a tile's part of the image, about: they stay in the second-level cache.
const TILE: usize = 48 << 10;

/// Neighbouring outputs that are computed at once.
const TOGETHER: usize = 4;

/// Numbers of one pixel.
type Pixel = [f32; LANES];

pub(super) struct Kernel {
    geometry: Geometry,
    /// Length of a row with its zeros.
    padded: usize,
    /// The weights, windows in the order of [`Pixel`]s.
    weights: PackedInput,
    grid: Grid,
    epilogue: Option<Epilogue>,
}

impl Kernel {
    /// # Errors
    /// If the epilogue does not fit the node, or a padded row is too long.
    pub(super) fn new(geometry: Geometry, node: &NodeSpec, constants: &[bool]) -> Result<Self, KernelError> {
        let Geometry { images, maps, output: [high, wide], size: [height, _], window, steps, .. } = geometry;
        let reach = |axis: usize, outputs: usize| {
            (outputs.max(1) - 1) * steps.strides[axis] + (window[axis] - 1) * steps.dilations[axis] + 1
        };
        let padded = reach(1, wide);
        // The rows of one tile must fit the address space, and do if this shape does.
        Shape::new([height.max(1), padded, LANES])?;
        let most =
            (1..=high).take_while(|rows| reach(0, *rows).min(height) * padded * LANES <= TILE).last().unwrap_or(1);
        let stripe = high.div_ceil(high.div_ceil(most).max(1)).max(1);
        let grid =
            Grid { batch: images, rows: maps, columns: high * wide, tile_rows: LANES, tile_columns: stripe * wide };
        Ok(Self {
            geometry,
            padded,
            weights: PackedInput::new(1, Layout::right(1, [geometry.taps(), maps], true, LANES), constants),
            grid,
            epilogue: Epilogue::of(node)?,
        })
    }

    /// The image rows that windows of these output rows reach.
    fn sources(&self, rows: &Range<usize>) -> Range<usize> {
        let Geometry { size: [height, _], window, steps, .. } = self.geometry;
        let above = |row: usize| row.saturating_sub(steps.pads[0]).min(height);
        let last = (rows.end - 1) * steps.strides[0] + (window[0] - 1) * steps.dilations[0];
        above(rows.start * steps.strides[0])..above(last + 1)
    }

    /// Computes some output rows of some maps.
    fn compute(&self, tile: &mut Tile<'_, f32>, input: &[f32], weights: PackedMatrices<'_>, extras: &[&[u8]]) {
        let Geometry { channels, size: [_, width], maps, output: [high, wide], .. } = self.geometry;
        let (rows, plane) = (tile.columns.start / wide..tile.columns.end / wide, self.geometry.plane());
        let (sources, pixels) = (self.sources(&rows), rows.len() * wide);
        let image = &input[tile.matrix * channels * plane..][..channels * plane];
        let turned = sources.len() * width * LANES;
        let sizes = [turned, sources.len() * self.padded * LANES, pixels * LANES];
        with_workspace(sizes.iter().sum::<usize>() + pixels * LANES, |memory| {
            let [turned, source, sums, out] = {
                let (turned, memory) = memory.split_at_mut(sizes[0]);
                let (source, memory) = memory.split_at_mut(sizes[1]);
                let (sums, out) = memory.split_at_mut(sizes[2]);
                [turned, source, sums, out]
            };
            let from = sources.start * width..sources.end * width;
            turn(image, plane, maps / channels, tile.rows.clone(), from, turned);
            self.pad(turned, source);
            let weights = &weights.panels(0).from(0, tile.rows.start)[..self.geometry.taps() * LANES];
            vectorised(Sums { kernel: self, source, sources, weights, rows: rows.clone(), sums: &mut *sums });
            gemm::transpose(sums, (LANES, 1), (pixels, tile.rows.len()), out, pixels);
            for (at, sums) in out.chunks_exact(pixels).take(tile.rows.len()).enumerate() {
                let map = tile.matrix * maps + tile.rows.start + at;
                let out = tile.row(at);
                out.copy_from_slice(sums);
                if let Some(epilogue) = &self.epilogue {
                    epilogue.apply(map * high + rows.start, 0, out, extras);
                }
            }
        });
    }

    /// Copies rows of pixels between zeros.
    fn pad(&self, rows: &[f32], padded: &mut [f32]) {
        let width = self.geometry.size[1] * LANES;
        let length = self.padded * LANES;
        let left = self.geometry.steps.pads[1].min(self.padded) * LANES;
        let copied = width.min(length - left);
        for (row, padded) in padded.chunks_exact_mut(length).enumerate() {
            padded[..left].fill(0.0);
            padded[left..left + copied].copy_from_slice(&rows[row * width..][..copied]);
            padded[left + copied..].fill(0.0);
        }
    }
}

/// Brings pixels `from` of the channels that `maps` read into the order of pixels. Each channel is read by `each` maps.
fn turn(image: &[f32], plane: usize, each: usize, maps: Range<usize>, from: Range<usize>, out: &mut [f32]) {
    if maps.len() < LANES {
        out.fill(0.0);
    }
    if each == 1 {
        let source = image.get(maps.start * plane + from.start..).unwrap_or(&[]);
        return gemm::transpose(source, (plane, 1), (maps.len(), from.len()), out, LANES);
    }
    for (lane, map) in maps.enumerate() {
        let source = &image[map / each * plane..][from.clone()];
        out.iter_mut().skip(lane).step_by(LANES).zip(source).for_each(|(out, x)| *out = *x);
    }
}

/// The sums of all windows of some output rows.
struct Sums<'a> {
    kernel: &'a Kernel,
    /// The image rows `sources`, padded.
    source: &'a [f32],
    sources: Range<usize>,
    weights: &'a [f32],
    rows: Range<usize>,
    sums: &'a mut [f32],
}

impl Loop for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        let wide = self.kernel.geometry.output[1];
        for row in self.rows.clone() {
            for column in (0..wide).step_by(TOGETHER) {
                self.columns::<I>(row, column);
            }
        }
    }
}

impl Sums<'_> {
    /// Computes neighbouring outputs of one row; those beyond its end repeat the last.
    #[inline(always)]
    fn columns<I: Isa>(&mut self, row: usize, column: usize) {
        let Geometry { output: [_, wide], window: [high, across], steps, .. } = self.kernel.geometry;
        let (source, weights): (&[Pixel], &[Pixel]) = (self.source.as_chunks().0, self.weights.as_chunks().0);
        let places: [usize; TOGETHER] = std::array::from_fn(|i| (column + i).min(wide - 1) * steps.strides[1]);
        // One array an output, which the compiler keeps in registers; it would not keep an array of arrays there.
        let [mut of_a, mut of_b, mut of_c, mut of_d] = [[0f32; LANES]; TOGETHER];
        for ky in 0..high {
            let line = (row * steps.strides[0] + ky * steps.dilations[0]).wrapping_sub(steps.pads[0]);
            if !self.sources.contains(&line) {
                continue;
            }
            let line = &source[(line - self.sources.start) * self.kernel.padded..][..self.kernel.padded];
            for (kx, weight) in weights[ky * across..][..across].iter().enumerate() {
                let [a, b, c, d] = places.map(|place| &line[place + kx * steps.dilations[1]]);
                for lane in 0..LANES {
                    of_a[lane] = I::fused(weight[lane], a[lane], of_a[lane]);
                    of_b[lane] = I::fused(weight[lane], b[lane], of_b[lane]);
                    of_c[lane] = I::fused(weight[lane], c[lane], of_c[lane]);
                    of_d[lane] = I::fused(weight[lane], d[lane], of_d[lane]);
                }
            }
        }
        let out = &mut self.sums.as_chunks_mut().0[(row - self.rows.start) * wide + column..];
        let count = TOGETHER.min(wide - column);
        out[..count].copy_from_slice(&[of_a, of_b, of_c, of_d][..count]);
    }
}

impl CpuKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        self.weights.scratch_floats() * size_of::<f32>()
    }

    fn packings(&self) -> Vec<Packing> {
        self.weights.packings()
    }

    fn keep(&mut self, packed: &[Arc<Buffer>]) {
        self.weights.keep(packed);
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let input = elements(call.inputs[0]);
        let weights = self.weights.matrices(call.inputs, elements_mut(call.scratch))?;
        let output = elements_mut(call.outputs[0]);
        call.team.run_tiles(output, self.grid, &|mut tile| self.compute(&mut tile, input, weights, &call.inputs[2..]));
        Ok(())
    }
}
