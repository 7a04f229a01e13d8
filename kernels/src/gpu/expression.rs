//! Expressions as WGSL functions.

use crate::op::{Binary, Expression, Literal, Step, Unary};
use std::fmt::Write;

/// A WGSL function `name(r0: f32, …) -> f32` that computes `expression`.
pub(crate) fn function(name: &str, expression: &Expression) -> String {
    let inputs: Vec<_> = (0..expression.inputs()).map(|i| format!("r{i}: f32")).collect();
    let mut text = format!("fn {name}({}) -> f32 {{\n", inputs.join(", "));
    for (index, step) in expression.steps().iter().enumerate() {
        let _ = writeln!(text, "    let r{} = {};", expression.inputs() + index, step_text(expression, step));
    }
    let _ = write!(text, "    return r{};\n}}\n", expression.result().0);
    text
}

fn step_text(expression: &Expression, step: &Step) -> String {
    match *step {
        Step::Constant(Literal::Float(value)) => literal(value as f32),
        Step::Constant(Literal::Int(value)) => literal(value as f32),
        Step::Unary(unary, a) => unary_text(unary, &format!("r{}", a.0)),
        Step::Binary(Binary::Power, a, b) => power_text(expression, a.0, b.0),
        Step::Binary(binary, a, b) => binary_text(binary, &format!("r{}", a.0), &format!("r{}", b.0)),
        Step::Select(condition, a, b) => format!("select(r{}, r{}, holds(r{}))", b.0, a.0, condition.0),
    }
}

/// WGSL has no literals for NaN and infinities, and refuses constant expressions of such a value.
fn literal(value: f32) -> String {
    if value.is_finite() { format!("f32({value:?})") } else { format!("bitcast<f32>({:#x}u)", value.to_bits()) }
}

/// The usual constant exponents are multiplications, which is also more accurate.
fn power_text(expression: &Expression, base: u16, exponent: u16) -> String {
    let step = usize::from(exponent).checked_sub(expression.inputs()).and_then(|i| expression.steps().get(i));
    match step {
        Some(Step::Constant(Literal::Float(2.0))) => format!("r{base} * r{base}"),
        Some(Step::Constant(Literal::Float(3.0))) => format!("r{base} * r{base} * r{base}"),
        _ => format!("power(r{base}, r{exponent})"),
    }
}

fn unary_text(function: Unary, a: &str) -> String {
    let call = match function {
        Unary::Negate => return format!("-{a}"),
        Unary::Reciprocal => return format!("1.0 / {a}"),
        Unary::Not => return format!("truth(!holds({a}))"),
        Unary::IsNan => return format!("truth(is_nan({a}))"),
        Unary::IsInfinite => return format!("truth(is_infinite({a}))"),
        Unary::Abs => "abs",
        Unary::Sign => "sign_of",
        Unary::Sqrt => "sqrt",
        Unary::Exp => "exponential",
        Unary::Log => "logarithm",
        Unary::Sin => "sine",
        Unary::Cos => "cosine",
        Unary::Tan => "tangent",
        Unary::Asin => "arc_sine",
        Unary::Acos => "arc_cosine",
        Unary::Atan => "arc_tangent",
        Unary::Sinh => "sinh_of",
        Unary::Cosh => "cosh_of",
        Unary::Asinh => "asinh_of",
        Unary::Acosh => "acosh_of",
        Unary::Atanh => "atanh_of",
        Unary::Tanh => "tanh_of",
        Unary::Sigmoid => "sigmoid",
        Unary::Erf => "error_function",
        Unary::Relu => "relu",
        Unary::Floor => "floor",
        Unary::Ceil => "ceil",
        Unary::Round => "round",
        Unary::Truncate => "trunc",
    };
    format!("{call}({a})")
}

fn binary_text(function: Binary, a: &str, b: &str) -> String {
    match function {
        Binary::Add => format!("{a} + {b}"),
        Binary::Subtract => format!("{a} - {b}"),
        Binary::Multiply => format!("{a} * {b}"),
        Binary::Divide => format!("{a} / {b}"),
        Binary::Min => format!("minimum({a}, {b})"),
        Binary::Max => format!("maximum({a}, {b})"),
        Binary::Power => format!("power({a}, {b})"),
        Binary::FloorModulo => format!("floor_modulo({a}, {b})"),
        Binary::TruncatedModulo => format!("truncated_modulo({a}, {b})"),
        Binary::Equal => format!("truth({a} == {b})"),
        Binary::Less => format!("truth({a} < {b})"),
        Binary::LessOrEqual => format!("truth({a} <= {b})"),
        Binary::Greater => format!("truth({a} > {b})"),
        Binary::GreaterOrEqual => format!("truth({a} >= {b})"),
        Binary::And => format!("truth(holds({a}) && holds({b}))"),
        Binary::Or => format!("truth(holds({a}) || holds({b}))"),
        Binary::Xor => format!("truth(holds({a}) != holds({b}))"),
    }
}
