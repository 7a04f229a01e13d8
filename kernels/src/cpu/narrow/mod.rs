//! Matrix products with weights of 2 to 16 bits, which stay narrow in memory and are widened in registers.
//!
//! A product of one row is limited by memory: its time is in proportion to the size of the weights. A product of many
//! rows takes little longer than with `f32` weights, because each widened vector is multiplied by [`ROWS`] rows.

mod element;
mod pack;
mod panel;

pub(super) use pack::{PANEL, pack, panel_bytes};

use super::elements::{elements, elements_mut};
use super::gemm::even_cut;
use super::layout::{Layout, PackedInput, PackedMatrices, Packing};
use super::map::ProductEpilogue;
use super::team::{Grid, Tile};
use super::vector::{LANES, vectorised};
use super::{Call, CpuKernel};
use crate::dtype::DType;
use crate::error::KernelError;
use crate::op::{NarrowFormat, NarrowMatMul, NodeSpec};
use crate::tensor::Buffer;
use element::{Bits, Element, Half, UpperHalf};
use panel::Panel;
use std::array::from_fn;
use std::marker::PhantomData;
use std::sync::Arc;

/// Prepares the kernel of a product with narrow weights.
pub(super) fn prepare(
    op: &NarrowMatMul,
    node: &NodeSpec,
    constants: &[bool],
) -> Result<Box<dyn CpuKernel>, KernelError> {
    let kernel = Kernel::new(op, node, constants)?;
    Ok(match (op.format, node.inputs[1].dtype) {
        (NarrowFormat::Grid { bits: 2, .. }, _) => Box::new(kernel.of::<Bits<2>>()),
        (NarrowFormat::Grid { bits: 4, .. }, _) => Box::new(kernel.of::<Bits<4>>()),
        (NarrowFormat::Grid { .. }, _) => Box::new(kernel.of::<Bits<8>>()),
        (NarrowFormat::Float, DType::F16) => Box::new(kernel.of::<Half>()),
        (NarrowFormat::Float, _) => Box::new(kernel.of::<UpperHalf>()),
    })
}

/// Rows that are multiplied by a widened vector before the next vector is widened.
const ROWS: usize = 4;

/// Maximum rows of a tile: they stay in the core's own caches while the weights of a panel are read.
const TILE_ROWS: usize = 64;

/// Approximate multiply-adds of a tile: ten microseconds of one core.
const TILE_WORK: usize = 1 << 18;

struct Kernel<E> {
    rows: usize,
    columns: usize,
    depth: usize,
    /// Steps of the depth that share a scale; all steps if there is no scale.
    block: usize,
    weights: PackedInput,
    /// Scales, and then the zero points.
    parameters: Vec<PackedInput>,
    grid: Grid,
    operands: usize,
    epilogue: Option<ProductEpilogue>,
    element: PhantomData<E>,
}

/// Weights of a call.
#[derive(Clone, Copy)]
struct Weights<'a> {
    /// Panels of [`PANEL`] columns, step by step.
    packed: &'a [u8],
    depth: usize,
    block: usize,
    scales: Option<PackedMatrices<'a>>,
    zero_points: Option<PackedMatrices<'a>>,
}

/// Returns the tiles of the product: whole panels.
fn grid([rows, columns, depth]: [usize; 3]) -> Grid {
    let tile_rows = even_cut(rows, TILE_ROWS, ROWS);
    let panels = TILE_WORK / (depth.max(1).saturating_mul(tile_rows * PANEL));
    Grid { batch: 1, rows, columns, tile_rows, tile_columns: panels.max(1) * PANEL }
}

impl Weights<'_> {
    /// Returns the panel of a column: the bytes of its columns for each step, or for each group of steps that share
    /// bytes.
    #[inline(always)]
    fn panel<E: Element>(&self, column: usize) -> &[[E::Bytes; PANEL / LANES]] {
        let groups = self.depth.div_ceil(E::STEPS);
        &elements(self.packed)[column / PANEL * groups..][..groups]
    }

    /// Returns the products of some rows of A with the panel of a column.
    fn times<E: Element, const ROWS: usize>(&self, a: &[f32], column: usize) -> [[f32; PANEL]; ROWS] {
        let [scales, zero_points] = self.parameters(column);
        vectorised(Panel::<E, ROWS> {
            a: from_fn(|row| &a[row * self.depth..][..self.depth]),
            weights: self.panel::<E>(column),
            block: self.block,
            scales,
            zero_points,
        })
    }

    /// Returns the scales and the zero points of the panel of a column, block by block.
    fn parameters(&self, column: usize) -> [Option<&[f32]>; 2] {
        [self.scales, self.zero_points].map(|of| of.map(|of| of.panels(0).from(0, column)))
    }
}

