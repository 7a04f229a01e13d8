//! Kernels for GPUs, by wgpu. A build without the feature `gpu` has no kernels, and types without values in their
//! place.
//!
//! This crate is a part of `anabranch-kernels`, which lists what is public.

#[cfg(feature = "gpu")]
mod gpu;
mod gpu_limits;
#[cfg(not(feature = "gpu"))]
mod no_gpu;

#[cfg(feature = "gpu")]
pub use gpu::*;
#[cfg(not(feature = "gpu"))]
pub use no_gpu::*;
