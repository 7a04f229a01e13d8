//! Matrix products over batches, with an epilogue: tiled, or along lanes where one side is a vector.

use super::epilogue::{Coordinate, Epilogue};
use super::kernel::Recorder;
use super::lanes::{Lanes, tree};
use super::shader::Shader;
use super::space::{Space, split};
use super::tile::{Order, Tile};
use super::{Recipe, invalid};
use crate::error::KernelError;
use crate::op::{MatMul, NodeSpec};
use crate::shape::Shape;

pub(crate) struct MatMulRecipe {
    /// The batches; operands 0 and 1 are A and B.
    batch: Space,
    m: usize,
    n: usize,
    k: usize,
    /// Strides of A along rows and depth.
    a: [usize; 2],
    /// Strides of B along columns and depth.
    b: [usize; 2],
    /// The node's rows, each one batch or more.
    rows: usize,
    epilogue: Epilogue,
}

impl MatMulRecipe {
    pub(crate) fn new(node: &NodeSpec, op: &MatMul) -> Result<Self, KernelError> {
        let ([a, b, ..], [output]) = (&node.inputs[..], &node.outputs[..]) else {
            return Err(invalid(node, "two inputs and one output are expected"));
        };
        let (Some((a_batch, m, a_depth)), Some((b_batch, b_depth, n))) =
            (matrix(&a.shape, op.transpose_a), matrix(&b.shape, op.transpose_b))
        else {
            return Err(invalid(node, "matrices are expected"));
        };
        let batch = a_batch.broadcast(&b_batch)?;
        if a_depth != b_depth || output.shape.dims() != [batch.dims(), &[m, n]].concat() {
            return Err(invalid(node, "the sizes of the matrices do not go together"));
        }
        let k = a_depth;
        let strides = |shape: &Shape, area: usize| -> Result<Vec<isize>, KernelError> {
            Ok(shape.broadcast_strides(&batch)?.into_iter().map(|stride| (stride * area) as isize).collect())
        };
        let (a_strides, b_strides) = (strides(&a_batch, m * k)?, strides(&b_batch, k * n)?);
        let a = if op.transpose_a { [1, m] } else { [k, 1] };
        let b = if op.transpose_b { [k, 1] } else { [1, n] };
        let dims = batch.dims();
        if let Some(rows) = rows_of_all_batches(dims, &a_strides, &b_strides, m, a[0]) {
            let epilogue = Epilogue::new(node, &coordinates(0, dims.len() + 2))?;
            let batch = Space { dims: vec![], strides: vec![vec![], vec![]] };
            return Ok(Self { batch, m: rows, n, k, a, b, rows: 1, epilogue });
        }
        let epilogue = Epilogue::new(node, &coordinates(dims.len(), dims.len() + 2))?;
        let rows = node.row_plan().map_or(1, |plan| plan.rows);
        Ok(Self { batch: Space::collapsed(dims, &[a_strides, b_strides]), m, n, k, a, b, rows, epilogue })
    }

    fn is_vector(&self) -> bool {
        self.m == 1 || self.n == 1
    }

    /// How threads share one product of a vector.
    fn lanes(&self) -> Lanes {
        // The matrix is A where B is a vector; its lines lie side by side if its depth does not run through memory.
        let matrix = if self.n == 1 { self.a } else { self.b };
        Lanes::new(self.k, matrix[1] != 1)
    }

    fn tile(&self) -> Tile {
        Tile::new(self.batches(), self.m, self.n)
    }

    fn batches(&self) -> usize {
        self.batch.dims.iter().product()
    }

    /// The batches to compute.
    fn at_hand(&self, recorder: &Recorder<'_>) -> std::ops::Range<usize> {
        let (rows, row) = (recorder.rows(self.rows), self.batches() / self.rows);
        rows.start * row..rows.end * row
    }

    /// Declares what both shaders read and write.
    fn declare<'a>(&self, shader: &mut Shader<'a>, recorder: &Recorder<'a>) -> Result<(), KernelError> {
        shader.parameter("first", self.at_hand(recorder).start);
        shader.parameter("a_row", self.a[0]).parameter("a_depth", self.a[1]);
        shader.parameter("b_column", self.b[0]).parameter("b_depth", self.b[1]);
        shader.read("a", "f32", recorder.input(0)?).read("b", "f32", recorder.input(1)?);
        shader.write("y", "f32", recorder.output(0)?);
        for (name, operand) in [("a_batch", 0), ("b_batch", 1)] {
            let splits = split("batch", "c", &self.batch.dims);
            let offset = self.batch.offset(operand);
            shader.code(&format!("fn {name}(batch: u32) -> u32 {{\n{splits}    return {offset};\n}}\n"));
        }
        self.epilogue.declare(shader, recorder)
    }

    fn tiled(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let order = |strides: [usize; 2]| if strides[1] == 1 { Order::Depth } else { Order::Side };
        let mut shader = Shader::new("matmul", include_str!("matmul.wgsl"));
        self.declare(&mut shader, recorder)?;
        let sizes = [self.at_hand(recorder).len(), self.m, self.n, self.k];
        let groups = self.tile().declare(&mut shader, sizes, order(self.a), order(self.b));
        recorder.dispatch(&shader, groups)
    }

    fn vector(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let count = self.at_hand(recorder).len() * self.m * self.n;
        let lanes = self.lanes();
        let mut shader = Shader::new("matvec", include_str!("matvec.wgsl"));
        self.declare(&mut shader, recorder)?;
        shader.parameter("count", count);
        shader.parameter("m", self.m).parameter("n", self.n).parameter("k", self.k);
        lanes.declare(&mut shader);
        shader.code(&tree("total", "f32", "sum_of"));
        recorder.dispatch(&shader, lanes.groups(count))
    }
}

