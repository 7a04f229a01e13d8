//! The error function.

use super::exponential::within_one;
use super::{Isa, polynomial};

/// Returns the error function: at most 6 units in the last place, never beyond ±1.
///
/// A quotient of polynomials, fitted up to the argument at which the result is 1 to the last place.
#[inline(always)]
#[allow(clippy::approx_constant, reason = "a fitted coefficient, which 2/√π is only near to")]
pub fn erf<I: Isa>(x: f32) -> f32 {
    let clamped = if x > 4.0 { 4.0 } else { x };
    let clamped = if clamped < -4.0 { -4.0 } else { clamped };
    let square = clamped * clamped;
    let numerator = polynomial::<I, 6>(
        square,
        [1.128_379_1, 0.193_546_03, 0.053_101_88, 0.003_883_388, 0.000_284_567_3, 1.986_78e-6],
    );
    let denominator =
        polynomial::<I, 6>(square, [1.0, 0.504_858_26, 0.115_350_4, 0.015_207_337, 0.001_185_582_6, 3.742_022_4e-5]);
    within_one(clamped * numerator / denominator)
}

/// Returns the error function of a binary64 number to a few units in the last place, in up to 100 steps. Up to 3 it
/// sums the power series (`2/√π e^−x² Σ 2ⁿ x²ⁿ⁺¹ / (2n+1)!!`, whose terms are all positive). Beyond 3 it evaluates the
/// continued fraction of the complement.
#[inline]
pub fn erf_f64(x: f64) -> f64 {
    let magnitude = x.abs();
    let value = match magnitude {
        m if m.is_nan() => return x,
        m if m > 6.0 => 1.0,
        m if m > 3.0 => 1.0 - complement(m),
        m => series(m),
    };
    value.copysign(x)
}

fn series(x: f64) -> f64 {
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term > sum * 1e-17 {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * gaussian(x) * sum
}

fn complement(x: f64) -> f64 {
    let fraction = (1..60).rev().fold(x, |tail, k| x + f64::from(k) / 2.0 / tail);
    gaussian(x) / (fraction * std::f64::consts::PI.sqrt())
}

/// Returns `e^−x²`. The rounding error of the square counts: the exponential multiplies it by the square.
fn gaussian(x: f64) -> f64 {
    let square = x * x;
    let rest = x.mul_add(x, -square);
    (-square).exp() * (1.0 - rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values to 15 digits from the tables of Abramowitz and Stegun, 1964, table 7.1, and of the complement.
    #[test]
    fn the_wide_function_has_its_tabulated_values() {
        for (x, want) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (3.0, 0.999_977_909_503_001_4),
            (3.5, 0.999_999_256_901_627_7),
            (f64::INFINITY, 1.0),
        ] {
            assert!((erf_f64(x) - want).abs() < 4e-16, "{x}: {}", erf_f64(x));
            assert_eq!(erf_f64(-x), -erf_f64(x));
        }
        assert!(erf_f64(f64::NAN).is_nan());
        assert!((series(3.0) - (1.0 - complement(3.0))).abs() < 1e-15);
    }
}
