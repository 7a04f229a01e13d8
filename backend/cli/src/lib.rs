//! Implementation of the command `anabranch`. Programs use the crate [`anabranch`], and `anabranch_report` for charts
//! and tables.

#![forbid(unsafe_code)]

mod command;

pub use command::main;
