//! The command `anabranch`, and what only it needs beside the library: arrays in NumPy's files, charts, reports and traces.
//!
//! It is a library so that tests and benches can use the same files and pages as the command; programs use the crate
//! [`anabranch`].

#![forbid(unsafe_code)]

pub mod chart;
pub mod command;
pub mod npy;
pub mod report;
pub mod trace;
