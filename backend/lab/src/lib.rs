//! Canonical task graphs of programs, for studies of streaming.
//!
//! This crate is a part of `anabranch` and no public interface.

pub mod canonical;
