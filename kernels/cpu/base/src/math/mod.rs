//! Elementary functions of `f32` without branches, so that loops over them become vector code.
//!
//! Each function reduces its argument to a short interval and evaluates a polynomial there. The coefficients are this
//! project's minimax fits: Remez exchange in 40 digits, weighted by the relative error of the result. They are then
//! rounded to `f32` one after another from the lowest degree, and the rest is fitted again each time. The bounds in the
//! functions' texts are the greatest errors against `f64` references that the tests allow. They are in units of the
//! last place and hold with fused multiply-add; without it errors may be one unit worse.

mod erf;
mod exponential;
mod hyperbolic;
mod inverse;
mod logarithm;
mod power;
mod trigonometric;

pub use erf::{erf, erf_f64};
pub use exponential::{exp, exp_below_one, sigmoid, sigmoid_f64, tanh};
pub use hyperbolic::{acosh, acosh_f64, asinh, asinh_f64, atanh, atanh_f64, cosh, sinh};
pub use inverse::{acos, asin, atan};
pub use logarithm::log;
pub use power::power;
pub use trigonometric::{LARGEST_REDUCED, cos, sin, tan};

use super::vector::Isa;

/// Returns `Σ coefficients[i] · x^i`, by Horner's rule.
#[inline(always)]
fn polynomial<I: Isa, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut value = coefficients[N - 1];
    for index in (0..N - 1).rev() {
        value = I::fused(value, x, coefficients[index]);
    }
    value
}

/// Returns [`polynomial`] of binary64 numbers.
#[inline(always)]
fn polynomial_f64<I: Isa, const N: usize>(x: f64, coefficients: [f64; N]) -> f64 {
    let mut value = coefficients[N - 1];
    for index in (0..N - 1).rev() {
        value = I::fused_f64(value, x, coefficients[index]);
    }
    value
}

/// Returns `2^n` for `n` in −126…127, given as the bits of an integer that may be negative.
#[inline(always)]
fn power_of_two(n: u32) -> f32 {
    f32::from_bits(n.wrapping_add(127) << 23)
}

#[cfg(test)]
mod accuracy;