impl Kernel<()> {
    fn new(op: &NarrowMatMul, node: &NodeSpec, constants: &[bool]) -> Result<Self, KernelError> {
        let [[rows, depth], [_, line], [_, columns]] =
            [&node.inputs[0], &node.inputs[1], &node.outputs[0]].map(|spec| match *spec.shape.dims() {
                [rows, columns] => [rows, columns],
                _ => [0, 0],
            });
        let stride = op.transpose_b.then_some(line * node.inputs[1].dtype.size());
        let block = match op.format {
            NarrowFormat::Float => depth.max(1),
            NarrowFormat::Grid { block, .. } => block,
        };
        let parameter =
            |input| PackedInput::new(input, Layout::right(1, [depth.div_ceil(block), columns], true, PANEL), constants);
        Ok(Self {
            rows,
            columns,
            depth,
            block,
            weights: PackedInput::new(1, Layout::narrow([depth, columns], op.bits(), stride), constants),
            parameters: (2..op.operands()).map(parameter).collect(),
            grid: grid([rows, columns, depth]),
            operands: op.operands(),
            epilogue: ProductEpilogue::of(node, [rows, columns])?,
            element: PhantomData,
        })
    }

    fn of<E: Element>(self) -> Kernel<E> {
        let Self { rows, columns, depth, block, weights, parameters, grid, operands, epilogue, .. } = self;
        let element = PhantomData;
        Kernel { rows, columns, depth, block, weights, parameters, grid, operands, epilogue, element }
    }
}

impl<E: Element> Kernel<E> {
    fn compute(&self, tile: &mut Tile<'_, f32>, a: &[f32], weights: &Weights<'_>, extras: &[&[u8]]) {
        for first in tile.columns.clone().step_by(PANEL) {
            let mut row = tile.rows.start;
            while row < tile.rows.end {
                row += match tile.rows.end - row {
                    1 => together::<E, 1>(tile, [row, first], a, weights),
                    2 => together::<E, 2>(tile, [row, first], a, weights),
                    3 => together::<E, 3>(tile, [row, first], a, weights),
                    _ => together::<E, ROWS>(tile, [row, first], a, weights),
                };
            }
        }
        if let Some(epilogue) = &self.epilogue {
            let (top, column) = (tile.rows.start, tile.columns.start);
            tile.rows.clone().for_each(|row| epilogue.apply([0, row, column], tile.row(row - top), extras));
        }
    }

    fn packed(&self) -> impl Iterator<Item = &PackedInput> {
        std::iter::once(&self.weights).chain(&self.parameters)
    }
}

/// Computes some rows of a tile's panel, the first of which is at `place`, and returns their number.
fn together<E: Element, const COUNT: usize>(
    tile: &mut Tile<'_, f32>,
    [row, column]: [usize; 2],
    a: &[f32],
    weights: &Weights<'_>,
) -> usize {
    let sums = weights.times::<E, COUNT>(&a[row * weights.depth..], column);
    let (top, left) = (tile.rows.start, tile.columns.start);
    for (i, sums) in sums.iter().enumerate() {
        let out = &mut tile.row(row - top + i)[column - left..];
        let count = PANEL.min(out.len());
        out[..count].copy_from_slice(&sums[..count]);
    }
    COUNT
}

impl<E: Element> CpuKernel for Kernel<E> {
    fn scratch_bytes(&self) -> usize {
        self.packed().map(PackedInput::scratch_floats).sum::<usize>() * size_of::<f32>()
    }

    fn packings(&self) -> Vec<Packing> {
        self.packed().flat_map(PackedInput::packings).collect()
    }

    fn keep(&mut self, packed: &[Arc<Buffer>]) {
        let all = std::iter::once(&mut self.weights).chain(&mut self.parameters);
        let wanted = all.filter(|input| !input.packings().is_empty());
        wanted.zip(packed).for_each(|(own, given)| own.keep(std::slice::from_ref(given)));
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let mut scratch = elements_mut::<f32>(call.scratch);
        let mut matrices = Vec::with_capacity(3);
        for input in self.packed() {
            let (own, rest) = scratch.split_at_mut(input.scratch_floats());
            matrices.push(input.matrices(call.inputs, own)?);
            scratch = rest;
        }
        let weights = Weights {
            packed: matrices[0].bytes(),
            depth: self.depth,
            block: self.block,
            scales: matrices.get(1).copied(),
            zero_points: matrices.get(2).copied(),
        };
        let (a, c) = (elements(call.inputs[0]), elements_mut(call.outputs[0]));
        let extras = &call.inputs[self.operands..];
        call.team.run_tiles(c, self.grid, &|mut tile| self.compute(&mut tile, a, &weights, extras));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
