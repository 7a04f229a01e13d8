//! Comparison of placements by measurement, and refinement of costs and plans in rounds.
//!
//! This crate is a part of `anabranch`. It is not a public interface.

pub mod compare;
pub mod refine;
