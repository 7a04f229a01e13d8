//! Convolutions of 8-bit integers: the filters of a group times the windows of an image.
//!
//! The image's numbers a are shifted by o to be unsigned, and a filter's numbers b by −m to be signed. Then
//! `Σ (a − o) (b + m − z)` is `Σ a b − (z − m) (Σ a − o · depth) − o Σ b`. The last sum depends on the filter alone,
//! and the sum before it is needed only if `z ≠ m`.

use super::block::{Dots, Panel, ROWS};
use super::filters::Filters;
use super::output::{Channel, Form, Output, Parameters};
use super::quads::Quads;
use super::windows::Windows;
use super::{depthwise, quads};
use anabranch_cpu_base::elements::elements_mut;
use anabranch_cpu_base::geometry::{Geometry, Steps};
use anabranch_cpu_base::layout::quads::PANEL;
use anabranch_cpu_base::layout::{Layout, PackedInput, Packing};
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{IntegerConv, NodeSpec};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// Approximate products of a tile: its windows are packed in much less time.
const TILE_PRODUCTS: usize = 1 << 22;

/// Filters of a tile if there are few tiles.
const TILE_FILTERS: usize = 8 * ROWS;

/// Number of tiles that keep a team busy.
const ENOUGH_TILES: usize = 16;

pub(crate) fn prepare(
    op: &IntegerConv,
    node: &NodeSpec,
    constants: &[bool],
) -> Result<Box<dyn CpuKernel>, KernelError> {
    prepare_for(Dots::best(), op, node, constants)
}

pub(super) fn prepare_for(
    dots: Dots,
    op: &IntegerConv,
    node: &NodeSpec,
    constants: &[bool],
) -> Result<Box<dyn CpuKernel>, KernelError> {
    let IntegerConv { strides, pads, dilations, group, .. } = *op;
    let steps = Steps { strides, pads, dilations };
    let geometry = Geometry::new(node, node.inputs[0].shape.dims(), node.outputs[0].shape.dims(), steps, group)?;
    Ok(match depthwise::Kernel::suits(&geometry) {
        true => Box::new(depthwise::Kernel::new(dots, geometry, op, node)),
        false => Box::new(Kernel::new(dots, geometry, op, node, constants)?),
    })
}

struct Kernel {
    dots: Dots,
    geometry: Geometry,
    /// Shift of the image's numbers, o.
    offset: u8,
    /// Negative shift of the filters' numbers, m.
    moved: u8,
    border: u8,
    form: Form,
    filters: PackedInput,
    grid: Grid,
}

impl Kernel {
    fn new(
        dots: Dots,
        geometry: Geometry,
        op: &IntegerConv,
        node: &NodeSpec,
        constants: &[bool],
    ) -> Result<Self, KernelError> {
        let (batch, rows, columns) = (geometry.images * geometry.group, geometry.group_maps(), geometry.pixels());
        let depth = geometry.depth();
        // This bounds all sizes that are computed below, and it fits the address space.
        Shape::new([batch, rows.max(columns.next_multiple_of(PANEL)), depth.next_multiple_of(4)])?;
        let panels = (TILE_PRODUCTS / (rows * depth * PANEL).max(1)).max(1);
        let tile_columns = panels * PANEL;
        let few = batch * columns.div_ceil(tile_columns) < ENOUGH_TILES;
        let [signed, filters_signed] = [&node.inputs[0], &node.inputs[1]].map(|of| of.dtype == DType::I8);
        Ok(Self {
            dots,
            geometry,
            offset: if signed { 128 } else { 0 },
            moved: if filters_signed { 0 } else { 128 },
            // Bits of the number, for either type.
            border: op.border as u8,
            form: Form::new(node, op.zero_points, op.rounding),
            filters: PackedInput::new(1, Layout::filters_of_integers(geometry.weights(), !filters_signed), constants),
            grid: Grid { batch, rows, columns, tile_rows: if few { TILE_FILTERS } else { rows }, tile_columns },
        })
    }

    /// Returns the quads of the images, if they are written first.
    fn image_quads(&self) -> usize {
        if quads::suits(&self.geometry) { quads::count(&self.geometry) } else { 0 }
    }

    /// Returns what is added to a sum of windows' numbers to be the sum of the numbers as they were given.
    fn shift(&self) -> i32 {
        (self.geometry.depth() as i32).wrapping_mul(i32::from(self.offset)).wrapping_neg()
    }

