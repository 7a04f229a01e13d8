//! ONNX models: [`import`] reads them, [`lower`] turns them into programs of kernels, and [`host_operators`] are the
//! operators that run on the host between two programs.
//!
//! This crate is a part of `anabranch`, not a public interface.

pub mod host_operators;
pub mod lower;

pub use anabranch_import as import;
pub use anabranch_import::{Item, Part, item, part};
