//! Matrix products of 64-bit floats: a few rows of A times a panel of B's columns at a time. The panel is copied so
//! that its rows lie together.
//!
//! The sum over each [`DEPTH`] terms is computed separately, and these sums are added in order.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::team::{Grid, Tile};
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_cpu_product::{Batches, Sizes, sizes};
use anabranch_op::error::KernelError;
use anabranch_op::op::{MatMul, NodeSpec};

/// Columns of a panel.
const WIDE: usize = 8;

/// Rows that are multiplied with a panel at once.
const HIGH: usize = 4;

/// Maximum rows of a panel.
const DEPTH: usize = 256;

/// Rows and columns of a tile.
const TILE: [usize; 2] = [64, 256];

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

    #[inline(always)]
    fn at(&self, row: usize, column: usize) -> f64 {
        self.elements[row * self.strides[0] + column * self.strides[1]]
    }
}

/// Loop for one tile of a product over `depth` terms.
struct Product<'a, 't> {
    left: Matrix<'a>,
    right: Matrix<'a>,
    depth: usize,
    tile: Tile<'t, f64>,
}

impl Loop for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        let mut panel = [[0.0; WIDE]; DEPTH];
        let (width, height) = (self.tile.columns.len(), self.tile.rows.len());
        for column in (0..width).step_by(WIDE) {
            let wide = WIDE.min(width - column);
            for start in (0..self.depth).step_by(DEPTH) {
                let panel = &mut panel[..DEPTH.min(self.depth - start)];
                self.copy_panel(start, self.tile.columns.start + column, wide, panel);
                for row in (0..height).step_by(HIGH) {
                    let sums = self.sums::<I>(self.tile.rows.start + row, start, panel);
                    for (row, sums) in (row..height.min(row + HIGH)).zip(sums) {
                        let out = &mut self.tile.row(row)[column..column + wide];
                        match start {
                            0 => out.copy_from_slice(&sums[..wide]),
                            _ => out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum),
                        }
                    }
                }
            }
        }
    }
}

impl Product<'_, '_> {
    /// Copies `wide` columns of the right matrix, from this row and column on.
    #[inline(always)]
    fn copy_panel(&self, row: usize, column: usize, wide: usize, panel: &mut [[f64; WIDE]]) {
        for (row, line) in (row..).zip(panel) {
            *line = [0.0; WIDE];
            (column..).zip(&mut line[..wide]).for_each(|(column, to)| *to = self.right.at(row, column));
        }
    }

    /// Returns the products of rows of the left matrix from `row` on with the panel, whose first row is `start`. Rows
    /// beyond the last one repeat it.
    #[inline(always)]
    fn sums<I: Isa>(&self, row: usize, start: usize, panel: &[[f64; WIDE]]) -> [[f64; WIDE]; HIGH] {
        let last = self.tile.rows.end - 1;
        let rows: [usize; HIGH] = std::array::from_fn(|place| last.min(row + place));
        let mut sums = [[0.0; WIDE]; HIGH];
        for (term, line) in (start..).zip(panel) {
            for (sums, row) in sums.iter_mut().zip(rows) {
                let x = self.left.at(row, term);
                sums.iter_mut().zip(line).for_each(|(sum, y)| *sum = I::fused_f64(x, *y, *sum));
            }
        }
        sums
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
            vectorised(Product { left, right, depth: k, tile });
        });
        Ok(())
    }
}