/// The batch dimensions, rows and columns of a matrix, as it is after `transposed` was undone.
fn matrix(shape: &Shape, transposed: bool) -> Option<(Shape, usize, usize)> {
    let (batch, &[rows, columns]) = shape.dims().split_last_chunk::<2>()?;
    let batch = Shape::new(batch).ok()?;
    Some(if transposed { (batch, columns, rows) } else { (batch, rows, columns) })
}

/// The rows of all batches together, if they follow each other in A at one stride and B is the same for all: then the
/// batches are one product.
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

/// The coordinates that the shaders know: `batches` leading axes of `rank` are the batch, the others but the last the row.
fn coordinates(batches: usize, rank: usize) -> [Coordinate; 3] {
    [
        Coordinate { name: "batch", axes: 0..batches },
        Coordinate { name: "row", axes: batches..rank - 1 },
        Coordinate { name: "column", axes: rank - 1..rank },
    ]
}

impl Recipe for MatMulRecipe {
    fn bindings(&self) -> usize {
        3 + self.epilogue.bindings()
    }

    fn passes(&self) -> usize {
        match self.is_vector() {
            true => self.lanes().passes(self.k),
            false => self.tile().passes(self.k),
        }
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        if self.is_vector() { self.vector(recorder) } else { self.tiled(recorder) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, assert_close, check, inputs, narrow, node, shape};
    use super::*;
    use crate::op::{Binary, Expression, Op, Unary};
    use crate::{KernelError, Tensor};

    struct Case {
        a: Vec<usize>,
        b: Vec<usize>,
        op: MatMul,
    }

    impl Case {
        /// A product of `[batch_a…, m, k]` and `[batch_b…, k, n]`, stored as `transposed` says.
        fn new(batch_a: &[usize], batch_b: &[usize], [m, n, k]: [usize; 3], transposed: [bool; 2]) -> Self {
            let a = if transposed[0] { [k, m] } else { [m, k] };
            let b = if transposed[1] { [n, k] } else { [k, n] };
            let op = MatMul { transpose_a: transposed[0], transpose_b: transposed[1], epilogue: None };
            Self { a: [batch_a, &a].concat(), b: [batch_b, &b].concat(), op }
        }

        fn node(&self, extras: &[&[usize]]) -> NodeSpec {
            let (batch_a, m, _) = matrix(&shape(&self.a), self.op.transpose_a).expect("a matrix");
            let (batch_b, _, n) = matrix(&shape(&self.b), self.op.transpose_b).expect("a matrix");
            let batch = batch_a.broadcast(&batch_b).expect("batches that go together");
            let out = [batch.dims(), &[m, n]].concat();
            node(Op::MatMul(self.op.clone()), &[&[&self.a[..], &self.b], extras].concat(), &[&out])
        }

        fn reference(&self, node: &NodeSpec, inputs: &[Tensor]) -> Vec<f32> {
            let (batch_a, m, k) = matrix(&shape(&self.a), self.op.transpose_a).expect("a matrix");
            let (batch_b, _, n) = matrix(&shape(&self.b), self.op.transpose_b).expect("a matrix");
            let out = &node.outputs[0].shape;
            let batch = shape(&out.dims()[..out.rank() - 2]);
            let values = |i: usize| inputs[i].elements::<f32>().expect("f32");
            let first = |own: &Shape, index: usize| {
                let strides = own.broadcast_strides(&batch).expect("broadcasts");
                let coordinates = batch.strides().into_iter().zip(batch.dims()).map(|(s, d)| index / s % d);
                strides.iter().zip(coordinates).map(|(s, c)| s * c).sum::<usize>()
            };
            let mut y = Vec::new();
            for index in 0..batch.elements() {
                let a = &values(0)[first(&batch_a, index) * m * k..][..m * k];
                let b = &values(1)[first(&batch_b, index) * k * n..][..k * n];
                for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
                    let left = |i: usize| if self.op.transpose_a { a[i * m + row] } else { a[row * k + i] };
                    let right = |i: usize| if self.op.transpose_b { b[column * k + i] } else { b[i * n + column] };
                    y.push((0..k).map(|i| f64::from(left(i)) * f64::from(right(i))).sum::<f64>() as f32);
                }
            }
            y
        }

        #[track_caller]
        fn check(&self) {
            let node = self.node(&[]);
            let x = inputs(&node, 121);
            check(&node, &x, &[self.reference(&node, &x)]);
        }
    }

    const ALL: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

