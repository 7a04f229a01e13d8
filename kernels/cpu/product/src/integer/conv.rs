//! Convolutions of 8-bit integers: the filters of a group times the windows of an image.
//!
//! The image's numbers a are shifted by o to be unsigned, and a filter's numbers b by −m to be signed. Then
//! `Σ (a − o) (b + m − z)` is `Σ a b − (z − m) (Σ a − o · depth) − o Σ b`. The last sum depends on the filter alone,
//! and the sum before it is needed only if `z ≠ m`.

use super::block::{Dots, ROWS};
use super::depthwise;
use super::filters::Filters;
use super::windows::Windows;
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::geometry::{Geometry, Steps};
use anabranch_cpu_base::layout::quads::PANEL;
use anabranch_cpu_base::layout::{Layout, PackedInput, Packing};
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{IntegerConv, NodeSpec};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::Buffer;
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
        true => Box::new(depthwise::Kernel::new(geometry, op, node)),
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
    zero_points: bool,
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
            zero_points: op.zero_points,
            filters: PackedInput::new(1, Layout::filters_of_integers(geometry.weights(), !filters_signed), constants),
            grid: Grid { batch, rows, columns, tile_rows: if few { TILE_FILTERS } else { rows }, tile_columns },
        })
    }

    fn compute(&self, tile: &mut Tile<'_, i32>, inputs: &[&[u8]], filters: Filters<'_>) {
        let geometry = &self.geometry;
        let length = geometry.group_channels() * geometry.plane();
        let image = &inputs[0][tile.matrix * length..][..length];
        let windows = Windows { geometry, image, mask: self.offset, border: self.border };
        let first = tile.matrix % geometry.group * geometry.group_maps() + tile.rows.start;
        let parameter = |input: usize| &elements::<i32>(inputs[input])[first..][..tile.rows.len()];
        let summands = parameter(2);
        let zero_points = self.zero_points.then(|| parameter(3));
        let zero = |row: usize| zero_points.map_or(0, |zeros| zeros[row]).wrapping_sub(i32::from(self.moved));
        let sums = (0..tile.rows.len()).any(|row| zero(row) != 0);
        let quads = filters.row / 4;
        with_workspace(quads * PANEL, |workspace| {
            let workspace: &mut [u32] = bytemuck::cast_slice_mut(workspace);
            let columns = tile.columns.clone();
            for start in columns.clone().step_by(PANEL) {
                let end = columns.end.min(start + PANEL);
                let width = (end - start).next_multiple_of(16);
                let panel = &mut workspace[..quads * width];
                windows.pack(start..end, width, panel);
                let panel: &[u8] = bytemuck::cast_slice(panel);
                let totals = if sums { self.totals(panel, width) } else { [0; PANEL] };
                let mut block = [[0; PANEL]; ROWS];
                let mut top = 0;
                while top < tile.rows.len() {
                    let count = if tile.rows.len() - top < ROWS { 1 } else { ROWS };
                    self.dots.of(filters.rows(first + top, count), panel, [count, width], true, &mut block);
                    for (row, products) in (top..top + count).zip(&block) {
                        let own = i32::from(self.offset).wrapping_mul(filters.sum(first + row));
                        let (summand, zero) = (summands[row].wrapping_sub(own), zero(row));
                        let out = &mut tile.row(row)[start - columns.start..end - columns.start];
                        for ((to, product), total) in out.iter_mut().zip(products).zip(&totals) {
                            *to = product.wrapping_add(summand).wrapping_sub(zero.wrapping_mul(*total));
                        }
                    }
                    top += count;
                }
            }
        });
    }

    /// Returns, for each output, the sum of its window's numbers.
    fn totals(&self, panel: &[u8], width: usize) -> [i32; PANEL] {
        let depth = self.geometry.depth() as i32;
        let mut totals = [depth.wrapping_mul(i32::from(self.offset)).wrapping_neg(); PANEL];
        for quads in panel.chunks_exact(4 * width) {
            for (total, quad) in totals.iter_mut().zip(quads.as_chunks::<4>().0) {
                *total = quad.iter().fold(*total, |total, number| total.wrapping_add(i32::from(*number)));
            }
        }
        totals
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
        let filters = Filters::new(packed.bytes(), self.geometry.maps, self.geometry.depth());
        let output = elements_mut(call.outputs[0]);
        call.team.run_tiles(output, self.grid, &|mut tile| self.compute(&mut tile, call.inputs, filters));
        Ok(())
    }
}
