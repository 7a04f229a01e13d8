//! Exponential function, and the two activations made of it.

use super::{Isa, polynomial, power_of_two};

/// Number whose addition rounds a number of magnitude below 2²² to the nearest integer, which is then in the low bits.
const ROUNDER: f32 = 12_582_912.0;
/// Natural logarithm of 2, cut so that its product with an exponent is exact, and the rest.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -0.000_212_194_44;

/// Returns `e^x`: at most 1.01 units in the last place; subnormal results are rounded like others.
#[inline(always)]
pub fn exp<I: Isa>(x: f32) -> f32 {
    // Beyond these bounds the result is infinite or zero, in two steps of scaling. NaN stays NaN.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let (mantissa, exponent) = reduced::<I>(x);
    scaled(mantissa, exponent)
}

/// Returns `e^x / 2`, which overflows only beyond 89.4; for numbers that are not negative.
#[inline(always)]
pub(super) fn half_exp<I: Isa>(x: f32) -> f32 {
    let x = if x > 90.0 { 90.0 } else { x };
    let (mantissa, exponent) = reduced::<I>(x);
    scaled(mantissa, exponent.wrapping_sub(1))
}

/// Returns `mantissa · 2^exponent` in two steps, so that results may be subnormal or infinite.
#[inline(always)]
fn scaled(mantissa: f32, exponent: u32) -> f32 {
    let half = ((exponent as i32) >> 1) as u32;
    mantissa * power_of_two(half) * power_of_two(exponent.wrapping_sub(half))
}

/// Bound below which [`exp_below_one`] is 0: `e^x` would be less than 1.7·10⁻³⁸, close to the least normal number.
const LEAST: f32 = -87.0;

/// Returns [`exp`] of a number that is not positive, with 0 instead of subnormal results. A vector of subnormal results
/// takes a tenth of a microsecond, and attention masks produce whole rows of them.
#[inline(always)]
pub fn exp_below_one<I: Isa>(x: f32) -> f32 {
    let clamped = if x < LEAST { LEAST } else { x };
    let (mantissa, exponent) = reduced::<I>(clamped);
    let made = mantissa * power_of_two(exponent);
    if x < LEAST { 0.0 } else { made }
}

/// Returns `e^x` as `mantissa · 2^exponent`, with a mantissa of about 0.7…1.5.
#[inline(always)]
fn reduced<I: Isa>(x: f32) -> (f32, u32) {
    let shifted = I::fused(x, std::f32::consts::LOG2_E, ROUNDER);
    let exponent = shifted.to_bits().wrapping_sub(ROUNDER.to_bits());
    let whole = shifted - ROUNDER;
    let rest = I::fused(whole, -LN_2_LOW, I::fused(whole, -LN_2_HIGH, x));
    let tail = polynomial::<I, 5>(rest, [0.499_999_94, 0.166_665_23, 0.041_668_236, 0.008_367_758, 0.001_379_930_2]);
    (I::fused(rest * rest, tail, rest) + 1.0, exponent)
}

/// Returns `1 / (1 + e^−x)`: at most 2.5 units in the last place; 0 below −87.
#[inline(always)]
pub fn sigmoid<I: Isa>(x: f32) -> f32 {
    // Both forms are equal; this one's exponential is at most 1.
    let small = exp_below_one::<I>(-x.abs());
    let numerator = if x < 0.0 { small } else { 1.0 };
    numerator / (1.0 + small)
}

/// Returns `1 / (1 + e^−x)` of a binary64 number, subnormal results included.
#[inline]
pub fn sigmoid_f64(x: f64) -> f64 {
    // Both forms are equal; this one's exponential is at most 1.
    let small = (-x.abs()).exp();
    let numerator = if x < 0.0 { small } else { 1.0 };
    numerator / (1.0 + small)
}

/// Returns the hyperbolic tangent: at most 5.25 units in the last place, never beyond ±1.
///
/// A quotient of polynomials, fitted up to the argument at which the result is 1 to the last place. It is twice as fast
/// as the exponential function, which would be exact to 2 units.
#[inline(always)]
pub fn tanh<I: Isa>(x: f32) -> f32 {
    let clamped = if x > 9.02 { 9.02 } else { x };
    let clamped = if clamped < -9.02 { -9.02 } else { clamped };
    let square = clamped * clamped;
    let numerator = polynomial::<I, 5>(square, [1.0, 0.133_797_17, 0.003_494_033_8, 2.058_347_1e-5, 1.331_906e-8]);
    let denominator = polynomial::<I, 5>(square, [1.0, 0.467_130_33, 0.025_871_07, 0.000_328_309_2, 7.762_014_3e-7]);
    within_one(clamped * numerator / denominator)
}

/// Clamps to magnitude 1; NaN stays NaN.
#[inline(always)]
pub(super) fn within_one(x: f32) -> f32 {
    let x = if x > 1.0 { 1.0 } else { x };
    if x < -1.0 { -1.0 } else { x }
}
