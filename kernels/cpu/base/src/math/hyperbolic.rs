//! Inverse hyperbolic functions over the whole range: two of the standard library's overflow if twice their argument
//! overflows.

use std::f64::consts::LN_2;

/// Magnitude from which adding 1 to the square of an argument changes nothing: the functions are `ln 2x` there.
const LARGE: f64 = 1e10;

/// Returns `arsinh x`.
#[inline]
pub fn asinh_f64(x: f64) -> f64 {
    if x.abs() < LARGE || !x.is_finite() { x.asinh() } else { (x.abs().ln() + LN_2).copysign(x) }
}

/// Returns `arcosh x`; NaN below 1.
#[inline]
pub fn acosh_f64(x: f64) -> f64 {
    if x < LARGE || !x.is_finite() { x.acosh() } else { x.ln() + LN_2 }
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
        assert!(asinh_f64(f64::NAN).is_nan() && acosh_f64(0.5).is_nan() && acosh_f64(f64::NEG_INFINITY).is_nan());
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
