//! Matrix products over batches, with an epilogue.

mod batches;
mod modular;

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::gemm::{self, Left, MicroKernel, Product, Right, View};
use anabranch_cpu_base::layout::{Layout, Packed, Packing};
use anabranch_cpu_base::team::{Grid, Tile};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_cpu_map::ProductEpilogue;
use anabranch_op::error::KernelError;
use anabranch_op::op::{MatMul, NodeSpec};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::Buffer;
pub use batches::Batches;
use std::sync::Arc;

/// Prepares the kernel of a matrix product.
pub(super) fn prepare(op: &MatMul, node: &NodeSpec, constants: &[bool]) -> Result<Box<dyn CpuKernel>, KernelError> {
    if modular::fits(node) {
        return modular::prepare(op, node);
    }
    node.require(node.is_f32(), "its tensors are all f32, all f64, or all integers of one type of 32 or 64 bits")?;
    Ok(Box::new(Kernel::new(MicroKernel::best(), op, node, constants)?))
}

/// Returns a key of the order of all sums, see `summation` of the crate.
pub(super) fn summation(op: &MatMul, node: &NodeSpec, constants: &[bool]) -> Option<Vec<usize>> {
    if modular::fits(node) {
        return Some(Vec::new());
    }
    let kernel = Kernel::new(MicroKernel::best(), op, node, constants).ok()?;
    let Sizes { m, n, k } = kernel.sizes;
    let end = ProductEpilogue::summation(kernel.epilogue.as_ref());
    let products = match (kernel.method, kernel.micro.chains(m)) {
        // Such products have methods of their own for some numbers of rows.
        _ if op.transpose_a || k == 1 => vec![3, m, n],
        (Method::Blocked, Some(chains)) => vec![0, chains],
        (Method::Blocked, None) => vec![1, m],
        (method, _) => vec![2, method as usize],
    };
    Some([products, end].concat())
}

struct Kernel {
    micro: &'static MicroKernel,
    sizes: Sizes,
    transpose_a: bool,
    transpose_b: bool,
    batches: Batches,
    /// Right matrices, if they are constant and read in panels.
    packed: Option<Packed>,
    method: Method,
    grid: Grid,
    /// Products in each of the node's rows.
    row_products: usize,
    epilogue: Option<ProductEpilogue>,
}

/// Sizes of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Rows of A.
    pub m: usize,
    /// Columns of B.
    pub n: usize,
    /// Columns of A and rows of B.
    pub k: usize,
}

/// Method that computes each product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// Blocked product.
    Blocked,
    /// A is one row: Bᵀ times the row.
    RowVector,
    /// B is one column: A times the column.
    ColumnVector,
}

impl Kernel {
    fn new(micro: &'static MicroKernel, op: &MatMul, node: &NodeSpec, constants: &[bool]) -> Result<Self, KernelError> {
        let (mut sizes, mut batches) = sizes(op, node)?;
        let Sizes { m, n, k } = sizes;
        // Products that share B are one product of all their rows.
        if !op.transpose_a && batches.share_right() {
            sizes.m = batches.count() * m;
            batches = Batches::new(&Shape::scalar(), &Shape::scalar())?;
        }
        let constant = constants.get(1) == Some(&true);
        let method = match sizes {
            Sizes { n: 1, .. } => Method::ColumnVector,
            Sizes { m: 1, .. } if !constant => Method::RowVector,
            _ => Method::Blocked,
        };
        let matrices = node.inputs[1].shape.elements().checked_div(k * n).unwrap_or(0);
        let packed = (constant && method == Method::Blocked && matrices > 0)
            .then(|| Packed::new(1, Layout::right(matrices, [k, n], op.transpose_b, micro.columns)));
        let grid = match method {
            Method::Blocked if constant => gemm::grid(micro, batches.count(), sizes.m, n, k),
            Method::Blocked => gemm::given_grid(micro, batches.count(), sizes.m, n, k),
            Method::RowVector => gemm::vector_grid(batches.count(), n, k, 1),
            Method::ColumnVector => gemm::vector_grid(batches.count(), sizes.m, k, 1),
        };
        let MatMul { transpose_a, transpose_b, .. } = *op;
        let epilogue = ProductEpilogue::of(node, [sizes.m, n])?;
        let row_products = batches.count() / node.row_plan().map_or(1, |plan| plan.rows);
        Ok(Self { micro, sizes, transpose_a, transpose_b, batches, packed, method, grid, row_products, epilogue })
    }

