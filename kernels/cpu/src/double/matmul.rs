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
    fn run<I: Isa>(self) {
        // As many sums as fit the registers. Their sizes change no result.
        if I::WIDE { self.by_panels::<I, 8, 16>() } else { self.by_panels::<I, 4, 8>() }
    }
}

impl Product<'_, '_> {
    /// Multiplies `HIGH` rows at once with a panel of `WIDE` columns.
    #[inline(always)]
    fn by_panels<I: Isa, const HIGH: usize, const WIDE: usize>(mut self) {
        let mut panel = [[0.0; WIDE]; DEPTH];
        let (width, height) = (self.tile.columns.len(), self.tile.rows.len());
        for column in (0..width).step_by(WIDE) {
            let wide = WIDE.min(width - column);
            for start in (0..self.depth).step_by(DEPTH) {
                let panel = &mut panel[..DEPTH.min(self.depth - start)];
                self.copy_panel(start, self.tile.columns.start + column, wide, panel);
                for row in (0..height).step_by(HIGH) {
                    let sums: [[f64; WIDE]; HIGH] =
                        self.sums::<I, HIGH, WIDE>(self.tile.rows.start + row, start, panel);
                    for (row, sums) in (row..height.min(row + HIGH)).zip(&sums) {
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

    /// Copies `wide` columns of the right matrix, from this row and column on.
    #[inline(always)]
    fn copy_panel<const WIDE: usize>(&self, row: usize, column: usize, wide: usize, panel: &mut [[f64; WIDE]]) {
        let Matrix { elements, strides: [down, along] } = self.right;
        for (row, line) in (row..).zip(panel) {
            let from = &elements[row * down + column * along..];
            match from.first_chunk() {
                Some(from) if along == 1 && wide == WIDE => *line = *from,
                _ => {
                    *line = [0.0; WIDE];
                    line[..wide].iter_mut().zip(from.iter().step_by(along)).for_each(|(to, x)| *to = *x);
                }
            }
        }
    }

    /// Returns the products of rows of the left matrix from `row` on with the panel, whose first row is `start`. Rows
    /// beyond the last one repeat it.
    #[inline(always)]
    fn sums<I: Isa, const HIGH: usize, const WIDE: usize>(
        &self,
        row: usize,
        start: usize,
        panel: &[[f64; WIDE]],
    ) -> [[f64; WIDE]; HIGH] {
        let Matrix { elements, strides: [down, along] } = self.left;
        let last = self.tile.rows.end - 1;
        // Slices of one length need one check of an index for all rows.
        let length = (panel.len() - 1) * along + 1;
        let rows: [&[f64]; HIGH] =
            std::array::from_fn(|place| &elements[last.min(row + place) * down + start * along..][..length]);
        let mut sums = [[0.0; WIDE]; HIGH];
        for (term, line) in panel.iter().enumerate() {
            for i in 0..HIGH {
                let x = rows[i][term * along];
                for j in 0..WIDE {
                    sums[i][j] = I::fused_f64(x, line[j], sums[i][j]);
                }
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
