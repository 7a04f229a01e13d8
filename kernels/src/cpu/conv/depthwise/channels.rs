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
use crate::tensor::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// Numbers of a tile's part of the image with its zeros, at most, and of its outputs: they stay in the second-level cache. A thread's workspace
/// is at most four times this, 768 KiB, whatever the image's size, the strides and the dilations.
const TILE: usize = 48 << 10;

/// Neighbouring outputs of a row for which it pays to move what their windows reach.
const ENOUGH: usize = 64;

/// Neighbouring outputs that are computed at once.
const TOGETHER: usize = 4;

/// Numbers of one pixel.
type Pixel = [f32; LANES];

pub(super) struct Kernel {
    geometry: Geometry,
    /// The weights, windows in the order of [`Pixel`]s.
    weights: PackedInput,
    grid: Grid,
    epilogue: Option<Epilogue>,
}

impl Kernel {
    /// `None` if the windows of too few outputs fit a tile.
    ///
    /// # Errors
    /// If the epilogue does not fit the node.
    pub(super) fn new(geometry: Geometry, node: &NodeSpec, constants: &[bool]) -> Result<Option<Self>, KernelError> {
        let Geometry { images, maps, output: [high, wide], .. } = geometry;
        let Some([rows, columns]) = Self::block(&geometry) else { return Ok(None) };
        let grid =
            Grid { batch: images, rows: maps, columns: high * wide, tile_rows: LANES, tile_columns: rows * columns };
        Ok(Some(Self {
            geometry,
            weights: PackedInput::new(1, Layout::right(1, [geometry.taps(), maps], true, LANES), constants),
            grid,
            epilogue: Epilogue::of(node)?,
        }))
    }

    /// Output rows and columns of a tile: whole rows, or a part of one.
    fn block(geometry: &Geometry) -> Option<[usize; 2]> {
        let Geometry { output: [high, wide], size: [height, _], .. } = *geometry;
        let fits = |rows: usize, columns: usize| {
            let sources = reach(geometry, 0, rows).min(height).max(rows);
            sources.saturating_mul(reach(geometry, 1, columns)).saturating_mul(LANES) <= TILE
        };
        let equal = |length: usize, most: usize| length.div_ceil(length.div_ceil(most).max(1)).max(1);
        if let Some(rows) = (1..=high.max(1)).take_while(|rows| fits(*rows, wide)).last() {
            return Some([equal(high, rows), wide]);
        }
        let columns =
            (1..).map(|pieces| wide.div_ceil(pieces)).find(|columns| *columns < ENOUGH || fits(1, *columns))?;
        (columns >= ENOUGH).then_some([1, columns])
    }

    /// The image rows or columns that windows of these outputs reach.
    fn sources(&self, axis: usize, outputs: &Range<usize>) -> Range<usize> {
        let Geometry { size, steps, .. } = self.geometry;
        let inside = |at: usize| at.saturating_sub(steps.pads[axis]).min(size[axis]);
        let start = outputs.start * steps.strides[axis];
        inside(start)..inside(start + reach(&self.geometry, axis, outputs.len()))
    }

    /// What of the image windows of these outputs reach: rows and columns. Whole rows follow each other, and are turned at once.
    fn covered(&self, [rows, columns]: [&Range<usize>; 2]) -> [Range<usize>; 2] {
        let (across, width) = (self.sources(1, columns), self.geometry.size[1]);
        let whole = columns.len() == self.geometry.output[1] && width <= reach(&self.geometry, 1, columns.len());
        [self.sources(0, rows), if whole { 0..width } else { across }]
    }

    /// Numbers of a thread's workspace for these outputs: what is covered in the order of pixels, the same with zeros, the sums in both orders.
    fn workspace(&self, outputs: [&Range<usize>; 2]) -> [usize; 4] {
        let [rows, across] = self.covered(outputs).map(|covered| covered.len());
        let ([high, wide], padded) = (outputs.map(|range| range.len()), reach(&self.geometry, 1, outputs[1].len()));
        [rows * across, rows * padded, high * wide, high * wide].map(|pixels| pixels * LANES)
    }

