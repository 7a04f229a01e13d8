//! Anabranch as an execution provider of ONNX Runtime, loaded at run time.
//!
//! ONNX Runtime opens this library (`register_execution_provider_library`), and the library lists its devices. ONNX
//! Runtime then shows each session's graph, and the library claims the parts that it computes. Parts are large, and
//! there is no cycle of them through nodes of other providers.
//!
//! Each part becomes a model with a session of its own, planned for the shapes of the first run over all chosen
//! devices. Inputs, weights and outputs stay in ONNX Runtime's memory.
//!
//! The interface is declared in ONNX Runtime's `onnxruntime_ep_c_api.h` as of version 1.23, the first whose providers
//! can compile. Newer releases serve it unchanged.

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
