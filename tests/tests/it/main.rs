//! Tests of promises that involve several crates, in one executable: `cargo test -p anabranch-tests --test it NAME`
//! runs a part.

mod borrowed;
mod compare;
mod deciding;
mod determinism;
mod distributed;
mod divided;
mod failing_pipelines;
mod faults;
mod fitting;
mod fuzz;
mod import_fixtures;
mod interrupted;
mod language;
mod limits;
mod memory;
mod models;
mod onnx_suite;
mod operators;
mod phases;
mod pipelines;
mod quantized;
mod quantized_moves;
mod resident;
mod sessions;
mod split;
mod stateful_pipelines;
mod streaming;
mod structure;
mod weights;
mod whole_runs;
