//! Natural logarithm.

use super::{Isa, polynomial};

/// Bits of √½: mantissas lie from there to √2, so that their logarithm is about 0.
const SQRT_HALF_BITS: u32 = 0x3f35_04f3;
/// Natural logarithm of 2, cut so that its product with an exponent is exact, and the rest.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -0.000_212_194_44;

/// Returns the natural logarithm: at most 1 unit in the last place, for subnormal numbers too; −∞ at 0, NaN below.
#[inline(always)]
pub fn log<I: Isa>(x: f32) -> f32 {
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 8_388_608.0 } else { x };
    let offset = scaled.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let mantissa = f32::from_bits((offset & 0x007f_ffff).wrapping_add(SQRT_HALF_BITS));
    let exponent = ((offset as i32) >> 23) as f32 - if subnormal { 23.0 } else { 0.0 };
    let value = of_parts::<I>(mantissa - 1.0, exponent);
    // The logarithms of infinity and NaN are infinity and NaN.
    let value = if x < f32::INFINITY { value } else { x };
    let value = if x < 0.0 { f32::NAN } else { value };
    if x == 0.0 { f32::NEG_INFINITY } else { value }
}

/// Returns `ln(1 + f) + exponent · ln 2`.
#[inline(always)]
fn of_parts<I: Isa>(f: f32, exponent: f32) -> f32 {
    let tail = polynomial::<I, 9>(
        f,
        [
            0.333_333_13,
            -0.250_001_67,
            0.200_022_22,
            -0.166_593_73,
            0.142_096_36,
            -0.125_495_69,
            0.121_079_38,
            -0.109_170_556,
            0.053_428_18,
        ],
    );
    let square = f * f;
    let small = I::fused(square * f, tail, exponent * LN_2_LOW);
    I::fused(exponent, LN_2_HIGH, I::fused(square, -0.5, small) + f)
}
