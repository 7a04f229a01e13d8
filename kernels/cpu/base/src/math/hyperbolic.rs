//! Hyperbolic functions and their inverses.
//!
//! Two of the standard library's inverses overflow if twice their argument overflows. This module's binary64 functions
//! do not.

use super::exponential::half_exp;
use super::power::log2;
use super::{Isa, polynomial, polynomial_f64};
use std::f64::consts::LN_2;

/// Returns the hyperbolic sine: at most 2 units in the last place.
#[inline(always)]
pub fn sinh<I: Isa>(x: f32) -> f32 {
    let magnitude = x.abs();
    let half = half_exp::<I>(magnitude);
    let large = half - 0.25 / half;
    let square = magnitude * magnitude;
    let tail = polynomial::<I, 4>(square, [0.166_666_67, 0.008_333_31, 0.000_198_428_96, 2.782_213_2e-6]);
    let small = I::fused(tail * square, magnitude, magnitude);
    (if magnitude < 1.0 { small } else { large }).copysign(x)
}

/// Returns the hyperbolic cosine: at most 2 units in the last place.
#[inline(always)]
pub fn cosh<I: Isa>(x: f32) -> f32 {
    let half = half_exp::<I>(x.abs());
    half + 0.25 / half
}

/// Magnitude below which the inverses are their series of three terms.
const SMALL: f64 = 1.0 / 256.0;

/// Returns `arsinh x`: at most 1 unit in the last place.
#[inline(always)]
pub fn asinh<I: Isa>(x: f32) -> f32 {
    let magnitude = f64::from(x.abs());
    let square = magnitude * magnitude;
    let large = log2::<I>(magnitude + (square + 1.0).sqrt()) * LN_2;
    let small = magnitude * polynomial_f64::<I, 3>(square, [1.0, -1.0 / 6.0, 3.0 / 40.0]);
    let value = (if magnitude < SMALL { small } else { large }) as f32;
    if x.is_nan() { x } else { value.copysign(x) }
}

/// Returns `arcosh x`: at most 1 unit in the last place; NaN below 1.
#[inline(always)]
pub fn acosh<I: Isa>(x: f32) -> f32 {
    let wide = f64::from(x);
    let value = log2::<I>(wide + ((wide - 1.0) * (wide + 1.0)).sqrt()) * LN_2;
    if x >= 1.0 { value as f32 } else { f32::NAN }
}

/// Returns `artanh x`: at most 1 unit in the last place; NaN beyond ±1.
#[inline(always)]
pub fn atanh<I: Isa>(x: f32) -> f32 {
    let magnitude = f64::from(x.abs());
    let large = log2::<I>((1.0 + magnitude) / (1.0 - magnitude)) * (0.5 * LN_2);
    let small = magnitude * polynomial_f64::<I, 3>(magnitude * magnitude, [1.0, 1.0 / 3.0, 1.0 / 5.0]);
    let value = (if magnitude < SMALL { small } else { large }) as f32;
    if magnitude <= 1.0 { value.copysign(x) } else { f32::NAN }
}

/// Magnitude from which adding 1 to the square of an argument changes nothing: the functions are `ln 2x` there.
const LARGE: f64 = 1e10;

/// Returns `arsinh x`.
#[inline]
pub fn asinh_f64(x: f64) -> f64 {
    if x.abs() < LARGE || !x.is_finite() { x.asinh() } else { (x.abs().ln() + LN_2).copysign(x) }
}

/// Returns `arcosh x`; NaN below 1. The standard library's function loses digits near 1.
#[inline]
pub fn acosh_f64(x: f64) -> f64 {
    let above = x - 1.0;
    match x {
        ..1.0 => f64::NAN,
        LARGE..f64::INFINITY => x.ln() + LN_2,
        _ => (above + (above * (x + 1.0)).sqrt()).ln_1p(),
    }
}

/// Returns `artanh x`, from the positive argument: the standard library's function loses digits near −1.
#[inline]
pub fn atanh_f64(x: f64) -> f64 {
    x.abs().atanh().copysign(x)
}

#[cfg(test)]
mod tests {
    use super::{acosh_f64, asinh_f64, atanh_f64};

    #[test]
    fn the_greatest_arguments_have_finite_values() {
        for x in [1e9, 9.9e9, 1e10, 1e150, 1e200, 1e308, f64::MAX] {
            // sinh y = x if e^y = 2x, except for a term of 1/4x².
            let want = f64::ln(x / 1e9) + f64::ln(2e9);
            assert!((asinh_f64(x) - want).abs() <= 1e-15 * want && (asinh_f64(-x) + want).abs() <= 1e-15 * want, "{x}");
            assert!((acosh_f64(x) - want).abs() <= 1e-15 * want, "{x}");
        }
        assert_eq!([asinh_f64(f64::INFINITY), asinh_f64(-0.0), acosh_f64(1.0)], [f64::INFINITY, -0.0, 0.0]);
        assert!(asinh_f64(f64::NAN).is_nan() && acosh_f64(f64::NAN).is_nan());
        assert!([0.5, 0.0, -1.0, -2.0, -1e30, f64::NEG_INFINITY].iter().all(|x| acosh_f64(*x).is_nan()));
    }

    #[test]
    fn the_inverse_cosine_keeps_its_digits_near_1() {
        // √(2h) · (1 − h/12 + 3h²/160) for x = 1 + h.
        for h in [f64::EPSILON, 1e-12, 1e-9, 1e-6] {
            let h = (1.0 + h) - 1.0;
            let want = (2.0 * h).sqrt() * (1.0 - h / 12.0 + 3.0 * h * h / 160.0);
            assert!((acosh_f64(1.0 + h) - want).abs() <= 1e-15 * want, "{h}");
        }
    }

    #[test]
    fn the_inverse_tangent_is_odd() {
        for x in [1.0 - 1e-12, 0.999_999, 0.5, 1e-300, 0.0, 1.0] {
            assert_eq!(atanh_f64(-x).to_bits(), (-atanh_f64(x)).to_bits(), "{x}");
        }
        // ln((1 + x) / (1 − x)) / 2.
        assert!((atanh_f64(-0.999_999) + 7.254_328_619_247_669).abs() < 1e-9);
        assert!(atanh_f64(-1.5).is_nan());
    }
}
