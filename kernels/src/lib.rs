//! Tensors, the operator set that models are lowered to, and the kernels that compute it on CPU and GPU.
//!
//! A model is lowered to a program of [`op::Op`]s over dense row-major tensors whose shapes are all known.
//! [`cpu::prepare`] turns one op into a kernel for a team of threads, [`gpu::compile`] into a few dispatches of
//! compute shaders; both see the same [`op::NodeSpec`], and both compute the same function to within rounding.
//!
//! This crate does not know graphs, or the placement of nodes on devices.

#[cfg(all(test, feature = "fourier"))]
mod agreement;
mod borrowed;
pub mod cpu;
pub mod dtype;
pub mod error;
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

/// Returns the message of a panic, if its payload is a string.
pub fn panic_text(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Version of the kernels, stored with measured times and compiled models.
///
/// It is raised by hand whenever a kernel may have become faster or slower, or [`Layout::pack`](cpu::Layout::pack)
/// makes other bytes. Times of another version are kept, but no longer count as exact. Compiled models of another
/// version are compiled again.
pub const VERSION: u32 = 18;
