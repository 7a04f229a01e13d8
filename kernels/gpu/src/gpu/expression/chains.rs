//! Random expressions on a GPU: each step is computed as written, independent of its neighbours.
//!
//! A fused map, a block and an epilogue must have the bits of the same steps in separate dispatches. Each separate step
//! must equal that of the CPU's kernel, except for the changes that `docs/accuracy.md` allows. These are last bits of
//! inexact functions, subnormal numbers, the sign of a zero that two zeros compete for, and the payload of NaN.

use super::super::corpus::Expected;
use super::super::testing::{Run, member, node, one_by_one, run_on_cpu, tensor};
use super::tests::{BINARY, UNARY};
use anabranch_op::op::{
    Binary, Block, Domain, Expression, Literal, Map, MatMul, NodeSpec, Op, Operand, Register, Step, Unary,
};
use anabranch_op::{DType, Tensor};
use arbtest::arbitrary::{Result as Arbitrary, Unstructured};
use std::time::Duration;

/// Constants that algebra would drop, round away, or let overflow.
const CONSTANTS: [f64; 17] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    3.0,
    0.5,
    0.1,
    1e30,
    1e-30,
    3e38,
    1e-40,
    8_388_608.0,
    12_582_912.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// Types to which a cast rounds.
const NARROW: [DType; 5] = [DType::F16, DType::BF16, DType::F8E4M3Fn, DType::F8E5M2, DType::F8E5M2Fnuz];

/// Some numbers of each kind.
const VALUES: [f32; 20] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -1.5,
    2.5,
    0.3,
    1e-30,
    -1e-30,
    1e30,
    -1e30,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    1e-40,
    -3e-39,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// Returns the error that a step may have, relative to its result.
fn tolerance(step: &Step, operand: f32, want: f32) -> f64 {
    let found = match step {
        Step::Unary(Unary::Narrowed(_), _) => Some(0.0),
        Step::Unary(function, _) => UNARY.iter().find(|(known, ..)| known == function).map(|(_, _, error)| *error),
        Step::Binary(function, ..) => BINARY.iter().find(|(known, _)| known == function).map(|(_, error)| *error),
        Step::Constant(_) | Step::Select(..) => Some(0.0),
    };
    let own = found.expect("a function of the tables");
    let (operand, want) = (f64::from(operand.abs()), f64::from(want.abs()));
    match step {
        // Error of the angle, which a pole magnifies.
        Step::Unary(Unary::Tan, _) => own + 3e-7 * want,
        // Half a unit of the exponent.
        Step::Unary(Unary::Sinh | Unary::Cosh, _) => own + 1e-7 * operand.min(90.0),
        _ if is_exact(step) => 0.0,
        _ => own + 2.4e-7,
    }
}

/// Whether a step has the bits that IEEE 754 specifies.
fn is_exact(step: &Step) -> bool {
    match step {
        Step::Constant(_) | Step::Select(..) | Step::Unary(Unary::Narrowed(_), _) => true,
        Step::Unary(function, _) => UNARY.iter().any(|(known, _, error)| known == function && *error == 0.0),
        Step::Binary(function, ..) => {
            let sums = matches!(function, Binary::Add | Binary::Subtract | Binary::Multiply | Binary::FloorModulo);
            sums || BINARY.iter().any(|(known, error)| known == function && *error == 0.0)
        }
    }
}

/// Whether the step determines the sign of a zero. `Min` and `Max` may return either of two zeros, and so may `Relu`.
const fn has_sign_of_zero(step: &Step) -> bool {
    !matches!(
        step,
        Step::Unary(Unary::Relu, _)
            | Step::Binary(
                Binary::Min | Binary::Max | Binary::Power | Binary::FloorModulo | Binary::TruncatedModulo,
                ..
            )
    )
}

/// Returns the absolute error of functions that are, near their zeros, only as accurate as the reduction of their
/// argument.
const fn absolute(step: &Step) -> f64 {
    match step {
        Step::Unary(Unary::Sin | Unary::Cos | Unary::Tan | Unary::Acos | Unary::Log, _) => 3e-7,
        _ => 0.0,
    }
}

fn is_subnormal(x: f32) -> bool {
    x.is_subnormal()
}

fn flushed(x: f32) -> f32 {
    if is_subnormal(x) { 0f32.copysign(x) } else { x }
}