    #[test]
    fn batches_are_computed_in_place() {
        for (sizes, extras) in [([5, 7, 9], &[3usize, 1, 1][..]), ([1, 40, 33], &[40]), ([40, 36, 20], &[3, 40, 36])] {
            let mut case = Case::new(&[3], &[3], sizes, [false, true]);
            case.op.epilogue = Some(Expression::binary(Binary::Add));
            let node = case.node(&[extras]);
            let x = inputs(&node, 128);
            let whole = Run::new(&node).outputs(&x).expect("runs").remove(0);
            let part = Run { rows: Some(1..2), ..Run::new(&node) }.outputs(&x).expect("runs").remove(0);
            let matrix = sizes[0] * sizes[1];
            for (index, (part, whole)) in part.iter().zip(&whole).enumerate() {
                let want = if index / matrix == 1 { *whole } else { super::super::testing::UNWRITTEN };
                assert_eq!(part.to_bits(), want.to_bits(), "{sizes:?} at {index}");
            }
        }
    }

    #[test]
    fn sizes_around_those_of_tiles() {
        for sizes in [[2, 3, 1], [5, 7, 3], [32, 32, 16], [33, 31, 17], [61, 67, 127], [97, 2, 40]] {
            for transposed in ALL {
                Case::new(&[], &[], sizes, transposed).check();
            }
        }
    }

    #[test]
    fn vectors() {
        for sizes in [[1, 1, 1], [1, 1, 1500], [1, 130, 67], [300, 1, 5], [17, 1, 259], [1, 3, 2000]] {
            for transposed in ALL {
                Case::new(&[], &[], sizes, transposed).check();
                Case::new(&[3], &[3], sizes, transposed).check();
            }
        }
    }

    #[test]
    fn batches_are_broadcast() {
        let cases: [(&[usize], &[usize]); 6] =
            [(&[3], &[3]), (&[4], &[]), (&[], &[4]), (&[2, 1], &[3]), (&[2, 3], &[2, 1]), (&[1, 5], &[1, 1])];
        for (a, b) in cases {
            for transposed in ALL {
                Case::new(a, b, [5, 9, 6], transposed).check();
            }
        }
    }

    #[test]
    fn large_and_medium_tiles() {
        for (sizes, tile) in [([1610, 1700, 9], 128), ([900, 850, 20], 64)] {
            assert_eq!(Tile::new(1, sizes[0], sizes[1]).side(), tile);
            for transposed in [[false, false], [true, true]] {
                Case::new(&[], &[], sizes, transposed).check();
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
            let mut case = Case::new(batch_a, batch_b, sizes, [false, false]);
            case.op.epilogue = Some(epilogue.clone());
            let out = [batch_a, &sizes[..2]].concat();
            let by_row = [vec![1; batch_a.len()], vec![sizes[0], 1]].concat();
            let by_batch = [batch_a, &[1, 1]].concat();
            let last = [sizes[1]];
            let single: &[usize] = &[];
            for extras in [[&out[..], &last[..]], [&by_row, &by_batch], [single, &out]] {
                let node = case.node(&extras);
                let x = inputs(&node, 122);
                let target = &node.outputs[0].shape;
                let operand = |i: usize, index: usize| {
                    let strides = node.inputs[i].shape.broadcast_strides(target).expect("broadcasts");
                    let at = strides.iter().zip(target.strides()).zip(target.dims());
                    x[i].elements::<f32>().expect("f32")[at.map(|((s, o), d)| index / o % d * s).sum::<usize>()]
                };
                let plain = case.reference(&node, &x).into_iter().enumerate();
                let want = plain.map(|(index, v)| ((v + operand(2, index)) * operand(3, index)).max(0.0));
                check(&node, &x, &[want.collect()]);
            }
        }
    }

    #[test]
    fn more_tiles_than_one_dimension_of_groups_holds() {
        let case = Case::new(&[5], &[5], [130, 140, 3], [false, false]);
        let node = case.node(&[]);
        let x = inputs(&node, 123);
        let got = Run { gpu: narrow(), ..Run::new(&node) }.outputs(&x).expect("runs").remove(0);
        assert_close(&got, &case.reference(&node, &x), "a batched product");
    }

    #[test]
    fn the_same_bits_every_time() {
        let case = Case::new(&[2], &[2], [70, 65, 300], [false, true]);
        let node = case.node(&[]);
        let x = inputs(&node, 124);
        let run = || Run::new(&node).outputs(&x).expect("runs").remove(0);
        assert_eq!(run(), run());
    }

    #[test]
    fn sizes_that_do_not_go_together_are_refused() {
        let op = MatMul::default();
        for (a, b, out) in [([2usize, 3], [4usize, 5], [2usize, 5]), ([2, 3], [3, 5], [2, 4])] {
            let node = node(Op::MatMul(op.clone()), &[&a, &b], &[&out]);
            assert!(matches!(MatMulRecipe::new(&node, &op), Err(KernelError::Invalid { .. })));
        }
        let node = node(Op::MatMul(op.clone()), &[&[3], &[3, 5]], &[&[5]]);
        assert!(MatMulRecipe::new(&node, &op).is_err());
    }
}
