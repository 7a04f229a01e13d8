//! Powers.

use super::{Isa, polynomial_f64};

/// Number whose addition rounds a binary64 number of magnitude below 2⁵¹ to the nearest integer, which is then in the
/// low bits.
const ROUNDER: f64 = 6_755_399_441_055_744.0;
/// Upper half of √½ as binary64: mantissas lie from about there to √2.
const SQRT_HALF_BITS: u64 = 0x3fe6_a09e_0000_0000;

/// Returns `x^y`: at most 1 unit in the last place, with the special values of C's `pow`.
#[inline(always)]
pub fn power<I: Isa>(x: f32, y: f32) -> f32 {
    let magnitude = x.abs();
    let exponent = f64::from(y) * log2::<I>(f64::from(magnitude));
    let value = exp2::<I>(exponent) as f32;

    let whole = y.trunc() == y;
    let odd = whole & ((y * 0.5).trunc() != y * 0.5);
    let signed = if odd { value.copysign(x) } else { value };
    let undefined = (x < 0.0) & (x > f32::NEG_INFINITY) & !whole;
    let value = if undefined | x.is_nan() | y.is_nan() { f32::NAN } else { signed };
    // 1 to any power, −1 to an infinite power, and anything to the power 0; the products above are NaN there.
    let value = if (magnitude == 1.0) & y.is_infinite() { 1.0 } else { value };
    if (x == 1.0) | (y == 0.0) { 1.0 } else { value }
}

/// Returns the binary logarithm of 0 or of a normal number that is not negative, to about 1e-13; −∞ at 0, ∞ at ∞.
#[inline(always)]
pub(super) fn log2<I: Isa>(x: f64) -> f64 {
    let offset = x.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let mantissa = f64::from_bits((offset & 0x000f_ffff_ffff_ffff).wrapping_add(SQRT_HALF_BITS));
    // The upper halves suffice, and every processor converts 32-bit integers in vectors.
    let exponent = f64::from(((offset >> 32) as u32 as i32) >> 20);
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let series = polynomial_f64::<I, 6>(
        ratio * ratio,
        [
            2.885_390_081_777_849,
            0.961_796_694_115_219,
            0.577_077_941_271_767_8,
            0.412_209_316_795_883_5,
            0.319_902_887_158_395_1,
            0.282_942_531_507_262_94,
        ],
    );
    let value = I::fused_f64(ratio, series, exponent);
    let value = if x == 0.0 { f64::NEG_INFINITY } else { value };
    if x == f64::INFINITY { f64::INFINITY } else { value }
}

/// Returns `2^x` to about 2e-9. Results that an `f32` rounds to zero or infinity become so; NaN stays NaN.
#[inline(always)]
fn exp2<I: Isa>(x: f64) -> f64 {
    let x = if x > 129.0 { 129.0 } else { x };
    let x = if x < -152.0 { -152.0 } else { x };
    let shifted = x + ROUNDER;
    let rest = x - (shifted - ROUNDER);
    let mantissa = polynomial_f64::<I, 7>(
        rest,
        [
            1.000_000_000_554_168_8,
            0.693_147_205_737_282_7,
            0.240_226_468_906_358,
            0.055_503_287_769_297_11,
            0.009_618_488_956_596_076,
            0.001_339_993_123_233_586_5,
            0.000_153_458_121_771_941_16,
        ],
    );
    mantissa * f64::from_bits((shifted.to_bits().wrapping_add(1023)) << 52)
}
