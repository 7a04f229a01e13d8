//! Anabranch as an execution provider of ONNX Runtime, loaded at run time.
//!
//! ONNX Runtime opens this library (`register_execution_provider_library`), is told which devices there are, shows each session's graph,
//! and is told which parts of it are computed here: parts are as large as they can be without a cycle through nodes that stay with
//! others. Each part becomes a model of its own with a session of ours, planned for the shapes of the first run over all the devices
//! that were chosen. Inputs, weights and outputs stay in ONNX Runtime's memory.
//!
//! The interface is the one that ONNX Runtime declares in `onnxruntime_ep_c_api.h` as of version 1.23, the first whose providers can
//! compile; newer releases serve it unchanged.

mod abi;
mod api;
mod capability;
mod compiled;
mod devices;
mod factory;
mod graph;
mod options;
mod parts;
mod provider;
mod report;
mod status;
mod values;

pub use factory::{CreateEpFactories, ReleaseEpFactory};
