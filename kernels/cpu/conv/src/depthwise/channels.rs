//! Convolutions of many groups with output channels along the vectors: of few channels each, or depthwise with large
//! windows or small planes.
//!
//! The planes of 16 channels are transposed into the order of pixels (by blocks in registers), with zeros left and
//! right of each row. Every element of the window is then a plain load for every output. The sums are transposed back
//! in the same way. The epilogue is applied to them before, if it is constant within a whole plane. The transposition
//! costs little compared with a window of 5 × 5, and less than empty lanes if rows are short.
//!
//! Groups of several channels are sums of depthwise convolutions: of the groups' first channels, then of their second
//! channels, and so forth.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::gemm;
use anabranch_cpu_base::geometry::{Geometry, Steps};
use anabranch_cpu_base::lanes::LANES;
use anabranch_cpu_base::layout::{Layout, PackedInput, PackedMatrices, Packing};
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_cpu_map::{Epilogue, Uniform};
use anabranch_op::error::KernelError;
use anabranch_op::op::NodeSpec;
use anabranch_op::tensor::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// Maximum numbers of a tile's part of the image with its zeros, and of its outputs: they stay in the L2 cache. A
/// thread's workspace is at most four times as large, 768 KiB, independent of the image's size, the strides and the
/// dilations.
const TILE: usize = 48 << 10;

/// Neighbouring outputs of a row from which it pays to transpose the pixels that their windows reach.
const ENOUGH: usize = 64;

/// Neighbouring outputs of a row that are computed at once with many registers: widths of images are multiples of it.
const TOGETHER: usize = 7;

/// Neighbouring outputs of a row that are computed at once with few registers.
const FEW: usize = 4;

/// Numbers of one pixel.
type Pixel = [f32; LANES];

pub(super) struct Kernel {
    geometry: Geometry,
    /// Weights: windows in the order of [`Pixel`]s, one for each channel of a group.
    weights: PackedInput,
    grid: Grid,
    epilogue: Option<Epilogue>,
}

