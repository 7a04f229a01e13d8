//! Expressions over signed and unsigned integers: wrapping arithmetic, and an error if a divisor is zero.

use super::number::{Number, Undefined};
use super::source::{Source, each, pairs, select};
use anabranch_cpu_base::convert;
use anabranch_op::dtype::DType;
use anabranch_op::op::{Binary, Expression, Literal, Step, Unary};

const DIVISION_BY_ZERO: Undefined = Undefined("an integer is divided by zero");
const NEGATIVE_POWER_OF_ZERO: Undefined = Undefined("the integer zero is raised to a negative power");

/// Operations that differ between signed and unsigned integers.
trait Integer: Copy {
    fn magnitude(self) -> Self;
    fn sign(self) -> Self;
    /// Returns a power, wrapping; `None` for a negative power of zero. Other negative powers are those of the
    /// reciprocal, rounded towards zero.
    fn power(self, exponent: Self) -> Option<Self>;
    /// Returns the remainder with the sign of the divisor, which is not zero.
    fn floor_modulo(self, divisor: Self) -> Self;
    fn shifted_right(self, distance: Self) -> Self;
}

macro_rules! signed {
    ($integer:ident) => {
        impl Integer for $integer {
            fn magnitude(self) -> Self {
                self.wrapping_abs()
            }

            fn sign(self) -> Self {
                self.signum()
            }

            fn power(self, exponent: Self) -> Option<Self> {
                match (self, exponent) {
                    (0, ..0) => None,
                    (1, ..0) => Some(1),
                    (-1, ..0) => Some(if exponent % 2 == 0 { 1 } else { -1 }),
                    (_, ..0) => Some(0),
                    _ => Some(wrapping_power(self as u64, exponent as u64) as Self),
                }
            }

            fn floor_modulo(self, divisor: Self) -> Self {
                let remainder = self.wrapping_rem(divisor);
                if remainder != 0 && (remainder < 0) != (divisor < 0) { remainder + divisor } else { remainder }
            }

            fn shifted_right(self, distance: Self) -> Self {
                let most = Self::BITS as Self - 1;
                self >> if (0..most).contains(&distance) { distance } else { most }
            }
        }
    };
}

signed!(i32);
signed!(i64);

impl Integer for u64 {
    fn magnitude(self) -> Self {
        self
    }

    fn sign(self) -> Self {
        self.min(1)
    }

    fn power(self, exponent: Self) -> Option<Self> {
        Some(wrapping_power(self, exponent))
    }

    fn floor_modulo(self, divisor: Self) -> Self {
        self % divisor
    }

    fn shifted_right(self, distance: Self) -> Self {
        if distance < 64 { self >> distance } else { 0 }
    }
}

/// Returns a power by repeated squaring, modulo 2⁶⁴, which is the same for signed and unsigned numbers.
fn wrapping_power(base: u64, exponent: u64) -> u64 {
    let (mut result, mut square, mut left) = (1u64, base, exponent);
    while left > 0 {
        if left % 2 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        left /= 2;
    }
    result
}

/// Returns why a function does not exist in integers, if it does not.
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

