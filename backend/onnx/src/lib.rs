//! ONNX models: [`import`] reads them, [`lower`] makes programs of kernels of them, [`steps`] are the operators that run on the host between two
//! programs.
//!
//! This crate is a part of `anabranch` and no public interface.

pub mod import;
pub mod item;
pub mod lower;
pub mod part;
pub mod steps;

pub use item::Item;
pub use part::Part;
