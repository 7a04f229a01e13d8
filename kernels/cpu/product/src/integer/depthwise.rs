//! Convolutions of 8-bit integers in which each channel is convolved by itself.
//!
//! Four rows of a window lie next to each other as a quad, so that the dot products of bytes add up a column of the
//! window at once. Bands of the output's rows are computed one after the other. The rows of the image that a band reads
//! are copied with the border around the image, and then written as quads, which all columns of the window read. If
//! windows move by several columns, every such column has a plane of its own: then the numbers that a column of the
//! window needs are consecutive.

use super::block::Dots;
use super::output::{Channel, Form, Output, Parameters};
use anabranch_cpu_base::elements::elements_mut;
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::layout::quads::PANEL;
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::vector::{Isa, LANES, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{IntegerConv, NodeSpec};
use std::ops::Range;

/// Approximate products of a tile.
const TILE_PRODUCTS: usize = 1 << 16;

/// Rows of a window in a quad.
const HIGH: usize = 4;

/// Approximate quads of a band of the output's rows, which the innermost cache holds.
const BAND: usize = 4096;

/// Maximum distance of a window's elements: all rows and columns between them are copied, too.
const FARTHEST: usize = 256;

/// Positions whose sums are computed together.
const CHUNK: usize = 4 * PANEL;

pub(super) struct Kernel {
    dots: Dots,
    geometry: Geometry,
    border: u8,
    form: Form,
    /// Flips of the bits of the image's and the filters' numbers, to be unsigned and signed.
    flips: [u8; 2],
    planes: Vec<Plane>,
    /// Positions of a row of a plane: outputs of a row, and those that lie between two rows.
    pitch: usize,
    /// Rows of the output that are computed together.
    band: usize,
    grid: Grid,
}

/// Columns of the image, with its border, that are a stride apart.
struct Plane {
    /// The first of them.
    column: usize,
    /// Positions within the image.
    inside: Range<usize>,
}

/// Filter of an output channel.
struct Filter {
    /// Its numbers in the order of the quads.
    quads: Vec<u8>,
    sum: i32,
}

impl Kernel {
    pub(super) fn suits(geometry: &Geometry) -> bool {
        let Geometry { window, steps, .. } = geometry;
        let reach = |axis: usize| window[axis].saturating_sub(1).saturating_mul(steps.dilations[axis]);
        let is_near = (0..2).all(|axis| reach(axis) <= FARTHEST);
        is_near && geometry.group_channels() == 1 && geometry.group_maps() <= IntegerConv::MOST_MAPS
    }

    pub(super) fn new(dots: Dots, geometry: Geometry, op: &IntegerConv, node: &NodeSpec) -> Self {
        let (rows, columns) = (geometry.images * geometry.maps, geometry.pixels());
        let tile_rows = (TILE_PRODUCTS / (columns * geometry.taps()).max(1)).max(1);
        let signed = [0, 1].map(|input| node.inputs[input].dtype == DType::I8);
        let Geometry { window: [high, wide], steps, output, .. } = geometry;
        let (stride, left) = (steps.strides[1], steps.pads[1]);
        let mut columns_of_planes: Vec<usize> = (0..wide).map(|column| column * steps.dilations[1] % stride).collect();
        columns_of_planes.sort_unstable();
        columns_of_planes.dedup();
        let pitch = output[1] + (wide - 1).saturating_mul(steps.dilations[1]) / stride;
        let plane = |column: usize| {
            let first = left.saturating_sub(column).div_ceil(stride).min(pitch);
            let end = (geometry.size[1] + left).saturating_sub(column).div_ceil(stride).clamp(first, pitch);
            Plane { column, inside: first..end }
        };
        let planes: Vec<_> = columns_of_planes.into_iter().map(plane).collect();
        let quads = planes.len() * high.div_ceil(HIGH) * pitch;
        Self {
            dots,
            geometry,
            // Bits of the number, for either type.
            border: op.border as u8,
            form: Form::new(node, op.zero_points, op.rounding),
            flips: [if signed[0] { 128 } else { 0 }, if signed[1] { 0 } else { 128 }],
            band: (BAND / quads.max(1)).clamp(1, output[0].max(1)),
            planes,
            pitch,
            grid: Grid { batch: 1, rows, columns, tile_rows, tile_columns: columns },
        }
    }

    /// Returns the quads of a window: columns, for each four of its rows.
    fn quads(&self) -> usize {
        self.geometry.window[1] * self.geometry.window[0].div_ceil(HIGH)
    }

    /// Returns the position of each quad of the first window of a band of `rows` rows.
    fn starts(&self, rows: usize) -> Vec<usize> {
        let Geometry { window: [_, wide], steps, .. } = self.geometry;
        let start = |quad: usize| {
            let column = quad % wide * steps.dilations[1];
            let plane = self.planes.partition_point(|plane| plane.column < column % steps.strides[1]);
            (quad / wide * self.planes.len() + plane) * rows * self.pitch + column / steps.strides[1]
        };
        (0..self.quads()).map(start).collect()
    }

    /// Returns the rows of each plane for a band of so many rows.
    fn lines(&self, band: usize) -> usize {
        let Geometry { window: [high, _], steps, .. } = self.geometry;
        let reach = if high > 1 { (high - 1) * steps.dilations[0] } else { 0 };
        band.saturating_sub(1) * steps.strides[0] + reach + 1
    }

    /// Computes whole output channels.
    fn compute<T: Output>(&self, tile: &mut Tile<'_, T>, inputs: &[&[u8]]) {
        let geometry = &self.geometry;
        let (plane, taps, maps) = (geometry.plane(), geometry.taps(), geometry.group_maps());
        let parameters = self.form.parameters(inputs);
        let quads = self.planes.len() * geometry.window[0].div_ceil(HIGH) * self.band * self.pitch;
        // Sums of whole registers read beyond the last row.
        let quads = quads + self.pitch + CHUNK;
        let numbers = self.planes.len() * self.lines(self.band) * self.pitch;
        let (mut starts, mut bordered) = ((0, Vec::new()), None);
        with_workspace(quads + numbers.div_ceil(HIGH), |workspace| {
            let (quads, numbers) = workspace.split_at_mut(quads);
            let (quads, numbers): (&mut [u32], &mut [u8]) =
                (bytemuck::cast_slice_mut(quads), bytemuck::cast_slice_mut(numbers));
            let mut rows = tile.rows.clone();
            while !rows.is_empty() {
                let (first, channel) = (rows.start - tile.rows.start, rows.start / maps);
                let image = &inputs[0][channel * plane..][..plane];
                // The output channels of the tile that read this channel.
                let together = rows.start..rows.end.min((channel + 1) * maps);
                rows.start = together.end;
                let filter = |row: usize| {
                    let map = row % geometry.maps;
                    let filter = self.filter(&inputs[1][map * taps..][..taps]);
                    let excess = i32::from(self.flips[0]).wrapping_mul(filter.sum);
                    (parameters.channel(map, i32::from(self.flips[1]), excess), filter)
                };
                let filters: Vec<_> = together.map(filter).collect();
                for start in (0..geometry.output[0]).step_by(self.band) {
                    let band = start..geometry.output[0].min(start + self.band);
                    if starts.0 != band.len() {
                        starts = (band.len(), self.starts(band.len()));
                    }
                    // The border is the same in all channels.
                    let border = bordered.replace(band.clone()) != Some(band.clone());
                    vectorised(Rows { kernel: self, image, band: &band, border, numbers: &mut *numbers });
                    vectorised(Write { kernel: self, numbers: &*numbers, band: &band, quads: &mut *quads });
                    for (at, (channel, filter)) in filters.iter().enumerate() {
                        let sums = Sums { kernel: self, quads, starts: &starts.1, band: &band, filter };
                        sums.write(&parameters, channel, tile.row(first + at));
                    }
                }
            }
        });
    }

    fn filter(&self, numbers: &[u8]) -> Filter {
        let wide = self.geometry.window[1];
        let mut quads = vec![0; self.quads() * HIGH];
        let mut sum = 0;
        for (row, numbers) in numbers.chunks_exact(wide).enumerate() {
            let quads = quads[row / HIGH * wide * HIGH..].as_chunks_mut::<HIGH>().0;
            for (quad, number) in quads.iter_mut().zip(numbers) {
                let number = number ^ self.flips[1];
                quad[row % HIGH] = number;
                sum += i32::from(number as i8);
            }
        }
        Filter { quads, sum }
    }
}

/// Loop that copies the rows of a channel that a band reads, with the border around the image.
struct Rows<'a> {
    kernel: &'a Kernel,
    image: &'a [u8],
    band: &'a Range<usize>,
    /// Whether the border is copied, too.
    border: bool,
    numbers: &'a mut [u8],
}