    fn compute<T: Output>(&self, tile: &mut Tile<'_, T>, inputs: &[&[u8]], filters: Filters<'_>, quads: &[u32]) {
        let geometry = &self.geometry;
        let length = geometry.group_channels() * geometry.plane();
        let border = u32::from_ne_bytes([self.border ^ self.offset; 4]);
        let image = Quads { geometry, image: quads.get(tile.matrix * length / 4..).unwrap_or(&[]), border };
        let windows = Windows {
            geometry,
            image: &inputs[0][tile.matrix * length..][..length],
            mask: self.offset,
            border: self.border,
        };
        let first = tile.matrix % geometry.group * geometry.group_maps() + tile.rows.start;
        let parameters = self.form.parameters(inputs);
        let channel = |row: usize| {
            let excess = i32::from(self.offset).wrapping_mul(filters.sum(row));
            parameters.channel(row, i32::from(self.moved), excess)
        };
        let channels: Vec<_> = (first..first + tile.rows.len()).map(channel).collect();
        let summed = channels.iter().any(|channel| channel.zero != 0);
        let mut block = [[0; PANEL]; ROWS];
        let depth = filters.row / 4;
        with_workspace(depth * PANEL, |workspace| {
            let workspace: &mut [u32] = bytemuck::cast_slice_mut(workspace);
            let columns = tile.columns.clone();
            for start in columns.clone().step_by(PANEL) {
                let end = columns.end.min(start + PANEL);
                let width = (end - start).next_multiple_of(16);
                let panel = match quads {
                    [] => windows.panel(start..end, width, &mut workspace[..depth * width]),
                    _ => image.panel(start..end, width, &mut workspace[..depth * width]),
                };
                let mut totals = [self.shift(); PANEL];
                if summed {
                    vectorised(Totals { panel, quads: depth, totals: &mut totals });
                }
                let mut top = 0;
                while top < tile.rows.len() {
                    let count = if tile.rows.len() - top < ROWS { 1 } else { ROWS };
                    self.dots.of(filters.rows(first + top, count), count, panel, true, &mut block);
                    vectorised(Finish {
                        block: &mut block[..count],
                        parameters: &parameters,
                        channels: &channels[top..],
                        totals: &totals,
                        top,
                        columns: start - columns.start..end - columns.start,
                        tile,
                    });
                    top += count;
                }
            }
        });
    }
}

/// Loop that adds, for each output, the numbers of its window.
struct Totals<'a> {
    panel: Panel<'a>,
    quads: usize,
    totals: &'a mut [i32; PANEL],
}

impl Loop for Totals<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Panel { bytes, stride, width } = self.panel;
        for quad in 0..self.quads {
            let quads = bytes[quad * stride..][..4 * width].as_chunks::<4>().0;
            for (total, quad) in self.totals.iter_mut().zip(quads) {
                *total = quad.iter().fold(*total, |total, number| total.wrapping_add(i32::from(*number)));
            }
        }
    }
}

/// Loop that corrects and writes a block.
struct Finish<'a, 't, T> {
    block: &'a mut [[i32; PANEL]],
    parameters: &'a Parameters<'a>,
    /// Parameters of the block's rows, and of later ones.
    channels: &'a [Channel],
    /// Sums of the numbers of each window.
    totals: &'a [i32; PANEL],
    /// First row, and columns, in the tile.
    top: usize,
    columns: Range<usize>,
    tile: &'a mut Tile<'t, T>,
}

impl<T: Output> Loop for Finish<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { block, parameters, channels, totals, top, columns, tile } = self;
        for (i, (products, channel)) in block.iter_mut().zip(channels).enumerate() {
            if channel.zero != 0 {
                for (product, total) in products.iter_mut().zip(totals) {
                    *product = product.wrapping_sub(channel.zero.wrapping_mul(*total));
                }
            }
            let out = &mut tile.row(top + i)[columns.clone()];
            T::write_channel::<I>(parameters, channel, products, out);
        }
    }
}

impl CpuKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        (self.filters.scratch_floats() + self.image_quads()) * size_of::<f32>()
    }

    fn packings(&self) -> Vec<Packing> {
        self.filters.packings()
    }

    fn keep(&mut self, packed: &[Arc<Buffer>]) {
        self.filters.keep(packed);
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let scratch = elements_mut::<u32>(call.scratch);
        let (quads, scratch) = scratch.split_at_mut(self.image_quads());
        let packed = self.filters.matrices(call.inputs, bytemuck::cast_slice_mut(scratch))?;
        let filters = Filters::new(packed.bytes(), self.geometry.maps, self.geometry.depth());
        if !quads.is_empty() {
            quads::write(&self.geometry, call.inputs[0], self.offset, call.team, quads);
        }
        let (output, inputs, quads) = (&mut *call.outputs[0], call.inputs, &*quads);
        match self.form.is_rounded() {
            true => call.team.run_tiles(output, self.grid, &|mut tile| {
                self.compute::<u8>(&mut tile, inputs, filters, quads);
            }),
            false => call.team.run_tiles(elements_mut(output), self.grid, &|mut tile| {
                self.compute::<i32>(&mut tile, inputs, filters, quads);
            }),
        }
        Ok(())
    }
}
