//! Compiled part of the Python package `anabranch`: sessions, plans, profiles, pipelines, flows and the simulator.
//!
//! This side handles bytes, names and JSON. The public interface (arrays, dictionaries, documentation, types) is
//! written in Python next to it.
//!
//! Work is done without the interpreter's lock (`work`). Arrays are read in place, and outputs are handed over without
//! a copy (`tensors`). Errors become exceptions of `anabranch.errors` with the library's text (`failure`).

// In the test harness of `cargo test --lib` there is no interpreter to link with.
#![cfg(not(test))]

mod cluster;
mod devices;
mod drops;
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
    use super::cluster::{Stage, divided_page};
    #[pymodule_export]
    use super::devices::{devices, strategies, write_text};
    #[pymodule_export]
    use super::drops::{run_command, run_graph};
    #[pymodule_export]
    use super::flow::{FlowRun, flow_worker, place_flow, run_flow};
    #[pymodule_export]
    use super::generator::Generator;
    #[pymodule_export]
    use super::laboratory::{Schedule, place};
    #[pymodule_export]
    use super::options::option_names;
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
