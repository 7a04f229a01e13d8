//! Convolutions of 8-bit integers: the filters of a group times the windows of an image.
//!
//! The image's numbers a are shifted by o to be unsigned, and a filter's numbers b by −m to be signed. Then
//! `Σ (a − o) (b + m − z)` is `Σ a b − (z − m) (Σ a − o · depth) − o Σ b`. The last sum depends on the filter alone,
//! and the sum before it is needed only if `z ≠ m`.

use super::block::{Dots, Panel, ROWS, Row, Starts};
use super::depthwise;
use super::filters::Filters;
use super::output::{Channel, Form, Output, Parameters};
use super::panels::{Panels, Part, Run, copy};
use super::planes::Planes;
use super::windows::Windows;
use anabranch_cpu_base::elements::elements_mut;
use anabranch_cpu_base::geometry::{Geometry, Steps};
use anabranch_cpu_base::layout::quads::PANEL;
use anabranch_cpu_base::layout::{FilterSizes, Layout, PackedInput, Packing};
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::vector::{Isa, LANES, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{IntegerConv, NodeSpec};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::Buffer;
use std::sync::Arc;

/// Approximate products of a tile.
const TILE_PRODUCTS: usize = 1 << 22;

/// Maximum bytes of the quads that a tile reads, unless it is of a few panels: half of an L2 cache of 1 MiB.
const TILE_BYTES: usize = 1 << 19;

/// Maximum ratio of the bytes of a group's planes and those of its images.
const MOST_RATIO: usize = 8;

/// Maximum filters of a tile if there are few tiles.
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
    let mut geometry = Geometry::new(node, node.inputs[0].shape.dims(), node.outputs[0].shape.dims(), steps, group)?;
    if geometry.is_pointwise() {
        // No row has a border, so that an image is one row.
        (geometry.size, geometry.output) = ([1, geometry.plane()], [1, geometry.pixels()]);
    }
    if let Some(kernel) = depthwise::Kernel::new(dots, geometry, op, node, constants) {
        return Ok(Box::new(kernel));
    }
    Ok(Box::new(Kernel::new(dots, geometry, op, node, constants)?))
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
    sizes: FilterSizes,
    filters: PackedInput,
    /// Planes of the images. Without them, windows are copied.
    planes: Option<Planes>,
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
        let sizes = FilterSizes { count: geometry.maps, channels: geometry.group_channels(), window: geometry.window };
        // This bounds the sizes of a tile, and it fits the address space.
        Shape::new([batch, rows.max(columns.next_multiple_of(PANEL)), sizes.row_bytes()])?;
        let [signed, filters_signed] = [&node.inputs[0], &node.inputs[1]].map(|of| of.dtype == DType::I8);
        // The border is the bits of the number, for either type.
        let (offset, border) = (if signed { 128 } else { 0 }, op.border as u8);
        let (read, made) = (geometry.group_channels().saturating_mul(geometry.plane()), rows.saturating_mul(columns));
        let most = read.saturating_add(made).saturating_mul(MOST_RATIO);
        let planes = Planes::new(geometry, geometry.output[0], [offset, border], most);
        let position = planes.as_ref().map_or(sizes.row_bytes(), Planes::position_bytes);
        let least = if planes.is_some() { 4 * PANEL } else { PANEL };
        let most = (TILE_BYTES / position.max(1)).max(least);
        let tile_columns = (TILE_PRODUCTS / (rows * sizes.row_bytes()).max(1)).clamp(least, most) / PANEL * PANEL;
        let enough = (batch * columns).div_ceil(ENOUGH_TILES).next_multiple_of(PANEL).max(least);
        let tile_columns = tile_columns.min(enough);
        let few = batch * columns.div_ceil(tile_columns) < ENOUGH_TILES;
        let part = rows.div_ceil(ENOUGH_TILES).next_multiple_of(ROWS).min(TILE_FILTERS);
        Ok(Self {
            dots,
            geometry,
            offset,
            moved: if filters_signed { 0 } else { 128 },
            border,
            form: Form::new(node, op.zero_points, op.rounding),
            sizes,
            filters: PackedInput::new(1, Layout::filters_of_integers(sizes, !filters_signed), constants),
            planes,
            grid: Grid { batch, rows, columns, tile_rows: if few { part } else { rows }, tile_columns },
        })
    }

    /// Returns the quads of the images.
    fn image_quads(&self) -> usize {
        self.planes.as_ref().map_or(0, Planes::count)
    }

    /// Returns what is added to a sum of windows' numbers to be the sum of the numbers as they were given.
    fn shift(&self) -> i32 {
        (self.geometry.depth() as i32).wrapping_mul(i32::from(self.offset)).wrapping_neg()
    }

    fn compute<T: Output>(&self, tile: &mut Tile<'_, T>, inputs: &[&[u8]], filters: Filters<'_>, quads: &[u32]) {
        let columns = tile.columns.clone();
        if let Some(planes) = &self.planes {
            let panels = Panels::new(&columns, self.geometry.output[1], planes.pitch);
            let quads = &quads[tile.matrix * planes.group_quads()..];
            self.multiply(tile, inputs, filters, (quads, &planes.starts, &panels));
            return;
        }
        let geometry = &self.geometry;
        let length = geometry.group_channels() * geometry.plane();
        let image = &inputs[0][tile.matrix * length..][..length];
        let windows = Windows { geometry, image, mask: self.offset, border: self.border };
        let (quads, width) = (self.sizes.row_bytes() / 4, columns.len().next_multiple_of(LANES));
        with_workspace(quads * width, |workspace| {
            let workspace: &mut [u32] = bytemuck::cast_slice_mut(workspace);
            windows.write(columns.clone(), width, workspace);
            let panels = Panels::new(&(0..columns.len()), columns.len(), width);
            self.multiply(tile, inputs, filters, (workspace, &Starts::dense(quads, width), &panels));
        });
    }

    /// Multiplies filters by the windows that start at these positions of quads.
    fn multiply<T: Output>(
        &self,
        tile: &mut Tile<'_, T>,
        inputs: &[&[u8]],
        filters: Filters<'_>,
        (quads, starts, panels): (&[u32], &Starts, &Panels),
    ) {
        let first = tile.matrix % self.geometry.group * self.geometry.group_maps() + tile.rows.start;
        let parameters = self.form.parameters(inputs);
        let channel = |row: usize| {
            // The layout of filters without numbers has no pieces that write their sums.
            let sum = if self.sizes.depth() == 0 { 0 } else { filters.sum(row) };
            let excess = i32::from(self.offset).wrapping_mul(sum);
            parameters.channel(row, i32::from(self.moved), excess)
        };
        let channels: Vec<_> = (first..first + tile.rows.len()).map(channel).collect();
        // Without channels there are no quads.
        let from = |part: &Part| bytemuck::cast_slice(quads.get(part.first..).unwrap_or(&[]));
        let panel = |part: &Part| Panel { bytes: from(part), starts, width: part.width };
        let mut totals = Vec::new();
        if channels.iter().any(|channel| channel.zero != 0) {
            totals.resize(panels.parts.len(), Row([self.shift(); PANEL]));
            for (part, totals) in panels.parts.iter().zip(&mut totals) {
                vectorised(Totals { panel: panel(part), totals });
            }
        }
        let mut block = [Row::ZEROS; ROWS];
        let mut top = 0;
        while top < tile.rows.len() {
            let count = ROWS.min(1 << (tile.rows.len() - top).ilog2());
            let rows = filters.rows(first + top, count);
            for (at, part) in panels.parts.iter().enumerate() {
                self.dots.of(rows, count, panel(part), true, &mut block);
                let (block, channels, totals) = (&block[..count], &channels[top..], totals.get(at));
                let parameters = &parameters;
                vectorised(Finish { block, parameters, channels, totals, top, runs: panels.runs(part), tile });
            }
            top += count;
        }
    }
}

