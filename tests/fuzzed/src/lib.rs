//! Readers for the fuzzers that build without wgpu: `fuzz/` alone builds only them.
//!
//! `anabranch_tests::fuzz` has the readers of the other kinds of files, and all kinds together.

use anabranch_costs::{CostFormat, CostStore};
use anabranch_ir::constant::Constant;
use anabranch_kernels::Tensor;
use anabranch_onnx::Item;
use anabranch_onnx::import::{Kind, from_bytes, item_in_file, tensor_to_bytes};
use anabranch_onnx::lower::{LowerOptions, lower};
use anabranch_placement::format::{Loaded, parse};
use anabranch_placement::pipeline::{Link, document};
use anabranch_placement::streaming::parse_canonical;
use std::cell::OnceCell;
use std::fs;
use std::path::Path;
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

/// The kinds of files.
pub const TARGETS: [Target; 6] = [
    Target { name: "onnx", run: onnx, seeds: || files(&["data/mlp.onnx", "data/gru.onnx", "data/decoder.onnx"]) },
    Target { name: "message", run: message, seeds: messages },
    Target { name: "graph", run: graph, seeds: graphs },
    Target { name: "costs", run: costs, seeds: || files(&["data/files/costs.json"]) },
    Target { name: "starpu", run: starpu, seeds: || files(&["data/files/starpu.cpu"]) },
    Target { name: "stages", run: stages, seeds: chains },
];

/// A model: imported, and lowered where its shapes are known.
pub fn onnx(bytes: &[u8]) {
    let Ok(model) = from_bytes(bytes, None) else { return };
    let options = LowerOptions { budget: 1 << 20, ..LowerOptions::default() };
    if let Ok(program) = lower(&model, &options) {
        assert_eq!(program.outputs.len(), model.outputs.len());
    }
}

/// A tensor, a sequence or an optional in a message: read as each kind, with all elements.
pub fn message(bytes: &[u8]) {
    with_file(bytes, |path| {
        for (sequence, optional) in [(false, false), (true, false), (false, true), (true, true)] {
            let load = |tensor: &Constant| tensor.load().ok().inspect(|own| assert_eq!(own.spec(), tensor.spec()));
            match item_in_file(path, Kind { sequence, optional }) {
                Ok(Item::Tensor(tensor)) => drop(load(&tensor)),
                Ok(Item::Sequence(tensors)) => tensors.iter().for_each(|tensor| drop(load(tensor))),
                Ok(Item::Absent) => assert!(optional, "nothing was read as a value that is always there"),
                Err(_) => {}
            }
        }
    });
}

/// A task graph in any format, and one of streaming tasks.
pub fn graph(bytes: &[u8]) {
    drop(parse_canonical(bytes));
    if let Ok(Loaded::Problems(problems)) = parse("fuzzed.json", bytes) {
        assert!(!problems.is_empty());
    }
}

/// A cost store. Reading leaves it as it is; an import takes what a session takes without a warning, and nothing else.
pub fn costs(bytes: &[u8]) {
    with_file(bytes, |path| {
        let whole = CostStore::load(path).ok().filter(|loaded| loaded.warnings.is_empty()).map(|loaded| loaded.store);
        assert!(CostFormat::Json.import(path).ok() == whole);
        assert_eq!(fs::read(path).ok().as_deref(), Some(bytes));
    });
}

/// A performance model of StarPU's.
pub fn starpu(bytes: &[u8]) {
    with_file(bytes, |path| drop(CostFormat::StarPu.import(path)));
}

/// A chain of stages and who runs it.
pub fn stages(bytes: &[u8]) {
    drop(document::parse("fuzzed", bytes, Link::FREE));
}

/// Calls `read` with a file of these bytes, which each thread has one of.
pub fn with_file(bytes: &[u8], read: impl FnOnce(&Path)) {
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

/// Reads files beneath `tests/`.
///
/// # Panics
/// If a file is not there.
pub fn files(names: &[impl AsRef<Path>]) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    names.iter().map(|name| fs::read(root.join(name)).expect("it is bundled")).collect()
}

/// A tensor, a sequence of two tensors, and an optional that holds the sequence.
fn messages() -> Vec<Vec<u8>> {
    let tensor = tensor_to_bytes("x", &Tensor::from_i64s(&[1, -2, 3])).expect("integers are written");
    // Fields of `SequenceProto` and `OptionalProto`: the type of elements is 2, tensors are 3, and a sequence is 5.
    let field = |number: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).ok().filter(|length| *length < 0x80).expect("one byte tells the length");
        [&[number << 3 | 2, length], bytes].concat()
    };
    let sequence = [vec![2 << 3, 1], field(3, &tensor), field(3, &tensor)].concat();
    let optional = [vec![2 << 3, 3], field(5, &sequence)].concat();
    vec![tensor, sequence, optional]
}

/// One graph of each format.
fn graphs() -> Vec<Vec<u8>> {
    let formats = ["example.json", "related.json", "unrelated.json", "workflow_1.4.json", "workflow_1.6.json"];
    let formats = formats.iter().map(|name| format!("../placement/tests/data/formats/{name}"));
    let tables = ["fig2_3_graph.csv", "fig2_3_devices.csv"].map(|name| format!("../placement/tests/data/{name}"));
    files(&formats.chain(tables).collect::<Vec<_>>())
}

/// One chain of each format.
fn chains() -> Vec<Vec<u8>> {
    files(&["example.json", "example.csv"].map(|name| format!("../placement/tests/data/pipeline/{name}")))
}
