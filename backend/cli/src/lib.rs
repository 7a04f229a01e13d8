//! The command `anabranch`. Programs use the crate [`anabranch`], and for what the command shows, `anabranch_report`.

#![forbid(unsafe_code)]

mod command;

pub use command::main;
