//! Matrix products with weights of 2 to 16 bits, which stay narrow in memory and are widened in registers.
//!
//! A product of one row is limited by memory: its time is in proportion to the size of the weights. A product of a few
//! rows multiplies each widened vector by up to [`ROWS`] of them (`panel`). For many rows, a piece of the weights is
//! widened into a cache (`widened`). If the op allows it, A is rounded to 8-bit integers, and nothing is widened
//! (`quantized`).

mod element;
mod panel;
mod quantized;
mod widened;

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::gemm::even_cut;
use anabranch_cpu_base::layout::narrow::PANEL;
use anabranch_cpu_base::layout::{Layout, PackedInput, PackedMatrices, Packing};
use anabranch_cpu_base::team::{Grid, Tile};
use anabranch_cpu_base::vector::{LANES, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_cpu_map::ProductEpilogue;
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NarrowFormat, NarrowMatMul, NodeSpec};
use anabranch_op::tensor::Buffer;
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
        (NarrowFormat::Grid { bits: 4, .. }, _) if op.quantize_a => Box::new(quantized::Kernel::new(kernel.of())),
        (NarrowFormat::Grid { bits: 4, .. }, _) => Box::new(kernel.of::<Bits<4>>()),
        (NarrowFormat::Grid { .. }, _) => Box::new(kernel.of::<Bits<8>>()),
        (NarrowFormat::Float, DType::F16) => Box::new(kernel.of::<Half>()),
        (NarrowFormat::Float, _) => Box::new(kernel.of::<UpperHalf>()),
    })
}

/// Rows that are multiplied by a widened vector before the next vector is widened.
const ROWS: usize = 4;

/// Maximum rows of a tile, of few and of many tiles: they stay in the core's own caches while the weights of a panel
/// are read. More rows widen the weights less often.
const TILE_ROWS: [usize; 2] = [64, 128];

/// Tiles of the most rows from which on they are taken: threads in this number still have one each.
const MANY_TILES: usize = 64;

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

/// Returns the rows of a tile.
fn tile_rows(rows: usize, columns: usize) -> usize {
    let [few, most] = TILE_ROWS;
    let is_many = rows / most * (columns / PANEL) >= MANY_TILES;
    even_cut(rows, if is_many { most } else { few }, ROWS)
}

/// Returns the tiles of the product: whole panels.
fn grid([rows, columns, depth]: [usize; 3]) -> Grid {
    let tile_rows = tile_rows(rows, columns);
    let panels = TILE_WORK / (depth.max(1).saturating_mul(tile_rows * PANEL));
    Grid { batch: 1, rows, columns, tile_rows, tile_columns: panels.max(1) * PANEL }
}

/// Returns a key of the order of all sums, see `summation` of the crate: tiles of many rows widen their weights. An
/// epilogue follows, element by element.
pub(super) fn summation(node: &NodeSpec) -> Option<Vec<usize>> {
    let [rows, columns] = *node.outputs[0].shape.dims() else { return None };
    let tile_rows = tile_rows(rows, columns);
    let last = rows - rows.saturating_sub(1) / tile_rows * tile_rows;
    Some(match [tile_rows.min(rows), last].map(widened::is_for) {
        [first, last] if first == last => vec![usize::from(first)],
        _ => vec![2, rows],
    })
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
        let layout = match op.quantize_a {
            true => Layout::narrow([quantized::groups(depth), columns], quantized::GROUP_BITS, stride),
            false => Layout::narrow([depth, columns], op.bits(), stride),
        };
        let parameter =
            |input| PackedInput::new(input, Layout::right(1, [depth.div_ceil(block), columns], true, PANEL), constants);
        Ok(Self {
            rows,
            columns,
            depth,
            block,
            weights: PackedInput::new(1, layout, constants),
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

/// Rows that are multiplied by panels.
trait Rows: Sync {
    /// Computes a whole tile, if that is faster than panel by panel of few rows. Returns whether it did.
    fn whole(&self, _tile: &mut Tile<'_, f32>) -> bool {
        false
    }

    /// Returns the products of the rows from `row` on with the panel of a column.
    fn times<const COUNT: usize>(&self, row: usize, column: usize) -> [[f32; PANEL]; COUNT];
}

/// Rows in `f32`, for which weights are widened.
struct Floats<'a, E> {
    a: &'a [f32],
    weights: Weights<'a>,
    element: PhantomData<E>,
}

impl<E: Element> Rows for Floats<'_, E> {
    fn whole(&self, tile: &mut Tile<'_, f32>) -> bool {
        widened::multiply::<E>(tile, self.a, &self.weights)
    }

    fn times<const COUNT: usize>(&self, row: usize, column: usize) -> [[f32; PANEL]; COUNT] {
        self.weights.times::<E, COUNT>(&self.a[row * self.weights.depth..], column)
    }
}

impl<E: Element> Kernel<E> {
    fn compute(&self, tile: &mut Tile<'_, f32>, rows: &impl Rows, extras: &[&[u8]]) {
        let columns = if rows.whole(tile) { 0..0 } else { tile.columns.clone() };
        for first in columns.step_by(PANEL) {
            let mut row = tile.rows.start;
            while row < tile.rows.end {
                row += match tile.rows.end - row {
                    1 => together::<1>(tile, [row, first], rows),
                    2 => together::<2>(tile, [row, first], rows),
                    3 => together::<3>(tile, [row, first], rows),
                    _ => together::<ROWS>(tile, [row, first], rows),
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

    /// Returns the weights of a call, which are packed into `scratch` unless they are constant.
    ///
    /// # Errors
    /// If the kernel has not received a constant.
    fn weights<'a>(&'a self, inputs: &[&[u8]], mut scratch: &'a mut [f32]) -> Result<Weights<'a>, KernelError> {
        let mut matrices = [None; 3];
        for (input, matrix) in self.packed().zip(&mut matrices) {
            let (own, rest) = scratch.split_at_mut(input.scratch_floats());
            *matrix = Some(input.matrices(inputs, own)?);
            scratch = rest;
        }
        let [packed, scales, zero_points] = matrices;
        let packed = packed.map_or(&[][..], |packed| packed.bytes());
        Ok(Weights { packed, depth: self.depth, block: self.block, scales, zero_points })
    }

    /// Computes all tiles.
    fn multiply(&self, call: Call<'_>, rows: &impl Rows) {
        let extras = &call.inputs[self.operands..];
        let c = elements_mut(call.outputs[0]);
        call.team.run_tiles(c, self.grid, &|mut tile| self.compute(&mut tile, rows, extras));
    }
}

/// Computes some rows of a tile's panel, the first of which is at `place`, and returns their number.
fn together<const COUNT: usize>(tile: &mut Tile<'_, f32>, [row, column]: [usize; 2], rows: &impl Rows) -> usize {
    let sums = rows.times::<COUNT>(row, column);
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
        let Call { inputs, outputs, rows, scratch, team } = call;
        let weights = self.weights(inputs, elements_mut(scratch))?;
        let a = Floats::<E> { a: elements(inputs[0]), weights, element: PhantomData };
        self.multiply(Call { inputs, outputs, rows, scratch: &mut [], team }, &a);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
