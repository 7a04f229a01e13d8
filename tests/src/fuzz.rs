//! What fuzzers run: one function for each kind of file that is read, to which any bytes may be given, and the files to begin with.
//!
//! A function may refuse what it is given; a panic, an abort or what it asserts is a fault. `fuzz/` runs them under libFuzzer,
//! `tests/fuzz.rs` for a second each by themselves.

use crate::programs::bundled;
use anabranch::device::{DetectOptions, Inventory, detect};
use anabranch::import::from_bytes;
use anabranch::lower::{LowerOptions, lower};
use anabranch::plan::PlanDevice;
use anabranch::plan_file::PlanFile;
use anabranch::planning::{Machine, PlatformFile};
use anabranch::profile::Exchange;
use anabranch::program::Program;
use anabranch::{CostStore, DeviceKind};
use anabranch_cli::npy::{read_npy_if, read_npz_if};
use anabranch_kernels::TensorSpec;
use anabranch_placement::format::{Loaded, parse};
use anabranch_placement::streaming::parse_canonical;
use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tempfile::TempDir;

/// A kind of file.
pub struct Target {
    /// Its name, which is that of its fuzzer.
    pub name: &'static str,
    /// Reads a file of these bytes.
    pub run: fn(&[u8]),
    /// Sound files to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All kinds of files that are read.
pub const TARGETS: [Target; 7] = [
    Target { name: "onnx", run: onnx, seeds: || files(&["data/mlp.onnx", "data/gru.onnx", "data/decoder.onnx"]) },
    Target { name: "npy", run: npy, seeds: || members("data/mlp.npz") },
    Target { name: "npz", run: npz, seeds: || files(&["data/mlp.npz", "data/gru.npz"]) },
    Target { name: "graph", run: graph, seeds: graphs },
    Target { name: "plan", run: plan, seeds: || files(&["data/files/plan.json"]) },
    Target { name: "platform", run: platform, seeds: || files(&["data/files/platform.json"]) },
    Target { name: "costs", run: costs, seeds: || files(&["data/files/costs.json"]) },
];

/// A model: imported, and lowered where its shapes are known.
pub fn onnx(bytes: &[u8]) {
    let Ok(model) = from_bytes(bytes, None) else { return };
    let options = LowerOptions { budget: 1 << 20, ..LowerOptions::default() };
    if let Ok(program) = lower(&model, &options) {
        assert_eq!(program.outputs.len(), model.outputs.len());
    }
}

/// One array.
pub fn npy(bytes: &[u8]) {
    with_file(bytes, |path| drop(read_npy_if(path, small)));
}

/// An archive of arrays.
pub fn npz(bytes: &[u8]) {
    with_file(bytes, |path| drop(read_npz_if(path, |_, spec| small(spec).map(|()| true))));
}

/// A task graph in any format, and one of streaming tasks.
pub fn graph(bytes: &[u8]) {
    drop(parse_canonical(bytes));
    if let Ok(Loaded::Problems(problems)) = parse("fuzzed.json", bytes) {
        assert!(!problems.is_empty());
    }
}

/// A plan for a bundled model.
pub fn plan(bytes: &[u8]) {
    static PROGRAM: LazyLock<Program> = LazyLock::new(|| bundled("mlp"));
    let Ok(file) = serde_json::from_slice::<PlanFile>(bytes) else { return };
    let device = |name: &str, kind| PlanDevice { name: name.into(), kind, limit: None, wake_ns: 0 };
    let devices = [device("cpu0", DeviceKind::Cpu), device("gpu0", DeviceKind::Gpu)];
    let Ok(device_of) = file.assignment(&PROGRAM, &devices) else { return };
    assert_eq!(device_of.len(), PROGRAM.nodes.len());
    let _ = file.blocks(&PROGRAM, &devices, &device_of);
    if let Some(order) = file.order(&PROGRAM, &devices, &device_of) {
        assert!(order.len() >= PROGRAM.nodes.len(), "an order is of all nodes or none");
    }
}

/// A machine that is described.
pub fn platform(bytes: &[u8]) {
    static HERE: LazyLock<Option<Inventory>> = LazyLock::new(|| detect(&DetectOptions::default().without_gpu()).ok());
    let Some(here) = &*HERE else { return };
    with_file(bytes, |path| {
        if let Ok(file) = PlatformFile::read(path) {
            drop(Machine::described(&file, here, CostStore::default().here()));
        }
    });
}

/// A cost store. Reading leaves it as it is.
pub fn costs(bytes: &[u8]) {
    with_file(bytes, |path| {
        drop((CostStore::load(path), Exchange::Json.import(path)));
        assert_eq!(fs::read(path).ok().as_deref(), Some(bytes));
    });
}

/// What is larger than this is not wanted.
fn small(spec: &TensorSpec) -> Result<(), String> {
    if spec.bytes() <= 1 << 20 { Ok(()) } else { Err("too large".into()) }
}

/// Calls `read` with a file of these bytes, which each thread has one of.
fn with_file(bytes: &[u8], read: impl FnOnce(&Path)) {
    thread_local! {
        static DIRECTORY: OnceCell<TempDir> = const { OnceCell::new() };
    }
    DIRECTORY.with(|directory| {
        let directory = directory.get_or_init(|| tempfile::tempdir().expect("a temporary directory"));
        let path = directory.path().join("fuzzed");
        fs::write(&path, bytes).expect("writable");
        read(&path);
    });
}

fn files(names: &[&str]) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    names.iter().map(|name| fs::read(root.join(name)).expect("it is bundled")).collect()
}

/// Arrays of an archive, each as a file of its own.
fn members(archive: &str) -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let arrays = anabranch_cli::npy::read_npz(&Path::new(env!("CARGO_MANIFEST_DIR")).join(archive)).expect("bundled");
    let write = |tensor| {
        let path = directory.path().join("array.npy");
        anabranch_cli::npy::write_npy(&path, tensor).expect("writable");
        fs::read(path).expect("just written")
    };
    arrays.values().map(write).collect()
}

/// One graph of each format.
fn graphs() -> Vec<Vec<u8>> {
    let formats = ["example.json", "related.json", "unrelated.json", "workflow_1.4.json", "workflow_1.6.json"];
    let formats = formats.iter().map(|name| format!("../placement/tests/data/formats/{name}"));
    let tables = ["fig2_3_graph.csv", "fig2_3_devices.csv"].map(|name| format!("../placement/tests/data/{name}"));
    let names: Vec<String> = formats.chain(tables).collect();
    files(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Writes the seeds of every target into a directory of its name beneath `root`.
///
/// # Errors
/// If a file cannot be written.
pub fn write_corpora(root: &Path) -> std::io::Result<()> {
    for target in TARGETS {
        let directory: PathBuf = root.join(target.name);
        fs::create_dir_all(&directory)?;
        for (at, seed) in (target.seeds)().iter().enumerate() {
            fs::write(directory.join(format!("seed_{at}")), seed)?;
        }
    }
    Ok(())
}