impl Kernel {
    /// Returns `None` if the windows of too few outputs fit a tile.
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
            weights: PackedInput::new(1, Layout::right(1, [geometry.depth(), maps], true, LANES), constants),
            grid,
            epilogue: Epilogue::of(node)?,
        }))
    }

    /// Returns the output rows and columns of a tile: whole rows, or a part of one.
    fn block(geometry: &Geometry) -> Option<[usize; 2]> {
        let Geometry { output: [high, wide], size: [height, _], .. } = *geometry;
        let fits = |rows: usize, columns: usize| {
            let sources = reach(geometry, 0, rows).min(height).max(rows);
            let pixels = sources.saturating_mul(reach(geometry, 1, columns.max(TOGETHER)));
            pixels.saturating_mul(geometry.group_channels()).saturating_mul(LANES) <= TILE
        };
        let equal = |length: usize, most: usize| length.div_ceil(length.div_ceil(most).max(1)).max(1);
        if let Some(rows) = (1..=high.max(1)).take_while(|rows| fits(*rows, wide)).last() {
            return Some([equal(high, rows), wide]);
        }
        let columns =
            (1..).map(|pieces| wide.div_ceil(pieces)).find(|columns| *columns < ENOUGH || fits(1, *columns))?;
        (columns >= ENOUGH).then_some([1, columns])
    }

    /// Returns the image rows or columns that windows of these outputs reach.
    fn sources(&self, axis: usize, outputs: &Range<usize>) -> Range<usize> {
        let Geometry { size, steps, .. } = self.geometry;
        let inside = |at: usize| at.saturating_sub(steps.pads[axis]).min(size[axis]);
        let start = outputs.start * steps.strides[axis];
        inside(start)..inside(start + reach(&self.geometry, axis, outputs.len()))
    }

    /// Returns the rows and columns of the image that windows of these outputs reach. If they reach whole rows, the
    /// rows are consecutive and transposed at once.
    fn covered(&self, [rows, columns]: [&Range<usize>; 2]) -> [Range<usize>; 2] {
        let (across, width) = (self.sources(1, columns), self.geometry.size[1]);
        let whole = columns.len() == self.geometry.output[1] && width <= reach(&self.geometry, 1, columns.len());
        [self.sources(0, rows), if whole { 0..width } else { across }]
    }

    /// Returns the pixels of a row with its zeros, which the windows of whole blocks of outputs reach.
    fn padded(&self, columns: &Range<usize>) -> usize {
        reach(&self.geometry, 1, columns.len().max(TOGETHER))
    }

    /// Returns the sizes of a thread's workspace for these outputs, in numbers: the covered part in the order of
    /// pixels, that part with zeros for each channel of a group, and the sums in both orders.
    fn workspace(&self, outputs: [&Range<usize>; 2]) -> [usize; 4] {
        let [rows, across] = self.covered(outputs).map(|covered| covered.len());
        let ([high, wide], padded) = (outputs.map(|range| range.len()), self.padded(outputs[1]));
        let sources = self.geometry.group_channels() * rows * padded;
        [rows * across, sources, high * wide, high * wide].map(|pixels| pixels * LANES)
    }

    /// Computes some outputs of some output channels.
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
        let padded = self.padded(columns);
        let sizes = self.workspace([rows, columns]);
        with_workspace(sizes.iter().sum(), |memory| {
            let (turned, memory) = memory.split_at_mut(sizes[0]);
            let (source, memory) = memory.split_at_mut(sizes[1]);
            let (sums, out) = memory.split_at_mut(sizes[2]);
            let run = if across.len() == width { turned.len() } else { across.len() * LANES };
            let left = self.geometry.steps.pads[1].saturating_sub(columns.start * self.geometry.steps.strides[1]);
            let part = sources.len() * padded * LANES;
            for (channel, source) in source.chunks_exact_mut(part.max(1)).enumerate() {
                for (at, turned) in turned.chunks_exact_mut(run.max(1)).enumerate() {
                    let from = (sources.start + at) * width + across.start;
                    turn(&self.geometry, image, channel, [&tile.rows, &(from..from + run / LANES)], turned);
                }
                pad(turned, source, [left.min(padded), across.len(), padded]);
            }
            let start = ((tile.matrix * maps + tile.rows.start) * high + rows.start) * wide + columns.start;
            let finish = match &self.epilogue {
                Some(epilogue) => Finish::of(epilogue, [start, high * wide, outputs], tile.rows.len(), extras),
                None => Some(Finish::default()),
            };
            let weights = &weights.panels(0).from(0, tile.rows.start)[..self.geometry.depth() * LANES];
            vectorised(Sums {
                geometry: &self.geometry,
                source,
                padded,
                sources,
                weights,
                finish: finish.as_ref().unwrap_or(&Finish::default()),
                outputs: [rows.clone(), columns.clone()],
                sums: &mut *sums,
            });
            if let (Some(_), Some(epilogue)) = (&finish, &self.epilogue) {
                epilogue.activate(&mut Tile::of(sums));
            }
            let size = (outputs, tile.rows.len());
            let place = rows.start * wide + columns.start - tile.columns.start;
            if outputs == tile.stride() {
                gemm::transpose(sums, (LANES, 1), size, tile.whole_rows(), outputs);
            } else {
                gemm::transpose(sums, (LANES, 1), size, out, outputs);
                for (at, sums) in out.chunks_exact(outputs).take(size.1).enumerate() {
                    tile.row(at)[place..place + outputs].copy_from_slice(sums);
                }
            }
            if let (None, Some(epilogue)) = (finish, &self.epilogue) {
                for at in 0..size.1 {
                    let map = tile.matrix * maps + tile.rows.start + at;
                    let out = &mut tile.row(at)[place..place + outputs];
                    epilogue.apply(map * high + rows.start, columns.start, out, extras);
                }
            }
        });
    }
}

/// Returns the pixels along an axis from the first to the last that windows of neighbouring outputs reach.
fn reach(geometry: &Geometry, axis: usize, outputs: usize) -> usize {
    let steps = &geometry.steps;
    let last = (outputs.max(1) - 1).saturating_mul(steps.strides[axis]);
    last.saturating_add((geometry.window[axis] - 1) * steps.dilations[axis] + 1)
}

