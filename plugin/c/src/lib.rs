//! Anabranch for programs in C, and in any language that can call C: `include/anabranch.h`, which is generated from
//! this crate, and `docs/c.md`.
//!
//! Callers hold handles: numbers of a table, never addresses. Using a handle that was closed, or never opened, is an
//! error with a message. Every function catches panics; nothing unwinds into a caller. The caller must only ensure that
//! pointers to strings, tensors and buffers are valid as documented.

mod abi;
mod cancel;
mod handles;
mod open;
mod options;
mod result;
mod run;
mod status;
mod tensors;
mod text;

pub use abi::*;
pub use cancel::*;
pub use open::*;
pub use result::*;
pub use run::*;
pub use status::anabranch_last_error;
