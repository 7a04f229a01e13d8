//! Convolutions of each channel by itself.
//!
//! There is no product to gain from, so each output row is computed as a sum of shifted input rows: in place where the
//! processor and the stride allow (`direct`), else from copies. Those have their padding, and every `stride`-th column
//! together, so that neighbouring outputs read neighbouring elements whatever the stride and dilation.

mod direct;

use super::geometry::Geometry;
use crate::cpu::elements::{elements, elements_mut};
use crate::cpu::gemm::MicroKernel;
use crate::cpu::map::Epilogue;
use crate::cpu::team::{Grid, Tile, with_workspace};
use crate::cpu::vector::{Isa, Loop, vectorised};
use crate::cpu::{Call, CpuKernel};
use crate::error::KernelError;
use crate::op::NodeSpec;
use crate::shape::Shape;
use direct::Direct;
use std::ops::Range;

/// Multiply-adds of a tile, about: some microseconds.
const TILE_WORK: usize = 1 << 17;

/// Columns computed at a time.
const WIDE: usize = 64;

/// As [`WIDE`], for narrow images.
const NARROW: usize = 16;

pub(super) struct Kernel {
    geometry: Geometry,
    direct: Option<Direct>,
    rows: PaddedRows,
    /// For each element of the window, where its padded row has the element for output column 0.
    offsets: Vec<usize>,
    grid: Grid,
    epilogue: Option<Epilogue>,
}

/// Layout of a copied input row: for each remainder of the padded column by the stride, the columns with that remainder.
#[derive(Clone, Copy, Debug)]
struct PaddedRows {
    stride: usize,
    /// Columns of each remainder.
    length: usize,
}

impl Kernel {
    /// # Errors
    /// If the epilogue does not fit the node, or a padded row is too long.
    pub(super) fn new(micro: &MicroKernel, geometry: Geometry, node: &NodeSpec) -> Result<Self, KernelError> {
        let Geometry { output, window, steps, images, maps, .. } = geometry;
        let stride = steps.strides[1];
        let length = (window[1] - 1) * steps.dilations[1] / stride + output[1].next_multiple_of(block(output[1]));
        let rows = PaddedRows { stride, length };
        let per_row = (output[1] * geometry.taps()).max(1);
        let tile_rows = match (TILE_WORK / per_row).max(1) {
            fraction if fraction < output[0] => fraction,
            several => several / output[0].max(1) * output[0],
        };
        // The copied rows of one tile must fit the address space, and do if this shape does.
        Shape::new([copied_rows(&geometry, tile_rows.min(output[0])), stride, length])?;
        let offset = |tap: usize| {
            let [ky, kx] = [tap / window[1], tap % window[1]];
            let column = kx * steps.dilations[1];
            ky * steps.dilations[0] * rows.floats() + column % stride * length + column / stride
        };
        let offsets = (0..geometry.taps()).map(offset).collect();
        let grid =
            Grid { batch: 1, rows: images * maps * output[0], columns: output[1], tile_rows, tile_columns: output[1] };
        let direct = Direct::new(micro, &geometry);
        Ok(Self { geometry, direct, rows, offsets, grid, epilogue: Epilogue::of(node)? })
    }

    /// Computes the tile's rows, which may be of several channels.
    fn compute(&self, tile: &mut Tile<'_, f32>, input: &[f32], weights: &[f32], extras: &[&[u8]]) {
        let [height, width] = self.geometry.output;
        let (first, end) = (tile.rows.start, tile.rows.end);
        let out = tile.whole_rows();
        let mut row = first;
        while row < end {
            let (map, y) = (row / height, row % height);
            let next = end.min(row + height - y);
            let out = &mut out[(row - first) * width..(next - first) * width];
            self.compute_channel(map, y..y + (next - row), out, input, weights);
            if let Some(epilogue) = &self.epilogue {
                epilogue.apply(row, 0, out, extras);
            }
            row = next;
        }
    }

    /// Computes output rows `ys` of one channel of one image.
    fn compute_channel(&self, map: usize, ys: Range<usize>, out: &mut [f32], input: &[f32], weights: &[f32]) {
        let Geometry { channels, maps, output, .. } = self.geometry;
        let (image, map) = (map / maps, map % maps);
        let channel = image * channels + map / (maps / channels);
        let plane = &input[channel * self.geometry.plane()..][..self.geometry.plane()];
        let taps = self.geometry.taps();
        let weights = &weights[map * taps..][..taps];
        if let Some(direct) = &self.direct {
            return direct.compute(plane, weights, ys.start, out);
        }
        with_workspace(copied_rows(&self.geometry, ys.len()) * self.rows.floats(), |copies| {
            vectorised(CopyRows { kernel: self, plane, first: ys.start, copies });
            let shifted = ShiftedRows {
                copies,
                weights,
                offsets: &self.offsets,
                distance: self.geometry.steps.strides[0] * self.rows.floats(),
                out,
                width: output[1],
            };
            vectorised(shifted);
        });
    }
}

