//! Functions whose values are true or false, as numbers of an expression or as bytes of its output.

use super::number::Number;
use super::source::{Source, each, pairs};
use anabranch_op::op::{Binary, Unary};

/// Computes a function of one number at each element; false for functions of other values.
pub(crate) fn unary<T: Number, B: From<bool> + Copy>(function: Unary, a: Source<'_, T>, out: &mut [B]) {
    let zero = T::zeroed();
    match function {
        Unary::Not => each(a, out, |x| B::from(x == zero)),
        #[allow(clippy::eq_op, reason = "a NaN differs from itself")]
        Unary::IsNan => each(a, out, |x| B::from(x != x)),
        Unary::IsInfinite => each(a, out, |x| B::from(x.is_infinite())),
        _ => out.fill(B::from(false)),
    }
}

/// Computes a function of two numbers at each element; false for functions of other values.
pub(crate) fn binary<T: Number, B: From<bool> + Copy>(
    function: Binary,
    a: Source<'_, T>,
    b: Source<'_, T>,
    out: &mut [B],
) {
    let zero = T::zeroed();
    match function {
        Binary::Equal => pairs(a, b, out, |x, y| B::from(x == y)),
        Binary::Less => pairs(a, b, out, |x, y| B::from(x < y)),
        Binary::LessOrEqual => pairs(a, b, out, |x, y| B::from(x <= y)),
        Binary::Greater => pairs(a, b, out, |x, y| B::from(x > y)),
        Binary::GreaterOrEqual => pairs(a, b, out, |x, y| B::from(x >= y)),
        Binary::And => pairs(a, b, out, |x, y| B::from((x != zero) & (y != zero))),
        Binary::Or => pairs(a, b, out, |x, y| B::from((x != zero) | (y != zero))),
        Binary::Xor => pairs(a, b, out, |x, y| B::from((x != zero) ^ (y != zero))),
        _ => out.fill(B::from(false)),
    }
}
