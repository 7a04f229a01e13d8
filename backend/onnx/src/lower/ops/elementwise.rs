//! Operators that compute each element of the output from the corresponding elements of the inputs.

use super::{Builder, Entry, Fault, Operator, View, domain_of, numbers};
use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, Domain, Unary};

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
    ("Erf", error_function),
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
    ("Sum", sum),
    ("Mean", mean),
    ("Clip", clip),
];

/// Applies a function of one number; the result has its type.
fn unary(operator: &Operator<'_>, builder: &mut Builder, function: Unary) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    let result = builder.map(domain_of(x.dtype()), [x], x.dtype(), |[x]| x.apply(function))?;
    if function == Unary::Relu {
        builder.remember_bounds(x, [0.0, f64::INFINITY], &result);
    }
    Ok(vec![result])
}

/// Applies the error function; for integers it is computed in `f64` and truncated.
fn error_function(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    let domain = if domain_of(x.dtype()).is_integer() { Domain::F64 } else { domain_of(x.dtype()) };
    Ok(vec![builder.map(domain, [x], x.dtype(), |[x]| x.apply(Unary::Erf))?])
}

fn float_unary(operator: &Operator<'_>, builder: &mut Builder, function: Unary) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    unary(operator, builder, function)
}

/// Applies a function of two numbers of one type, which the result has, too.
fn arithmetic(operator: &Operator<'_>, builder: &mut Builder, function: Binary) -> Result<Vec<View>, Fault> {
    let (a, b) = (operator.pair()?.0, &operator.broadcast(1)?);
    operator.number(0)?;
    let result = builder.map(domain_of(a.dtype()), [a, b], a.dtype(), |[a, b]| a.with(function, b))?;
    if function == Binary::Add {
        builder.remember_offset(a, b, &result);
        builder.remember_offset(b, a, &result);
    }
    Ok(vec![result])
}

/// Computes a bool from two elements of one type.
fn compare(operator: &Operator<'_>, builder: &mut Builder, function: Binary) -> Result<Vec<View>, Fault> {
    let (a, b) = (operator.pair()?.0, &operator.broadcast(1)?);
    Ok(vec![builder.map(domain_of(a.dtype()), [a, b], DType::Bool, |[a, b]| a.with(function, b))?])
}

fn logic(operator: &Operator<'_>, builder: &mut Builder, function: Binary) -> Result<Vec<View>, Fault> {
    operator.typed(0, DType::Bool)?;
    compare(operator, builder, function)
}

fn not(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.typed(0, DType::Bool)?;
    Ok(vec![builder.map(Domain::F32, [x], DType::Bool, |[x]| x.apply(Unary::Not))?])
}

fn is_nan(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    Ok(vec![builder.map(domain_of(x.dtype()), [x], DType::Bool, |[x]| x.apply(Unary::IsNan))?])
}

fn is_infinite(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let negative = operator.flag("detect_negative", true)?;
    let positive = operator.flag("detect_positive", true)?;
    let result = builder.map(domain_of(x.dtype()), [x], DType::Bool, |[x]| match (negative, positive) {
        (true, true) => x.apply(Unary::IsInfinite),
        (true, false) => x.with(Binary::Equal, f64::NEG_INFINITY),
        (false, true) => x.with(Binary::Equal, f64::INFINITY),
        (false, false) => x.apply(Unary::IsInfinite).with(Binary::And, 0.0),
    })?;
    Ok(vec![result])
}

/// Computes powers. The exponent may have another type than the base, whose type the result has.
fn power(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.number(1)?;
    let (base, exponent) = (operator.number(0)?, &operator.broadcast(1)?);
    let domain = match (domain_of(base.dtype()), domain_of(exponent.dtype())) {
        (Domain::U64, Domain::I64) => return Ok(vec![signed_power(builder, base, exponent)?]),
        // Modulo 2⁶⁴, powers of signed and unsigned numbers are equal.
        (base, Domain::U64) if base.is_integer() => Domain::U64,
        (Domain::I64, Domain::I64) => Domain::I64,
        (Domain::F32, exponent) if exponent != Domain::F64 => Domain::F32,
        _ => Domain::F64,
    };
    Ok(vec![builder.map(domain, [base, exponent], base.dtype(), |[x, y]| x.with(Binary::Power, y))?])
}

