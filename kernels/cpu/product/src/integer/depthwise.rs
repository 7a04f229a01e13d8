//! Convolutions of 8-bit integers in which each channel is convolved by itself.
//!
//! Four rows of a window lie next to each other as a quad, so that the dot products of bytes add up a column of the
//! window at once. A channel's quads are written first, with the border around the image. If windows move by one
//! column and have at most four rows, all their columns read the same quads; else each column has quads of its own.

use super::block::{Dots, Panel, ROWS};
use super::output::{Form, Output, Parameters};
use anabranch_cpu_base::elements::elements_mut;
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::layout::quads::PANEL;
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{IntegerConv, NodeSpec};

/// Approximate products of a tile.
const TILE_PRODUCTS: usize = 1 << 16;

/// Rows of a window in a quad.
const HIGH: usize = 4;

pub(super) struct Kernel {
    dots: Dots,
    geometry: Geometry,
    border: u8,
    form: Form,
    /// Flips of the bits of the image's and the filters' numbers, to be unsigned and signed.
    flips: [u8; 2],
    shared: bool,
    /// Outputs of a row of quads, with those that lie between two rows of the output.
    pitch: usize,
    grid: Grid,
}

impl Kernel {
    pub(super) fn suits(geometry: &Geometry) -> bool {
        geometry.group_channels() == 1 && geometry.group_maps() <= IntegerConv::MOST_MAPS
    }

    pub(super) fn new(dots: Dots, geometry: Geometry, op: &IntegerConv, node: &NodeSpec) -> Self {
        let (rows, columns) = (geometry.images * geometry.maps, geometry.pixels());
        let tile_rows = (TILE_PRODUCTS / (columns * geometry.taps()).max(1)).max(1);
        let signed = [0, 1].map(|input| node.inputs[input].dtype == DType::I8);
        let shared = geometry.steps.strides[1] == 1 && geometry.window[0] <= HIGH;
        let reach = (geometry.window[1] - 1) * geometry.steps.dilations[1];
        Self {
            dots,
            geometry,
            // Bits of the number, for either type.
            border: op.border as u8,
            form: Form::new(node, op.zero_points, op.rounding),
            flips: [if signed[0] { 128 } else { 0 }, if signed[1] { 0 } else { 128 }],
            shared,
            pitch: geometry.output[1] + if shared { reach } else { 0 },
            grid: Grid { batch: 1, rows, columns, tile_rows, tile_columns: columns },
        }
    }

    /// Returns the quads of a window: columns, for each four of its rows.
    fn quads(&self) -> usize {
        self.geometry.window[1] * self.geometry.window[0].div_ceil(HIGH)
    }

    /// Computes whole output channels.
    fn compute<T: Output>(&self, tile: &mut Tile<'_, T>, inputs: &[&[u8]]) {
        let Geometry { maps, output, steps, .. } = self.geometry;
        let all = self.form.parameters(inputs);
        let (outputs, plane) = (output[0] * self.pitch, self.geometry.plane());
        let count = if self.shared { outputs } else { outputs * self.quads() };
        with_workspace(count + PANEL, |workspace| {
            let quads: &mut [u32] = bytemuck::cast_slice_mut(workspace);
            let mut filter = vec![0; self.quads() * HIGH];
            let beyond = vec![self.border; self.geometry.size[1]];
            let mut written = None;
            for (at, row) in tile.rows.clone().enumerate() {
                let map = row % maps;
                let channel = row / maps * self.geometry.group + map / self.geometry.group_maps();
                if written.replace(channel) != Some(channel) {
                    let image = &inputs[0][channel * plane..][..plane];
                    vectorised(Write { kernel: self, image, beyond: &beyond, quads: &mut *quads });
                }
                let sum = self.fill(&mut filter, &inputs[1][map * self.geometry.taps()..][..self.geometry.taps()]);
                let stride = if self.shared { steps.dilations[1] } else { outputs };
                for first in (0..outputs).step_by(PANEL) {
                    let width = PANEL.min(outputs - first).next_multiple_of(16);
                    let reach = (self.quads() - 1) * stride + width;
                    let panel =
                        Panel { bytes: bytemuck::cast_slice(&quads[first..][..reach]), stride: HIGH * stride, width };
                    let mut block = [[0; PANEL]; ROWS];
                    self.dots.of(&filter, 1, panel, true, &mut block);
                    let parameters = all.part(map, 1);
                    let out = tile.row(at);
                    vectorised(Finish { kernel: self, sums: &mut block[0], panel, parameters, sum, first, out });
                }
            }
        });
    }

    /// Writes a filter's numbers in the order of the quads. Returns their sum.
    fn fill(&self, filter: &mut [u8], numbers: &[u8]) -> i32 {
        let [_, wide] = self.geometry.window;
        for (at, number) in numbers.iter().enumerate() {
            let (row, column) = (at / wide, at % wide);
            filter[(row / HIGH * wide + column) * HIGH + row % HIGH] = number ^ self.flips[1];
        }
        numbers.iter().map(|number| i32::from((number ^ self.flips[1]) as i8)).sum()
    }
}

