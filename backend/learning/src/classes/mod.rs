//! The classes of kernels that calibration measures: for each a program of nodes in the sizes that networks have, small and large.
//!
//! Every node has weights of its own and reads what an element-wise node has just made, as in a network. Small nodes share programs that stay in
//! a near cache from run to run, others have one in which weights come from a far cache or memory; what that takes is taken out where it is known.
//! Tiny nodes of all classes follow each other in programs of their own, because most nodes of a tiny network begin with code that the one before
//! did not use. The element-wise nodes are measured as well.

mod images;
mod products;
mod rows;

use anabranch_ir::program::{Node, NodeId, Origin, Program, ValueId, floats, map};
use anabranch_kernels::op::{Binary, Expression, Literal, NodeSpec, Op, Register, Step, Unary};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use half::f16;
use std::f64::consts::FRAC_1_SQRT_2;
use std::fmt;

/// A class of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The tiny nodes of all other classes.
    Tiny,
    /// Convolutions of windows.
    Windows,
    /// Convolutions of pixels, and to small images.
    Pointwise,
    /// Convolutions of channels by themselves, in groups, and transposed.
    Grouped,
    /// Products of matrices.
    MatMul,
    /// Products of batches of matrices, and with vectors.
    Batched,
    /// Products of few bits.
    Narrow,
    /// Recurrent layers.
    Recurrent,
    /// Pooling and resizing.
    Pool,
    /// Reductions, softmax and normalisation.
    Reduce,
    /// What moves elements.
    Move,
    /// Element-wise expressions.
    Map,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tiny => "tiny nodes of all kinds",
            Self::Windows => "convolutions of windows",
            Self::Pointwise => "pointwise convolutions",
            Self::Grouped => "grouped and transposed convolutions",
            Self::MatMul => "matrix products",
            Self::Batched => "batched products",
            Self::Narrow => "products of few bits",
            Self::Recurrent => "recurrent layers",
            Self::Pool => "pooling and resizing",
            Self::Reduce => "reductions",
            Self::Move => "moves of elements",
            Self::Map => "element-wise expressions",
        })
    }
}

/// Bytes up to which nodes are tiny, …
const TINY: f64 = 65_536.0;

/// … and small.
const SMALL: f64 = 2_097_152.0;

/// Bytes of small nodes that share a program at most, so that a core's own cache of 2 MiB keeps all of them from run to run, whichever of a team
/// computes what.
const NETWORK: f64 = 1024.0 * 1024.0;

/// A node to be measured.
struct Probe {
    spec: NodeSpec,
    /// How many of its inputs are made at each run; the others are constants.
    made: usize,
}

impl Class {
    /// All of them: the tiny ones, then those first on which networks spend most.
    pub(crate) const ALL: [Self; 12] = [
        Self::Tiny,
        Self::Windows,
        Self::Pointwise,
        Self::MatMul,
        Self::Grouped,
        Self::Batched,
        Self::Map,
        Self::Reduce,
        Self::Move,
        Self::Pool,
        Self::Recurrent,
        Self::Narrow,
    ];

    /// Its nodes, each behind an element-wise one: small ones in programs of the size of a small network, those that are not in one.
    pub(crate) fn programs(self) -> impl Iterator<Item = Program> {
        let mut programs: [Vec<(f64, Vec<Probe>)>; 2] = Default::default();
        for probe in self.probes() {
            let bytes = probe.bytes();
            let (size, most) = if bytes <= SMALL { (0, NETWORK) } else { (1, f64::INFINITY) };
            match programs[size].last_mut() {
                Some((sum, probes)) if *sum + bytes <= most => {
                    *sum += bytes;
                    probes.push(probe);
                }
                _ => programs[size].push((bytes, vec![probe])),
            }
        }
        programs.into_iter().flatten().map(|(_, probes)| Self::program(probes))
    }

