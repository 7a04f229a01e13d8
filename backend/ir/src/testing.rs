//! Small programs for tests.

use crate::program::{Origin, Program, ValueId};
pub use crate::program::{floats as spec, map};
use anabranch_kernels::op::{Binary, Expression, Op, Unary};
use anabranch_kernels::{DType, Tensor, TensorSpec};

/// Builds a program of `f32` values node by node.
#[derive(Default)]
pub struct Maker {
    program: Program,
}

/// The rectifier.
pub fn relu() -> Op {
    map(Expression::unary(Unary::Relu))
}

/// The sum of two tensors.
pub fn add() -> Op {
    map(Expression::binary(Binary::Add))
}

impl Maker {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    fn next_value(&self) -> String {
        format!("value{}", self.program.values.len())
    }

    /// Adds an input of this shape.
    pub fn input(&mut self, dims: &[usize]) -> ValueId {
        self.program.add_input(self.next_value(), spec(dims))
    }

    /// Adds an input of this shape whose elements are `i64`.
    pub fn integers(&mut self, dims: &[usize]) -> ValueId {
        self.program.add_input(self.next_value(), TensorSpec::new(DType::I64, spec(dims).shape))
    }

    /// Adds a constant of this shape, element by element.
    pub fn constant(&mut self, dims: &[usize], element: impl Fn(usize) -> f32) -> ValueId {
        let spec = spec(dims);
        let elements: Vec<f32> = (0..spec.shape.elements()).map(element).collect();
        let tensor = Tensor::from_elements(spec.shape, &elements).expect("one for each");
        self.program.add_value(self.next_value(), tensor.spec().clone(), Origin::Constant(tensor.into()))
    }

    /// Adds a node.
    pub fn node(&mut self, op: Op, inputs: &[ValueId], dims: &[usize]) -> ValueId {
        self.program.add_node(format!("node{}", self.program.nodes.len()), op, inputs, spec(dims))
    }

    /// Adds a node that reads its inputs under the given shapes.
    pub fn node_reading(&mut self, op: Op, inputs: &[ValueId], specs: Vec<TensorSpec>, dims: &[usize]) -> ValueId {
        let output = self.node(op, inputs, dims);
        self.program.nodes.last_mut().expect("it was just added").spec.inputs = specs;
        output
    }

    /// Returns the program with these outputs.
    pub fn finish(mut self, outputs: &[ValueId]) -> Program {
        for value in outputs {
            self.program.add_output(format!("out{}", self.program.outputs.len()), *value);
        }
        self.program
    }
}

/// A chain of `nodes` simple nodes.
pub fn chain(nodes: usize, dims: &[usize]) -> Program {
    let mut maker = Maker::new();
    let input = maker.input(dims);
    let last = (0..nodes).fold(input, |value, _| maker.node(relu(), &[value], dims));
    maker.finish(&[last])
}
