//! Shared code of the tests of products and convolutions: inputs, runs of a kernel, and epilogues with their
//! definition.

use crate::kernels::run_kernel;
pub use crate::kernels::spec;
use anabranch_cpu_base::{CpuKernel, Team};
use anabranch_op::op::{Binary, Expression, Literal, NodeSpec, Register, Step, Unary};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::Tensor;
use arbtest::arbitrary::{Result, Unstructured};
use std::sync::LazyLock;

/// Returns a tensor of pseudo-random values between −1 and 1.
pub fn tensor(dims: &[usize], seed: usize) -> Tensor {
    let value = |i: usize| ((i + 1).wrapping_mul(seed * 2 + 2_654_435_761) >> 9) as u16 as f32 / 32768.0 - 1.0;
    let spec = spec(dims);
    let values: Vec<f32> = (0..spec.shape.elements()).map(value).collect();
    Tensor::from_elements(spec.shape, &values).expect("as many values")
}

/// Passes a kernel the constants that it needs packed.
pub fn keep(kernel: &mut dyn CpuKernel, inputs: &[Tensor]) {
    anabranch_cpu_base::pack(kernel, |input| Some(inputs[input].bytes()));
}

/// Runs a kernel of floats, and returns the elements of its output.
pub fn run(kernel: &dyn CpuKernel, node: &NodeSpec, inputs: &[Tensor], team: &Team) -> Vec<f32> {
    let rows = node.row_plan().map_or(1, |plan| plan.rows);
    let made = run_kernel(kernel, node, inputs, team, &[0, rows]).expect("products of floats are defined everywhere");
    made[0].elements().expect("f32").to_vec()
}

/// Runs like [`run`], by teams of 1, 2, 3 and 8 threads, whose results must have the same bits.
pub fn run_by_teams(kernel: &dyn CpuKernel, node: &NodeSpec, inputs: &[Tensor]) -> Vec<f32> {
    static TEAMS: LazyLock<[Team; 4]> = LazyLock::new(|| [1, 2, 3, 8].map(|threads| Team::new(threads, |_| {})));
    let [alone, others @ ..] = TEAMS.each_ref().map(|team| run(kernel, node, inputs, team));
    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for (other, team) in others.iter().zip(&TEAMS[1..]) {
        assert_eq!(bits(&alone), bits(other), "{} threads give other bits for {node:?}", team.threads());
    }
    alone
}

/// Checks that each element is as near to its definition as the rounding of its terms allows.
///
/// `wanted` returns, for an element of the output, its value before the epilogue and the sum of its terms' magnitudes.
pub fn require_close(node: &NodeSpec, inputs: &[Tensor], found: &[f32], wanted: impl Fn(&[usize]) -> (f64, f64)) {
    let shape = &node.outputs[0].shape;
    let extras = &inputs[node.op.epilogue_inputs_start()..];
    let mut coordinates = vec![0; shape.rank()];
    for (flat, found) in found.iter().enumerate() {
        let mut rest = flat;
        for axis in (0..shape.rank()).rev() {
            coordinates[axis] = rest % shape.dims()[axis];
            rest /= shape.dims()[axis];
        }
        let (value, magnitude) = wanted(&coordinates);
        let mut registers = vec![value];
        registers.extend(extras.iter().map(|extra| broadcast(extra, shape, &coordinates)));
        let want = node.op.epilogue().map_or(value, |expression| evaluate(expression, registers));
        let tolerance = 4e-6 * magnitude + 1e-5 * want.abs() + 1e-6;
        assert!(
            (f64::from(*found) - want).abs() <= tolerance,
            "{found} at {coordinates:?} rather than {want}: {node:?}"
        );
    }
}

fn broadcast(extra: &Tensor, shape: &Shape, coordinates: &[usize]) -> f64 {
    let strides = extra.shape().broadcast_strides(shape).expect("a sound node");
    let at: usize = strides.iter().zip(coordinates).map(|(stride, index)| stride * index).sum();
    f64::from(extra.elements::<f32>().expect("f32")[at])
}

fn evaluate(expression: &Expression, mut registers: Vec<f64>) -> f64 {
    for step in expression.steps() {
        let register = |r: &Register| registers[usize::from(r.0)];
        let value = match step {
            Step::Constant(Literal::Float(value)) => *value,
            Step::Unary(Unary::Relu, a) => register(a).max(0.0),
            Step::Unary(Unary::Sigmoid, a) => 1.0 / (1.0 + (-register(a)).exp()),
            Step::Binary(Binary::Add, a, b) => register(a) + register(b),
            Step::Binary(Binary::Multiply, a, b) => register(a) * register(b),
            Step::Binary(Binary::Min, a, b) => register(a).min(register(b)),
            Step::Binary(Binary::Max, a, b) => register(a).max(register(b)),
            other => panic!("the tests use no {other:?}"),
        };
        registers.push(value);
    }
    registers[registers.len() - 1]
}

/// Returns an epilogue that networks have, with the shapes of its further operands: none, a bias, a bias and a
/// rectifier, a residual, a bias and a clamp, or x · sigmoid(x).
///
/// `bias` is the shape of an operand that is broadcast.
pub fn epilogue(
    u: &mut Unstructured<'_>,
    output: &[usize],
    bias: &[usize],
) -> Result<(Option<Expression>, Vec<Vec<usize>>)> {
    let add = Expression::binary(Binary::Add);
    let relu = Expression::unary(Unary::Relu);
    let then = |first: &Expression, next: &Expression| first.then(next, 0).expect("a short expression");
    let clamp = Expression::new(
        1,
        vec![
            Step::Constant(Literal::Float(0.0)),
            Step::Binary(Binary::Max, Register(0), Register(1)),
            Step::Constant(Literal::Float(0.5)),
            Step::Binary(Binary::Min, Register(2), Register(3)),
        ],
    );
    let swish = Expression::new(
        1,
        vec![Step::Unary(Unary::Sigmoid, Register(0)), Step::Binary(Binary::Multiply, Register(0), Register(1))],
    )
    .expect("sound");
    let (output, bias) = (output.to_vec(), bias.to_vec());
    Ok(match u.int_in_range(0..=6)? {
        0 => (None, vec![]),
        1 => (Some(add), vec![bias]),
        2 => (Some(then(&add, &relu)), vec![bias]),
        3 => (Some(then(&then(&add, &add), &relu)), vec![bias, output]),
        4 => (Some(then(&add, &clamp.expect("sound"))), vec![bias]),
        5 => (Some(then(&add, &swish)), vec![bias]),
        _ => (Some(swish), vec![]),
    })
}
