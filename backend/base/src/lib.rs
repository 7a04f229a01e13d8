//! Tools of all layers: kinds of errors, files that are written whole, sizes in bytes, locks, waiting and cancellation.
//!
//! This crate is a part of `anabranch` and no public interface.

pub mod bytes;
pub mod cancel;
pub mod error_kind;
pub mod files;
pub mod interruption;
pub mod lock;
pub mod quoted;
pub mod suggest;
pub mod sync;
pub mod wait;
