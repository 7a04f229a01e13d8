//! Tools of all layers: kinds of errors, atomically written files, sizes in bytes, locks, waiting, cancellation,
//! medians and random numbers.
//!
//! This crate is a part of `anabranch`, not a public interface.

pub mod bytes;
pub mod cancel;
pub mod count;
pub mod error_kind;
pub mod files;
pub mod interruption;
pub mod load;
pub mod lock;
pub mod memory_limit;
pub mod quantile;
pub mod quoted;
pub mod random;
pub mod suggest;
pub mod sync;
pub mod wait;
