//! Matrix products of 8-bit integers with exact 32-bit sums, by the processors' dot products of four bytes.
//!
//! These instructions multiply unsigned by signed numbers. If both sides are of one kind, packing adds 128 to B, and
//! the sum of A's row times 128 corrects the result.

mod block;
mod conv;
mod depthwise;
mod filters;
mod windows;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(super) use conv::prepare as prepare_conv;

use super::matmul::Batches;
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::layout::quads::{PANEL, panel_bytes};
use anabranch_cpu_base::layout::{Layout, PackedInput, PackedMatrices, Packing};
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{IntegerMatMul, NodeSpec};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::Buffer;
use block::{Dots, ROWS};
use std::sync::Arc;

/// Columns of a tile: B's part of them fits half of an L2 cache of 1 MiB up to a depth of 2,700.
const TILE_COLUMNS: usize = 4 * PANEL;

/// Maximum rows of a tile.
const TILE_ROWS: usize = 16 * ROWS;

/// Maximum bytes of A that a thread copies for a tile, unless the rows of one block are more.
const TILE_BYTES: usize = 1 << 20;

/// Returns the rows of a tile of this depth: whole blocks.
fn tile_rows(depth: usize) -> usize {
    (TILE_BYTES / depth.max(1)).clamp(ROWS, TILE_ROWS) / ROWS * ROWS
}

/// Prepares the kernel of a product of integers.
pub(super) fn prepare(
    op: &IntegerMatMul,
    node: &NodeSpec,
    constants: &[bool],
) -> Result<Box<dyn CpuKernel>, KernelError> {
    Ok(Box::new(Kernel::new(Dots::best(), op, node, constants)?))
}

struct Kernel {
    dots: Dots,
    rows: usize,
    columns: usize,
    depth: usize,
    batches: Batches,
    /// Whether A's numbers are signed.
    signed: bool,
    /// Number that packing added to B's numbers.
    moved: i32,
    weights: PackedInput,
    zero_points: bool,
    grid: Grid,
}

impl Kernel {
    fn new(dots: Dots, op: &IntegerMatMul, node: &NodeSpec, constants: &[bool]) -> Result<Self, KernelError> {
        let split = |shape: &Shape| match shape.dims() {
            [batch @ .., rows, columns] => Ok((Shape::new(batch)?, *rows, *columns)),
            _ => Err(node.invalid("required: its operands have at least two dimensions")),
        };
        let (left, mut rows, depth) = split(&node.inputs[0].shape)?;
        let (right, deep, columns) = split(&node.inputs[1].shape)?;
        node.require(deep == depth, "A has as many columns as B has rows")?;
        let mut batches = Batches::new(&left, &right)?;
        let expected = [batches.dims(), &[rows, columns]].concat();
        node.require(node.outputs[0].shape.dims() == expected, "its output is of A's rows and B's columns")?;
        let parameters = right.elements() * columns;
        let fits = node.inputs[2..].iter().all(|of| of.dtype == DType::I32 && of.shape.elements() == parameters);
        node.require(fits, "each column of B has a 32-bit summand and zero point")?;
        let matrices = right.elements();
        if batches.share_right() {
            rows *= batches.count();
            batches = Batches::new(&Shape::scalar(), &Shape::scalar())?;
        }
        let [a, b] = [&node.inputs[0], &node.inputs[1]].map(|of| of.dtype == DType::I8);
        let layout = Layout::quads(matrices, [depth, columns], a == b);
        let moved = if a != b {
            0
        } else if b {
            128
        } else {
            -128
        };
        Ok(Self {
            dots,
            rows,
            columns,
            depth,
            signed: a,
            moved,
            weights: PackedInput::new(1, layout, constants),
            zero_points: op.zero_points,
            grid: Grid {
                batch: batches.count(),
                rows,
                columns,
                tile_rows: tile_rows(depth),
                tile_columns: TILE_COLUMNS,
            },
            batches,
        })
    }

    fn compute(&self, tile: &mut Tile<'_, i32>, inputs: &[&[u8]], weights: PackedMatrices<'_>) {
        let (left, right) = self.batches.operands(tile.matrix);
        let a = &inputs[0][left * self.rows * self.depth..][..self.rows * self.depth];
        let parameter = |input: usize| &elements::<i32>(inputs[input])[right * self.columns..][..self.columns];
        let summands = parameter(2);
        let zero_points = self.zero_points.then(|| parameter(3));
        let matrix = self.columns.div_ceil(PANEL) * panel_bytes(self.depth);
        let b = &weights.bytes()[right * matrix..][..matrix];
        let deep = self.depth.next_multiple_of(4);
        let high = tile.rows.len().next_multiple_of(ROWS);
        with_workspace(high * deep / 4, |workspace| {
            let copy: &mut [u8] = bytemuck::cast_slice_mut(workspace);
            copy.fill(0);
            for (row, to) in tile.rows.clone().zip(copy.chunks_exact_mut(deep.max(1))) {
                to[..self.depth].copy_from_slice(&a[row * self.depth..][..self.depth]);
            }
            let mut totals = [0; TILE_ROWS];
            for (total, row) in totals.iter_mut().zip(copy.chunks_exact(deep.max(1))) {
                *total = self.total(row);
            }
            let columns = tile.columns.clone();
            let mut block = [[0; PANEL]; ROWS];
            for first in columns.clone().step_by(PANEL) {
                let panel = &b[first / PANEL * panel_bytes(self.depth)..][..panel_bytes(self.depth)];
                for top in (0..tile.rows.len()).step_by(ROWS) {
                    let count = if tile.rows.len() - top == 1 { 1 } else { ROWS };
                    let rows = &copy[top * deep..][..count * deep];
                    self.dots.of(rows, panel, [count, PANEL], self.signed, &mut block);
                    for (i, sums) in block.iter().enumerate().take(tile.rows.len() - top) {
                        let total = totals[top + i];
                        let out = &mut tile.row(top + i)[first - columns.start..];
                        for (j, (to, sum)) in out.iter_mut().zip(sums).enumerate() {
                            let zero = zero_points.map_or(0, |zero_points| zero_points[first + j]);
                            let correction = total.wrapping_mul(self.moved.wrapping_add(zero));
                            *to = sum.wrapping_add(summands[first + j]).wrapping_sub(correction);
                        }
                    }
                }
            }
        });
    }

    /// Returns the sum of a row of A, modulo 2³² as all sums are, if a correction needs it.
    fn total(&self, row: &[u8]) -> i32 {
        match (self.zero_points || self.moved != 0, self.signed) {
            (false, _) => 0,
            (true, true) => row.iter().fold(0, |sum: i32, x| sum.wrapping_add(i32::from(*x as i8))),
            (true, false) => row.iter().fold(0, |sum: i32, x| sum.wrapping_add(i32::from(*x))),
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
        let weights = self.weights.matrices(call.inputs, elements_mut(call.scratch))?;
        let c = elements_mut(call.outputs[0]);
        call.team.run_tiles(c, self.grid, &|mut tile| self.compute(&mut tile, call.inputs, weights));
        Ok(())
    }
}

#[cfg(test)]
mod conv_tests;
#[cfg(test)]
mod tests;
