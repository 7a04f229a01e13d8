//! Matrix products over batches, with an epilogue: tiled, along lanes if one side is a vector, or by words if few rows
//! meet narrow weights.

use super::epilogue::{Coordinate, Epilogue};
use super::half::{Half, Operand};
use super::kernel::Recorder;
use super::lanes::{Lanes, tree};
use super::narrow::Narrow;
use super::product::{Extent, Parts, Run, element};
use super::space::{Space, split};
use super::tile::{Access, Order, Tile};
use super::words::Words;
use super::{Recipe, Shader};
use anabranch_op::error::KernelError;
use anabranch_op::op::{MatMul, NarrowMatMul, NodeSpec};
use anabranch_op::shape::Shape;

pub(super) fn recipe<'n>(node: &'n NodeSpec, op: &MatMul) -> Result<Recipe<'n>, KernelError> {
    of(node, of_floats(node, op)?)
}

fn of_floats(node: &NodeSpec, op: &MatMul) -> Result<Product, KernelError> {
    let shapes = [&node.inputs[0].shape, &node.inputs[1].shape];
    let product = Product::new(node, [op.transpose_a, op.transpose_b], shapes)?;
    let operand = |input: usize, lines: usize, strides: [usize; 2]| {
        let matrices = shapes[input].elements() / (lines * product.k).max(1);
        Operand { matrices, lines, strides }
    };
    let operands = [operand(0, product.m, product.a), operand(1, product.n, product.b)];
    let half = Half::new(op.precision, product.whole(), product.k, operands);
    Ok(Product { half, ..product })
}

/// Returns the recipe of a product with narrow weights.
pub(super) fn narrow<'n>(node: &'n NodeSpec, op: &NarrowMatMul) -> Result<Recipe<'n>, KernelError> {
    of(node, narrow_product(node, op)?)
}

fn narrow_product(node: &NodeSpec, op: &NarrowMatMul) -> Result<Product, KernelError> {
    let narrow = Narrow::new(node, op)?;
    let [depth, columns] = [node.inputs[0].shape.dims()[1], node.outputs[0].shape.dims()[1]];
    let weights = Shape::new(if op.transpose_b { [columns, depth] } else { [depth, columns] })?;
    let mut product = Product::new(node, [false, op.transpose_b], [&node.inputs[0].shape, &weights])?;
    if op.transpose_b {
        product.b[0] = narrow.line;
    }
    Ok(Product { narrow: Some(narrow), words: Words::new(node, op), ..product })
}

/// Returns a key of the order of all sums, see [`super::summation`].
pub(super) fn summation(node: &NodeSpec, op: &MatMul) -> Option<Vec<usize>> {
    Some(of_floats(node, op).ok()?.summation())
}

/// Returns the key of a product with narrow weights.
pub(super) fn narrow_summation(node: &NodeSpec, op: &NarrowMatMul) -> Option<Vec<usize>> {
    Some(narrow_product(node, op).ok()?.summation())
}

fn of<'n>(node: &'n NodeSpec, product: Product) -> Result<Recipe<'n>, KernelError> {
    let (parts, whole) = (product.parts(), product.whole());
    let passes = match (&product.words, &product.half) {
        (Some(words), _) => words.passes(),
        (_, Some(half)) => half.passes(),
        _ if product.is_vector() => product.lanes().passes(parts.depth()),
        _ => product.tile().passes(parts.depth()),
    };
    let scratch_bytes = product.half.as_ref().map_or_else(|| parts.scratch_bytes(whole), Half::scratch_bytes);
    let needs_matrices = product.half.is_some();
    let recipe = Recipe::new(node, move |recorder| product.record(recorder));
    Ok(Recipe { passes, scratch_bytes, needs_matrices, ..recipe })
}

struct Product {
    /// Batch dimensions; operands 0 and 1 are A and B.
    batch: Space,
    m: usize,
    n: usize,
    k: usize,
    /// Strides of A along rows and depth.
    a: [usize; 2],
    /// Strides of B along columns and depth.
    b: [usize; 2],
    /// Rows of the node, each one batch or more.
    rows: usize,
    epilogue: Epilogue,
    narrow: Option<Narrow>,
    words: Option<Words>,
    half: Option<Half>,
}

