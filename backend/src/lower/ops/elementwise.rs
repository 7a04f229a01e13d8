//! Operators that compute each element of the output from the corresponding elements of the inputs.

use super::{Builder, Entry, ExpressionBuilder, Fault, Operator, View, domain_of};
use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, Domain, Register, Unary};
use std::slice::from_ref;

pub(super) const TABLE: &[Entry] = &[
    ("Abs", |o, b| unary(o, b, Unary::Abs)),
    ("Neg", |o, b| unary(o, b, Unary::Negate)),
    ("Sign", |o, b| unary(o, b, Unary::Sign)),
    ("Relu", |o, b| unary(o, b, Unary::Relu)),
    ("Reciprocal", |o, b| float_unary(o, b, Unary::Reciprocal)),
    ("Sqrt", |o, b| float_unary(o, b, Unary::Sqrt)),
    ("Exp", |o, b| float_unary(o, b, Unary::Exp)),
    ("Log", |o, b| float_unary(o, b, Unary::Log)),
    ("Sin", |o, b| float_unary(o, b, Unary::Sin)),
    ("Cos", |o, b| float_unary(o, b, Unary::Cos)),
    ("Tan", |o, b| float_unary(o, b, Unary::Tan)),
    ("Asin", |o, b| float_unary(o, b, Unary::Asin)),
    ("Acos", |o, b| float_unary(o, b, Unary::Acos)),
    ("Atan", |o, b| float_unary(o, b, Unary::Atan)),
    ("Sinh", |o, b| float_unary(o, b, Unary::Sinh)),
    ("Cosh", |o, b| float_unary(o, b, Unary::Cosh)),
    ("Asinh", |o, b| float_unary(o, b, Unary::Asinh)),
    ("Acosh", |o, b| float_unary(o, b, Unary::Acosh)),
    ("Atanh", |o, b| float_unary(o, b, Unary::Atanh)),
    ("Tanh", |o, b| float_unary(o, b, Unary::Tanh)),
    ("Sigmoid", |o, b| float_unary(o, b, Unary::Sigmoid)),
    ("Erf", |o, b| unary(o, b, Unary::Erf)),
    ("Floor", |o, b| float_unary(o, b, Unary::Floor)),
    ("Ceil", |o, b| float_unary(o, b, Unary::Ceil)),
    ("Round", |o, b| float_unary(o, b, Unary::Round)),
    ("Add", |o, b| arithmetic(o, b, Binary::Add)),
    ("Sub", |o, b| arithmetic(o, b, Binary::Subtract)),
    ("Mul", |o, b| arithmetic(o, b, Binary::Multiply)),
    ("Div", |o, b| arithmetic(o, b, Binary::Divide)),
    ("Equal", |o, b| compare(o, b, Binary::Equal)),
    ("Less", |o, b| compare(o, b, Binary::Less)),
    ("LessOrEqual", |o, b| compare(o, b, Binary::LessOrEqual)),
    ("Greater", |o, b| compare(o, b, Binary::Greater)),
    ("GreaterOrEqual", |o, b| compare(o, b, Binary::GreaterOrEqual)),
    ("And", |o, b| logic(o, b, Binary::And)),
    ("Or", |o, b| logic(o, b, Binary::Or)),
    ("Xor", |o, b| logic(o, b, Binary::Xor)),
    ("Not", not),
    ("IsNaN", is_nan),
    ("IsInf", is_infinite),
    ("Pow", power),
    ("Mod", modulo),
    ("Where", choose),
    ("Min", |o, b| Ok(vec![variadic(o, b, Binary::Min)?])),
    ("Max", |o, b| Ok(vec![variadic(o, b, Binary::Max)?])),
    ("Sum", |o, b| Ok(vec![variadic(o, b, Binary::Add)?])),
    ("Mean", mean),
    ("Clip", clip),
];

const A: Register = Register(0);
const B: Register = Register(1);
const C: Register = Register(2);

/// A function of one number; the result has its type.
fn unary(operator: &Operator<'_>, builder: &mut Builder, function: Unary) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    let expression = ExpressionBuilder::of_one(domain_of(x.dtype()), function);
    Ok(vec![builder.map(expression, from_ref(x), x.dtype())?])
}

/// A function of one floating-point number.
fn float_unary(operator: &Operator<'_>, builder: &mut Builder, function: Unary) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    unary(operator, builder, function)
}

/// A function of two numbers of one type; the result has it too.
fn arithmetic(operator: &Operator<'_>, builder: &mut Builder, function: Binary) -> Result<Vec<View>, Fault> {
    let (a, b) = operator.pair()?;
    operator.number(0)?;
    let expression = ExpressionBuilder::of_two(domain_of(a.dtype()), function);
    Ok(vec![builder.map(expression, &[a.clone(), b.clone()], a.dtype())?])
}

/// A truth value from two elements of one type.
fn compare(operator: &Operator<'_>, builder: &mut Builder, function: Binary) -> Result<Vec<View>, Fault> {
    let (a, b) = operator.pair()?;
    let expression = ExpressionBuilder::of_two(domain_of(a.dtype()), function);
    Ok(vec![builder.map(expression, &[a.clone(), b.clone()], DType::Bool)?])
}

/// A truth value from two truth values.
fn logic(operator: &Operator<'_>, builder: &mut Builder, function: Binary) -> Result<Vec<View>, Fault> {
    operator.typed(0, DType::Bool)?;
    compare(operator, builder, function)
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
    arithmetic(operator, builder, function)
}

fn choose(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let condition = operator.typed(0, DType::Bool)?;
    let (yes, no) = (operator.input(1)?, operator.input(2)?);
    operator.typed(2, yes.dtype())?;
    let mut expression = ExpressionBuilder::new(domain_of(yes.dtype()), 3);
    expression.select(A, B, C);
    Ok(vec![builder.map(expression, &[condition.clone(), yes.clone(), no.clone()], yes.dtype())?])
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
        let bound = if operator.opset < 11 {
            operator.node.float(name)?.map(|bound| builder.scalar(x.dtype(), bound.into())).transpose()?
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
