//! Graphs and platforms from files.

pub mod thesis;
