//! Expressions over 64-bit integers: wrapping arithmetic, and an error where a divisor is zero.

use super::convert;
use super::number::{Number, Undefined};
use super::source::{Source, each, pairs, select};
use crate::dtype::DType;
use crate::op::{Binary, Literal, Unary};

const DIVISION_BY_ZERO: Undefined = Undefined("an integer is divided by zero");
const NEGATIVE_POWER_OF_ZERO: Undefined = Undefined("the integer zero is raised to a negative power");

fn truth(value: bool) -> i64 {
    i64::from(value)
}

impl Number for i64 {
    const DTYPE: DType = DType::I64;

    fn missing(function: Unary) -> Option<&'static str> {
        match function {
            Unary::Negate
            | Unary::Abs
            | Unary::Sign
            | Unary::Reciprocal
            | Unary::Relu
            | Unary::Floor
            | Unary::Ceil
            | Unary::Round
            | Unary::Truncate
            | Unary::Not
            | Unary::IsNan
            | Unary::IsInfinite => None,
            _ => Some("functions of real numbers are not computed in 64-bit integers"),
        }
    }

    fn literal(literal: Literal) -> Self {
        match literal {
            Literal::Float(value) => value as i64,
            Literal::Int(value) => value,
        }
    }

    fn unary(function: Unary, a: Source<'_, i64>, out: &mut [i64]) -> Result<(), Undefined> {
        match function {
            Unary::Negate => each(a, out, i64::wrapping_neg),
            Unary::Abs => each(a, out, i64::wrapping_abs),
            Unary::Sign => each(a, out, i64::signum),
            Unary::Reciprocal => return checked(Source::Scalar(1), a, out, DIVISION_BY_ZERO, quotient),
            Unary::Relu => each(a, out, |x| x.max(0)),
            Unary::Not => each(a, out, |x| truth(x == 0)),
            Unary::IsNan | Unary::IsInfinite => out.fill(0),
            // Rounding: integers are whole. The others are refused when the kernel is prepared.
            _ => each(a, out, |x| x),
        }
        Ok(())
    }

    fn binary(function: Binary, a: Source<'_, i64>, b: Source<'_, i64>, out: &mut [i64]) -> Result<(), Undefined> {
        match function {
            Binary::Add => pairs(a, b, out, i64::wrapping_add),
            Binary::Subtract => pairs(a, b, out, i64::wrapping_sub),
            Binary::Multiply => pairs(a, b, out, i64::wrapping_mul),
            Binary::Divide => return checked(a, b, out, DIVISION_BY_ZERO, quotient),
            Binary::Min => pairs(a, b, out, i64::min),
            Binary::Max => pairs(a, b, out, i64::max),
            Binary::Power => return checked(a, b, out, NEGATIVE_POWER_OF_ZERO, power),
            Binary::FloorModulo => return checked(a, b, out, DIVISION_BY_ZERO, floor_modulo),
            Binary::TruncatedModulo => return checked(a, b, out, DIVISION_BY_ZERO, remainder),
            Binary::Equal => pairs(a, b, out, |x, y| truth(x == y)),
            Binary::Less => pairs(a, b, out, |x, y| truth(x < y)),
            Binary::LessOrEqual => pairs(a, b, out, |x, y| truth(x <= y)),
            Binary::Greater => pairs(a, b, out, |x, y| truth(x > y)),
            Binary::GreaterOrEqual => pairs(a, b, out, |x, y| truth(x >= y)),
            Binary::And => pairs(a, b, out, |x, y| truth((x != 0) & (y != 0))),
            Binary::Or => pairs(a, b, out, |x, y| truth((x != 0) | (y != 0))),
            Binary::Xor => pairs(a, b, out, |x, y| truth((x != 0) ^ (y != 0))),
            Binary::BitAnd => pairs(a, b, out, |x, y| x & y),
            Binary::BitOr => pairs(a, b, out, |x, y| x | y),
            Binary::BitXor => pairs(a, b, out, |x, y| x ^ y),
            Binary::ShiftLeft => pairs(a, b, out, |x, y| if (0..64).contains(&y) { x << y } else { 0 }),
            Binary::ShiftRight => pairs(a, b, out, |x, y| x >> if (0..64).contains(&y) { y } else { 63 }),
        }
        Ok(())
    }

    fn select(a: Source<'_, i64>, b: Source<'_, i64>, c: Source<'_, i64>, out: &mut [i64]) {
        select(a, b, c, out, |condition| condition != 0);
    }

    fn load(dtype: DType, bytes: &[u8], out: &mut [i64]) {
        convert::to_i64(dtype, bytes, out);
    }

    fn store(values: &[i64], dtype: DType, bytes: &mut [u8]) {
        convert::from_i64(values, dtype, bytes);
    }
}

