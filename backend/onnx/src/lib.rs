//! ONNX models: [`import`] reads them, [`lower`] turns them into programs of kernels, and [`steps`] are the operators
//! that run on the host between two programs.
//!
//! This crate is a part of `anabranch`, not a public interface.

pub mod import;
pub mod item;
pub mod lower;
pub mod part;
pub mod steps;

pub use item::Item;
pub use part::Part;