/// Copies rows of `pixels` to position `left` of rows of length `padded` that are zero elsewhere.
fn pad(rows: &[f32], source: &mut [f32], [left, pixels, padded]: [usize; 3]) {
    let (left, copied) = (left * LANES, pixels.min(padded - left) * LANES);
    for (row, source) in source.chunks_exact_mut(padded * LANES).enumerate() {
        source[..left].fill(0.0);
        source[left..left + copied].copy_from_slice(&rows[row * pixels * LANES..][..copied]);
        source[left + copied..].fill(0.0);
    }
}

/// Transposes pixels `from` of the channels that `maps` read into the order of pixels: each output channel reads
/// channel `channel` of its group.
fn turn(geometry: &Geometry, image: &[f32], channel: usize, [maps, from]: [&Range<usize>; 2], out: &mut [f32]) {
    let (each, channels, plane) = (geometry.group_maps(), geometry.group_channels(), geometry.plane());
    if maps.len() < LANES {
        out.fill(0.0);
    }
    if LANES.is_multiple_of(each) {
        let source = image.get((maps.start / each * channels + channel) * plane + from.start..).unwrap_or(&[]);
        gemm::transpose(source, (channels * plane, 1), (maps.len().div_ceil(each), from.len()), out, LANES);
        return vectorised(Spread { pixels: out.as_chunks_mut().0, each });
    }
    for (lane, map) in maps.clone().enumerate() {
        let source = &image[(map / each * channels + channel) * plane..][from.clone()];
        out.iter_mut().skip(lane).step_by(LANES).zip(source).for_each(|(out, x)| *out = *x);
    }
}

/// Repetition of each pixel's first lanes, so that `each` neighbouring lanes are equal.
struct Spread<'a> {
    pixels: &'a mut [Pixel],
    each: usize,
}

impl Loop for Spread<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        match self.each {
            1 => {}
            2 => spread::<2>(self.pixels),
            4 => spread::<4>(self.pixels),
            8 => spread::<8>(self.pixels),
            _ => spread::<LANES>(self.pixels),
        }
    }
}

#[inline(always)]
fn spread<const EACH: usize>(pixels: &mut [Pixel]) {
    for pixel in pixels {
        let first = *pixel;
        for lane in 0..LANES {
            pixel[lane] = first[lane / EACH];
        }
    }
}

/// Function `min(max(x · scale + bias, least), greatest)` of the sums of each lane.
struct Finish {
    scale: Pixel,
    bias: Pixel,
    least: f32,
    greatest: f32,
}

impl Finish {
    /// Returns the function of `count` runs of elements, from [`Epilogue::uniforms`]; `None` if the epilogue has
    /// another form.
    fn of(epilogue: &Epilogue, runs: [usize; 3], count: usize, extras: &[&[u8]]) -> Option<Self> {
        let mut finish = Self::default();
        let (mut uniforms, mut uniform) = (epilogue.uniforms(runs, extras), Uniform::IDENTITY);
        for lane in 0..count {
            if !uniforms.next(&mut uniform) {
                return None;
            }
            (finish.scale[lane], finish.bias[lane]) = (uniform.scale, uniform.bias);
            (finish.least, finish.greatest) = (uniform.least, uniform.greatest);
        }
        Some(finish)
    }
}

impl Default for Finish {
    fn default() -> Self {
        let Uniform { scale, bias, least, greatest } = Uniform::IDENTITY;
        Self { scale: [scale; LANES], bias: [bias; LANES], least, greatest }
    }
}

/// Sums of all windows of some outputs.
struct Sums<'a> {
    geometry: &'a Geometry,
    /// Part of the image rows `sources` that windows reach, each of length `padded` with its zeros, for each channel of
    /// a group.
    source: &'a [f32],
    padded: usize,
    sources: Range<usize>,
    weights: &'a [f32],
    finish: &'a Finish,
    /// Rows and columns of the outputs.
    outputs: [Range<usize>; 2],
    sums: &'a mut [f32],
}

