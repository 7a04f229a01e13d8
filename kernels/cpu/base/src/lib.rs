//! Ground on which all CPU kernels stand: teams of threads, vector instructions, matrix products, and the trait of a
//! kernel.
//!
//! This crate is a part of `anabranch-kernels`, not a public interface.

pub mod convert;
pub mod elements;
#[cfg(target_arch = "x86_64")]
pub mod features;
pub mod gemm;
pub mod geometry;
mod kernel;
pub mod lanes;
pub mod layout;
pub mod look_up;
pub mod math;
mod mean;
pub mod number;
pub mod order;
pub mod overlap;
mod products;
pub mod row_folds;
pub mod runs;
pub mod sorted;
pub mod strided;
pub mod team;
pub mod vector;

pub use kernel::{Call, CpuKernel, pack};
pub use layout::{FilterSizes, Layout, Packing};
pub use team::{Interrupt, Team, Watched};
