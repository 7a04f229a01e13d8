//! The core of `anabranch-placement`, which lists all of its modules: graphs, platforms, problems, strategies, orders,
//! the simulator, the checker, bounds and the exact search, and the streaming analysis that checks plans.
//!
//! It is a crate of its own so that plans are made without the file formats, generators and pipelines of
//! `anabranch-placement`. It is no public interface.

#![forbid(unsafe_code)]

pub mod bound;
pub mod check;
pub mod cost;
mod device_sets;
pub mod evaluate;
pub mod exact;
pub mod graph;
mod ids;
pub mod loaded;
pub mod network;
pub mod order;
pub mod place;
pub mod platform;
pub mod problem;
pub use anabranch_base::{count, quoted};
pub mod random;
pub mod rank;
pub mod rules;
#[cfg(any(test, feature = "testing"))]
pub mod sample;
pub mod schedule;
pub mod simulate;
pub mod streaming;
pub mod total;
pub mod transfer;
pub mod union_find;