/// Whether the GPU's value of a step is the CPU's, or as near as is promised.
fn is_near(step: &Step, operand: f32, got: f32, want: f32) -> bool {
    if got.is_nan() || want.is_nan() {
        return got.is_nan() && want.is_nan();
    }
    let (error, least) = (tolerance(step, operand, want), f64::from(f32::MIN_POSITIVE));
    let (near, wide) = (f64::from(got), f64::from(want));
    if want == 0.0 && got == 0.0 {
        return got.to_bits() == want.to_bits() || !has_sign_of_zero(step);
    }
    if got.is_infinite() || want.is_infinite() {
        let reached = |x: f64| x.abs() >= f64::from(f32::MAX) * (1.0 - error);
        return near == wide || (error > 0.0 && near.signum() == wide.signum() && reached(near) && reached(wide));
    }
    let is_tiny = near.abs() <= least && wide.abs() <= least;
    is_tiny || near == wide || (near - wide).abs() <= error * wide.abs() + absolute(step)
}

fn map(expression: &Expression, operands: &[Tensor]) -> NodeSpec {
    let dims: Vec<&[usize]> = operands.iter().map(|operand| operand.shape().dims()).collect();
    node(Op::Map(Map { domain: Domain::F32, expression: expression.clone() }), &dims, &[dims[0]])
}

fn on_gpu(expression: &Expression, operands: &[Tensor]) -> Tensor {
    // Another device may treat subnormal numbers differently, in each step.
    expected_on_gpu(expression, operands, None)
}

fn expected_on_gpu(expression: &Expression, operands: &[Tensor], expected: Option<Expected>) -> Tensor {
    let made = Run { expected, ..Run::new(&map(expression, operands)) }.outputs(operands);
    tensor(operands[0].shape().dims(), &made.unwrap_or_else(|error| panic!("{error}"))[0])
}

fn on_cpu(expression: &Expression, operands: &[Tensor]) -> Tensor {
    run_on_cpu(&map(expression, operands), operands).expect("a sound node").remove(0)
}

fn numbers(tensor: &Tensor) -> &[f32] {
    tensor.elements().expect("f32")
}

/// Returns one step as an expression of its operands; `None` for a constant. A constant exponent belongs to its power.
fn alone(expression: &Expression, step: &Step) -> Option<(Expression, Vec<Register>)> {
    let sound = |inputs, steps| Expression::new(inputs, steps).expect("steps over their inputs");
    let exponent = match step {
        Step::Binary(Binary::Power, _, exponent) => usize::from(exponent.0).checked_sub(expression.inputs()),
        _ => None,
    };
    if let (Some(constant @ Step::Constant(_)), Step::Binary(function, base, _)) =
        (exponent.map(|at| expression.steps()[at]), step)
    {
        let power = Step::Binary(*function, Register(0), Register(1));
        return Some((sound(1, vec![constant, power]), vec![*base]));
    }
    let single = match step {
        Step::Constant(_) => return None,
        Step::Unary(function, _) => Expression::unary(*function),
        Step::Binary(function, ..) => Expression::binary(*function),
        Step::Select(..) => sound(3, vec![Step::Select(Register(0), Register(1), Register(2))]),
    };
    Some((single, step.operands().collect()))
}

/// Returns the registers of an expression, with each step in a separate dispatch, and checks that each is as near to
/// the CPU's as is promised.
fn step_by_step(expression: &Expression, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut registers = inputs.to_vec();
    let dims = inputs[0].shape().dims();
    for step in expression.steps() {
        let made = match (alone(expression, step), step) {
            (Some((single, operands)), _) => {
                let operands: Vec<Tensor> = operands.iter().map(|r| registers[usize::from(r.0)].clone()).collect();
                let made = on_gpu(&single, &operands);
                require_near(step, &single, &operands, &made);
                made
            }
            (None, Step::Constant(literal)) => tensor(dims, &vec![literal.as_f32(); inputs[0].shape().elements()]),
            (None, _) => unreachable!("only constants have no operands"),
        };
        registers.push(made);
    }
    registers
}

