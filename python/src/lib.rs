//! What of the Python package `anabranch` is compiled: sessions, plans, profiles, pipelines, flows and the laboratory.
//!
//! This side knows bytes, names and JSON; what people see (arrays, dictionaries, documentation, types) is written in Python beside it. Work
//! is done without the interpreter's lock (`work`), arrays are read where they are and outputs handed over without a copy (`tensors`),
//! and what goes wrong becomes an exception of `anabranch.errors` with the library's text (`failure`).

// The harness that `cargo test --lib` makes of a library has no interpreter to be linked with.
#![cfg(not(test))]

mod devices;
mod failure;
mod flow;
mod generator;
mod laboratory;
mod options;
mod pipeline;
mod plan;
mod profile;
mod session;
mod tensors;
mod work;

/// The module `anabranch._native`.
#[pyo3::pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use super::devices::{devices, strategies, write_text};
    #[pymodule_export]
    use super::flow::{FlowRun, place_flow, run_flow};
    #[pymodule_export]
    use super::generator::Generator;
    #[pymodule_export]
    use super::laboratory::{Schedule, place};
    #[pymodule_export]
    use super::pipeline::Pipeline;
    #[pymodule_export]
    use super::plan::Plan;
    #[pymodule_export]
    use super::profile::Profile;
    #[pymodule_export]
    use super::session::Session;
    #[pymodule_export]
    use super::tensors::Memory;
    #[pymodule_export]
    use super::work::CancelToken;
}
