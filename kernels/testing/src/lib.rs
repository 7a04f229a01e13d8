//! Shared code of kernel tests: inputs, runs in all configurations, and independent reference results of common ops.
//!
//! This crate is a part of the tests of `anabranch-kernels`, not a public interface.

#![forbid(unsafe_code)]

pub mod agreement;
mod kernels;
pub mod products;
pub mod rows;

pub use kernels::*;
