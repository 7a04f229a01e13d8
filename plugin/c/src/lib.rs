//! Anabranch for programs in C, and in whatever can call C: `include/anabranch.h`, which is made of this crate, and `docs/c.md`.
//!
//! What callers hold are handles: numbers of a table, never addresses, so that one that was given back, or never given out, is an
//! error in words. Every function catches panics; nothing unwinds into a caller. What remains a caller's promise is that pointers to
//! texts, tensors and room are what they are said to be.

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
