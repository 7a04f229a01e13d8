//! Converts programs to canonical task graphs (De Matteis et al. 2023), which stream through a dataflow device.
//!
//! This crate is a part of `anabranch`. It is not a public interface.

pub mod canonical;
