//! Benchmarks of Anabranch, one question each; `bench/README.md` describes how to run them, and `bench/RESULTS.md` has
//! results.
//!
//! This crate holds the code that several of them share: nodes with their tensors, ready to run on the CPU or a GPU.

pub mod blas;
pub mod chains;
pub mod cpu;
pub mod gpu;
pub mod models;
pub mod nodes;
pub mod tiny;
pub mod turns;

use criterion::Criterion;
use std::time::Duration;

/// Returns a configuration of few and short samples: medians of a noisy machine gain little from more.
pub fn short() -> Criterion {
    let criterion = Criterion::default().sample_size(10);
    criterion.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(500))
}
