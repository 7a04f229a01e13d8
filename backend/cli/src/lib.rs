//! The command `anabranch`; arrays in NumPy's files, which tests and benches read with it; and what it shows, which the Python package
//! shows, too. Programs use the crate [`anabranch`].

#![forbid(unsafe_code)]

mod chart;
mod command;
pub mod npy;
mod report;
pub mod show;
mod tensors;
mod text;
mod trace;

pub use command::main;
