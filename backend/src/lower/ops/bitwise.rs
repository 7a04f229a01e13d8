//! Operators on the bits of integers.

use super::{Builder, Entry, Fault, Operator, View};
use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, Domain};

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
    Ok(vec![builder.map(Domain::I64, [a, b], a.dtype(), |[a, b]| a.with(function, b))?])
}

fn not(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = integer(operator)?;
    Ok(vec![builder.map(Domain::I64, [x], x.dtype(), |[x]| x.with(Binary::BitXor, -1.0))?])
}

/// Elements are held in 64 bits with their sign, so that only unsigned ones of 64 bits need zeros to be shifted in by hand.
fn shift(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (x, distance) = operator.pair()?;
    let dtype = integer(operator)?.dtype();
    let result = match operator.string("direction", "")? {
        "LEFT" => builder.map(Domain::I64, [x, distance], dtype, |[x, by]| x.with(Binary::ShiftLeft, by))?,
        "RIGHT" if dtype == DType::U64 => builder.map(Domain::I64, [x, distance], dtype, |[x, by]| {
            let vacated = (by * -1.0) + 64.0;
            let ones = (x * 0.0) - 1.0;
            let kept = ones.with(Binary::ShiftLeft, vacated).with(Binary::BitXor, -1.0);
            let shifted = x.with(Binary::ShiftRight, by).with(Binary::BitAnd, kept);
            let near = by.with(Binary::GreaterOrEqual, 0.0).with(Binary::And, by.with(Binary::Less, 64.0));
            near.select(shifted, 0.0)
        })?,
        "RIGHT" => builder.map(Domain::I64, [x, distance], dtype, |[x, by]| x.with(Binary::ShiftRight, by))?,
        other => return Err(Fault::attribute("direction", other, "LEFT or RIGHT")),
    };
    Ok(vec![result])
}

fn integer<'a>(operator: &'a Operator<'_>) -> Result<&'a View, Fault> {
    let x = operator.number(0)?;
    if x.dtype().is_float() { Err(Fault::of_type(0, x.dtype(), "an integer type")) } else { Ok(x) }
}
