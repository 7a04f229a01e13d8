//! Inverse trigonometric functions.

use super::{Isa, polynomial};

/// π/2 as `f32`, and the rest.
const HALF_PI: f32 = std::f32::consts::FRAC_PI_2;
const HALF_PI_REST: f32 = -4.371_139e-8;

/// Returns the arctangent: at most 2 units in the last place.
#[inline(always)]
pub fn atan<I: Isa>(x: f32) -> f32 {
    let magnitude = x.abs();
    let large = magnitude > 1.0;
    // atan x = π/2 + atan(−1/x). A NaN is not large.
    let t = if large { -1.0 / magnitude } else { magnitude };
    let square = t * t;
    let tail = polynomial::<I, 9>(
        square,
        [
            -0.333_333,
            0.199_985_3,
            -0.142_640_16,
            0.109_508_81,
            -0.083_993_085,
            0.057_881_314,
            -0.031_096_645,
            0.010_868_27,
            -0.001_782_656_4,
        ],
    );
    let rest = if large { HALF_PI_REST } else { 0.0 };
    let value = I::fused(tail * square, t, rest) + t;
    (if large { value + HALF_PI } else { value }).copysign(x)
}

/// Returns the arcsine: at most 2.25 units in the last place; NaN beyond ±1.
#[inline(always)]
pub fn asin<I: Isa>(x: f32) -> f32 {
    let magnitude = x.abs();
    let large = magnitude > 0.5;
    let (t, tail) = asin_parts::<I>(magnitude);
    let small_value = t + tail;
    let large_value = I::fused(t, -2.0, HALF_PI) - I::fused(tail, 2.0, -HALF_PI_REST);
    (if large { large_value } else { small_value }).copysign(x)
}

/// Returns the arccosine: at most 2 units in the last place; NaN beyond ±1.
#[inline(always)]
pub fn acos<I: Isa>(x: f32) -> f32 {
    let (t, tail) = asin_parts::<I>(x.abs());
    // acos x = 2 asin √((1 − x)/2), and acos −x = π − acos x.
    let large = if x < 0.0 {
        I::fused(t, -2.0, 2.0 * HALF_PI) - I::fused(tail, 2.0, -2.0 * HALF_PI_REST)
    } else {
        2.0 * (t + tail)
    };
    let small = HALF_PI - (t.copysign(x) - (HALF_PI_REST - tail.copysign(x)));
    if x.abs() > 0.5 { large } else { small }
}

/// Returns `t` and `asin t − t`, where `t` is the magnitude up to ½, and `√((1 − magnitude)/2)` above.
#[inline(always)]
fn asin_parts<I: Isa>(magnitude: f32) -> (f32, f32) {
    let large = magnitude > 0.5;
    let square = if large { (1.0 - magnitude) * 0.5 } else { magnitude * magnitude };
    let t = if large { square.sqrt() } else { magnitude };
    let tail = polynomial::<I, 5>(square, [0.166_667_52, 0.074_953_094, 0.045_469_154, 0.024_184_743, 0.042_158_388]);
    (t, tail * square * t)
}