macro_rules! integer {
    ($integer:ident, $dtype:ident, $literal:expr, $load:ident, $store:ident) => {
        impl Number for $integer {
            const DTYPE: DType = DType::$dtype;

            fn missing(function: Unary) -> Option<&'static str> {
                missing(function)
            }

            fn literal(literal: Literal) -> Self {
                $literal(literal)
            }

            fn unary(function: Unary, a: Source<'_, Self>, out: &mut [Self]) -> Result<(), Undefined> {
                match function {
                    Unary::Negate => each(a, out, Self::wrapping_neg),
                    Unary::Abs => each(a, out, Integer::magnitude),
                    Unary::Sign => each(a, out, Integer::sign),
                    Unary::Reciprocal => {
                        let quotient = |x: Self, y| (y != 0).then(|| x.wrapping_div(y));
                        return checked(Source::Scalar(1), a, out, DIVISION_BY_ZERO, quotient);
                    }
                    Unary::Relu => each(a, out, |x| x.max(0)),
                    Unary::Not => each(a, out, |x| Self::from(x == 0)),
                    Unary::IsNan | Unary::IsInfinite => out.fill(0),
                    // Rounding leaves integers unchanged. Preparing the kernel rejects all other functions.
                    _ => each(a, out, |x| x),
                }
                Ok(())
            }

            fn binary(
                function: Binary,
                a: Source<'_, Self>,
                b: Source<'_, Self>,
                out: &mut [Self],
            ) -> Result<(), Undefined> {
                let defined = |y: Self| (y != 0).then_some(y);
                match function {
                    Binary::Add => pairs(a, b, out, Self::wrapping_add),
                    Binary::Subtract => pairs(a, b, out, Self::wrapping_sub),
                    Binary::Multiply => pairs(a, b, out, Self::wrapping_mul),
                    Binary::Divide => {
                        let quotient = |x: Self, y| defined(y).map(|y| x.wrapping_div(y));
                        return checked(a, b, out, DIVISION_BY_ZERO, quotient);
                    }
                    Binary::Min => pairs(a, b, out, Ord::min),
                    Binary::Max => pairs(a, b, out, Ord::max),
                    Binary::Power => return checked(a, b, out, NEGATIVE_POWER_OF_ZERO, Integer::power),
                    Binary::FloorModulo => {
                        let remainder = |x: Self, y| defined(y).map(|y| x.floor_modulo(y));
                        return checked(a, b, out, DIVISION_BY_ZERO, remainder);
                    }
                    Binary::TruncatedModulo => {
                        let remainder = |x: Self, y| defined(y).map(|y| x.wrapping_rem(y));
                        return checked(a, b, out, DIVISION_BY_ZERO, remainder);
                    }
                    Binary::Equal => pairs(a, b, out, |x, y| Self::from(x == y)),
                    Binary::Less => pairs(a, b, out, |x, y| Self::from(x < y)),
                    Binary::LessOrEqual => pairs(a, b, out, |x, y| Self::from(x <= y)),
                    Binary::Greater => pairs(a, b, out, |x, y| Self::from(x > y)),
                    Binary::GreaterOrEqual => pairs(a, b, out, |x, y| Self::from(x >= y)),
                    Binary::And => pairs(a, b, out, |x, y| Self::from((x != 0) & (y != 0))),
                    Binary::Or => pairs(a, b, out, |x, y| Self::from((x != 0) | (y != 0))),
                    Binary::Xor => pairs(a, b, out, |x, y| Self::from((x != 0) ^ (y != 0))),
                    Binary::BitAnd => pairs(a, b, out, |x, y| x & y),
                    Binary::BitOr => pairs(a, b, out, |x, y| x | y),
                    Binary::BitXor => pairs(a, b, out, |x, y| x ^ y),
                    Binary::ShiftLeft => {
                        pairs(a, b, out, |x, y| if (0..Self::BITS as Self).contains(&y) { x << y } else { 0 })
                    }
                    Binary::ShiftRight => pairs(a, b, out, Integer::shifted_right),
                }
                Ok(())
            }

            fn select(a: Source<'_, Self>, b: Source<'_, Self>, c: Source<'_, Self>, out: &mut [Self]) {
                select(a, b, c, out, |condition| condition != 0);
            }

            fn load(dtype: DType, bytes: &[u8], out: &mut [Self]) {
                convert::$load(dtype, bytes, out);
            }

            fn store(values: &[Self], dtype: DType, bytes: &mut [u8]) {
                convert::$store(values, dtype, bytes);
            }
        }
    };
}

integer!(i32, I32, |literal: Literal| literal.as_i64() as i32, to_i32, from_i32);
integer!(i64, I64, Literal::as_i64, to_i64, from_i64);
integer!(u64, U64, Literal::as_u64, to_u64, from_u64);

/// Whether an expression of 64-bit integers has the same results in 32 bits, for these types of its inputs and its
/// output. All of the types fit into 32 bits. Then there are two ways: no step leaves 32 bits, or all steps agree with
/// those of 64 bits in the low 32 bits, which are all that the output keeps.
pub(crate) fn fits_32_bits(expression: &Expression, inputs: impl Iterator<Item = DType>, output: DType) -> bool {
    use Binary as B;
    use Unary as U;
    let stays = |step: &Step| match step {
        Step::Constant(literal) => matches!(literal, Literal::Int(value) if i32::try_from(*value).is_ok()),
        Step::Unary(function, _) => matches!(function, U::Sign | U::Relu | U::Not),
        Step::Binary(function, ..) => {
            let compares = matches!(function, B::Equal | B::Less | B::LessOrEqual | B::Greater | B::GreaterOrEqual);
            let bits = matches!(function, B::And | B::Or | B::Xor | B::BitAnd | B::BitOr | B::BitXor);
            compares || bits || matches!(function, B::Min | B::Max)
        }
        Step::Select(..) => true,
    };
    let agrees = |step: &Step| match step {
        Step::Constant(literal) => matches!(literal, Literal::Int(_)),
        Step::Unary(function, _) => matches!(function, U::Negate),
        Step::Binary(function, ..) => {
            matches!(function, B::Add | B::Subtract | B::Multiply | B::BitAnd | B::BitOr | B::BitXor)
        }
        Step::Select(..) => false,
    };
    let narrow = |dtype| {
        use DType::{Bool, I2, I4, I8, I16, I32, U2, U4, U8, U16};
        matches!(dtype, Bool | I2 | I4 | I8 | I16 | I32 | U2 | U4 | U8 | U16)
    };
    // The magnitude of the least number has this number's low 32 bits. A later step would see the sign.
    let one_magnitude = matches!(expression.steps(), [Step::Unary(U::Abs, _)]);
    let steps = expression.steps();
    // A truth value depends on all bits.
    let low_bits = output != DType::Bool && (one_magnitude || steps.iter().all(agrees));
    inputs.chain([output]).all(narrow) && (low_bits || steps.iter().all(stays))
}