#[track_caller]
fn require_near(step: &Step, single: &Expression, operands: &[Tensor], made: &Tensor) {
    let without: Vec<Tensor> = operands
        .iter()
        .map(|operand| {
            tensor(operand.shape().dims(), &numbers(operand).iter().map(|x| flushed(*x)).collect::<Vec<_>>())
        })
        .collect();
    // A GPU may flush subnormal numbers to zero.
    let wants = [on_cpu(single, operands), on_cpu(single, &without)];
    for (at, got) in numbers(made).iter().enumerate() {
        let given: Vec<f32> = operands.iter().map(|operand| numbers(operand)[at]).collect();
        let near = wants.iter().any(|want| is_near(step, given[0], *got, numbers(want)[at]));
        let want = numbers(&wants[0])[at];
        assert!(near, "{single} of {given:?} is {got:e}, not {want:e}");
    }
}

/// Checks that the bits are the same, up to the payload of NaN.
#[track_caller]
fn require_same(got: &[f32], want: &[f32], what: &str) {
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
        assert!(same, "{what}: element {at} is {got:e}, and {want:e} in steps");
    }
}

fn register(u: &mut Unstructured<'_>, registers: usize) -> Arbitrary<Register> {
    // Often one of the latest registers, so that steps feed each other.
    let first = if u.ratio(1, 2)? { registers.saturating_sub(2) } else { 0 };
    Ok(Register(u.int_in_range(first..=registers - 1)? as u16))
}

/// Returns one to eight steps over `inputs` inputs; sums and products are more frequent than other steps.
fn expression(u: &mut Unstructured<'_>, inputs: usize, is_wanted: fn(&Step) -> bool) -> Arbitrary<Expression> {
    let (mut steps, count) = (Vec::new(), u.int_in_range(1..=8)?);
    while steps.len() < count {
        let registers = inputs + steps.len();
        let sums = [Binary::Add, Binary::Subtract, Binary::Multiply, Binary::Divide];
        let step = match u.int_in_range(0..=9)? {
            0 | 1 => Step::Constant(Literal::Float(*u.choose(&CONSTANTS)?)),
            2..=4 => Step::Binary(*u.choose(&sums)?, register(u, registers)?, register(u, registers)?),
            5 | 6 => Step::Binary(u.choose(&BINARY)?.0, register(u, registers)?, register(u, registers)?),
            7 => Step::Unary(u.choose(&UNARY)?.0, register(u, registers)?),
            8 if u.ratio(1, 3)? => Step::Unary(Unary::Narrowed(*u.choose(&NARROW)?), register(u, registers)?),
            8 => Step::Unary(u.choose(&UNARY)?.0, register(u, registers)?),
            _ => Step::Select(register(u, registers)?, register(u, registers)?, register(u, registers)?),
        };
        if is_wanted(&step) {
            steps.push(step);
        }
    }
    Ok(Expression::new(inputs, steps).expect("steps read earlier registers"))
}

fn values(u: &mut Unstructured<'_>, dims: &[usize]) -> Arbitrary<Tensor> {
    let mut value = || -> Arbitrary<f32> {
        Ok(match u.int_in_range(0..=3)? {
            0 => *u.choose(&VALUES)?,
            1 => f32::from_bits(u.arbitrary()?),
            _ => u.int_in_range(-4000..=4000)? as f32 / 1000.0,
        })
    };
    let values: Vec<f32> = (0..dims.iter().product()).map(|_| value()).collect::<Arbitrary<_>>()?;
    Ok(tensor(dims, &values))
}

fn dims(u: &mut Unstructured<'_>) -> Arbitrary<[usize; 2]> {
    // With and without vectors of four.
    Ok(*u.choose(&[[6, 8], [5, 9]])?)
}

fn budget() -> Duration {
    let longer = std::env::var("ANABRANCH_TEST_SECONDS").ok().and_then(|text| text.parse().ok());
    longer.map_or(Duration::from_millis(900), Duration::from_secs)
}

#[test]
fn maps_have_the_bits_of_their_steps() {
    arbtest::arbtest(|u| {
        let dims = dims(u)?;
        let inputs = [values(u, &dims)?, values(u, &dims)?];
        let expression = expression(u, 2, |_| true)?;
        let steps = step_by_step(&expression, &inputs);
        let got = on_gpu(&expression, &inputs);
        require_same(numbers(&got), numbers(steps.last().expect("a step")), &format!("{expression}"));
        Ok(())
    })
    .budget(budget());
}

