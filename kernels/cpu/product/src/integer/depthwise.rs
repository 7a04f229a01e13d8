//! Convolutions of 8-bit integers in which each channel is convolved by itself.
//!
//! Bands of the output's rows are computed one after the other, or several channels together if they are small, so that
//! the planes of quads stay in the innermost cache.

use super::block::Dots;
use super::filters::Filters;
use super::output::{Channel, Form, Output, Parameters};
use super::panels::copy;
use super::planes::{LEAST_ROWS, Planes};
use anabranch_cpu_base::elements::elements_mut;
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::layout::{FilterSizes, Layout, PackedInput, Packing};
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::vector::{Isa, LANES, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{IntegerConv, NodeSpec};
use anabranch_op::tensor::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// Approximate products of a tile.
const TILE_PRODUCTS: usize = 1 << 16;

/// Approximate quads that are written together.
const TOGETHER: usize = 4096;

/// Maximum bytes of the planes of a band.
const MOST_BYTES: usize = 1 << 24;

/// Maximum positions whose sums are computed together.
const CHUNK: usize = 1024;

pub(super) struct Kernel {
    dots: Dots,
    geometry: Geometry,
    form: Form,
    /// Flips of the bits of the image's and the filters' numbers, to be unsigned and signed.
    flips: [u8; 2],
    sizes: FilterSizes,
    filters: PackedInput,
    /// Planes of a band.
    planes: Planes,
    /// Rows of the output in a band.
    band: usize,
    /// Channels that are computed together.
    channels: usize,
    grid: Grid,
}

impl Kernel {
    /// Returns the kernel, unless it does not suit the convolution.
    pub(super) fn new(
        dots: Dots,
        geometry: Geometry,
        op: &IntegerConv,
        node: &NodeSpec,
        constants: &[bool],
    ) -> Option<Self> {
        if geometry.group_channels() != 1 || geometry.group_maps() > IntegerConv::MOST_MAPS {
            return None;
        }
        let signed = [0, 1].map(|input| node.inputs[input].dtype == DType::I8);
        let flips = [if signed[0] { 128 } else { 0 }, if signed[1] { 0 } else { 128 }];
        // The border is the bits of the number, for either type.
        let around = [flips[0], op.border as u8];
        let quads = Planes::new(geometry, 1, around, MOST_BYTES)?.group_quads();
        let band = (TOGETHER / quads.max(1)).max(LEAST_ROWS).min(geometry.output[0]).max(1);
        let planes = Planes::new(geometry, band, around, MOST_BYTES)?;
        let whole = band == geometry.output[0] && band * planes.pitch <= CHUNK;
        let channels = if whole { (TOGETHER / planes.group_quads().max(1)).max(1) } else { 1 };
        let (rows, columns) = (geometry.images * geometry.maps, geometry.pixels());
        let tile_rows = (TILE_PRODUCTS / columns.saturating_mul(geometry.taps()).max(1)).max(1);
        let sizes = FilterSizes { count: geometry.maps, channels: 1, window: geometry.window };
        Some(Self {
            dots,
            form: Form::new(node, op.zero_points, op.rounding),
            flips,
            sizes,
            filters: PackedInput::new(1, Layout::filters_of_integers(sizes, !signed[1]), constants),
            planes,
            band,
            channels,
            grid: Grid { batch: 1, rows, columns, tile_rows, tile_columns: columns },
            geometry,
        })
    }

    /// Computes whole output channels.
    fn compute<T: Output>(&self, tile: &mut Tile<'_, T>, inputs: &[&[u8]], filters: Filters<'_>) {
        let Geometry { output, maps, .. } = self.geometry;
        let of_group = self.geometry.group_maps();
        let parameters = self.form.parameters(inputs);
        let (quads, pitch) = (self.planes.group_quads(), self.planes.pitch);
        let spans = (self.band * pitch).min(CHUNK).next_multiple_of(LANES);
        let most = self.channels * of_group;
        // Sums of whole registers read beyond the last row.
        let read = self.channels * quads + LANES;
        with_workspace(read + most * spans + self.planes.strip_bytes(self.band).div_ceil(4), |workspace| {
            let (quads, rest) = workspace.split_at_mut(read);
            let (sums, strips) = rest.split_at_mut(most * spans);
            let (quads, sums): (&mut [u32], &mut [i32]) =
                (bytemuck::cast_slice_mut(quads), bytemuck::cast_slice_mut(sums));
            let strips: &mut [u8] = bytemuck::cast_slice_mut(strips);
            let mut rows = tile.rows.clone();
            while !rows.is_empty() {
                let groups = rows.start / of_group..rows.end.div_ceil(of_group);
                let groups = groups.start..groups.end.min(groups.start + self.channels);
                let together = rows.start..rows.end.min(groups.end * of_group);
                rows.start = together.end;
                let channel = |row: usize| {
                    let excess = i32::from(self.flips[0]).wrapping_mul(filters.sum(row % maps));
                    parameters.channel(row % maps, i32::from(self.flips[1]), excess)
                };
                let channels: Vec<_> = together.clone().map(channel).collect();
                for start in (0..output[0]).step_by(self.band) {
                    let band = start..output[0].min(start + self.band);
                    self.planes.write_rows(inputs[0], groups.clone(), band.clone(), strips, quads);
                    let positions = (band.len() - 1) * pitch + output[1];
                    for first in (0..positions).step_by(spans) {
                        let count = spans.min((positions - first).next_multiple_of(LANES));
                        let sums = &mut sums[..together.len() * count];
                        for (row, sums) in together.clone().zip(sums.chunks_exact_mut(count)) {
                            let quads = &quads[(row / of_group - groups.start) * self.planes.group_quads() + first..];
                            self.dots.windows(filters.rows(row % maps, 1), &self.planes.starts, quads, sums);
                        }
                        let at = together.start - tile.rows.start;
                        let (parameters, band, channels) = (&parameters, &band, &channels[..]);
                        vectorised(Finish { kernel: self, quads, parameters, channels, band, first, sums, at, tile });
                    }
                }
            }
        });
    }
}

/// Loop that corrects and writes sums of output channels, as many of each.
struct Finish<'a, 't, T> {
    kernel: &'a Kernel,
    quads: &'a [u32],
    parameters: &'a Parameters<'a>,
    channels: &'a [Channel],
    /// Rows of the output.
    band: &'a Range<usize>,
    /// Position of the first sum in the band.
    first: usize,
    sums: &'a mut [i32],
    /// First row in the tile.
    at: usize,
    tile: &'a mut Tile<'t, T>,
}

impl<T: Output> Loop for Finish<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel, quads, parameters, channels, band, first, sums, at, tile } = self;
        let (pitch, wide) = (kernel.planes.pitch, kernel.geometry.output[1]);
        let (count, of_group) = (sums.len() / channels.len(), kernel.geometry.group_maps());
        let mut made = [T::default(); CHUNK];
        for (i, (sums, channel)) in sums.chunks_exact_mut(count.max(1)).zip(channels).enumerate() {
            if channel.zero != 0 {
                let group = (tile.rows.start + at + i) / of_group - (tile.rows.start + at) / of_group;
                kernel.correct(channel.zero, &quads[group * kernel.planes.group_quads() + first..], sums);
            }
            let made = &mut made[..count];
            T::write_channel::<I>(parameters, channel, sums, made);
            let out = tile.row(at + i);
            let (mut row, mut column, mut done) = (band.start + first / pitch, first % pitch, 0);
            while done < count && row < band.end {
                let length = wide.saturating_sub(column).min(count - done);
                copy(&made[done..][..length], &mut out[row * wide + column.min(wide)..][..length]);
                done += pitch - column;
                (row, column) = (row + 1, 0);
            }
        }
    }
}

