//! Programs of kernels: nodes, values, and the constants that they read.
//!
//! This crate is a part of `anabranch`, not a public interface.

pub mod constant;
pub mod names;
pub mod program;
pub mod random;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
