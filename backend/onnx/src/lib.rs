//! ONNX models: [`import`] reads them, [`lower`] turns them into programs of kernels, and [`host_operators`] are the
//! operators that run on the host between two programs.
//!
//! This crate is a part of `anabranch`, not a public interface.

pub mod host_operators;
pub mod import;
pub mod item;
pub mod lower;
pub mod part;

pub use item::Item;
pub use part::Part;