impl Loop for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        let (mut row, rows) = (self.outputs[0].start, self.outputs[0].end);
        // Two rows share the pixels that both cover, if there are registers for the sums of both.
        while I::WIDE && row + 1 < rows {
            self.rows::<I, TOGETHER, true>(row);
            row += 2;
        }
        for row in row..rows {
            if I::WIDE { self.rows::<I, TOGETHER, false>(row) } else { self.rows::<I, FEW, false>(row) }
        }
    }
}

impl Sums<'_> {
    /// Computes one row of outputs, or two.
    #[inline(always)]
    fn rows<I: Isa, const COLUMNS: usize, const TWO: bool>(&mut self, row: usize) {
        let wide = self.outputs[1].len();
        for column in (0..wide).step_by(COLUMNS) {
            // The last block may overlap the one before or lie on zeros.
            self.block::<I, COLUMNS, TWO>(row, column.min(wide.saturating_sub(COLUMNS)));
        }
    }

    /// Computes neighbouring outputs of a row and, if `TWO`, of the next row; columns are counted from the rows' first.
    #[inline(always)]
    fn block<I: Isa, const COLUMNS: usize, const TWO: bool>(&mut self, row: usize, column: usize) {
        let (mut upper, mut lower) = ([I::splat(0.0); COLUMNS], [I::splat(0.0); COLUMNS]);
        for channel in 0..self.geometry.group_channels() {
            self.add::<I, COLUMNS, TWO>(channel, row, column, [&mut upper, &mut lower]);
        }
        self.store::<I, COLUMNS>(row, column, &upper);
        if TWO {
            self.store::<I, COLUMNS>(row + 1, column, &lower);
        }
    }

    /// Adds the products of one channel of each group to the sums of a [`block`](Self::block).
    #[inline(always)]
    fn add<I: Isa, const COLUMNS: usize, const TWO: bool>(
        &self,
        channel: usize,
        row: usize,
        column: usize,
        [upper, lower]: [&mut [I::Vector; COLUMNS]; 2],
    ) {
        let Geometry { window: [high, _], steps, .. } = *self.geometry;
        let first = channel * self.sources.len();
        for below in 0..usize::from(TWO) * steps.strides[0] + (high - 1) * steps.dilations[0] + 1 {
            let line = (row * steps.strides[0] + below).wrapping_sub(steps.pads[0]);
            if !self.sources.contains(&line) {
                continue;
            }
            let line = &self.source[(first + line - self.sources.start) * self.padded * LANES..][..self.padded * LANES];
            let line = &line.as_chunks().0[column * steps.strides[1]..];
            let next = if TWO { below.checked_sub(steps.strides[0]) } else { None };
            let weights = |below: usize| self.weights_of(channel, below);
            match (weights(below), next.and_then(weights)) {
                (Some(a), Some(b)) => {
                    for (kx, (a, b)) in a.iter().zip(b).enumerate() {
                        let from = &line[kx * steps.dilations[1]..];
                        let (a, b) = (I::load(a), I::load(b));
                        for i in 0..COLUMNS {
                            let x = I::load(&from[i * steps.strides[1]]);
                            upper[i] = I::fused_lanes(a, x, upper[i]);
                            lower[i] = I::fused_lanes(b, x, lower[i]);
                        }
                    }
                }
                (Some(weights), None) => add_row::<I, COLUMNS>(weights, line, steps, upper),
                (None, Some(weights)) => add_row::<I, COLUMNS>(weights, line, steps, lower),
                (None, None) => {}
            }
        }
    }

    /// Returns the weights of the window's row that covers the line `below` lines after the window's first, if there is
    /// such a row, for one channel of each group.
    #[inline(always)]
    fn weights_of(&self, channel: usize, below: usize) -> Option<&[Pixel]> {
        let Geometry { window: [high, across], steps, .. } = *self.geometry;
        let (row, rest) =
            if steps.dilations[0] == 1 { (below, 0) } else { (below / steps.dilations[0], below % steps.dilations[0]) };
        (rest == 0 && row < high).then(|| &self.weights.as_chunks().0[(channel * high + row) * across..][..across])
    }

    /// Finishes and stores as many of a row's sums as there are outputs.
    #[inline(always)]
    fn store<I: Isa, const COLUMNS: usize>(&mut self, row: usize, column: usize, sums: &[I::Vector; COLUMNS]) {
        let wide = self.outputs[1].len();
        let out = &mut self.sums.as_chunks_mut().0[(row - self.outputs[0].start) * wide..][..wide][column..];
        let (scale, bias) = (I::load(&self.finish.scale), I::load(&self.finish.bias));
        let (least, greatest) = (I::splat(self.finish.least), I::splat(self.finish.greatest));
        for i in 0..COLUMNS.min(out.len()) {
            let x = I::fused_lanes(sums[i], scale, bias);
            I::store(I::lesser(greatest, I::greater(least, x)), &mut out[i]);
        }
    }
}