    /// Computes some outputs of some maps.
    fn compute(&self, tile: &mut Tile<'_, f32>, input: &[f32], weights: PackedMatrices<'_>, extras: &[&[u8]]) {
        tile.rectangles(self.geometry.output[1])
            .for_each(|[rows, columns]| self.rectangle(tile, [&rows, &columns], input, weights, extras));
    }

    fn rectangle(
        &self,
        tile: &mut Tile<'_, f32>,
        [rows, columns]: [&Range<usize>; 2],
        input: &[f32],
        weights: PackedMatrices<'_>,
        extras: &[&[u8]],
    ) {
        let Geometry { channels, size: [_, width], maps, output: [high, wide], .. } = self.geometry;
        let (outputs, plane) = (rows.len() * columns.len(), self.geometry.plane());
        let [sources, across] = self.covered([rows, columns]);
        let image = &input[tile.matrix * channels * plane..][..channels * plane];
        let padded = reach(&self.geometry, 1, columns.len());
        let sizes = self.workspace([rows, columns]);
        with_workspace(sizes.iter().sum(), |memory| {
            let (turned, memory) = memory.split_at_mut(sizes[0]);
            let (source, memory) = memory.split_at_mut(sizes[1]);
            let (sums, out) = memory.split_at_mut(sizes[2]);
            let run = if across.len() == width { turned.len() } else { across.len() * LANES };
            for (at, turned) in turned.chunks_exact_mut(run.max(1)).enumerate() {
                let from = (sources.start + at) * width + across.start;
                turn(image, plane, maps / channels, tile.rows.clone(), from..from + run / LANES, turned);
            }
            let left = self.geometry.steps.pads[1].saturating_sub(columns.start * self.geometry.steps.strides[1]);
            pad(turned, source, [left.min(padded), across.len(), padded]);
            let weights = &weights.panels(0).from(0, tile.rows.start)[..self.geometry.taps() * LANES];
            vectorised(Sums {
                geometry: &self.geometry,
                source,
                padded,
                sources,
                weights,
                outputs: [rows.clone(), columns.clone()],
                sums: &mut *sums,
            });
            gemm::transpose(sums, (LANES, 1), (outputs, tile.rows.len()), out, outputs);
            let place = rows.start * wide + columns.start - tile.columns.start;
            for (at, sums) in out.chunks_exact(outputs).take(tile.rows.len()).enumerate() {
                let map = tile.matrix * maps + tile.rows.start + at;
                let out = &mut tile.row(at)[place..place + outputs];
                out.copy_from_slice(sums);
                if let Some(epilogue) = &self.epilogue {
                    epilogue.apply(map * high + rows.start, columns.start, out, extras);
                }
            }
        });
    }
}

/// Pixels along an axis from the first to the last that windows of neighbouring outputs reach.
fn reach(geometry: &Geometry, axis: usize, outputs: usize) -> usize {
    let steps = &geometry.steps;
    (outputs.max(1) - 1) * steps.strides[axis] + (geometry.window[axis] - 1) * steps.dilations[axis] + 1
}

/// Copies rows of `pixels` to place `left` of rows of length `padded` that are zero elsewhere.
fn pad(rows: &[f32], source: &mut [f32], [left, pixels, padded]: [usize; 3]) {
    let (left, copied) = (left * LANES, pixels.min(padded - left) * LANES);
    for (row, source) in source.chunks_exact_mut(padded * LANES).enumerate() {
        source[..left].fill(0.0);
        source[left..left + copied].copy_from_slice(&rows[row * pixels * LANES..][..copied]);
        source[left + copied..].fill(0.0);
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

/// The sums of all windows of some outputs.
struct Sums<'a> {
    geometry: &'a Geometry,
    /// What windows reach of the image rows `sources`, each of length `padded` with its zeros.
    source: &'a [f32],
    padded: usize,
    sources: Range<usize>,
    weights: &'a [f32],
    /// Rows and columns.
    outputs: [Range<usize>; 2],
    sums: &'a mut [f32],
}

impl Loop for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        for row in self.outputs[0].clone() {
            for column in (0..self.outputs[1].len()).step_by(TOGETHER) {
                self.columns::<I>(row, column);
            }
        }
    }
}