impl Product {
    fn new(node: &NodeSpec, [transpose_a, transpose_b]: [bool; 2], [a, b]: [&Shape; 2]) -> Result<Self, KernelError> {
        let output = &node.outputs[0];
        let (Some((a_batch, m, a_depth)), Some((b_batch, b_depth, n))) =
            (matrix(a, transpose_a), matrix(b, transpose_b))
        else {
            return Err(node.invalid("matrices are expected"));
        };
        let batch = a_batch.broadcast(&b_batch)?;
        let fits = a_depth == b_depth && output.shape.dims() == [batch.dims(), &[m, n]].concat();
        node.require(fits, "the sizes of the matrices match")?;
        let k = a_depth;
        let strides = |shape: &Shape, area: usize| -> Result<Vec<isize>, KernelError> {
            Ok(shape.broadcast_strides(&batch)?.into_iter().map(|stride| (stride * area) as isize).collect())
        };
        let (a_strides, b_strides) = (strides(&a_batch, m * k)?, strides(&b_batch, k * n)?);
        let a = if transpose_a { [1, m] } else { [k, 1] };
        let b = if transpose_b { [k, 1] } else { [1, n] };
        let dims = batch.dims();
        if let Some(rows) = rows_of_all_batches(dims, &a_strides, &b_strides, m, a[0]) {
            let epilogue = Epilogue::new(node, &coordinates(0, dims.len() + 2))?;
            let batch = Space { dims: vec![], strides: vec![vec![], vec![]] };
            return Ok(Self { batch, m: rows, n, k, a, b, rows: 1, epilogue, narrow: None, words: None, half: None });
        }
        let epilogue = Epilogue::new(node, &coordinates(dims.len(), dims.len() + 2))?;
        let rows = node.row_plan().map_or(1, |plan| plan.rows);
        let batch = Space::collapsed(dims, &[a_strides, b_strides]);
        Ok(Self { batch, m, n, k, a, b, rows, epilogue, narrow: None, words: None, half: None })
    }

    fn summation(&self) -> Vec<usize> {
        if let Some(words) = &self.words {
            return words.summation();
        }
        if let Some(half) = &self.half {
            return half.summation();
        }
        let lanes = if self.is_vector() { self.lanes().width() } else { 0 };
        [&[lanes][..], &self.parts().summation()].concat()
    }

    fn is_vector(&self) -> bool {
        self.m == 1 || self.n == 1
    }

    /// Returns how threads share one product of a vector.
    fn lanes(&self) -> Lanes {
        // If B is a vector, the matrix is A. Its lines lie side by side if its depth does not run through memory.
        let matrix = if self.n == 1 { self.a } else { self.b };
        Lanes::new(self.k, matrix[1] != 1)
    }

    fn tile(&self) -> Tile {
        Tile::new(self.whole(), self.k)
    }

    fn parts(&self) -> Parts {
        match self.is_vector() {
            _ if self.words.is_some() => Parts::new(self.k, self.k, 1, 1),
            true => {
                let lanes = self.lanes();
                let groups = lanes.groups(self.whole().outputs());
                Parts::new(self.k, lanes.width() * LEAST_PASSES, groups, VECTOR_GROUPS)
            }
            false => self.tile().parts(self.whole(), self.k),
        }
    }

    fn batches(&self) -> usize {
        self.batch.dims.iter().product()
    }

    /// Returns all outputs.
    fn whole(&self) -> Extent {
        Extent { first: 0, batches: self.batches(), m: self.m, n: self.n }
    }

    /// Returns the outputs at hand.
    fn extent(&self, recorder: &Recorder<'_>) -> Extent {
        let (rows, row) = (recorder.rows(self.rows), self.batches() / self.rows);
        Extent { first: rows.start * row, batches: rows.len() * row, ..self.whole() }
    }

    /// Whether the product is computed in tiles.
    fn is_tiled(&self) -> bool {
        self.words.is_none() && !self.is_vector()
    }

    /// Returns the access to A and B of a product in tiles.
    fn accesses(&self) -> [Access; 2] {
        let access = |lines: usize, [line, depth]: [usize; 2], is_plain: bool| {
            let (order, contiguous, stride) =
                if depth == 1 { (Order::Depth, self.k, line) } else { (Order::Side, lines, depth) };
            // The matrices of a batch follow each other without gaps, so that each begins at a multiple of four, too.
            let vectors = is_plain && contiguous.is_multiple_of(4) && stride.is_multiple_of(4);
            Access::Dense { order, vectors }
        };
        [access(self.m, self.a, true), access(self.n, self.b, self.narrow.is_none())]
    }