/// A partial function at each element; `undefined` where it has no value.
fn checked(
    a: Source<'_, i64>,
    b: Source<'_, i64>,
    out: &mut [i64],
    undefined: Undefined,
    function: impl Fn(i64, i64) -> Option<i64>,
) -> Result<(), Undefined> {
    for (index, out) in out.iter_mut().enumerate() {
        *out = function(a.at(index), b.at(index)).ok_or(undefined)?;
    }
    Ok(())
}

fn quotient(x: i64, y: i64) -> Option<i64> {
    (y != 0).then(|| x.wrapping_div(y))
}

fn remainder(x: i64, y: i64) -> Option<i64> {
    (y != 0).then(|| x.wrapping_rem(y))
}

fn floor_modulo(x: i64, y: i64) -> Option<i64> {
    let remainder = remainder(x, y)?;
    Some(if remainder != 0 && (remainder < 0) != (y < 0) { remainder + y } else { remainder })
}

/// By repeated squaring, wrapping; a negative power is the reciprocal's, towards zero.
fn power(base: i64, exponent: i64) -> Option<i64> {
    match (base, exponent) {
        (0, ..0) => None,
        (1, ..0) => Some(1),
        (-1, ..0) => Some(if exponent % 2 == 0 { 1 } else { -1 }),
        (_, ..0) => Some(0),
        _ => {
            let (mut result, mut square, mut left) = (1i64, base, exponent);
            while left > 0 {
                if left % 2 == 1 {
                    result = result.wrapping_mul(square);
                }
                square = square.wrapping_mul(square);
                left /= 2;
            }
            Some(result)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_arithmetic_wraps_and_follows_the_signs() {
        for (function, a, b, want) in [
            (Binary::Divide, -7, 2, Ok(-3)),
            (Binary::Divide, i64::MIN, -1, Ok(i64::MIN)),
            (Binary::Divide, 1, 0, Err(DIVISION_BY_ZERO)),
            (Binary::FloorModulo, -7, 3, Ok(2)),
            (Binary::FloorModulo, 7, -3, Ok(-2)),
            (Binary::FloorModulo, i64::MIN, -1, Ok(0)),
            (Binary::TruncatedModulo, -7, 3, Ok(-1)),
            (Binary::TruncatedModulo, 1, 0, Err(DIVISION_BY_ZERO)),
            (Binary::Power, -3, 3, Ok(-27)),
            (Binary::Power, 2, 64, Ok(0)),
            (Binary::Power, -1, -3, Ok(-1)),
            (Binary::Power, 5, -1, Ok(0)),
            (Binary::Power, 0, -1, Err(NEGATIVE_POWER_OF_ZERO)),
            (Binary::Power, 0, 0, Ok(1)),
            (Binary::Add, i64::MAX, 1, Ok(i64::MIN)),
            (Binary::BitAnd, -2, 7, Ok(6)),
            (Binary::BitOr, 5, 2, Ok(7)),
            (Binary::BitXor, 5, -1, Ok(-6)),
            (Binary::ShiftLeft, 3, 62, Ok(3i64 << 62)),
            (Binary::ShiftLeft, 3, 64, Ok(0)),
            (Binary::ShiftRight, -16, 2, Ok(-4)),
            (Binary::ShiftRight, -16, 99, Ok(-1)),
        ] {
            let mut out = [0];
            let found = i64::binary(function, Source::Scalar(a), Source::Slice(&[b]), &mut out).map(|()| out[0]);
            assert_eq!(found, want, "{function:?}({a}, {b})");
        }
    }
}
