//! Synthetic programs that calibration measures to learn the rates of devices and links.
//!
//! Each stresses one quantity: a rate of the roofline, a link, the contention of two devices, or the reading of weights
//! inside and outside the private cache. [`classes`](super::classes) has the programs that measure the classes of
//! kernels.

use anabranch_ir::program::{Origin, Program, floats, map};
use anabranch_kernels::op::{Binary, Conv, Expression, MatMul, Op, Register, Step, Unary};
use anabranch_kernels::{Tensor, TensorSpec};

/// Quantity that a probe measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// A product of 512×512 matrices.
    MatMul,
    /// A 3×3 convolution of 64 channels of 56×56. Its dilated windows force the kernel to compute sums of products.
    Conv,
    /// An expression of 32 steps over 256 KiB.
    Map,
    /// One step over 32 MiB.
    Bandwidth,
    /// A chain of nodes of 16 elements each.
    Launch,
}

impl Probe {
    /// All probes, the most expensive first.
    pub(crate) const ALL: [Self; 5] = [Self::Bandwidth, Self::MatMul, Self::Conv, Self::Map, Self::Launch];

    /// Returns the program: one input, a chain of equal nodes, one output.
    pub(crate) fn program(self) -> Program {
        match self {
            Self::MatMul => chain(&[512, 512], Some(&[512, 512]), &Op::MatMul(MatMul::default()), 2),
            Self::Conv => chain(&[1, 64, 56, 56], Some(&[64, 64, 3, 3]), &Op::Conv(dilated_conv()), 2),
            Self::Map => chain(&[64, 1024], None, &map(long_expression()), 2),
            Self::Bandwidth => chain(&[8192, 1024], None, &negate(), 2),
            Self::Launch => chain(&[16], None, &negate(), 32),
        }
    }
}

/// A chain of nodes of this many elements, to be divided among devices: the transfers between nodes show the links.
pub(crate) fn relay(elements: usize, nodes: u32) -> Program {
    chain(&[elements], None, &negate(), nodes)
}

/// Two independent chains of products of 192×192 matrices, of these lengths.
pub(crate) fn side_by_side(lengths: [u32; 2]) -> Program {
    let mut program = Program::default();
    for (name, length) in ["", "beside "].into_iter().zip(lengths) {
        add_chain(&mut program, name, &[192, 192], Some(&[192, 192]), &Op::MatMul(MatMul::default()), length);
    }
    program
}

/// Depth of the products of [`rows`], and columns per thread: enough that each thread has a few parts of its own.
const ROW: [u64; 2] = [64, 1024];

/// Bytes of a matrix of [`rows`] per thread: 256 KiB, half of the smallest level 2 cache that is measured.
pub(crate) const ROW_WEIGHTS: u64 = 4 * ROW[0] * ROW[1];

/// `products` products of one row with matrices of [`ROW_WEIGHTS`] per thread, which take turns.
///
/// The products are independent, and run in this order.
pub(crate) fn rows(products: u64, matrices: u64, threads: u64) -> Program {
    let [depth, columns] = [ROW[0] as usize, (threads * ROW[1]) as usize];
    let mut program = Program::default();
    let spec = floats(&[depth, columns]);
    let weights: Vec<_> = (0..matrices)
        .map(|at| {
            program.add_value(format!("weights{at}"), spec.clone(), Origin::Constant(small(&spec, at as usize).into()))
        })
        .collect();
    let row = program.add_input("x", floats(&[1, depth]));
    let mut last = row;
    for (at, weights) in (0..products).zip(weights.iter().cycle()) {
        let op = Op::MatMul(MatMul::default());
        last = program.add_node(format!("y{at}"), op, &[row, *weights], floats(&[1, columns]));
    }
    program.add_output("y", last);
    program
}

/// A tensor of small elements that depend on `number`: equal tensors would be stored once.
fn small(spec: &TensorSpec, number: usize) -> Tensor {
    let elements: Vec<f32> = (0..spec.shape.elements()).map(|i| ((i + number) % 257) as f32 * 1e-4).collect();
    Tensor::from_elements(spec.shape.clone(), &elements).expect("one element for each of the shape's")
}

fn negate() -> Op {
    map(Expression::unary(Unary::Negate))
}

/// A 3×3 convolution of every other pixel that keeps the image's size.
fn dilated_conv() -> Conv {
    Conv { strides: [1, 1], pads: [2; 4], dilations: [2, 2], group: 1, epilogue: None }
}

/// 32 alternating multiplications and additions of the input to the value so far.
fn long_expression() -> Expression {
    let functions = [Binary::Multiply, Binary::Add].into_iter().cycle();
    let steps = functions.take(32).enumerate().map(|(i, f)| Step::Binary(f, Register(i as u16), Register(0)));
    Expression::new(1, steps.collect()).expect("each step reads the input and the step before it")
}

fn chain(dims: &[usize], constant: Option<&[usize]>, op: &Op, length: u32) -> Program {
    let mut program = Program::default();
    add_chain(&mut program, "", dims, constant, op, length);
    program
}

/// Adds `length` nodes of one op, each on the result of the preceding node and on a constant of small elements. All
/// names begin with `name`.
fn add_chain(program: &mut Program, name: &str, dims: &[usize], constant: Option<&[usize]>, op: &Op, length: u32) {
    let mut last = program.add_input(format!("{name}x"), floats(dims));
    let weights = constant.map(|dims| {
        let spec = floats(dims);
        let tensor = small(&spec, 0);
        program.add_value(format!("{name}weights"), spec, Origin::Constant(tensor.into()))
    });
    for index in 0..length {
        let inputs: Vec<_> = std::iter::once(last).chain(weights).collect();
        last = program.add_node(format!("{name}y{index}"), op.clone(), &inputs, floats(dims));
    }
    program.add_output(format!("{name}y"), last);
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_ir::program::NodeId;

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
    fn two_chains_stay_apart() {
        let program = side_by_side([2, 3]);
        assert_eq!((program.nodes.len(), program.inputs.len(), program.outputs.len()), (5, 2, 2));
        assert_eq!(program.nodes[2].inputs[0], program.inputs[1]);
        assert!(matches!(program.value(program.outputs[1].value).origin, Origin::Node(NodeId(4))));
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
