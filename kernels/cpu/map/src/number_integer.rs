//! Expressions over signed and unsigned integers: wrapping arithmetic, and an error if a divisor is zero.

use super::number::{Number, Undefined};
use super::source::{Source, each, pairs, select};
use super::truth;
use anabranch_cpu_base::convert;
use anabranch_op::dtype::DType;
use anabranch_op::op::{Binary, Literal, Unary};

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

macro_rules! unsigned {
    ($integer:ident) => {
        impl Integer for $integer {
            fn magnitude(self) -> Self {
                self
            }

            fn sign(self) -> Self {
                self.min(1)
            }

            fn power(self, exponent: Self) -> Option<Self> {
                Some(wrapping_power(self as u64, exponent as u64) as Self)
            }

            fn floor_modulo(self, divisor: Self) -> Self {
                self % divisor
            }

            fn shifted_right(self, distance: Self) -> Self {
                if distance < Self::BITS as Self { self >> distance } else { 0 }
            }
        }
    };
}

signed!(i8);
signed!(i16);
signed!(i32);
signed!(i64);
unsigned!(u8);
unsigned!(u16);
unsigned!(u32);
unsigned!(u64);

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
    ($integer:ident, $dtype:ident, $literal:ident, $load:ident, $store:ident, $divide:ident) => {
        impl Number for $integer {
            const DTYPE: DType = DType::$dtype;

            fn reads(dtype: DType) -> bool {
                !dtype.is_float() && dtype.size() == size_of::<Self>()
            }

            fn writes(dtype: DType) -> bool {
                !dtype.is_float() && dtype != DType::Bool && dtype.bits() == Self::BITS as usize
            }

            fn missing(function: Unary) -> Option<&'static str> {
                missing(function)
            }

            fn literal(literal: Literal) -> Self {
                literal.$literal() as Self
            }

            fn unary(function: Unary, a: Source<'_, Self>, out: &mut [Self]) -> Result<(), Undefined> {
                match function {
                    Unary::Negate => each(a, out, Self::wrapping_neg),
                    Unary::Abs => each(a, out, Integer::magnitude),
                    Unary::Sign => each(a, out, Integer::sign),
                    Unary::Reciprocal => return $divide!(Binary::Divide, Source::Scalar(1), a, out),
                    Unary::Relu => each(a, out, |x| x.max(0)),
                    Unary::Not | Unary::IsNan | Unary::IsInfinite => truth::unary(function, a, out),
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
                match function {
                    Binary::Add => pairs(a, b, out, Self::wrapping_add),
                    Binary::Subtract => pairs(a, b, out, Self::wrapping_sub),
                    Binary::Multiply => pairs(a, b, out, Self::wrapping_mul),
                    Binary::Divide | Binary::FloorModulo | Binary::TruncatedModulo => {
                        return $divide!(function, a, b, out);
                    }
                    Binary::Min => pairs(a, b, out, Ord::min),
                    Binary::Max => pairs(a, b, out, Ord::max),
                    Binary::Power => return checked(a, b, out, NEGATIVE_POWER_OF_ZERO, Integer::power),
                    Binary::BitAnd => pairs(a, b, out, |x, y| x & y),
                    Binary::BitOr => pairs(a, b, out, |x, y| x | y),
                    Binary::BitXor => pairs(a, b, out, |x, y| x ^ y),
                    Binary::ShiftLeft => {
                        pairs(a, b, out, |x, y| if (0..Self::BITS as Self).contains(&y) { x << y } else { 0 })
                    }
                    Binary::ShiftRight => pairs(a, b, out, Integer::shifted_right),
                    _ => truth::binary(function, a, b, out),
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

/// Divides numbers of at most 32 bits as 64-bit floats, in vectors. The quotient of two such numbers is rounded to an
/// integer only if it is one, so that truncation gives the quotient of integers.
macro_rules! by_floats {
    ($function:expr, $a:expr, $b:expr, $out:expr) => {{
        let (a, b, out) = ($a, $b, $out);
        if has_zero(b) {
            return Err(DIVISION_BY_ZERO);
        }
        // The low bits, which overflow keeps.
        let quotient = |x: Self, y: Self| convert::low_bits(f64::from(x) / f64::from(y)) as Self;
        let remainder = move |x: Self, y: Self| x.wrapping_sub(quotient(x, y).wrapping_mul(y));
        match $function {
            Binary::Divide => pairs(a, b, out, quotient),
            Binary::TruncatedModulo => pairs(a, b, out, remainder),
            _ => pairs(a, b, out, |x, y| {
                let remainder = remainder(x, y);
                #[allow(unused_comparisons, reason = "one loop for all types")]
                let corrected = remainder != 0 && (remainder < 0) != (y < 0);
                remainder.wrapping_add(if corrected { y } else { 0 })
            }),
        }
        Ok(())
    }};
}

/// Divides numbers of 64 bits, one at a time.
macro_rules! one_by_one {
    ($function:expr, $a:expr, $b:expr, $out:expr) => {{
        let defined = |y: Self| (y != 0).then_some(y);
        match $function {
            Binary::Divide => {
                checked($a, $b, $out, DIVISION_BY_ZERO, |x: Self, y| defined(y).map(|y| x.wrapping_div(y)))
            }
            Binary::TruncatedModulo => {
                checked($a, $b, $out, DIVISION_BY_ZERO, |x: Self, y| defined(y).map(|y| x.wrapping_rem(y)))
            }
            _ => checked($a, $b, $out, DIVISION_BY_ZERO, |x: Self, y| defined(y).map(|y| x.floor_modulo(y))),
        }
    }};
}

integer!(i8, I8, as_i64, to_i8, from_i8, by_floats);
integer!(u8, U8, as_i64, to_u8, from_u8, by_floats);
integer!(i16, I16, as_i64, to_i16, from_i16, by_floats);
integer!(u16, U16, as_i64, to_u16, from_u16, by_floats);
integer!(i32, I32, as_i64, to_i32, from_i32, by_floats);
integer!(u32, U32, as_i64, to_u32, from_u32, by_floats);
integer!(i64, I64, as_i64, to_i64, from_i64, one_by_one);
integer!(u64, U64, as_u64, to_u64, from_u64, one_by_one);

/// Whether a number is zero.
fn has_zero<T: Number>(numbers: Source<'_, T>) -> bool {
    match numbers {
        Source::Slice(numbers) => numbers.iter().fold(false, |any, number| any | (*number == T::zeroed())),
        Source::Scalar(number) => number == T::zeroed(),
    }
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