    fn program(probes: Vec<Probe>) -> Program {
        let mut program = Program::default();
        let mut last = None;
        for (number, Probe { spec, made }) in probes.into_iter().enumerate() {
            let inputs = spec.inputs.iter().enumerate().map(|(input, tensor)| {
                let name = |what: &str| format!("{what}{number}.{input}");
                if input >= made {
                    return program.add_value(
                        name("w"),
                        tensor.clone(),
                        Origin::Constant(constant(tensor, number).into()),
                    );
                }
                let given = program.add_input(name("x"), tensor.clone());
                program.add_node(name("made"), map(Expression::unary(Unary::Negate)), &[given], tensor.clone())
            });
            let inputs = inputs.collect();
            last = Some(add(&mut program, format!("y{number}"), spec, inputs));
        }
        last.into_iter().for_each(|value| program.add_output("y", value));
        program
    }

    fn probes(self) -> Vec<Probe> {
        match self {
            Self::Tiny => {
                let mut tiny: Vec<(f64, Probe)> = Vec::new();
                for class in Self::ALL {
                    let probes: Vec<Probe> = class.listed().into_iter().filter(Probe::is_tiny).collect();
                    let count = probes.len() as f64;
                    tiny.extend(probes.into_iter().enumerate().map(|(at, probe)| ((at as f64 + 0.5) / count, probe)));
                }
                // Each class is spread over all places.
                tiny.sort_by(|(a, _), (b, _)| a.total_cmp(b));
                tiny.into_iter().map(|(_, probe)| probe).collect()
            }
            class => class.listed().into_iter().filter(|probe| !probe.is_tiny()).collect(),
        }
    }

    /// The nodes of a class of kernels, tiny ones among them.
    fn listed(self) -> Vec<Probe> {
        match self {
            Self::Tiny => Vec::new(),
            Self::Windows => images::windows(),
            Self::Pointwise => images::pointwise(),
            Self::Grouped => images::grouped(),
            Self::Pool => images::pools(),
            Self::MatMul => products::shared(),
            Self::Batched => products::batched(),
            Self::Narrow => products::narrow(),
            Self::Recurrent => products::recurrent(),
            Self::Reduce => rows::reductions(),
            Self::Move => rows::moves(),
            Self::Map => rows::maps(),
        }
    }
}

/// What is done to a product's or a convolution's result on the way out.
#[derive(Clone, Copy, Debug)]
enum Finish {
    Nothing,
    /// A bias and `max(x, 0)`.
    Relu,
    /// A bias and `x · sigmoid(x)`.
    Silu,
    /// A bias and `x · (1 + erf(x / √2)) / 2`.
    Gelu,
    /// A scale and a mask, as of attention's scores.
    Masked,
}

impl Finish {
    /// Of the result and a bias.
    fn expression(self) -> Option<Expression> {
        let [result, bias, sum, gate] = [0, 1, 2, 3].map(Register);
        let added = Step::Binary(Binary::Add, result, bias);
        let steps = match self {
            Self::Nothing => return None,
            Self::Relu => vec![added, Step::Unary(Unary::Relu, sum)],
            Self::Silu => vec![added, Step::Unary(Unary::Sigmoid, sum), Step::Binary(Binary::Multiply, sum, gate)],
            Self::Gelu => {
                let [root, scaled, erf, one, more, product, half] = [3, 4, 5, 6, 7, 8, 9].map(Register);
                vec![
                    added,
                    Step::Constant(Literal::Float(FRAC_1_SQRT_2)),
                    Step::Binary(Binary::Multiply, sum, root),
                    Step::Unary(Unary::Erf, scaled),
                    Step::Constant(Literal::Float(1.0)),
                    Step::Binary(Binary::Add, erf, one),
                    Step::Binary(Binary::Multiply, sum, more),
                    Step::Constant(Literal::Float(0.5)),
                    Step::Binary(Binary::Multiply, product, half),
                ]
            }
            Self::Masked => {
                let [factor, scaled] = [2, 3].map(Register);
                vec![
                    Step::Constant(Literal::Float(0.125)),
                    Step::Binary(Binary::Multiply, result, factor),
                    Step::Binary(Binary::Add, scaled, bias),
                ]
            }
        };
        Some(Expression::new(2, steps).expect("each step reads what is before it"))
    }
}

