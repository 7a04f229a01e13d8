//! Shared code of the tests of kernels: inputs, runs in all configurations, and the definition of each op.
//!
//! This crate is a part of the tests of `anabranch-kernels`, not a public interface.

#![forbid(unsafe_code)]

pub mod agreement;
mod kernels;
pub mod products;

pub use kernels::*;
