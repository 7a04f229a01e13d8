//! The classes of kernels that calibration measures: for each class, a program of nodes in the sizes that networks
//! have.
//!
//! Every node has its own weights and reads data that an element-wise node has just written, as in a network. Small
//! nodes share programs that stay in a fast cache from run to run. Larger nodes share programs whose weights come from
//! a slower cache or memory; that extra time is subtracted if it is known. Tiny nodes of all classes follow each other
//! in programs of their own, because most nodes of a tiny network start with code that the preceding node did not use.
//! The element-wise nodes are measured as well.

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
    /// Convolutions with windows of several pixels.
    Windows,
    /// Pointwise convolutions, and convolutions to small images.
    Pointwise,
    /// Depthwise, grouped and transposed convolutions.
    Grouped,
    /// Matrix products.
    MatMul,
    /// Batched matrix products, and products with vectors.
    Batched,
    /// Products with quantised weights, and of integers.
    Narrow,
    /// Recurrent layers.
    Recurrent,
    /// Pooling and resizing.
    Pool,
    /// Reductions, softmax and normalisation.
    Reduce,
    /// Copies and rearrangements of elements.
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

/// Most bytes of a tiny node.
const TINY: f64 = 65_536.0;

/// Most bytes of a small node.
const SMALL: f64 = 2_097_152.0;

/// Most bytes of small nodes in one program. A core's own cache of 2 MiB then keeps all of them from run to run, even
/// if another thread of the team computes them.
const NETWORK: f64 = 1024.0 * 1024.0;

/// A node to measure.
struct Probe {
    spec: NodeSpec,
    /// Number of inputs that are made at each run; the others are constants.
    made: usize,
}

impl Class {
    /// All classes: the tiny nodes first, then the classes on which networks spend most time.
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

    /// Returns programs of the class's nodes, each node after an element-wise node. Small nodes share programs of the
    /// size of a small network; larger nodes have programs of their own. A program is `None` if there is no memory for
    /// its weights.
    pub(crate) fn programs(self) -> impl Iterator<Item = Option<Program>> {
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

    fn program(probes: Vec<Probe>) -> Option<Program> {
        let mut program = Program::default();
        let mut last = None;
        for (number, Probe { spec, made }) in probes.into_iter().enumerate() {
            let inputs = spec.inputs.iter().enumerate().map(|(input, tensor)| {
                let name = |what: &str| format!("{what}{number}.{input}");
                if input >= made {
                    let weights = Origin::Constant(constant(tensor, number)?.into());
                    return Some(program.add_value(name("w"), tensor.clone(), weights));
                }
                let given = program.add_input(name("x"), tensor.clone());
                Some(program.add_node(name("made"), map(Expression::unary(Unary::Negate)), &[given], tensor.clone()))
            });
            let inputs = inputs.collect::<Option<_>>()?;
            last = Some(add(&mut program, format!("y{number}"), spec, inputs));
        }
        last.into_iter().for_each(|value| program.add_output("y", value));
        Some(program)
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
                // Sorting spreads the nodes of each class over the whole program.
                tiny.sort_by(|(a, _), (b, _)| a.total_cmp(b));
                tiny.into_iter().map(|(_, probe)| probe).collect()
            }
            class => class.listed().into_iter().filter(|probe| !probe.is_tiny()).collect(),
        }
    }

    /// Nodes of a class of kernels, including tiny nodes.
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

/// Operation on a product's or a convolution's result before it is stored.
#[derive(Clone, Copy, Debug)]
enum Finish {
    Nothing,
    /// A bias and `max(x, 0)`.
    Relu,
    /// A bias and `x · sigmoid(x)`.
    Silu,
    /// A bias and `x · (1 + erf(x / √2)) / 2`.
    Gelu,
    /// A scale and a mask, as for attention's scores.
    Masked,
}

impl Finish {
    /// Returns the expression over the result and a bias.
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
    /// Creates a node of `f32` tensors whose first `made` inputs are made at each run.
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

/// Small numbers; for wide integers, indices into the shortest table. `None` if there is not enough memory.
///
/// Constants of other types differ between nodes, because equal weights would be stored once.
fn constant(spec: &TensorSpec, node: usize) -> Option<Tensor> {
    let mut tensor = Tensor::try_zeroed(spec.clone())?;
    macro_rules! fill {
        ($type:ty, $element:expr) => {{
            let elements = tensor.elements_mut::<$type>().into_iter().flatten();
            elements.enumerate().for_each(|(at, element)| *element = $element(at))
        }};
    }
    match spec.dtype {
        DType::U8 => fill!(u8, |at| (at * 7 + node) as u8),
        DType::I8 => fill!(i8, |at| (at * 7 + node) as i8),
        DType::I32 => fill!(i32, |at| at as i32),
        DType::F16 => fill!(f16, |_| f16::from_f32(1e-4 * (1 + node) as f32)),
        DType::I64 => fill!(i64, |at| (at * 7 % 16) as i64),
        _ => fill!(f32, |at| ((at + node) % 257) as f32 * 1e-4),
    }
    Some(tensor)
}

/// Adds a node with all its outputs, and returns the first output.
fn add(program: &mut Program, name: String, spec: NodeSpec, inputs: Vec<ValueId>) -> ValueId {
    let node = NodeId(program.nodes.len() as u32);
    let made = spec.outputs.iter().enumerate();
    let outputs: Vec<_> =
        made.map(|(at, made)| program.add_value(format!("{name}.{at}"), made.clone(), Origin::Node(node))).collect();
    let first = outputs[0];
    program.nodes.push(Node { name, operators: Vec::new(), spec, inputs, outputs });
    first
}

/// Spec of a tensor with literal dimensions.
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
        for node in Class::ALL.into_iter().flat_map(Class::programs).flatten().flat_map(|program| program.nodes) {
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