impl Probe {
    /// A node of floats whose first `made` inputs are made at each run.
    fn new(op: Op, made: usize, inputs: &[&[usize]], output: &[usize]) -> Self {
        let inputs = inputs.iter().map(|dims| floats(dims)).collect();
        Self { spec: NodeSpec { op, inputs, outputs: vec![floats(output)] }, made }
    }

    fn bytes(&self) -> f64 {
        self.spec.work().bytes()
    }

    fn is_tiny(&self) -> bool {
        self.bytes() <= TINY
    }
}

/// Small numbers; of wide integers, indices into the shortest table. Others are not the same for any two nodes, as equal weights would be kept once.
fn constant(spec: &TensorSpec, node: usize) -> Tensor {
    let shape = spec.shape.clone();
    let count = shape.elements();
    let tensor = match spec.dtype {
        DType::U8 => Tensor::from_elements(shape, &(0..count).map(|i| (i * 7 + node) as u8).collect::<Vec<_>>()),
        DType::I8 => Tensor::from_elements(shape, &(0..count).map(|i| (i * 7 + node) as i8).collect::<Vec<_>>()),
        DType::I32 => Tensor::from_elements(shape, &(0..count as i32).collect::<Vec<_>>()),
        DType::F16 => Tensor::from_elements(shape, &vec![f16::from_f32(1e-4 * (1 + node) as f32); count]),
        DType::I64 => Tensor::from_elements(shape, &(0..count).map(|i| (i * 7 % 16) as i64).collect::<Vec<_>>()),
        _ => Tensor::from_elements(shape, &(0..count).map(|i| ((i + node) % 257) as f32 * 1e-4).collect::<Vec<_>>()),
    };
    tensor.expect("one element for each of the shape's")
}

/// Adds a node with all its outputs, and returns the first.
fn add(program: &mut Program, name: String, spec: NodeSpec, inputs: Vec<ValueId>) -> ValueId {
    let node = NodeId(program.nodes.len() as u32);
    let made = spec.outputs.iter().enumerate();
    let outputs: Vec<_> =
        made.map(|(at, made)| program.add_value(format!("{name}.{at}"), made.clone(), Origin::Node(node))).collect();
    let first = outputs[0];
    program.nodes.push(Node { name, operators: Vec::new(), spec, inputs, outputs });
    first
}

/// A tensor's type, of dimensions that are written down here.
fn tensor(dtype: DType, dims: &[usize]) -> TensorSpec {
    TensorSpec::new(dtype, Shape::new(dims).expect("the dimensions are small"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::cpu::prepare;
    use std::collections::BTreeMap;

    #[test]
    fn every_probe_can_be_computed() {
        for class in Class::ALL {
            for Probe { spec, made } in class.probes() {
                let constants: Vec<bool> = (0..spec.inputs.len()).map(|input| input >= made).collect();
                if let Err(error) = prepare(&spec, &constants) {
                    panic!("{class:?}: {error}");
                }
            }
        }
    }

    #[test]
    fn families_are_measured_in_enough_sizes_for_a_law() {
        let mut families: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for node in Class::ALL.into_iter().flat_map(Class::programs).flat_map(|program| program.nodes) {
            let family = node.spec.family();
            families.entry(family.name).or_default().push(family.amounts.iter().sum());
        }
        for (name, amounts) in &families {
            let (least, most) = amounts.iter().fold((f64::INFINITY, 0f64), |(l, m), a| (l.min(*a), m.max(*a)));
            assert!(amounts.len() >= 5 && most > 20.0 * least, "{name}: {} of {least} to {most}", amounts.len());
        }
        assert!(families.len() >= 25, "{:?}", families.keys());
    }

    #[test]
    fn calibration_of_a_class_is_short() {
        for class in Class::ALL {
            let flops: f64 = class.probes().iter().map(|probe| probe.spec.work().flops).sum();
            assert!(flops < 1.2e9, "{class:?}: {flops}");
        }
    }
}