impl CpuKernel for Kernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let input = elements(call.inputs[0]);
        let weights = elements(call.inputs[1]);
        let (output, extras) = (elements_mut(call.outputs[0]), &call.inputs[2..]);
        call.team.run_tiles(output, self.grid, &|mut tile| self.compute(&mut tile, input, weights, extras));
        Ok(())
    }
}

impl PaddedRows {
    fn floats(&self) -> usize {
        self.stride * self.length
    }
}

/// Columns computed at a time for an image of this width.
fn block(width: usize) -> usize {
    if width > NARROW { WIDE } else { NARROW }
}

/// Input rows that some neighbouring output rows need.
fn copied_rows(geometry: &Geometry, rows: usize) -> usize {
    let Geometry { steps, window, .. } = geometry;
    rows.saturating_sub(1).saturating_mul(steps.strides[0]).saturating_add((window[0] - 1) * steps.dilations[0] + 1)
}

/// Copies the input rows that output rows from `first` on need.
struct CopyRows<'a> {
    kernel: &'a Kernel,
    plane: &'a [f32],
    first: usize,
    copies: &'a mut [f32],
}

impl Loop for CopyRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Geometry { size: [height, width], steps, .. } = self.kernel.geometry;
        let PaddedRows { stride, length } = self.kernel.rows;
        let top = self.first * steps.strides[0];
        for (index, copy) in self.copies.chunks_exact_mut(stride * length).enumerate() {
            let Some(row) = (top + index).checked_sub(steps.pads[0]).filter(|row| *row < height) else {
                copy.fill(0.0);
                continue;
            };
            let row = &self.plane[row * width..][..width];
            for (remainder, copy) in copy.chunks_exact_mut(length).enumerate() {
                // Element t is padded column t · stride + remainder.
                let start = steps.pads[1].saturating_sub(remainder).div_ceil(stride).min(length);
                let end = (width + steps.pads[1]).saturating_sub(remainder).div_ceil(stride).clamp(start, length);
                let from = (start * stride + remainder).saturating_sub(steps.pads[1]).min(width);
                copy[..start].fill(0.0);
                copy[end..].fill(0.0);
                let (copy, row) = (&mut copy[start..end], &row[from..]);
                match stride {
                    1 => copy.copy_from_slice(&row[..copy.len()]),
                    2 => copy_every_second(row, copy),
                    _ => copy.iter_mut().zip(row.iter().step_by(stride)).for_each(|(to, from)| *to = *from),
                }
            }
        }
    }
}

#[inline(always)]
fn copy_every_second(row: &[f32], copy: &mut [f32]) {
    let (pairs, last) = row.as_chunks::<2>();
    copy.iter_mut().zip(pairs).for_each(|(to, [from, _])| *to = *from);
    if let ([last], Some(to)) = (last, copy.get_mut(pairs.len())) {
        *to = *last;
    }
}

/// Adds up shifted rows: output row `y` is `Σ weight · copies[y · distance + offset..]`.
struct ShiftedRows<'a> {
    copies: &'a [f32],
    weights: &'a [f32],
    offsets: &'a [usize],
    distance: usize,
    out: &'a mut [f32],
    width: usize,
}

impl Loop for ShiftedRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for (y, out) in self.out.chunks_exact_mut(self.width).enumerate() {
            let rows = &self.copies[y * self.distance..];
            match block(self.width) {
                NARROW => add_shifted::<I, NARROW>(rows, self.weights, self.offsets, out),
                _ => add_shifted::<I, WIDE>(rows, self.weights, self.offsets, out),
            }
        }
    }
}

#[inline(always)]
fn add_shifted<I: Isa, const COLUMNS: usize>(rows: &[f32], weights: &[f32], offsets: &[usize], out: &mut [f32]) {
    for (index, out) in out.chunks_mut(COLUMNS).enumerate() {
        let rows = &rows[index * COLUMNS..];
        let mut sums = [0f32; COLUMNS];
        for (weight, offset) in weights.iter().zip(offsets) {
            let row = rows[*offset..].first_chunk::<COLUMNS>().expect("padded rows are as long as whole blocks");
            for i in 0..COLUMNS {
                sums[i] = I::fused(*weight, row[i], sums[i]);
            }
        }
        match out.first_chunk_mut::<COLUMNS>() {
            Some(out) => *out = sums,
            None => out.copy_from_slice(&sums[..out.len()]),
        }
    }
}