    /// Computes a tile of the products at hand, the first of which is number `first` of all products.
    fn compute(&self, first: usize, tile: &mut Tile<'_, f32>, a: &[f32], b: &[f32], extras: &[&[u8]]) {
        let Sizes { m, n, k } = self.sizes;
        // Windowed operands begin with the products at hand; for other operands, the first product does not matter.
        let (left, right) = self.batches.operands(tile.matrix);
        let (_, kept) = self.batches.operands(first + tile.matrix);
        let left = View::new(&a[left * m * k..][..m * k], m, k, self.transpose_a);
        let right = match &self.packed {
            Some(packed) => Right::Packed(packed.panels(kept)),
            None => Right::View(View::new(&b[right * k * n..][..k * n], k, n, self.transpose_b)),
        };
        match (self.method, right) {
            (Method::RowVector, Right::View(right)) => {
                let place = [tile.matrix, 0, tile.columns.start];
                self.vector(tile, right.transposed(), left.from(0, 0), place, extras);
            }
            (Method::ColumnVector, Right::View(right)) => {
                let place = [tile.matrix, tile.columns.start, 0];
                self.vector(tile, left, right.from(0, 0), place, extras);
            }
            _ => {
                let product = Product::new(self.micro, Left::View(left), right);
                let matrix = tile.matrix;
                ProductEpilogue::with(self.epilogue.as_ref(), matrix, extras, |finish| product.compute(tile, finish));
            }
        }
    }

    /// Computes a tile of `matrix · vector`, whose first element is at `place` in C.
    fn vector(&self, tile: &mut Tile<'_, f32>, matrix: View<'_>, vector: &[f32], place: [usize; 3], extras: &[&[u8]]) {
        let first = tile.columns.start;
        gemm::matrix_vector(matrix, &vector[..self.sizes.k], first, tile.row(0));
        if let Some(epilogue) = &self.epilogue {
            epilogue.apply(place, tile.row(0), extras);
        }
    }
}

impl CpuKernel for Kernel {
    fn packings(&self) -> Vec<Packing> {
        self.packed.iter().map(|packed| packed.packing.clone()).collect()
    }

    fn keep(&mut self, packed: &[Arc<Buffer>]) {
        self.packed.iter_mut().zip(packed).for_each(|(own, given)| own.keep(given));
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        self.packed.as_ref().map_or(Ok(()), Packed::check)?;
        let (a, b) = (elements(call.inputs[0]), elements(call.inputs[1]));
        let c = elements_mut(call.outputs[0]);
        let first = call.rows.start * self.row_products;
        let batch = c.len().checked_div(self.grid.rows * self.grid.columns).unwrap_or(0);
        let mut grid = Grid { batch, ..self.grid };
        let (k, threads) = (self.sizes.k, call.team.threads());
        if self.method != Method::Blocked {
            grid = gemm::vector_grid(batch, grid.columns, k, threads);
        } else if self.packed.is_some() {
            grid = gemm::shared(self.micro, k, grid, self.micro.block_height(self.sizes.m), threads);
        }
        call.team.run_tiles(c, grid, &|mut tile| self.compute(first, &mut tile, a, b, &call.inputs[2..]));
        Ok(())
    }
}

/// Returns the sizes of each product and the batches, if the node fits the op's definition.
pub fn sizes(op: &MatMul, node: &NodeSpec) -> Result<(Sizes, Batches), KernelError> {
    let split = |shape: &Shape| -> Result<(Shape, usize, usize), KernelError> {
        match shape.dims() {
            [batch @ .., rows, columns] => Ok((Shape::new(batch)?, *rows, *columns)),
            _ => Err(node.invalid("required: its operands have at least two dimensions")),
        }
    };
    let exchanged =
        |(batch, rows, columns), exchange: bool| if exchange { (batch, columns, rows) } else { (batch, rows, columns) };
    let (left, m, k) = exchanged(split(&node.inputs[0].shape)?, op.transpose_a);
    let (right, depth, n) = exchanged(split(&node.inputs[1].shape)?, op.transpose_b);
    node.require(k == depth, "A has as many columns as B has rows")?;
    let batches = Batches::new(&left, &right)?;
    let expected = [batches.dims(), &[m, n]].concat();
    let fits = node.outputs[0].shape.dims() == expected;
    node.require(fits, "its output is of the batch and A's rows and B's columns")?;
    Ok((Sizes { m, n, k }, batches))
}

#[cfg(test)]
mod tests;