impl Loop for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel, image, band, border, numbers } = self;
        let Geometry { size, steps, .. } = kernel.geometry;
        let lines = kernel.lines(band.len()) * kernel.pitch;
        for (plane, numbers) in kernel.planes.iter().zip(numbers.chunks_exact_mut(lines.max(1))) {
            let Range { start: first, end } = plane.inside;
            let from = first * steps.strides[1] + plane.column;
            for (at, line) in numbers.chunks_exact_mut(kernel.pitch.max(1)).enumerate() {
                let row = (band.start * steps.strides[0] + at).checked_sub(steps.pads[0]).filter(|row| *row < size[0]);
                let row = row.filter(|_| first < end);
                if border {
                    line.fill(kernel.border);
                }
                let Some(row) = row else { continue };
                let (line, row) = (&mut line[first..end], &image[row * size[1]..][..size[1]][from - steps.pads[1]..]);
                match steps.strides[1] {
                    1 => copy(&row[..line.len()], line),
                    2 => {
                        // Numbers of 16 bits are narrowed in vectors.
                        let (pairs, last) = row.as_chunks::<2>();
                        for (to, pair) in line.iter_mut().zip(pairs) {
                            *to = u16::from_le_bytes(*pair) as u8;
                        }
                        if let (Some(to), [number]) = (line.get_mut(pairs.len()), last) {
                            *to = *number;
                        }
                    }
                    stride => {
                        for (to, number) in line.iter_mut().zip(row.iter().step_by(stride)) {
                            *to = *number;
                        }
                    }
                }
            }
        }
    }
}