    fn record_half(&self, recorder: &mut Recorder<'_>, half: &Half) -> Result<(), KernelError> {
        let extent = self.extent(recorder);
        // As many matrices as products are not broadcast: each belongs to the product of its number.
        let rounded = [0, 1].map(|operand| match half.matrices(operand) == self.batches() {
            true => extent.first..extent.first + extent.batches,
            false => 0..half.matrices(operand),
        });
        half.record(
            recorder,
            extent,
            rounded,
            &|shader| self.declare_batches(shader, ["a_batch", "b_batch"]),
            &|recorder, shader| self.declare_store(recorder, shader, false),
        )
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        if let Some(half) = &self.half {
            return self.record_half(recorder, half);
        }
        let extent = self.extent(recorder);
        let vectors = self.is_tiled() && self.n.is_multiple_of(4);
        let name = match self.words {
            Some(_) => "narrow_matvec",
            None if self.is_vector() => "matvec",
            None => "matmul",
        };
        self.parts().record(
            recorder,
            &Run {
                name,
                extent,
                vectors,
                operands: &|recorder, shader| self.declare_operands(recorder, shader),
                store: &|recorder, shader, vectors| self.declare_store(recorder, shader, vectors),
                body: &|shader| match &self.words {
                    Some(words) => words.body(shader),
                    None if self.is_vector() => self.declare_vector(shader, extent),
                    None => {
                        shader.code(include_str!("matmul.wgsl"));
                        self.tile().declare(shader, extent, self.k, self.accesses(), vectors)
                    }
                },
            },
        )
    }

    /// Declares `store`, which finishes outputs and writes them.
    fn declare_store<'t, 'a: 't>(
        &self,
        recorder: &Recorder<'a>,
        shader: &mut Shader<'t>,
        vectors: bool,
    ) -> Result<(), KernelError> {
        shader.write("y", element(vectors), recorder.output(0)?);
        self.epilogue.declare(shader, recorder)?;
        shader.code(if vectors { STORE_VECTOR } else { STORE });
        Ok(())
    }

    fn declare_operands<'t, 'a: 't>(
        &self,
        recorder: &Recorder<'a>,
        shader: &mut Shader<'t>,
    ) -> Result<(), KernelError> {
        if let Some(words) = &self.words {
            return words.declare(recorder, shader);
        }
        if self.has_vectors() {
            return self.declare_vectors(recorder, shader);
        }
        shader.parameter("a_row", self.a[0]).parameter("a_depth", self.a[1]);
        shader.parameter("b_column", self.b[0]).parameter("b_depth", self.b[1]);
        let vectors = if self.is_tiled() { self.accesses().map(Access::is_in_vectors) } else { [false; 2] };
        let [a, b] = vectors.map(element);
        shader.read("a", a, recorder.input(0)?);
        match &self.narrow {
            Some(narrow) => narrow.declare(recorder, shader)?,
            None => _ = shader.read("b", b, recorder.input(1)?),
        }
        if self.narrow.is_none() && !vectors[1] {
            shader.code(PLAIN);
        }
        if self.is_tiled() {
            let weight = if vectors[1] { "b[place]" } else { "weight(place)" };
            shader.code(&format!("fn a_at(place: u32) -> {a} {{\n    return a[place];\n}}\n"));
            shader.code(&format!("fn b_at(place: u32) -> {b} {{\n    return {weight};\n}}\n"));
        }
        self.declare_batches(shader, ["a_batch", "b_batch"]);
        Ok(())
    }

    /// Declares the offsets of a batch's matrices.
    fn declare_batches(&self, shader: &mut Shader<'_>, names: [&str; 2]) {
        for (operand, name) in names.iter().enumerate() {
            let splits = split("batch", "c", &self.batch.dims);
            let offset = self.batch.offset(operand);
            shader.code(&format!("fn {name}(batch: u32) -> u32 {{\n{splits}    return {offset};\n}}\n"));
        }
    }

    /// Whether one side is a vector, and the lines of the matrix lie side by side and consist of vectors of four.
    fn has_vectors(&self) -> bool {
        let (matrix, side) = if self.n == 1 { (self.a, self.m) } else { (self.b, self.n) };
        let widened = self.narrow.as_ref().is_none_or(|narrow| self.m == 1 && narrow.has_vectors());
        self.is_vector() && matrix[0] == 1 && matrix[1] != 1 && side % 4 == 0 && widened
    }

    /// Declares the operands of `matvec_side.wgsl`: the vector and the matrix.
    fn declare_vectors<'a>(&self, recorder: &Recorder<'a>, shader: &mut Shader<'a>) -> Result<(), KernelError> {
        let (vector, names) = if self.n == 1 { (1, ["w_batch", "x_batch"]) } else { (0, ["x_batch", "w_batch"]) };
        shader.parameter("x_depth", [self.a, self.b][vector][1]).read("x", "f32", recorder.input(vector)?);
        match &self.narrow {
            Some(narrow) => narrow.declare_vectors(recorder, shader)?,
            None => _ = shader.read("w", "vec4<f32>", recorder.input(1 - vector)?).code(PLAIN_VECTOR),
        }
        self.declare_batches(shader, names);
        Ok(())
    }

    fn declare_vector(&self, shader: &mut Shader<'_>, extent: Extent) -> usize {
        let lanes = self.lanes();
        shader.parameter("k", self.k);
        lanes.declare(shader);
        if self.has_vectors() {
            shader.code(include_str!("matvec_side.wgsl")).code(&tree("total", "vec4<f32>", "sum_of_vectors"));
            return lanes.groups(extent.outputs() / 4);
        }
        shader.code(include_str!("matvec.wgsl")).code(&tree("total", "f32", "sum_of"));
        lanes.groups(extent.outputs())
    }
}

