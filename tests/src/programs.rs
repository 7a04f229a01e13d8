//! Lowered programs: those of the bundled models, and generated ones of other shapes.

use crate::{model, reference};
use anabranch::import;
use anabranch::lower::{LowerOptions, lower};
use anabranch::program::{Node, NodeId, Origin, Output, Program, Value, ValueId};
use anabranch::{DType, Shape, Tensor, TensorSpec};
use anabranch_kernels::op::{Binary, Domain, Expression, Map, MatMul, NodeSpec, Op, Unary};

/// Returns a bundled model, lowered for the shapes of its reference inputs.
pub fn bundled(name: &str) -> Program {
    let input_shapes = reference(name).0.specs().map(|(name, spec)| (name.to_owned(), spec.shape.clone())).collect();
    let options = LowerOptions { input_shapes, ..LowerOptions::default() };
    lower(&import::load(&model(name)).expect("a bundled model is sound"), &options).expect("every operator is known")
}

/// Returns layers that are widest in the middle.
pub fn wide_middle() -> Program {
    let mut maker = Maker::default();
    let input = maker.input([64, 64]);
    let output = maker.layers(input, &[128, 512, 1024, 512, 128]);
    maker.finish(output)
}

/// Returns four branches of several layers, and their sum.
pub fn branches() -> Program {
    let mut maker = Maker::default();
    let input = maker.input([64, 64]);
    let ends = [128, 256, 128, 256].map(|width| maker.layers(input, &[width, 256, 64]));
    let sum = ends[1..].iter().fold(ends[0], |sum, end| maker.map(Expression::binary(Binary::Add), &[sum, *end]));
    maker.finish(sum)
}

/// Returns layers that get narrower and then wider again; each layer on the way back reads the result of its
/// counterpart on the way there.
pub fn skips() -> Program {
    let mut maker = Maker::default();
    let (mut last, mut skips) = (maker.input([256, 256]), Vec::new());
    for width in [128, 64, 32, 16] {
        skips.push(maker.map(Expression::unary(Unary::Exp), &[last]));
        last = maker.layers(skips[skips.len() - 1], &[width]);
    }
    for skip in skips.into_iter().rev() {
        let width = maker.dims(skip)[1];
        last = maker.layers(last, &[width]);
        last = maker.map(Expression::binary(Binary::Add), &[last, skip]);
    }
    maker.finish(last)
}

/// Returns many layers of few rows: nearly all memory is weights.
pub fn many_weights() -> Program {
    let mut maker = Maker::default();
    let input = maker.input([4, 256]);
    let output = maker.layers(input, &[256; 16]);
    maker.finish(output)
}

/// Returns layers whose weights have one element.
pub fn few_bytes() -> Program {
    let mut maker = Maker::default();
    let input = maker.input([64, 1]);
    let output = maker.layers(input, &[1; 3]);
    maker.finish(output)
}

/// Builder of a program of matrices of `f32`.
#[derive(Default)]
struct Maker {
    program: Program,
}

impl Maker {
    fn input(&mut self, dims: [usize; 2]) -> ValueId {
        let input = self.value(dims, Origin::Input);
        self.program.inputs.push(input);
        input
    }

    /// Adds one matrix product and `relu` after the other; each has as many columns as `widths` says.
    fn layers(&mut self, input: ValueId, widths: &[usize]) -> ValueId {
        widths.iter().fold(input, |last, width| {
            let [rows, columns] = self.dims(last);
            let elements = vec![self.program.values.len() as f32; columns * width];
            let weight = Tensor::from_elements(spec([columns, *width]).shape, &elements).expect("one for each");
            let weight = self.value([columns, *width], Origin::Constant(weight.into()));
            let product = self.node(Op::MatMul(MatMul::default()), &[last, weight], [rows, *width]);
            self.map(Expression::unary(Unary::Relu), &[product])
        })
    }

    fn map(&mut self, expression: Expression, inputs: &[ValueId]) -> ValueId {
        self.node(Op::Map(Map { domain: Domain::F32, expression }), inputs, self.dims(inputs[0]))
    }

    fn node(&mut self, op: Op, inputs: &[ValueId], dims: [usize; 2]) -> ValueId {
        let id = NodeId(self.program.nodes.len() as u32);
        let output = self.value(dims, Origin::Node(id));
        let specs = inputs.iter().map(|input| self.program.value(*input).spec.clone()).collect();
        self.program.nodes.push(Node {
            name: format!("node{}", id.0),
            operators: Vec::new(),
            spec: NodeSpec { op, inputs: specs, outputs: vec![spec(dims)] },
            inputs: inputs.to_vec(),
            outputs: vec![output],
        });
        output
    }

    fn value(&mut self, dims: [usize; 2], origin: Origin) -> ValueId {
        let id = ValueId(self.program.values.len() as u32);
        self.program.values.push(Value { name: format!("value{}", id.0), spec: spec(dims), origin });
        id
    }

    fn dims(&self, value: ValueId) -> [usize; 2] {
        let dims = self.program.value(value).spec.shape.dims();
        [dims[0], dims[1]]
    }

    fn finish(mut self, value: ValueId) -> Program {
        let spec = self.program.value(value).spec.clone();
        self.program.outputs.push(Output { name: "output".into(), value, spec });
        self.program
    }
}

fn spec(dims: [usize; 2]) -> TensorSpec {
    TensorSpec::new(DType::F32, Shape::new(dims).expect("a small shape"))
}
