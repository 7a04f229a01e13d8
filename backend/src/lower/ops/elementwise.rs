//! Operators that compute each element of the output from the corresponding elements of the inputs.

use super::{Entry, Rule};
use crate::lower::builder::Builder;
use crate::lower::error::Fault;
use crate::lower::expression::{ExpressionBuilder, domain_of};
use crate::lower::operator::Operator;
use crate::lower::view::View;
use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, Domain, Register, Unary};
use std::slice::from_ref;

pub(super) const TABLE: &[Entry] = &[
    Entry::new("Abs", Rule::Unary(Unary::Abs)),
    Entry::new("Neg", Rule::Unary(Unary::Negate)),
    Entry::new("Sign", Rule::Unary(Unary::Sign)),
    Entry::new("Relu", Rule::Unary(Unary::Relu)),
    Entry::new("Reciprocal", Rule::FloatUnary(Unary::Reciprocal)),
    Entry::new("Sqrt", Rule::FloatUnary(Unary::Sqrt)),
    Entry::new("Exp", Rule::FloatUnary(Unary::Exp)),
    Entry::new("Log", Rule::FloatUnary(Unary::Log)),
    Entry::new("Sin", Rule::FloatUnary(Unary::Sin)),
    Entry::new("Cos", Rule::FloatUnary(Unary::Cos)),
    Entry::new("Tan", Rule::FloatUnary(Unary::Tan)),
    Entry::new("Asin", Rule::FloatUnary(Unary::Asin)),
    Entry::new("Acos", Rule::FloatUnary(Unary::Acos)),
    Entry::new("Atan", Rule::FloatUnary(Unary::Atan)),
    Entry::new("Sinh", Rule::FloatUnary(Unary::Sinh)),
    Entry::new("Cosh", Rule::FloatUnary(Unary::Cosh)),
    Entry::new("Asinh", Rule::FloatUnary(Unary::Asinh)),
    Entry::new("Acosh", Rule::FloatUnary(Unary::Acosh)),
    Entry::new("Atanh", Rule::FloatUnary(Unary::Atanh)),
    Entry::new("Tanh", Rule::FloatUnary(Unary::Tanh)),
    Entry::new("Sigmoid", Rule::FloatUnary(Unary::Sigmoid)),
    Entry::new("Erf", Rule::Unary(Unary::Erf)),
    Entry::new("Floor", Rule::FloatUnary(Unary::Floor)),
    Entry::new("Ceil", Rule::FloatUnary(Unary::Ceil)),
    Entry::new("Round", Rule::FloatUnary(Unary::Round)),
    Entry::new("Add", Rule::Arithmetic(Binary::Add)),
    Entry::new("Sub", Rule::Arithmetic(Binary::Subtract)),
    Entry::new("Mul", Rule::Arithmetic(Binary::Multiply)),
    Entry::new("Div", Rule::Arithmetic(Binary::Divide)),
    Entry::new("Equal", Rule::Compare(Binary::Equal)),
    Entry::new("Less", Rule::Compare(Binary::Less)),
    Entry::new("LessOrEqual", Rule::Compare(Binary::LessOrEqual)),
    Entry::new("Greater", Rule::Compare(Binary::Greater)),
    Entry::new("GreaterOrEqual", Rule::Compare(Binary::GreaterOrEqual)),
    Entry::new("And", Rule::Logic(Binary::And)),
    Entry::new("Or", Rule::Logic(Binary::Or)),
    Entry::new("Xor", Rule::Logic(Binary::Xor)),
    Entry::new("Not", Rule::Call(not)),
    Entry::new("IsNaN", Rule::Call(is_nan)),
    Entry::new("IsInf", Rule::Call(is_infinite)),
    Entry::new("Pow", Rule::Call(power)),
    Entry::new("Mod", Rule::Call(modulo)),
    Entry::new("Where", Rule::Call(choose)),
    Entry::new("Min", Rule::Call(min)),
    Entry::new("Max", Rule::Call(max)),
    Entry::new("Sum", Rule::Call(sum)),
    Entry::new("Mean", Rule::Call(mean)),
    Entry::new("Clip", Rule::Call(clip)),
];

const A: Register = Register(0);
const B: Register = Register(1);
const C: Register = Register(2);

/// A function of one number; the result has its type.
pub(super) fn unary(operator: &Operator<'_>, builder: &mut Builder, function: Unary) -> Result<View, Fault> {
    let x = operator.number(0)?;
    builder.map(ExpressionBuilder::of_one(domain_of(x.dtype()), function), from_ref(x), x.dtype())
}

/// A function of one floating-point number.
pub(super) fn float_unary(operator: &Operator<'_>, builder: &mut Builder, function: Unary) -> Result<View, Fault> {
    operator.float_input(0)?;
    unary(operator, builder, function)
}

/// A function of two numbers of one type; the result has it too.
pub(super) fn arithmetic(operator: &Operator<'_>, builder: &mut Builder, function: Binary) -> Result<View, Fault> {
    let (a, b) = operator.pair()?;
    operator.number(0)?;
    builder.map(ExpressionBuilder::of_two(domain_of(a.dtype()), function), &[a.clone(), b.clone()], a.dtype())
}

