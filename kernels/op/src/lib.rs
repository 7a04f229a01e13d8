//! Tensors, and the operator set that models are lowered to.
//!
//! This crate is a part of `anabranch-kernels`, which lists what is public.

mod block;
mod borrowed;
pub mod dtype;
pub mod error;
#[doc(hidden)]
pub mod minifloat;
#[doc(hidden)]
pub mod narrowing;
pub mod op;
mod recycler;
pub mod shape;
pub mod tensor;

pub use block::Block;
pub use dtype::DType;
pub use error::KernelError;
pub use recycler::Recycler;
pub use shape::Shape;
pub use tensor::{Buffer, OutOfMemory, Tensor, TensorSpec};