/// A chain of exact steps is exact, apart from subnormal numbers.
#[test]
fn exact_steps_have_the_bits_of_the_cpu() {
    let exact = |step: &Step| is_exact(step) && has_sign_of_zero(step);
    arbtest::arbtest(|u| {
        let dims = dims(u)?;
        let inputs = [values(u, &dims)?, values(u, &dims)?];
        let expression = expression(u, 2, exact)?;
        let registers = (1..=expression.steps().len()).map(|count| {
            let steps = expression.steps()[..count].to_vec();
            on_cpu(&Expression::new(2, steps).expect("a prefix"), &inputs)
        });
        let registers: Vec<Tensor> = inputs.iter().cloned().chain(registers).collect();
        let is_sure = |at: usize| registers.iter().all(|register| !is_subnormal(numbers(register)[at]));
        let want = numbers(registers.last().expect("a step"));
        let bits = want.iter().enumerate().map(|(at, want)| is_sure(at).then_some(want.to_bits())).collect();
        let got = expected_on_gpu(&expression, &inputs, Some(Expected::Bits(bits)));
        for at in (0..want.len()).filter(|at| is_sure(*at)) {
            require_same(&numbers(&got)[at..=at], &want[at..=at], &format!("{expression}, element {at}"));
        }
        Ok(())
    })
    .budget(budget());
}

#[test]
fn blocks_have_the_bits_of_their_members_whatever_these_are() {
    arbtest::arbtest(|u| {
        let dims = dims(u)?;
        let inputs = [values(u, &dims)?, values(u, &dims)?];
        let mut members = Vec::new();
        for at in 0..u.int_in_range(2..=3)? {
            let own = if at == 0 { Operand::Input(0) } else { Operand::Member(at - 1) };
            let other = *u.choose(&[own, Operand::Input(0), Operand::Input(1)])?;
            let op = Op::Map(Map { domain: Domain::F32, expression: expression(u, 2, |_| true)? });
            members.push(member(op, &[(own, &dims), (other, &dims)], &dims));
        }
        let last = members.len() - 1;
        let outputs = if u.arbitrary()? { vec![last] } else { vec![0, last] };
        let specs = outputs.iter().map(|at| members[*at].spec.outputs[0].clone()).collect();
        let read = inputs.iter().map(|input| input.spec().clone()).collect();
        let op = Op::Block(Block { members, outputs, rows: dims[0], chunk_rows: 1 });
        let node = NodeSpec { op, inputs: read, outputs: specs };
        let want = one_by_one(&node, &inputs, |spec, inputs| {
            let Op::Map(map) = &spec.op else { unreachable!("all members are maps") };
            on_gpu(&map.expression, inputs)
        });
        let got = Run { expected: None, ..Run::new(&node) }.outputs(&inputs);
        let got = got.unwrap_or_else(|error| panic!("{error}"));
        for (got, want) in got.iter().zip(&want) {
            require_same(got, numbers(want), &format!("{:?}", node.op));
        }
        Ok(())
    })
    .budget(budget());
}

#[test]
fn epilogues_have_the_bits_of_their_steps() {
    arbtest::arbtest(|u| {
        let rows = 48;
        let (x, one, extra) = (values(u, &[rows, 1])?, tensor(&[1, 1], &[1.0]), values(u, &[rows, 1])?);
        let expression = expression(u, 2, |_| true)?;
        let product = |epilogue: Option<Expression>, inputs: &[Tensor]| {
            let op = Op::MatMul(MatMul { transpose_a: false, transpose_b: false, epilogue, ..MatMul::default() });
            let dims: Vec<&[usize]> = inputs.iter().map(|input| input.shape().dims()).collect();
            let node = node(op, &dims, &[&[rows, 1]]);
            let made = Run { expected: None, ..Run::new(&node) }.outputs(inputs);
            made.unwrap_or_else(|error| panic!("{error}")).remove(0)
        };
        let plain = product(None, &[x.clone(), one.clone()]);
        let want = on_gpu(&expression, &[tensor(&[rows, 1], &plain), extra.clone()]);
        let got = product(Some(expression.clone()), &[x, one, extra]);
        require_same(&got, numbers(&want), &format!("{expression} of a product"));
        Ok(())
    })
    .budget(budget());
}