/// A truth value from two elements of one type.
pub(super) fn compare(operator: &Operator<'_>, builder: &mut Builder, function: Binary) -> Result<View, Fault> {
    let (a, b) = operator.pair()?;
    builder.map(ExpressionBuilder::of_two(domain_of(a.dtype()), function), &[a.clone(), b.clone()], DType::Bool)
}

/// A truth value from two truth values.
pub(super) fn logic(operator: &Operator<'_>, builder: &mut Builder, function: Binary) -> Result<View, Fault> {
    let (a, b) = (operator.typed(0, DType::Bool)?, operator.typed(1, DType::Bool)?);
    builder.map(ExpressionBuilder::of_two(Domain::F32, function), &[a.clone(), b.clone()], DType::Bool)
}

fn not(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.typed(0, DType::Bool)?;
    Ok(vec![builder.map(ExpressionBuilder::of_one(Domain::F32, Unary::Not), from_ref(x), DType::Bool)?])
}

fn is_nan(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    Ok(vec![builder.map(ExpressionBuilder::of_one(domain_of(x.dtype()), Unary::IsNan), from_ref(x), DType::Bool)?])
}

fn is_infinite(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let negative = operator.flag("detect_negative", true)?;
    let positive = operator.flag("detect_positive", true)?;
    let mut expression = ExpressionBuilder::new(domain_of(x.dtype()), 1);
    let infinite = expression.unary(Unary::IsInfinite, A);
    let wanted_sign = match (negative, positive) {
        (true, true) => None,
        (true, false) => Some(expression.with(Binary::Less, A, 0.0)),
        (false, true) => Some(expression.with(Binary::Greater, A, 0.0)),
        (false, false) => Some(expression.literal(0.0)),
    };
    if let Some(sign) = wanted_sign {
        expression.binary(Binary::And, infinite, sign);
    }
    Ok(vec![builder.map(expression, from_ref(x), DType::Bool)?])
}

/// The exponent may have another type than the base, whose type the result has.
fn power(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (base, exponent) = (operator.number(0)?, operator.number(1)?);
    let domain = match (domain_of(base.dtype()), domain_of(exponent.dtype())) {
        (Domain::I64, Domain::I64) => Domain::I64,
        (Domain::F32, exponent) if exponent != Domain::F64 => Domain::F32,
        _ => Domain::F64,
    };
    let expression = ExpressionBuilder::of_two(domain, Binary::Power);
    Ok(vec![builder.map(expression, &[base.clone(), exponent.clone()], base.dtype())?])
}

fn modulo(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let truncated = operator.flag("fmod", false)?;
    let function = if truncated { Binary::TruncatedModulo } else { Binary::FloorModulo };
    Ok(vec![arithmetic(operator, builder, function)?])
}

fn choose(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let condition = operator.typed(0, DType::Bool)?;
    let (yes, no) = (operator.input(1)?, operator.input(2)?);
    operator.typed(2, yes.dtype())?;
    let mut expression = ExpressionBuilder::new(domain_of(yes.dtype()), 3);
    expression.select(A, B, C);
    Ok(vec![builder.map(expression, &[condition.clone(), yes.clone(), no.clone()], yes.dtype())?])
}

fn min(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    Ok(vec![variadic(operator, builder, Binary::Min)?])
}

fn max(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    Ok(vec![variadic(operator, builder, Binary::Max)?])
}

fn sum(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    Ok(vec![variadic(operator, builder, Binary::Add)?])
}

fn mean(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let total = variadic(operator, builder, Binary::Add)?;
    let mut expression = ExpressionBuilder::new(domain_of(total.dtype()), 1);
    expression.with(Binary::Divide, A, operator.count() as f64);
    Ok(vec![builder.map(expression, from_ref(&total), total.dtype())?])
}

/// A function of two numbers over one or more inputs, from left to right.
fn variadic(operator: &Operator<'_>, builder: &mut Builder, function: Binary) -> Result<View, Fault> {
    let mut result = operator.number(0)?.clone();
    for index in 1..operator.count() {
        let next = operator.typed(index, result.dtype())?;
        let expression = ExpressionBuilder::of_two(domain_of(result.dtype()), function);
        result = builder.map(expression, &[result.clone(), next.clone()], next.dtype())?;
    }
    Ok(result)
}

/// Bounds are attributes before version 11, scalars after it; either may be absent. Where they cross, the upper holds.
fn clip(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    let mut inputs = vec![x.clone()];
    let mut expression = ExpressionBuilder::new(domain_of(x.dtype()), 3);
    let mut result = A;
    for (index, name, function) in [(1, "min", Binary::Max), (2, "max", Binary::Min)] {
        let bound = if operator.opset() < 11 {
            operator.optional_float(name)?.map(|bound| builder.scalar(x.dtype(), bound.into())).transpose()?
        } else {
            operator.optional(index).map(|_| operator.typed(index, x.dtype()).cloned()).transpose()?
        };
        let Some(bound) = bound else { continue };
        if bound.elements() != 1 {
            return Err(Fault::invalid(format!("the bound `{name}` has shape {}, not one element", bound.shape())));
        }
        inputs.push(bound.reshaped(vec![])?);
        result = expression.binary(function, result, Register(inputs.len() as u16 - 1));
    }
    match inputs.len() {
        1 => return Ok(vec![x.clone()]),
        2 => inputs.push(inputs[1].clone()),
        _ => {}
    }
    Ok(vec![builder.map(expression, &inputs, x.dtype())?])
}