/// Number of workgroups that occupy a large device if each has little to compute and much to read.
const VECTOR_GROUPS: usize = 1024;
/// Minimum products of a lane for which a part is worth a second dispatch.
const LEAST_PASSES: usize = 8;

/// WGSL function that finishes an output and writes it; `number` counts the batches at hand.
const STORE: &str = "fn store(number: u32, row: u32, column: u32, value: f32) {
    let batch = parameters.first + number;
    let index = (batch * parameters.m + row) * parameters.n + column;
    y[index] = finish(value, index, batch, row, column);
}
";

/// WGSL function that finishes four outputs of a row, which begin at a multiple of four, and writes them.
const STORE_VECTOR: &str = "fn store(number: u32, row: u32, column: u32, values: vec4<f32>) {
    let batch = parameters.first + number;
    let index = (batch * parameters.m + row) * parameters.n + column;
    y[index / 4u] = vec4<f32>(
        finish(values.x, index, batch, row, column),
        finish(values.y, index + 1u, batch, row, column + 1u),
        finish(values.z, index + 2u, batch, row, column + 2u),
        finish(values.w, index + 3u, batch, row, column + 3u),
    );
}
";

/// WGSL function that returns element `index` of B.
const PLAIN: &str = "fn weight(index: u32) -> f32 {
    return b[index];
}
";

/// WGSL functions that return vector `index` of a matrix of `f32`, which has no grid.
const PLAIN_VECTOR: &str = "fn grid_of(line: u32) -> u32 {
    return 0u;
}

fn widened(index: u32, grid: u32) -> vec4<f32> {
    return w[index];
}
";

/// Returns the batch dimensions, rows and columns of a matrix, after undoing `transposed`.
fn matrix(shape: &Shape, transposed: bool) -> Option<(Shape, usize, usize)> {
    let (batch, &[rows, columns]) = shape.dims().split_last_chunk::<2>()?;
    let batch = Shape::new(batch).ok()?;
    Some(if transposed { (batch, columns, rows) } else { (batch, rows, columns) })
}

/// Returns the rows of all batches together, if they follow each other in A at one stride and B is the same for all
/// batches: then the batches are one product.
fn rows_of_all_batches(dims: &[usize], a: &[isize], b: &[isize], m: usize, a_row: usize) -> Option<usize> {
    let same = dims.iter().zip(b).all(|(dim, stride)| *dim == 1 || *stride == 0);
    let dims = [dims, &[m]].concat();
    let rows = Space::collapsed(&dims, &[[a, &[a_row as isize]].concat()]);
    let in_step = match &rows.strides[0][..] {
        [] => true,
        [stride] => *stride == a_row as isize,
        _ => false,
    };
    (same && in_step).then(|| dims.iter().product())
}

