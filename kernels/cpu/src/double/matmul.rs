//! Matrix products of 64-bit floats: a few rows of A times a panel of B's columns at a time. The panel is copied so
//! that its rows lie together.
//!
//! The sum over each [`DEPTH`] terms is computed separately, and these sums are added in order.

use super::with_numbers;
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::team::{Grid, Tile};
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_cpu_product::{Batches, Sizes, sizes};
use anabranch_op::error::KernelError;
use anabranch_op::op::{MatMul, NodeSpec};

/// Maximum rows of a panel.
const DEPTH: usize = 256;

/// Rows and columns of a tile.
const TILE: [usize; 2] = [64, 256];

/// Columns of the widest panel.
const PANEL: usize = 16;

/// Terms that are copied at once from each row of a transposed matrix.
const TERMS: usize = 8;

/// Kernel of products of matrices of one size.
struct Kernel {
    sizes: Sizes,
    op: MatMul,
    batches: Batches,
}

/// Prepares a matrix product.
pub(super) fn prepare(node: &NodeSpec, op: &MatMul) -> Result<Box<dyn CpuKernel>, KernelError> {
    let (sizes, batches) = sizes(op, node)?;
    Ok(Box::new(Kernel { sizes, op: op.clone(), batches }))
}

/// Matrix with the strides of its rows and columns in elements.
#[derive(Clone, Copy)]
struct Matrix<'a> {
    elements: &'a [f64],
    strides: [usize; 2],
}

impl<'a> Matrix<'a> {
    /// Returns matrix `number` of a stack of `rows × columns` matrices, stored `transposed` or not.
    fn of(stack: &'a [f64], number: usize, [rows, columns]: [usize; 2], transposed: bool) -> Self {
        let strides = if transposed { [1, rows] } else { [columns, 1] };
        Self { elements: &stack[number * rows * columns..][..rows * columns], strides }
    }
}

/// Loop for one tile of a product over `depth` terms.
struct Product<'a, 't> {
    left: Matrix<'a>,
    right: Matrix<'a>,
    depth: usize,
    /// Memory for a panel, and for rows of the left matrix if their elements lie apart.
    memory: &'a mut [f64],
    tile: Tile<'t, f64>,
}

impl Loop for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        let rows = self.tile.rows.clone();
        let (panel, copy) = std::mem::take(&mut self.memory).split_at_mut(PANEL * DEPTH.min(self.depth));
        for start in (0..self.depth).step_by(DEPTH) {
            let depth = DEPTH.min(self.depth - start);
            let Matrix { elements, strides: [down, along] } = self.left;
            if along == 1 {
                let lines = Lines { elements: &elements[rows.start * down + start..], pitch: down, depth };
                self.chunk::<I>(start, lines, panel);
                continue;
            }
            // A few terms of all rows at a time: they are read from as many cache lines.
            for first in (0..depth).step_by(TERMS) {
                for (place, line) in copy.chunks_exact_mut(depth).take(rows.len()).enumerate() {
                    let from = &elements[(rows.start + place) * down + (start + first) * along..];
                    let line = &mut line[first..depth.min(first + TERMS)];
                    line.iter_mut().zip(from.iter().step_by(along)).for_each(|(to, x)| *to = *x);
                }
            }
            self.chunk::<I>(start, Lines { elements: copy, pitch: depth, depth }, panel);
        }
    }
}

/// Rows of the left matrix, cut to the terms at hand.
#[derive(Clone, Copy)]
struct Lines<'a> {
    elements: &'a [f64],
    /// Distance of two rows in elements.
    pitch: usize,
    depth: usize,
}

impl<'a> Lines<'a> {
    /// Returns a row.
    #[inline(always)]
    fn row(self, row: usize) -> &'a [f64] {
        &self.elements[row * self.pitch..][..self.depth]
    }
}

impl Product<'_, '_> {
    /// Adds the terms from `start` on, as many as the rows of the left matrix are long. `memory` is for a panel.
    #[inline(always)]
    fn chunk<I: Isa>(&mut self, start: usize, left: Lines<'_>, memory: &mut [f64]) {
        let width = self.tile.columns.len();
        let mut column = 0;
        while column < width {
            // As many sums as fit the registers, or half of them. Their sizes change no result.
            column += match (I::WIDE, width - column) {
                (true, 9..) => self.by_panel::<I, 8, 16>([start, column], left, memory),
                (true, _) => self.by_panel::<I, 8, 8>([start, column], left, memory),
                (false, 5..) => self.by_panel::<I, 4, 8>([start, column], left, memory),
                (false, _) => self.by_panel::<I, 4, 4>([start, column], left, memory),
            };
        }
    }

