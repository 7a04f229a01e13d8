//! The command `anabranch`, and arrays in NumPy's files, which tests and benches read with it. Programs use the crate
//! [`anabranch`].

#![forbid(unsafe_code)]

mod chart;
mod command;
pub mod npy;
mod report;
mod text;
mod trace;

pub use command::main;
