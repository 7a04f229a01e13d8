//! Matrix products of 8-bit integers with exact 32-bit sums, by the processors' dot products of four bytes.
//!
//! These instructions multiply unsigned by signed numbers. If both sides are of one kind, packing adds 128 to B, and
//! the sum of A's row times 128 corrects the result.

mod block;
mod columns;
mod conv;
mod depthwise;
mod filters;
mod output;
mod panels;
mod planes;
mod windows;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
mod x86_rounding;

pub(super) use conv::prepare as prepare_conv;

use super::matmul::Batches;
use anabranch_cpu_base::elements::elements_mut;
use anabranch_cpu_base::layout::quads::{PANEL, panel_bytes};
use anabranch_cpu_base::layout::{Layout, PackedInput, PackedMatrices, Packing};
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{IntegerMatMul, NodeSpec};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::Buffer;
use block::{Block, Dots, Panel, ROWS, Row, Starts};
use columns::Columns;
use output::{Form, Output, Parameters};
use std::sync::Arc;

/// Columns of a tile: B's part of them fits half of an L2 cache of 1 MiB up to a depth of 2,700.
const TILE_COLUMNS: usize = 4 * PANEL;

/// Maximum rows of a tile.
const TILE_ROWS: usize = 16 * ROWS;

/// Maximum bytes of A that a thread copies for a tile, unless the rows of one block are more.
const TILE_BYTES: usize = 1 << 20;

/// Maximum depth for which the quads of a panel are listed ahead.
const MOST_LISTED: usize = 1 << 18;

/// Returns the rows of the smallest block that has so many rows, or of the largest block.
fn fitting(rows: usize) -> usize {
    rows.next_power_of_two().min(ROWS)
}

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
    /// Quads of a panel, unless they are listed in each run: many need as much memory as a row of A.
    starts: Option<Starts>,
    form: Form,
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
        node.require(node.inputs[2].shape.elements() == parameters, "each column of B has a summand")?;
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
            starts: (depth <= MOST_LISTED).then(|| Starts::dense(depth.div_ceil(4), PANEL)),
            form: Form::new(node, op.zero_points, op.rounding),
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

    fn compute<T: Output>(
        &self,
        tile: &mut Tile<'_, T>,
        inputs: &[&[u8]],
        weights: PackedMatrices<'_>,
        starts: &Starts,
    ) {
        let (left, right) = self.batches.operands(tile.matrix);
        let a = &inputs[0][left * self.rows * self.depth..][..self.rows * self.depth];
        let parameters = self.form.parameters(inputs).part(right * self.columns, self.columns);
        let matrix = self.columns.div_ceil(PANEL) * panel_bytes(self.depth);
        let b = &weights.bytes()[right * matrix..][..matrix];
        let deep = self.depth.next_multiple_of(4);
        let high = tile.rows.len().next_multiple_of(ROWS);
        let corrected = self.moved != 0 || parameters.zero_points.is_some();
        with_workspace(high * deep / 4, |workspace| {
            let copy: &mut [u8] = bytemuck::cast_slice_mut(workspace);
            let whole = self.depth == deep && high == tile.rows.len();
            let copy = if whole {
                &a[tile.rows.start * deep..][..high * deep]
            } else {
                copy.fill(0);
                for (row, to) in tile.rows.clone().zip(copy.chunks_exact_mut(deep.max(1))) {
                    to[..self.depth].copy_from_slice(&a[row * self.depth..][..self.depth]);
                }
                &*copy
            };
            let mut totals = [0; TILE_ROWS];
            if corrected {
                vectorised(Totals { rows: copy, deep, signed: self.signed, totals: &mut totals });
            }
            let mut block = [Row::ZEROS; ROWS];
            for first in tile.columns.clone().step_by(PANEL) {
                let panel = &b[first / PANEL * panel_bytes(self.depth)..][..panel_bytes(self.depth)];
                let panel = Panel { bytes: panel, starts, width: PANEL };
                let count = PANEL.min(tile.columns.end - first);
                let parameters = parameters.part(first, count);
                let columns = Columns::new(&parameters, self.moved, tile.rows.len());
                for top in (0..tile.rows.len()).step_by(ROWS) {
                    let count = fitting(tile.rows.len() - top);
                    let rows = &copy[top * deep..][..count * deep];
                    self.dots.of(rows, count, panel, self.signed, &mut block);
                    let totals = corrected.then(|| &totals[top..]);
                    let at = [top, first - tile.columns.start];
                    vectorised(Finish { block: &block, parameters, columns: &columns, totals, at, tile });
                }
            }
        });
    }
}

/// Loop that adds up the numbers of rows, modulo 2³² as all sums are.
struct Totals<'a> {
    rows: &'a [u8],
    deep: usize,
    signed: bool,
    totals: &'a mut [i32],
}

impl Loop for Totals<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for (total, row) in self.totals.iter_mut().zip(self.rows.chunks_exact(self.deep.max(1))) {
            *total = match self.signed {
                true => row.iter().fold(0, |sum: i32, x| sum.wrapping_add(i32::from(*x as i8))),
                false => row.iter().fold(0, |sum: i32, x| sum.wrapping_add(i32::from(*x))),
            };
        }
    }
}

/// Loop that corrects and writes a block.
struct Finish<'a, 't, T> {
    block: &'a Block,
    parameters: Parameters<'a>,
    columns: &'a Columns,
    /// Sums of the rows of A, if a correction needs them.
    totals: Option<&'a [i32]>,
    /// First row and column in the tile.
    at: [usize; 2],
    tile: &'a mut Tile<'t, T>,
}

impl<T: Output> Loop for Finish<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { block, parameters, columns, totals, at: [top, left], tile } = self;
        let count = parameters.summands.len();
        for (i, sums) in block.iter().enumerate().take(tile.rows.len() - top) {
            let sums = columns.corrected(sums, totals.map(|totals| totals[i]), count);
            T::write_columns::<I>(&parameters, columns, &sums, &mut tile.row(top + i)[left..][..count]);
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
        let (c, inputs) = (&mut *call.outputs[0], call.inputs);
        let listed = self.starts.is_none().then(|| Starts::dense(self.depth.div_ceil(4), PANEL));
        let Some(starts) = self.starts.as_ref().or(listed.as_ref()) else { return Ok(()) };
        match self.form.is_rounded() {
            true => {
                call.team.run_tiles(c, self.grid, &|mut tile| self.compute::<u8>(&mut tile, inputs, weights, starts))
            }
            false => call.team.run_tiles(elements_mut(c), self.grid, &|mut tile| {
                self.compute::<i32>(&mut tile, inputs, weights, starts);
            }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod conv_tests;
#[cfg(test)]
mod tests;
