//! Elementary functions of `f32` without branches, so that loops over them become vector code.

use super::vector::Isa;

#[inline(always)]
pub(crate) fn exp<I: Isa>(x: f32) -> f32 {
    x.exp()
}
#[inline(always)]
pub(crate) fn log<I: Isa>(x: f32) -> f32 {
    x.ln()
}
#[inline(always)]
pub(crate) fn sin<I: Isa>(x: f32) -> f32 {
    x.sin()
}
#[inline(always)]
pub(crate) fn cos<I: Isa>(x: f32) -> f32 {
    x.cos()
}
#[inline(always)]
pub(crate) fn tanh<I: Isa>(x: f32) -> f32 {
    x.tanh()
}
#[inline(always)]
pub(crate) fn sigmoid<I: Isa>(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}
#[inline(always)]
pub(crate) fn erf<I: Isa>(x: f32) -> f32 {
    x
}
#[inline(always)]
pub(crate) fn power<I: Isa>(x: f32, y: f32) -> f32 {
    x.powf(y)
}
pub(crate) fn erf_f64(x: f64) -> f64 {
    x
}