/// Returns the coordinates that the shaders know. The first `batches` axes of `rank` are the batch, the last one is the
/// column, and the axes between are the row.
fn coordinates(batches: usize, rank: usize) -> [Coordinate; 3] {
    [
        Coordinate { name: "batch", axes: 0..batches },
        Coordinate { name: "row", axes: batches..rank - 1 },
        Coordinate { name: "column", axes: rank - 1..rank },
    ]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, check, check_rows, check_run, inputs, narrow, node, noise, shape, tensor};
    use super::super::tile::forced;
    use super::*;
    use anabranch_op::op::{Binary, Expression, Op, Unary};

    /// Returns a product of `[batch_a…, m, k]` and `[batch_b…, k, n]`, stored as `transposed` says.
    fn product(
        (batch_a, batch_b): (&[usize], &[usize]),
        [m, n, k]: [usize; 3],
        [transpose_a, transpose_b]: [bool; 2],
        (epilogue, extras): (Option<&Expression>, &[&[usize]]),
    ) -> NodeSpec {
        let a = [batch_a, &if transpose_a { [k, m] } else { [m, k] }].concat();
        let b = [batch_b, &if transpose_b { [n, k] } else { [k, n] }].concat();
        let batch = shape(batch_a).broadcast(&shape(batch_b)).expect("batches that go together");
        let op = Op::MatMul(MatMul { transpose_a, transpose_b, epilogue: epilogue.cloned(), ..MatMul::default() });
        node(op, &[&[&a[..], &b], extras].concat(), &[&[batch.dims(), &[m, n]].concat()])
    }

    fn check_product(batches: (&[usize], &[usize]), sizes: [usize; 3], transposed: [bool; 2]) {
        let node = product(batches, sizes, transposed, (None, &[]));
        check(&node, &inputs(&node, 121));
    }

    const ALL: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

    #[test]
    fn batches_are_computed_in_place() {
        for (sizes, extras) in [([5, 7, 9], &[3usize, 1, 1][..]), ([1, 40, 33], &[40]), ([40, 36, 20], &[3, 40, 36])] {
            let add = Expression::binary(Binary::Add);
            let node = product((&[3], &[3]), sizes, [false, true], (Some(&add), &[extras]));
            check_rows(&node, &inputs(&node, 128), 1..2);
        }
    }

    #[test]
    fn sizes_around_those_of_tiles() {
        for sizes in [[2, 3, 1], [5, 7, 3], [32, 32, 16], [33, 31, 17], [61, 67, 127], [97, 2, 40]] {
            for transposed in ALL {
                check_product((&[], &[]), sizes, transposed);
            }
        }
    }

    #[test]
    fn vectors() {
        let narrow = [[1, 1, 1], [1, 1, 1500], [1, 130, 67], [300, 1, 5], [17, 1, 259], [1, 3, 2000]];
        // Lines of whole vectors of four.
        let whole = [[1, 132, 67], [1, 8, 5000], [12, 1, 300]];
        for sizes in narrow.into_iter().chain(whole) {
            for transposed in ALL {
                check_product((&[], &[]), sizes, transposed);
                check_product((&[3], &[3]), sizes, transposed);
            }
        }
    }

    #[test]
    fn batches_are_broadcast() {
        let cases: [(&[usize], &[usize]); 6] =
            [(&[3], &[3]), (&[4], &[]), (&[], &[4]), (&[2, 1], &[3]), (&[2, 3], &[2, 1]), (&[1, 5], &[1, 1])];
        for batches in cases {
            for transposed in ALL {
                check_product(batches, [5, 9, 6], transposed);
            }
        }
    }

    #[test]
    fn large_tiles() {
        for (sizes, tile) in [([1610, 1700, 9], [128, 128]), ([780, 770, 700], [128, 64]), ([900, 850, 20], [64, 64])] {
            let whole = Extent { first: 0, batches: 1, m: sizes[0], n: sizes[1] };
            assert_eq!(Tile::new(whole, sizes[2]).sides(), tile);
            for transposed in [[false, false], [true, true]] {
                check_product((&[], &[]), sizes, transposed);
            }
        }
    }

    #[test]
    fn sizes_around_each_tile() {
        forced::each(|[m, n]| {
            for transposed in ALL {
                // No line begins at a multiple of four elements.
                for sizes in [[m - 1, n + 1, 7], [m + 1, n - 1, 9], [2, 3, 1], [3, n + 1, 17]] {
                    check_product((&[], &[]), sizes, transposed);
                }
                // All lines do.
                for sizes in [[m, n, 8], [m + 4, n - 4, 12], [4, 4, 4], [2 * m, 8, 20]] {
                    check_product((&[], &[]), sizes, transposed);
                }
            }
            // Two parts, the second of which is shorter.
            check_product((&[], &[]), [m + 1, n - 4, 523], [false, false]);
            check_product((&[], &[]), [m - 1, n + 1, 524], [false, true]);
            check_product((&[2, 1], &[3]), [m + 1, 6, 10], [false, true]);
        });
    }

    #[test]
    fn lines_that_are_not_numbers_leave_others_alone() {
        let nan = |dims: &[usize], line: usize| {
            let mut values = noise(127, dims[0] * dims[1]);
            values[line * dims[1]..][..dims[1]].fill(f32::NAN);
            tensor(dims, &values)
        };
        forced::each(|[m, n]| {
            for ([m, n, k], line) in [([m, 5, 7], 1), ([3, n + 4, 12], 2), ([m - 3, n + 1, 9], 0)] {
                let node = product((&[], &[]), [m, n, k], [false, true], (None, &[]));
                check(&node, &[nan(&[m, k], line), nan(&[n, k], line)]);
            }
        });
    }

    #[test]
    fn small_products_are_cut_along_the_inner_dimension() {
        let relu = Expression::unary(Unary::Relu);
        let epilogue = Expression::binary(Binary::Add).then(&relu, 0).expect("fits");
        for (sizes, extra) in
            [([40, 50, 700], &[50][..]), ([70, 66, 333], &[70, 66]), ([1, 33, 5000], &[33]), ([9, 1, 5000], &[])]
        {
            for (batches, transposed) in [(&[][..], [false, false]), (&[3], [true, true])] {
                let node = product((batches, batches), sizes, transposed, (Some(&epilogue), &[extra]));
                assert!(super::super::scratch_bytes(&node) > 0, "{sizes:?}, {transposed:?}");
                check(&node, &inputs(&node, 125));
                if !batches.is_empty() {
                    check_rows(&node, &inputs(&node, 126), 1..3);
                }
            }
        }
    }

    #[test]
    fn epilogues_read_operands_of_any_shape() {
        let relu = Expression::unary(Unary::Relu);
        let epilogue = Expression::binary(Binary::Add).then(&Expression::binary(Binary::Multiply), 0);
        let epilogue = epilogue.and_then(|e| e.then(&relu, 0)).expect("fits");
        for (batch_a, batch_b, sizes) in [
            (&[2usize, 3][..], &[][..], [5usize, 7, 4]),
            (&[2, 3], &[2, 3], [5, 7, 4]),
            (&[6], &[6], [1, 7, 4]),
            (&[], &[], [40, 1, 9]),
        ] {
            let out = [batch_a, &sizes[..2]].concat();
            let by_row = [vec![1; batch_a.len()], vec![sizes[0], 1]].concat();
            let by_batch = [batch_a, &[1, 1]].concat();
            let last = [sizes[1]];
            let single: &[usize] = &[];
            for extras in [[&out[..], &last[..]], [&by_row, &by_batch], [single, &out]] {
                let node = product((batch_a, batch_b), sizes, [false, false], (Some(&epilogue), &extras));
                check(&node, &inputs(&node, 122));
            }
        }
    }

    #[test]
    fn more_tiles_than_one_dimension_of_groups_holds() {
        let node = product((&[5], &[5]), [130, 140, 3], [false, false], (None, &[]));
        check_run(Run { gpu: narrow(), ..Run::new(&node) }, &inputs(&node, 123));
    }

    #[test]
    fn the_same_bits_every_time() {
        let node = product((&[2], &[2]), [70, 65, 300], [false, true], (None, &[]));
        let x = inputs(&node, 124);
        let run = || Run::new(&node).outputs(&x).expect("runs").remove(0);
        assert_eq!(run(), run());
    }

    #[test]
    fn sizes_that_do_not_go_together_are_refused() {
        let op = MatMul::default();
        for (a, b, out) in [(&[2, 3][..], [4, 5], &[2, 5][..]), (&[2, 3], [3, 5], &[2, 4]), (&[3], [3, 5], &[5])] {
            let node = node(Op::MatMul(op.clone()), &[a, &b], &[out]);
            assert!(matches!(recipe(&node, &op), Err(KernelError::Invalid { .. })));
        }
    }
}