impl Sums<'_> {
    /// Computes neighbouring outputs of one row, counted from its first; those beyond its end repeat the last.
    #[inline(always)]
    fn columns<I: Isa>(&mut self, row: usize, column: usize) {
        let (Geometry { window: [high, across], steps, .. }, wide) = (*self.geometry, self.outputs[1].len());
        let (source, weights): (&[Pixel], &[Pixel]) = (self.source.as_chunks().0, self.weights.as_chunks().0);
        let places: [usize; TOGETHER] = std::array::from_fn(|i| (column + i).min(wide - 1) * steps.strides[1]);
        // One array an output, which the compiler keeps in registers; it would not keep an array of arrays there.
        let [mut of_a, mut of_b, mut of_c, mut of_d] = [[0f32; LANES]; TOGETHER];
        for ky in 0..high {
            let line = (row * steps.strides[0] + ky * steps.dilations[0]).wrapping_sub(steps.pads[0]);
            if !self.sources.contains(&line) {
                continue;
            }
            let line = &source[(line - self.sources.start) * self.padded..][..self.padded];
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
        let out = &mut self.sums.as_chunks_mut().0[(row - self.outputs[0].start) * wide + column..];
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::conv::geometry_of;
    use crate::cpu::testing::shape;
    use crate::op::{Conv, Op};
    use crate::{DType, TensorSpec};

    /// A depthwise convolution without zeros around the image.
    fn kernel(strides: [usize; 2], dilations: [usize; 2], size: [usize; 2], window: [usize; 2]) -> Option<Kernel> {
        let op = Conv { strides, pads: [0; 4], dilations, group: 32, epilogue: None };
        let out = |axis: usize| (size[axis] - (window[axis] - 1) * dilations[axis] - 1) / strides[axis] + 1;
        let spec = |dims: [usize; 4]| TensorSpec::new(DType::F32, shape(&dims));
        let inputs = vec![spec([1, 32, size[0], size[1]]), spec([32, 1, window[0], window[1]])];
        let node = NodeSpec { op: Op::Conv(op.clone()), inputs, outputs: vec![spec([1, 32, out(0), out(1)])] };
        let geometry = geometry_of(&op, &node).expect("a sound node");
        Kernel::new(geometry, &node, &[false, true]).expect("a sound node")
    }

    #[test]
    fn workspaces_have_a_bound_whatever_the_image() {
        let long = 1 << 20;
        for (strides, dilations, size, window) in [
            ([1, 1], [1, 1], [1, long], [1, 31]),
            ([1, 4], [1, 1], [1, long], [1, 11]),
            ([1, 1], [1, 100], [1, long], [1, 15]),
            ([1, 1], [1, 1], [7, 20_000], [7, 7]),
            ([1, 1], [1, 1], [56, 56], [7, 7]),
            ([1, 1], [4, 4], [200, 1000], [7, 7]),
        ] {
            let kernel = kernel(strides, dilations, size, window).expect("enough outputs fit");
            let Grid { tile_columns, .. } = kernel.grid;
            let wide = kernel.geometry.output[1];
            let [rows, columns] = [0..tile_columns.div_ceil(wide), 0..tile_columns.min(wide)];
            let numbers: usize = kernel.workspace([&rows, &columns]).iter().sum();
            assert!(numbers <= 4 * TILE, "{numbers} for {size:?} by {window:?}");
        }
        assert!(kernel([1, 1], [1000, 1000], [5000, 5000], [5, 5]).is_none(), "windows that reach too far");
        assert!(kernel([1, 1], [1, 1000], [1, long], [1, 15]).is_none(), "windows that reach too far");
    }
}