/// Copies a row. A call for a few elements would take longer than they do: they are copied from both ends.
#[inline(always)]
fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    match from.len() {
        4..8 => copy_ends::<T, 4>(from, to),
        8..16 => copy_ends::<T, 8>(from, to),
        16..=32 => copy_ends::<T, 16>(from, to),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first and the last `COUNT` elements.
#[inline(always)]
fn copy_ends<T: Copy, const COUNT: usize>(from: &[T], to: &mut [T]) {
    if let (Some(first), Some(last)) = (from.first_chunk::<COUNT>(), from.last_chunk::<COUNT>()) {
        to[..COUNT].copy_from_slice(first);
        to[from.len() - COUNT..].copy_from_slice(last);
    }
}

/// Loop that writes the quads of a band.
struct Write<'a> {
    kernel: &'a Kernel,
    numbers: &'a [u8],
    band: &'a Range<usize>,
    quads: &'a mut [u32],
}

impl Loop for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel, numbers, band, quads } = self;
        let Kernel { pitch, geometry: Geometry { window, steps, .. }, .. } = *kernel;
        let mask = u32::from_ne_bytes([kernel.flips[0]; HIGH]);
        // All rows at once, if one follows the other.
        let (runs, length) = if steps.strides[0] == 1 { (1, band.len() * pitch) } else { (band.len(), pitch) };
        let mut quads = quads.chunks_exact_mut(length.max(1));
        let lines = kernel.lines(band.len()) * pitch;
        for top in (0..window[0]).step_by(HIGH) {
            for plane in numbers.chunks_exact(lines.max(1)).take(kernel.planes.len()) {
                for (run, quads) in (0..runs).zip(&mut quads) {
                    // Rows beyond the window repeat its last: their numbers in filters are 0.
                    let row = |row: usize| {
                        let tap = (top + row).min(window[0] - 1);
                        let below = if tap > 0 { tap * steps.dilations[0] } else { 0 };
                        &plane[(run * steps.strides[0] + below) * pitch..][..length]
                    };
                    let (a, b, c, d) = (row(0), row(1), row(2), row(3));
                    for (quad, ((a, b), (c, d))) in quads.iter_mut().zip(a.iter().zip(b).zip(c.iter().zip(d))) {
                        *quad = u32::from_ne_bytes([*a, *b, *c, *d]) ^ mask;
                    }
                }
            }
        }
    }
}

