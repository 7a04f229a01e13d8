//! The interface for C, in one executable.

mod c;
mod header;
