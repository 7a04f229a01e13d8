//! ONNX models: [`import`] reads them, [`lower`] turns them into programs of kernels, and [`host_operators`] run on the
//! host between two programs.
//!
//! This crate is a part of `anabranch`, not a public interface.

pub mod control;
pub mod lower;

pub use anabranch_host as host_operators;
pub use anabranch_import as import;
pub use anabranch_import::{Item, Part, item, part};
