//! The programs that calibration runs: each stresses one rate of a device.

use crate::program::{Node, NodeId, Origin, Output, Program, Value, ValueId};
use anabranch_kernels::op::{Binary, Conv, Domain, Expression, Map, MatMul, NodeSpec, Op, Register, Step, Unary};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};

/// What a probe measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// A product of 512×512 matrices.
    MatMul,
    /// A 3×3 convolution of 64 channels of 56×56.
    Conv,
    /// An expression of 32 steps over 256 KiB.
    Map,
    /// One step over 32 MiB.
    Bandwidth,
    /// A chain of nodes of 16 elements each.
    Launch,
}

impl Probe {
    /// All of them, the dearest first.
    pub(crate) const ALL: [Self; 5] = [Self::Bandwidth, Self::MatMul, Self::Conv, Self::Map, Self::Launch];

    /// The program: one input, a chain of equal nodes, one output.
    pub(crate) fn program(self) -> Program {
        let map = |expression| Op::Map(Map { domain: Domain::F32, expression });
        match self {
            Self::MatMul => chain(&[512, 512], Some(&[512, 512]), &Op::MatMul(MatMul::default()), 2),
            Self::Conv => chain(&[1, 64, 56, 56], Some(&[64, 64, 3, 3]), &Op::Conv(same_conv()), 2),
            Self::Map => chain(&[64, 1024], None, &map(long_expression()), 2),
            Self::Bandwidth => chain(&[8192, 1024], None, &map(Expression::unary(Unary::Negate)), 2),
            Self::Launch => chain(&[16], None, &map(Expression::unary(Unary::Negate)), 32),
        }
    }
}

/// A 3×3 convolution that keeps the image's size.
fn same_conv() -> Conv {
    Conv { strides: [1, 1], pads: [1; 4], dilations: [1, 1], group: 1, epilogue: None }
}

/// 32 alternating multiplications and additions of the input to the value so far.
fn long_expression() -> Expression {
    let functions = [Binary::Multiply, Binary::Add].into_iter().cycle();
    let steps = functions.take(32).enumerate().map(|(i, f)| Step::Binary(f, Register(i as u16), Register(0)));
    Expression::new(1, steps.collect()).expect("each step reads the input and the step before it")
}

/// `length` nodes of one op, each on the result of the one before and on one constant of small elements.
fn chain(dims: &[usize], constant: Option<&[usize]>, op: &Op, length: u32) -> Program {
    let spec = |dims: &[usize]| TensorSpec::new(DType::F32, Shape::new(dims).expect("probes are small"));
    let value = |name: String, spec, origin| Value { name, spec, origin };
    let mut program = Program::default();
    program.values.push(value("x".into(), spec(dims), Origin::Input));
    program.inputs.push(ValueId(0));
    let weights = constant.map(|dims| {
        let shape = spec(dims).shape;
        let elements: Vec<f32> = (0..shape.elements()).map(|i| (i % 17) as f32 * 1e-3).collect();
        let tensor = Tensor::from_elements(shape, &elements).expect("one element for each of the shape's");
        program.values.push(value("weights".into(), spec(dims), Origin::Constant(tensor)));
        ValueId(1)
    });
    let mut last = ValueId(0);
    for index in 0..length {
        let inputs: Vec<_> = std::iter::once(last).chain(weights).collect();
        let output = ValueId(program.values.len() as u32);
        program.values.push(value(format!("y{index}"), spec(dims), Origin::Node(NodeId(index))));
        let input_specs = inputs.iter().map(|id| program.value(*id).spec.clone()).collect();
        let name = format!("probe{index}");
        program.nodes.push(Node {
            operators: vec![name.clone()],
            name,
            spec: NodeSpec { op: op.clone(), inputs: input_specs, outputs: vec![spec(dims)] },
            inputs,
            outputs: vec![output],
        });
        last = output;
    }
    program.outputs.push(Output { name: "y".into(), value: last, spec: spec(dims) });
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_chains_of_equal_nodes() {
        for probe in Probe::ALL {
            let program = probe.program();
            let keys: Vec<_> = program.nodes.iter().map(|node| node.spec.key()).collect();
            assert!(keys.windows(2).all(|pair| pair[0] == pair[1]), "{probe:?}");
            for (index, node) in program.nodes.iter().enumerate() {
                assert!(node.inputs.iter().all(|id| match program.value(*id).origin {
                    Origin::Node(made) => made.index() < index,
                    Origin::Input | Origin::Constant(_) => true,
                }));
            }
        }
    }

    #[test]
    fn a_probe_is_bound_by_what_it_measures() {
        let intensity = |probe: Probe| {
            let work = probe.program().nodes[0].spec.work();
            work.flops / work.bytes()
        };
        assert!(intensity(Probe::MatMul) > 50.0 && intensity(Probe::Conv) > 50.0);
        assert!(intensity(Probe::Bandwidth) < 0.5 && intensity(Probe::Map) > 3.0);
    }
}
