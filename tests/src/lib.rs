//! Shared code of the tests: the bundled models with their reference outputs, and sessions on the CPU and the software
//! GPU.

pub mod fuzz;
pub mod load;
pub mod onnx_exports;
pub mod onnx_suite;
pub mod operators;
pub mod programs;

use anabranch::device::{CpuGranularity, DetectOptions};
use anabranch::planning::Strategy;
use anabranch::session::{Inputs, Outputs, Session, SessionConfig};
use anabranch_report::npy::read_npz;
use std::path::{Path, PathBuf};

/// Bundled models, by the names of their files. `tests/data/README.md` describes their origin.
pub const MODELS: [&str; 10] = ["convnet", "decoder", "encoder", "fire", "gru", "lstm", "mlp", "mobile", "unet", "vit"];

/// Returns a bundled model's file.
pub fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(format!("{name}.onnx"))
}

/// Returns a bundled model's inputs and reference outputs.
pub fn reference(name: &str) -> (Inputs, Vec<(String, Vec<f32>)>) {
    let arrays = read_npz(&model(name).with_extension("npz")).expect("the reference is bundled");
    let mut inputs = Inputs::new();
    let mut outputs = Vec::new();
    for (key, tensor) in arrays {
        match (key.strip_prefix("in__"), key.strip_prefix("out__")) {
            (Some(name), _) => inputs = inputs.tensor(name, tensor),
            (None, Some(name)) => {
                outputs.push((name.to_owned(), tensor.elements::<f32>().expect("references are f32").to_vec()));
            }
            (None, None) => panic!("{name}: unexpected member {key}"),
        }
    }
    (inputs, outputs)
}

/// Returns options for tests: one CPU device per core, and the software GPU.
pub fn options(place: &str) -> SessionConfig {
    let devices = DetectOptions::default().with_cpu_granularity(CpuGranularity::Core).with_software_gpu(true);
    SessionConfig::default().with_devices(devices).with_strategy(strategy(place))
}

/// Returns options for one CPU device and no GPU.
pub fn one_cpu() -> SessionConfig {
    let devices = DetectOptions::default().with_cpu_granularity(CpuGranularity::Machine).without_gpu();
    SessionConfig::default().with_devices(devices)
}

/// Whether the outputs have the same bits; they must be on the host.
pub fn same(a: &Outputs, b: &Outputs) -> bool {
    a.iter().zip(b.iter()).all(|((_, a), (_, b))| a.same_bits(b))
}

/// Returns the strategy, device or plan file that a text names.
pub fn strategy(place: &str) -> Strategy {
    let Ok(strategy) = place.parse();
    strategy
}

/// Opens a bundled model on the CPU and the software GPU. Fails if there is no software GPU: without it the tests prove
/// nothing.
pub fn session(name: &str, options: SessionConfig) -> Session {
    let session = Session::open(model(name), options).unwrap_or_else(|error| panic!("{name}: {error}"));
    let inventory = session.inventory();
    assert!(!inventory.gpus.is_empty(), "no software GPU: run scripts/setup ({:?})", inventory.notes);
    session
}

/// Checks that each output is within `1e-4 · max |reference| + 1e-5` of its reference.
pub fn assert_close(name: &str, outputs: &Outputs, references: &[(String, Vec<f32>)]) {
    for (output, reference) in references {
        let tensor = outputs.tensor(output).unwrap_or_else(|error| panic!("{name}: {error}"));
        let ours = tensor.elements::<f32>().expect("outputs are f32");
        assert_eq!(ours.len(), reference.len(), "{name}: {output}");
        let bound = 1e-4 * reference.iter().fold(0f32, |max, v| max.max(v.abs())) + 1e-5;
        for (index, (ours, reference)) in ours.iter().zip(reference).enumerate() {
            assert!(
                (ours - reference).abs() <= bound,
                "{name}: {output}[{index}] is {ours}, not {reference} ± {bound}"
            );
        }
    }
}

/// Examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// Examples of the tutorial for Rust, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../docs/start/rust.md")]
struct Tutorial;