    /// Multiplies `HIGH` rows at once with a panel of `WIDE` columns from a column of the tile on, and returns `WIDE`.
    #[inline(always)]
    fn by_panel<I: Isa, const HIGH: usize, const WIDE: usize>(
        &mut self,
        [start, column]: [usize; 2],
        left: Lines<'_>,
        memory: &mut [f64],
    ) -> usize {
        let panel = &mut memory.as_chunks_mut().0[..left.depth];
        let height = self.tile.rows.len();
        self.copy_panel::<WIDE>(start, column, panel);
        let mut row = 0;
        while row < height {
            row += match height - row {
                rest if rest >= HIGH => self.block::<I, HIGH, WIDE>([row, column], start, left, panel),
                4.. => self.block::<I, 4, WIDE>([row, column], start, left, panel),
                2.. => self.block::<I, 2, WIDE>([row, column], start, left, panel),
                _ => self.block::<I, 1, WIDE>([row, column], start, left, panel),
            };
        }
        WIDE
    }

    /// Copies columns of the right matrix from a column of the tile on, and zeros after the last.
    #[inline(always)]
    fn copy_panel<const WIDE: usize>(&self, row: usize, column: usize, panel: &mut [[f64; WIDE]]) {
        let Matrix { elements, strides: [down, along] } = self.right;
        let wide = WIDE.min(self.tile.columns.len() - column);
        let first = (self.tile.columns.start + column) * along;
        for (row, line) in (row..).zip(panel) {
            let from = &elements[row * down + first..];
            match from.first_chunk() {
                Some(from) if along == 1 && wide == WIDE => *line = *from,
                _ => {
                    *line = [0.0; WIDE];
                    line[..wide].iter_mut().zip(from.iter().step_by(along)).for_each(|(to, x)| *to = *x);
                }
            }
        }
    }

    /// Adds the products of `HIGH` rows with the panel to the tile, and returns `HIGH`.
    #[inline(always)]
    fn block<I: Isa, const HIGH: usize, const WIDE: usize>(
        &mut self,
        [top, column]: [usize; 2],
        start: usize,
        left: Lines<'_>,
        panel: &[[f64; WIDE]],
    ) -> usize {
        let mut rows = [&[][..]; HIGH];
        for i in 0..HIGH {
            // All are as long as the panel: the loop below then checks no index.
            rows[i] = &left.row(top + i)[..panel.len()];
        }
        let mut sums = [[0.0; WIDE]; HIGH];
        for term in 0..panel.len() {
            // The loop over columns is outermost: the compiler then keeps the sums in registers.
            for j in 0..WIDE {
                for i in 0..HIGH {
                    sums[i][j] = I::fused_f64(rows[i][term], panel[term][j], sums[i][j]);
                }
            }
        }
        for i in 0..HIGH {
            let out = &mut self.tile.row(top + i)[column..];
            match (out.first_chunk_mut(), start) {
                (Some(out), 0) => *out = sums[i],
                (Some(out), _) => {
                    for j in 0..WIDE {
                        out[j] += sums[i][j];
                    }
                }
                (None, 0) => out.iter_mut().zip(&sums[i]).for_each(|(out, sum)| *out = *sum),
                (None, _) => out.iter_mut().zip(&sums[i]).for_each(|(out, sum)| *out += sum),
            }
        }
        HIGH
    }
}

impl CpuKernel for Kernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (a, b): (&[f64], &[f64]) = (elements(call.inputs[0]), elements(call.inputs[1]));
        let c: &mut [f64] = elements_mut(call.outputs[0]);
        let Sizes { m, n, k } = self.sizes;
        if k == 0 {
            c.fill(0.0);
        }
        if k == 0 || c.is_empty() {
            return Ok(());
        }
        let grid = Grid { batch: c.len() / (m * n), rows: m, columns: n, tile_rows: TILE[0], tile_columns: TILE[1] };
        call.team.run_tiles(c, grid, &|tile| {
            // Windowed operands begin with the products at hand; for other operands, the first product does not matter.
            let (left, right) = self.batches.operands(tile.matrix);
            let left = Matrix::of(a, left, [m, k], self.op.transpose_a);
            let right = Matrix::of(b, right, [k, n], self.op.transpose_b);
            let rows = if left.strides[1] == 1 { 0 } else { tile.rows.len() };
            with_numbers((PANEL + rows) * DEPTH.min(k), |memory| {
                vectorised(Product { left, right, depth: k, memory, tile });
            });
        });
        Ok(())
    }
}
