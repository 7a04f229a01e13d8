//! Sine, cosine and tangent.

use super::{Isa, polynomial};

/// Maximum magnitude of arguments. Greater arguments need more digits of π than the reduction here has; callers use the
/// standard library's functions for them.
pub const LARGEST_REDUCED: f32 = 1_000_000.0;

/// Number whose addition rounds a binary64 number of magnitude below 2⁵¹ to the nearest integer, which is then in the
/// low bits.
const ROUNDER: f64 = 6_755_399_441_055_744.0;
/// π/2 to 33 bits, so that its product with the quadrant's number is exact, and the rest.
const HALF_PI_HIGH: f64 = 1.570_796_326_734_125_6;
const HALF_PI_LOW: f64 = 6.077_100_506_506_192e-11;

/// Returns the sine, for magnitudes up to [`LARGEST_REDUCED`]: at most 1.75 units in the last place; NaN at ±∞.
#[inline(always)]
pub fn sin<I: Isa>(x: f32) -> f32 {
    let (rest, quadrant) = reduced::<I>(x);
    let value = of_quadrant::<I>(rest, quadrant);
    // The reduction loses the sign of zero.
    if x == 0.0 { x } else { value }
}

/// Returns the cosine, for magnitudes up to [`LARGEST_REDUCED`]: at most 1.75 units in the last place; NaN at ±∞.
#[inline(always)]
pub fn cos<I: Isa>(x: f32) -> f32 {
    let (rest, quadrant) = reduced::<I>(x);
    of_quadrant::<I>(rest, quadrant.wrapping_add(1))
}

/// Returns the tangent, for magnitudes up to [`LARGEST_REDUCED`]: at most 3.75 units in the last place; NaN at ±∞.
#[inline(always)]
pub fn tan<I: Isa>(x: f32) -> f32 {
    let (rest, quadrant) = reduced::<I>(x);
    let (sine, cosine) = of_rest::<I>(rest);
    let value = if quadrant & 1 == 0 { sine / cosine } else { -cosine / sine };
    if x == 0.0 { x } else { value }
}

/// Returns `x` minus the nearest multiple of π/2, and the number of the multiple (modulo 2³²). It computes in binary64,
/// so that the difference near a multiple still has all of `f32`'s digits.
#[inline(always)]
fn reduced<I: Isa>(x: f32) -> (f32, u32) {
    let x = f64::from(x);
    let shifted = I::fused_f64(x, std::f64::consts::FRAC_2_PI, ROUNDER);
    let multiple = shifted - ROUNDER;
    let rest = I::fused_f64(multiple, -HALF_PI_LOW, I::fused_f64(multiple, -HALF_PI_HIGH, x));
    (rest as f32, shifted.to_bits() as u32)
}

/// Returns `sin(rest + quadrant · π/2)`.
#[inline(always)]
fn of_quadrant<I: Isa>(rest: f32, quadrant: u32) -> f32 {
    let (sine, cosine) = of_rest::<I>(rest);
    let value = if quadrant & 1 == 0 { sine } else { cosine };
    f32::from_bits(value.to_bits() ^ ((quadrant & 2) << 30))
}

/// Returns the sine and the cosine of a number between −π/4 and π/4.
#[inline(always)]
fn of_rest<I: Isa>(rest: f32) -> (f32, f32) {
    let square = rest * rest;
    let sine_tail = polynomial::<I, 3>(square, [-0.166_666_55, 0.008_332_187, -0.000_195_178_97]);
    let sine = I::fused(sine_tail * square, rest, rest);
    let cosine_tail = polynomial::<I, 3>(square, [0.041_666_646, -0.001_388_731, 2.443_232_7e-5]);
    let cosine = I::fused(square * square, cosine_tail, I::fused(square, -0.5, 1.0));
    (sine, cosine)
}
