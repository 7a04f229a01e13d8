//! Element-wise kernels: an expression interpreted over blocks of elements.

mod affine;
mod chain;
mod chain_f32;
mod code;
mod convert;
mod epilogue;
mod finish;
mod interpret;
mod kernel;
mod layout;
mod number;
mod number_f32;
mod number_f64;
mod number_integer;
mod source;

pub(crate) use affine::Beside;
pub(crate) use convert::{bytes_of, from_f64, from_i64, to_f64, to_i64};
pub(crate) use epilogue::{Epilogue, Uniform};
pub(crate) use finish::ProductEpilogue;
pub(crate) use kernel::prepare;
