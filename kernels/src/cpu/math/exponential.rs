//! The exponential function, and the two activations made of it.

use super::{Isa, polynomial, power_of_two};

/// Adding this rounds a number of magnitude below 2²² to the nearest integer, which then stands in the low bits.
const ROUNDER: f32 = 12_582_912.0;
/// The natural logarithm of 2, cut so that its product with an exponent is exact, and the rest.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -0.000_212_194_44;

/// `e^x`: at most 1 unit in the last place; subnormal results are rounded like others.
#[inline(always)]
pub(crate) fn exp<I: Isa>(x: f32) -> f32 {
    // Beyond these the result is infinite or zero, in two steps of scaling. NaN stays.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let (mantissa, exponent) = reduced::<I>(x);
    let half = ((exponent as i32) >> 1) as u32;
    mantissa * power_of_two(half) * power_of_two(exponent.wrapping_sub(half))
}

/// [`exp`] for `x` in −87…0, where one step of scaling is enough.
#[inline(always)]
pub(super) fn exp_of_moderate<I: Isa>(x: f32) -> f32 {
    let (mantissa, exponent) = reduced::<I>(x);
    mantissa * power_of_two(exponent)
}

/// `e^x` as `mantissa · 2^exponent`, the mantissa in about 0.7…1.5.
#[inline(always)]
fn reduced<I: Isa>(x: f32) -> (f32, u32) {
    let shifted = I::fused(x, std::f32::consts::LOG2_E, ROUNDER);
    let exponent = shifted.to_bits().wrapping_sub(ROUNDER.to_bits());
    let whole = shifted - ROUNDER;
    let rest = I::fused(whole, -LN_2_LOW, I::fused(whole, -LN_2_HIGH, x));
    let tail = polynomial::<I, 5>(rest, [0.499_999_94, 0.166_665_23, 0.041_668_236, 0.008_367_758, 0.001_379_930_2]);
    (I::fused(rest * rest, tail, rest) + 1.0, exponent)
}

/// `1 / (1 + e^−x)`: at most 2.5 units in the last place.
#[inline(always)]
pub(crate) fn sigmoid<I: Isa>(x: f32) -> f32 {
    // Of the two equal forms the one whose exponential is at most 1.
    let small = exp::<I>(-x.abs());
    let numerator = if x < 0.0 { small } else { 1.0 };
    numerator / (1.0 + small)
}

/// The hyperbolic tangent: at most 1.75 units in the last place.
#[inline(always)]
pub(crate) fn tanh<I: Isa>(x: f32) -> f32 {
    let magnitude = x.abs();
    let square = x * x;
    let series =
        polynomial::<I, 5>(square, [-0.333_332_84, 0.133_313_61, -0.053_726_86, 0.020_584_093, -0.005_633_166_5]);
    let near = I::fused(series * square, magnitude, magnitude);
    let clamped = if magnitude > 10.0 { 10.0 } else { magnitude };
    let small = exp_of_moderate::<I>(-2.0 * clamped);
    let far = (1.0 - small) / (1.0 + small);
    let value = if magnitude < 0.625 { near } else { far };
    value.copysign(x)
}