/// Loop that adds, for each column, the numbers of its window.
struct Totals<'a> {
    panel: Panel<'a>,
    totals: &'a mut Row,
}

impl Loop for Totals<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Panel { bytes, starts, width } = self.panel;
        for start in starts.all() {
            let quads = bytes[4 * start..][..4 * width].as_chunks::<4>().0;
            for (total, quad) in self.totals.0.iter_mut().zip(quads) {
                *total = quad.iter().fold(*total, |total, number| total.wrapping_add(i32::from(*number)));
            }
        }
    }
}

/// Loop that corrects and writes a block.
struct Finish<'a, 't, T> {
    block: &'a [Row],
    parameters: &'a Parameters<'a>,
    /// Parameters of the block's rows, and of later ones.
    channels: &'a [Channel],
    /// Sums of the numbers of each window, if a correction needs them.
    totals: Option<&'a Row>,
    /// First row of the tile.
    top: usize,
    /// Outputs among the columns.
    runs: &'a [Run],
    tile: &'a mut Tile<'t, T>,
}

impl<T: Output> Loop for Finish<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { block, parameters, channels, totals, top, runs, tile } = self;
        for (i, (products, channel)) in block.iter().zip(channels).enumerate() {
            let corrected = totals.filter(|_| channel.zero != 0).map(|totals| products.less(totals, channel.zero));
            let Row(products) = corrected.as_ref().unwrap_or(products);
            let out = tile.row(top + i);
            if let [Run { column: 0, to, length }] = runs {
                T::write_channel::<I>(parameters, channel, products, &mut out[*to..][..*length]);
                continue;
            }
            let mut made = [T::default(); PANEL];
            T::write_channel::<I>(parameters, channel, products, &mut made);
            for Run { column, to, length } in runs {
                copy(&made[*column..][..*length], &mut out[*to..][..*length]);
            }
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
        let filters = Filters::new(packed.bytes(), self.sizes);
        if let Some(planes) = &self.planes {
            planes.write(call.inputs[0], call.team, quads);
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