/// Loop that writes the quads of a channel.
struct Write<'a> {
    kernel: &'a Kernel,
    image: &'a [u8],
    /// A row beyond the image.
    beyond: &'a [u8],
    quads: &'a mut [u32],
}

impl Loop for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel, image, beyond, quads } = self;
        let Geometry { size, output, window, steps, .. } = kernel.geometry;
        let columns = if kernel.shared { 1 } else { window[1] };
        let (border, mask) = (kernel.border, u32::from_ne_bytes([kernel.flips[0]; 4]));
        let (steps_of_column, left) = (steps.dilations[1], steps.pads[1]);
        let stride = if kernel.shared { 1 } else { steps.strides[1] };
        let border_quad = u32::from_ne_bytes([border; 4]) ^ mask;
        let count = columns * window[0].div_ceil(HIGH) * output[0];
        let (quads, rest) = quads.split_at_mut(count * kernel.pitch);
        rest.fill(0);
        for (y, quads) in quads.chunks_exact_mut(kernel.pitch.max(1)).enumerate() {
            let (part, y) = (y / output[0], y % output[0]);
            let (top, column) = (part / columns * HIGH, part % columns * steps_of_column);
            // Positions whose element lies inside the image.
            let first = left.saturating_sub(column).div_ceil(stride).min(quads.len());
            let end = (size[1] + left).saturating_sub(column).div_ceil(stride).clamp(first, quads.len());
            quads[..first].fill(border_quad);
            quads[end..].fill(border_quad);
            let mut rows = [beyond; HIGH];
            for (row, numbers) in rows.iter_mut().enumerate().take(window[0] - top) {
                let at = y * steps.strides[0] + (top + row) * steps.dilations[0];
                let inside = at.checked_sub(steps.pads[0]).filter(|at| *at < size[0] && first < end);
                if let Some(at) = inside {
                    *numbers = &image[at * size[1]..][..size[1]][first * stride + column - left..];
                }
            }
            let (quads, [a, b, c, d]) = (&mut quads[first..end], rows);
            match stride {
                1 => {
                    let rows = a.iter().zip(b).zip(c.iter().zip(d));
                    for (quad, ((a, b), (c, d))) in quads.iter_mut().zip(rows) {
                        *quad = u32::from_ne_bytes([*a, *b, *c, *d]) ^ mask;
                    }
                }
                _ => {
                    for (at, quad) in quads.iter_mut().enumerate() {
                        let at = at * stride;
                        *quad = u32::from_ne_bytes([a[at], b[at], c[at], d[at]]) ^ mask;
                    }
                }
            }
        }
    }
}

/// Loop that corrects and writes the sums of a panel.
struct Finish<'a, T> {
    kernel: &'a Kernel,
    sums: &'a mut [i32; PANEL],
    panel: Panel<'a>,
    parameters: Parameters<'a>,
    /// Sum of the filter's numbers.
    sum: i32,
    /// First output of the panel.
    first: usize,
    out: &'a mut [T],
}

impl<T: Output> Loop for Finish<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel, sums, panel, parameters, sum, first, out } = self;
        let offset = i32::from(kernel.flips[0]);
        let summand = parameters.summands[0].wrapping_sub(offset.wrapping_mul(sum));
        sums.iter_mut().for_each(|sum| *sum = sum.wrapping_add(summand));
        let zero = parameters.zero_point(0).wrapping_sub(i32::from(kernel.flips[1]));
        if zero != 0 {
            kernel.correct(panel, zero, sums);
        }
        let mut made = [T::default(); PANEL];
        T::write_channel::<I>(&parameters, 0, sums, &mut made);
        let (pitch, wide) = (kernel.pitch, kernel.geometry.output[1]);
        let (mut row, mut column, mut done) = (first / pitch, first % pitch, 0);
        while done < PANEL && row < kernel.geometry.output[0] {
            let length = wide.saturating_sub(column).min(PANEL - done);
            out[row * wide + column.min(wide)..][..length].copy_from_slice(&made[done..][..length]);
            done += pitch - column;
            (row, column) = (row + 1, 0);
        }
    }
}

impl Kernel {
    /// Subtracts `zero` times the numbers of each window.
    #[inline(always)]
    fn correct(&self, panel: Panel<'_>, zero: i32, sums: &mut [i32; PANEL]) {
        // Rows of quads beyond the window hold numbers that do not count.
        let mut totals = [0; PANEL];
        let [high, wide] = self.geometry.window;
        for quad in 0..self.quads() {
            let rows = (high - quad / wide * HIGH).min(HIGH);
            let bytes = panel.bytes[quad * panel.stride..][..HIGH * panel.width].as_chunks::<HIGH>().0;
            for (total, quad) in totals.iter_mut().zip(bytes) {
                *total += quad[..rows].iter().map(|number| i32::from(*number)).sum::<i32>();
            }
        }
        let shift = i32::from(self.flips[0]).wrapping_mul(self.geometry.taps() as i32);
        for (sum, total) in sums.iter_mut().zip(&totals) {
            *sum = sum.wrapping_sub(zero.wrapping_mul(total.wrapping_sub(shift)));
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