/// Computes a partial function at each element; `undefined` is the error for elements without a value.
fn checked<T: Copy>(
    a: Source<'_, T>,
    b: Source<'_, T>,
    out: &mut [T],
    undefined: Undefined,
    function: impl Fn(T, T) -> Option<T>,
) -> Result<(), Undefined> {
    for (index, out) in out.iter_mut().enumerate() {
        *out = function(a.at(index), b.at(index)).ok_or(undefined)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_op::op::Register;

    fn of<T: Number>(function: Binary, a: T, b: T) -> Result<T, Undefined> {
        let mut out = [T::zeroed()];
        T::binary(function, Source::Scalar(a), Source::Slice(&[b]), &mut out).map(|()| out[0])
    }

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
            assert_eq!(of(function, a, b), want, "{function:?}({a}, {b})");
        }
    }

    #[test]
    fn steps_that_overflow_32_bits_are_found() {
        let two = |first, second| {
            let steps =
                vec![Step::Binary(first, Register(0), Register(1)), Step::Binary(second, Register(2), Register(1))];
            Expression::new(2, steps).expect("sound")
        };
        let fits =
            |expression: &Expression, dtype| fits_32_bits(expression, [DType::I8, DType::I32].into_iter(), dtype);
        assert!(fits(&two(Binary::Add, Binary::Multiply), DType::I32), "the low bits agree");
        assert!(fits(&two(Binary::Min, Binary::Less), DType::Bool), "nothing overflows");
        assert!(!fits(&two(Binary::Add, Binary::Less), DType::Bool), "a sum may overflow, and is compared");
        assert!(!fits(&two(Binary::Add, Binary::Add), DType::I64), "the high bits are kept");
        // A sum that is not zero in 64 bits may be zero in 32.
        assert!(!fits(&Expression::binary(Binary::Add), DType::Bool), "zero or not depends on the high bits");
        assert!(!fits(&Expression::binary(Binary::Divide), DType::I32), "a divisor may be zero");
    }

    #[test]
    fn integers_without_a_sign_are_in_order_beyond_the_greatest_with_one() {
        let high = 1u64 << 63;
        for (function, a, b, want) in [
            (Binary::Divide, u64::MAX, 2, Ok(high - 1)),
            (Binary::Divide, high, u64::MAX, Ok(0)),
            (Binary::FloorModulo, u64::MAX, 10, Ok(5)),
            (Binary::TruncatedModulo, high, 0, Err(DIVISION_BY_ZERO)),
            (Binary::Max, high, 1, Ok(high)),
            (Binary::Min, u64::MAX, high, Ok(high)),
            (Binary::Less, 1, high, Ok(1)),
            (Binary::GreaterOrEqual, 1, high, Ok(0)),
            (Binary::Power, 3, u64::MAX, Ok(0xAAAA_AAAA_AAAA_AAAB)),
            (Binary::Subtract, 0, 1, Ok(u64::MAX)),
            (Binary::ShiftRight, high, 63, Ok(1)),
            (Binary::ShiftRight, high, high, Ok(0)),
            (Binary::ShiftLeft, 1, 64, Ok(0)),
        ] {
            assert_eq!(of(function, a, b), want, "{function:?}({a}, {b})");
        }
        let mut out = [0; 3];
        u64::unary(Unary::Sign, Source::Slice(&[0, 1, high]), &mut out).expect("it exists");
        assert_eq!(out, [0, 1, 1]);
    }
}