/// Sums of a band of an output channel.
struct Sums<'a> {
    kernel: &'a Kernel,
    quads: &'a [u32],
    /// Position of each quad of the first window.
    starts: &'a [usize],
    /// Rows of the output.
    band: &'a Range<usize>,
    filter: &'a Filter,
}

impl Sums<'_> {
    /// Writes the outputs of the channel.
    fn write<T: Output>(&self, parameters: &Parameters<'_>, channel: &Channel, out: &mut [T]) {
        let Self { kernel, quads, starts, band, filter } = self;
        let outputs = band.len() * kernel.pitch;
        let mut sums = [0; CHUNK];
        for first in (0..outputs).step_by(CHUNK) {
            let sums = &mut sums[..CHUNK.min((outputs - first).next_multiple_of(LANES))];
            kernel.dots.windows(&filter.quads, starts, &quads[first..], sums);
            vectorised(Finish { of: self, parameters, channel, first, sums, out: &mut *out });
        }
    }

    /// Subtracts `zero` times the numbers of each window.
    #[inline(always)]
    fn correct(&self, zero: i32, first: usize, sums: &mut [i32]) {
        let Kernel { geometry, flips, .. } = self.kernel;
        let [high, wide] = geometry.window;
        let shift = zero.wrapping_mul(i32::from(flips[0]).wrapping_mul(geometry.taps() as i32));
        for sum in &mut *sums {
            *sum = sum.wrapping_add(shift);
        }
        for (at, start) in self.starts.iter().enumerate() {
            // Rows of quads beyond the window hold numbers that do not count.
            let rows = (high - at / wide * HIGH).min(HIGH);
            let counted = u32::from_ne_bytes(std::array::from_fn(|row| if row < rows { u8::MAX } else { 0 }));
            for (sum, quad) in sums.iter_mut().zip(&self.quads[first + start..]) {
                let [a, b, c, d] = (quad & counted).to_ne_bytes();
                let total = i32::from(a) + i32::from(b) + i32::from(c) + i32::from(d);
                *sum = sum.wrapping_sub(zero.wrapping_mul(total));
            }
        }
    }
}

/// Loop that corrects and writes sums.
struct Finish<'a, T> {
    of: &'a Sums<'a>,
    parameters: &'a Parameters<'a>,
    channel: &'a Channel,
    /// Position of the first sum in the band.
    first: usize,
    sums: &'a mut [i32],
    out: &'a mut [T],
}

impl<T: Output> Loop for Finish<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { of, parameters, channel, first, sums, out } = self;
        let Sums { kernel, band, .. } = of;
        if channel.zero != 0 {
            of.correct(channel.zero, first, sums);
        }
        let mut made = [T::default(); CHUNK];
        T::write_channel::<I>(parameters, channel, sums, &mut made[..sums.len()]);
        let (pitch, wide) = (kernel.pitch, kernel.geometry.output[1]);
        let (mut row, mut column, mut done) = (band.start + first / pitch, first % pitch, 0);
        while done < sums.len() && row < band.end {
            let length = wide.saturating_sub(column).min(sums.len() - done);
            copy(&made[done..][..length], &mut out[row * wide + column.min(wide)..][..length]);
            done += pitch - column;
            (row, column) = (row + 1, 0);
        }
    }
}

impl CpuKernel for Kernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (output, inputs) = (&mut *call.outputs[0], call.inputs);
        match self.form.is_rounded() {
            true => call.team.run_tiles(output, self.grid, &|mut tile| self.compute::<u8>(&mut tile, inputs)),
            false => call.team.run_tiles(elements_mut(output), self.grid, &|mut tile| {
                self.compute::<i32>(&mut tile, inputs);
            }),
        }
        Ok(())
    }
}