/// Computes powers of `u64`, whose exponents may be negative: those are reciprocals, truncated.
fn signed_power(builder: &mut Builder, base: &View, exponent: &View) -> Result<View, Fault> {
    let negative = builder.map(Domain::I64, [exponent], DType::Bool, |[y]| y.with(Binary::Less, 0.0))?;
    let exponent = builder.map(Domain::I64, [exponent], DType::U64, |[y]| y.with(Binary::Max, 0.0))?;
    builder.map(Domain::U64, [base, &exponent, &negative], base.dtype(), |[x, y, negative]| {
        let one = negative.select(1.0, 1.0);
        let reciprocal = one / negative.select(x, 1.0);
        negative.select(reciprocal, x.with(Binary::Power, y))
    })
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
    let (inputs, dtype) = ([condition, yes, no], yes.dtype());
    Ok(vec![builder.map(domain_of(dtype), inputs, dtype, |[condition, yes, no]| condition.select(yes, no))?])
}

fn mean(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let (total, dtype, count) = (total(operator, builder)?, operator.input(0)?.dtype(), operator.count() as f64);
    Ok(vec![builder.map(domain_of(total.dtype()), [&total], dtype, |[total]| total / count)?])
}

fn sum(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (total, dtype) = (total(operator, builder)?, operator.input(0)?.dtype());
    Ok(vec![builder.cast(&total, dtype)?])
}

/// Adds all inputs, from left to right. The sum of narrow floats is in `f32`: they are rounded once, in the end.
fn total(operator: &Operator<'_>, builder: &mut Builder) -> Result<View, Fault> {
    let first = operator.number(0)?;
    let mut total = if first.dtype().is_float() { builder.as_working(first)? } else { first.clone() };
    for index in 1..operator.count() {
        let next = operator.typed(index, first.dtype())?;
        total = builder.map(domain_of(total.dtype()), [&total, next], total.dtype(), |[a, b]| a + b)?;
    }
    Ok(total)
}

/// Applies a function of two numbers over one or more inputs, from left to right.
fn variadic(operator: &Operator<'_>, builder: &mut Builder, function: Binary) -> Result<View, Fault> {
    let mut result = operator.number(0)?.clone();
    for index in 1..operator.count() {
        let next = operator.typed(index, result.dtype())?;
        let domain = domain_of(result.dtype());
        result = builder.map(domain, [&result, next], next.dtype(), |[a, b]| a.with(function, b))?;
    }
    Ok(result)
}

/// Clips elements. Bounds are attributes before version 11, scalars after it; either may be absent. If they cross, the
/// upper bound wins.
fn clip(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    let mut bound = |index: usize, name: &str| {
        let bound = if operator.opset < 11 {
            operator.node.float(name)?.map(|bound| builder.scalar(x.dtype(), f64::from(bound))).transpose()?
        } else {
            operator.optional(index).map(|_| operator.typed(index, x.dtype()).cloned()).transpose()?
        };
        match bound {
            Some(bound) if bound.elements() != 1 => {
                Err(Fault::invalid(format!("the bound `{name}` has shape {}, not one element", bound.shape())))
            }
            bound => bound.map(|bound| bound.reshaped(vec![])).transpose(),
        }
    };
    let (low, high) = (bound(1, "min")?, bound(2, "max")?);
    let (domain, dtype) = (domain_of(x.dtype()), x.dtype());
    let clipped = match (&low, &high) {
        (None, None) => x.clone(),
        (Some(low), None) => builder.map(domain, [x, low], dtype, |[x, low]| x.with(Binary::Max, low))?,
        (None, Some(high)) => builder.map(domain, [x, high], dtype, |[x, high]| x.with(Binary::Min, high))?,
        (Some(low), Some(high)) => builder
            .map(domain, [x, low, high], dtype, |[x, low, high]| x.with(Binary::Max, low).with(Binary::Min, high))?,
    };
    let known = |bound: &Option<View>, open: f64| match bound {
        Some(bound) => numbers(&builder.tensor(bound)?).map(|numbers| numbers[0]),
        None => Some(open),
    };
    if let (Some(low), Some(high)) = (known(&low, f64::NEG_INFINITY), known(&high, f64::INFINITY)) {
        builder.remember_bounds(x, [low, high], &clipped);
    }
    Ok(vec![clipped])
}
