//! Tensors, the operator set that models are lowered to, and the kernels that compute it on CPU and GPU.
//!
//! A model is lowered to a program of [`op::Op`]s over dense row-major tensors whose shapes are all known.
//! [`cpu::prepare`] turns one op into a kernel for a team of threads, [`gpu::compile`] into a few dispatches of
//! compute shaders; both see the same [`op::NodeSpec`], and both compute the same function to within rounding.
//!
//! This crate knows neither graphs nor devices' placement.

#[cfg(all(test, feature = "fourier"))]
mod agreement;
pub mod cpu;
pub mod dtype;
pub mod error;
mod foreign;
#[cfg(feature = "gpu")]
pub mod gpu;
mod gpu_limits;
mod minifloat;
mod narrowing;
#[cfg(not(feature = "gpu"))]
#[doc(hidden)]
pub mod no_gpu;
pub mod op;
pub mod shape;
pub mod tensor;

pub use dtype::DType;
pub use error::KernelError;
#[cfg(not(feature = "gpu"))]
pub use no_gpu as gpu;
pub use shape::Shape;
pub use tensor::{Buffer, OutOfMemory, Tensor, TensorSpec};

use std::any::Any;

/// What a panic said, if it said anything in words.
pub fn panic_text(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// The version of the kernels as measured times know it: raised by hand whenever a kernel may have become faster or slower, or
/// [`Layout::pack`](cpu::Layout::pack) makes other bytes. Times of another version are kept, but no longer taken for exact; compiled models of another
/// are made anew.
pub const VERSION: u32 = 17;
