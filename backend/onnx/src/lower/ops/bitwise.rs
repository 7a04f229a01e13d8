//! Operators on the bits of integers.

use super::{Builder, Entry, Fault, Operator, View, domain_of};
use anabranch_kernels::op::Binary;

pub(super) const TABLE: &[Entry] = &[
    ("BitwiseAnd", |o, b| pair(o, b, Binary::BitAnd)),
    ("BitwiseOr", |o, b| pair(o, b, Binary::BitOr)),
    ("BitwiseXor", |o, b| pair(o, b, Binary::BitXor)),
    ("BitwiseNot", not),
    ("BitShift", shift),
];

fn pair(operator: &Operator<'_>, builder: &mut Builder, function: Binary) -> Result<Vec<View>, Fault> {
    let (a, b) = operator.pair()?;
    integer(operator)?;
    Ok(vec![builder.map(domain_of(a.dtype()), [a, b], a.dtype(), |[a, b]| a.with(function, b))?])
}

fn not(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = integer(operator)?;
    Ok(vec![builder.map(domain_of(x.dtype()), [x], x.dtype(), |[x]| x.with(Binary::BitXor, -1.0))?])
}

fn shift(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (x, distance) = operator.pair()?;
    let dtype = integer(operator)?.dtype();
    let function = match operator.string("direction", "")? {
        "LEFT" => Binary::ShiftLeft,
        "RIGHT" => Binary::ShiftRight,
        other => return Err(Fault::attribute("direction", other, "LEFT or RIGHT")),
    };
    Ok(vec![builder.map(domain_of(dtype), [x, distance], dtype, |[x, by]| x.with(function, by))?])
}

fn integer<'a>(operator: &'a Operator<'_>) -> Result<&'a View, Fault> {
    let x = operator.number(0)?;
    if x.dtype().is_float() { Err(Fault::of_type(0, x.dtype(), "an integer type")) } else { Ok(x) }
}