impl Kernel {
    /// Subtracts `zero` times the numbers of each window.
    #[inline(always)]
    fn correct(&self, zero: i32, quads: &[u32], sums: &mut [i32]) {
        let shift = zero.wrapping_mul(i32::from(self.flips[0]).wrapping_mul(self.geometry.taps() as i32));
        for sum in &mut *sums {
            *sum = sum.wrapping_add(shift);
        }
        for start in self.planes.starts.all() {
            for (sum, quad) in sums.iter_mut().zip(&quads[*start..]) {
                let [a, b, c, d] = quad.to_ne_bytes().map(i32::from);
                *sum = sum.wrapping_sub(zero.wrapping_mul(a + b + c + d));
            }
        }
    }
}

impl CpuKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        self.filters.scratch_floats() * size_of::<f32>()
    }

    fn packings(&self) -> Vec<Packing> {
        self.filters.packings()
    }

    fn keep(&mut self, packed: &[Arc<Buffer>]) {
        self.filters.keep(packed);
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let packed = self.filters.matrices(call.inputs, elements_mut(call.scratch))?;
        let filters = Filters::new(packed.bytes(), self.sizes);
        let (output, inputs) = (&mut *call.outputs[0], call.inputs);
        match self.form.is_rounded() {
            true => call.team.run_tiles(output, self.grid, &|mut tile| self.compute::<u8>(&mut tile, inputs, filters)),
            false => call.team.run_tiles(elements_mut(output), self.grid, &|mut tile| {
                self.compute::<i32>(&mut tile, inputs, filters);
            }),
        }
        Ok(())
    }
}