/// Adds one row of the window to the sums of neighbouring outputs; the first output covers the line's first pixel.
#[inline(always)]
fn add_row<I: Isa, const COLUMNS: usize>(
    weights: &[Pixel],
    line: &[Pixel],
    steps: Steps,
    sums: &mut [I::Vector; COLUMNS],
) {
    for (kx, weight) in weights.iter().enumerate() {
        let (from, weight) = (&line[kx * steps.dilations[1]..], I::load(weight));
        for i in 0..COLUMNS {
            sums[i] = I::fused_lanes(weight, I::load(&from[i * steps.strides[1]]), sums[i]);
        }
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
    use crate::geometry_of;
    use crate::testing::shape;
    use anabranch_cpu_base::vector::{levels, vectorised_at};
    use anabranch_op::op::{Conv, Op};
    use anabranch_op::{DType, TensorSpec};

    /// Returns a depthwise convolution without zeros around the image.
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
    fn sums_of_every_instruction_set_are_those_of_the_definition() {
        for (strides, dilations, size, window) in [
            ([1, 1], [1, 1], [9, 18], [3, 5]),
            ([2, 2], [1, 1], [12, 13], [5, 3]),
            ([1, 2], [2, 1], [11, 40], [3, 3]),
            ([2, 1], [1, 2], [8, 9], [3, 2]),
            ([3, 3], [2, 2], [16, 16], [4, 4]),
        ] {
            let kernel = kernel(strides, dilations, size, window).expect("a small plane");
            let (geometry, [high, wide]) = (kernel.geometry, kernel.geometry.output);
            let padded = kernel.padded(&(0..wide));
            let numbers = |count: usize| (0..count).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect::<Vec<_>>();
            let (source, weights) = (numbers(size[0] * padded * LANES), numbers(geometry.taps() * LANES));
            let bias = std::array::from_fn(|lane| lane as f32 / 4.0);
            let finish = Finish { scale: [2.0; LANES], bias, least: -1.5, greatest: 4.0 };
            for level in levels() {
                let mut sums = vec![f32::NAN; high * wide * LANES];
                let (sources, outputs) = (0..size[0], [0..high, 0..wide]);
                let (geometry, weights, source, finish) = (&geometry, &weights, &source, &finish);
                let body = Sums { geometry, source, padded, sources, weights, finish, outputs, sums: &mut sums };
                vectorised_at(level, body);
                for (at, found) in sums.iter().enumerate() {
                    let (pixel, lane) = (at / LANES, at % LANES);
                    let terms = (0..geometry.taps()).map(|tap| {
                        let row = pixel / wide * strides[0] + tap / window[1] * dilations[0];
                        let column = pixel % wide * strides[1] + tap % window[1] * dilations[1];
                        f64::from(source[(row * padded + column) * LANES + lane])
                            * f64::from(weights[tap * LANES + lane])
                    });
                    let want = (terms.sum::<f64>() * 2.0 + f64::from(bias[lane])).clamp(-1.5, 4.0);
                    assert!((f64::from(*found) - want).abs() < 1e-5, "level {level}, {at} of {size:?}: {found} {want}");
                }
            }
        }
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
