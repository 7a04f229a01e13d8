//! Canonical task graphs of programs, for studies of streaming.
//!
//! This crate is a part of `anabranch`. It is not a public interface.

pub mod canonical;
