//! Functions that fuzzers run, one for each kind of file that is read, and the files to begin with. Each function
//! accepts any bytes.
//!
//! A function may refuse what it is given; a panic, an abort or what it asserts is a fault. `fuzz/` runs them under
//! libFuzzer, `tests/it/fuzz.rs` for a second each by themselves. `anabranch-fuzzed` has those that build without wgpu.

use crate::one_cpu;
use crate::programs::bundled;
use anabranch::device::{DetectOptions, Inventory, detect};
use anabranch::drops::{Naming, Recipe};
use anabranch::import::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use anabranch::pipeline::{Among, Pipeline, PipelineOptions, StageCosts, StageMapping};
use anabranch::plan::PlanDevice;
use anabranch::plan_file::PlanFile;
use anabranch::planning::{Machine, PlatformFile};
use anabranch::program::Program;
use anabranch::{CostStore, DeviceKind, Inputs, Session};
use anabranch_fuzzed::{Target, files, with_file};
use anabranch_kernels::TensorSpec;
use anabranch_placement::logical;
use anabranch_report::npy::{read_npy_if, read_npz_if};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// All kinds of files that are read.
pub fn targets() -> impl Iterator<Item = Target> {
    anabranch_fuzzed::TARGETS.into_iter().chain(TARGETS)
}

/// The kinds of files whose readers bring wgpu along.
const TARGETS: [Target; 7] = [
    Target { name: "npy", run: npy, seeds: || members("data/mlp.npz") },
    Target { name: "npz", run: npz, seeds: || files(&["data/mlp.npz", "data/gru.npz"]) },
    Target { name: "plan", run: plan, seeds: || files(&["data/files/plan.json"]) },
    Target { name: "platform", run: platform, seeds: || files(&["data/files/platform.json"]) },
    Target { name: "mapping", run: mapping, seeds: mappings },
    Target { name: "drops", run: drops, seeds: graphs_of_drops },
    Target { name: "compiled", run: compiled, seeds: || vec![description(&COMPILED).to_vec()] },
];

/// One array.
pub fn npy(bytes: &[u8]) {
    with_file(bytes, |path| drop(read_npy_if(path, small)));
}

/// An archive of arrays.
pub fn npz(bytes: &[u8]) {
    with_file(bytes, |path| drop(read_npz_if(path, |_, spec| small(spec).map(|()| true))));
}

/// A plan for a bundled model.
pub fn plan(bytes: &[u8]) {
    static PROGRAM: LazyLock<Program> = LazyLock::new(|| bundled("mlp"));
    let Ok(file) = serde_json::from_slice::<PlanFile>(bytes) else { return };
    let device = |name: &str, kind| PlanDevice { name: name.into(), kind, limit: None.into(), wake_ns: 0 };
    let devices = [device("cpu0", DeviceKind::Cpu), device("gpu0", DeviceKind::Gpu)];
    let Ok(device_of) = file.assignment(&PROGRAM, &devices) else { return };
    assert_eq!(device_of.len(), PROGRAM.nodes.len());
    let _ = file.blocks(&PROGRAM, &devices, &device_of);
    if let Some(order) = file.order(&PROGRAM, &devices, &device_of) {
        assert!(order.len() >= PROGRAM.nodes.len(), "an order is of all nodes or none");
    }
}

/// Reads the description of a machine.
pub fn platform(bytes: &[u8]) {
    static HERE: LazyLock<Option<Inventory>> = LazyLock::new(|| detect(&DetectOptions::default().without_gpu()).ok());
    let Some(here) = &*HERE else { return };
    with_file(bytes, |path| {
        if let Ok(file) = PlatformFile::read(path) {
            drop(Machine::described(&file, here, CostStore::default().here()));
        }
    });
}

/// The stages of a pipeline that runs a bundled model on one CPU device.
pub fn mapping(bytes: &[u8]) {
    with_file(bytes, |path| {
        let Ok(mapping) = StageMapping::read(path) else { return };
        let (session, costs) = &*COSTED;
        let options = PipelineOptions::default().with_among(Among::Given(mapping.clone()));
        if let Ok(pipeline) = Pipeline::with_costs(session, costs, &options) {
            assert_eq!(pipeline.plan().mapping.stages.len(), mapping.stages.len());
        }
    });
}

/// A logical graph, or a physical graph template: read, unrolled, and its files named. Nothing is run.
pub fn drops(bytes: &[u8]) {
    let unrolled = logical::parse("fuzzed", bytes).and_then(|graph| graph.unroll());
    for graph in unrolled.into_iter().chain(logical::parse_template(bytes)) {
        assert!(graph.links().iter().all(|(from, to)| from.max(to) < &graph.drops().len()));
        // A few bytes can stand for a million drops, whose names show nothing more.
        if graph.drops().len() > 10_000 {
            return;
        }
        if let Ok(recipe) = Recipe::new(&graph, &Naming::of("fuzzed")) {
            assert!(recipe.application_count() <= recipe.drop_count());
        }
    }
}

/// Reads the description of a compiled model, in a file whose checksums are right: opens it and, if it is a compiled
/// model, runs it.
pub fn compiled(bytes: &[u8]) {
    with_file(&described(&COMPILED, bytes), |path| {
        let Ok(session) = Session::open(path, one_cpu()) else { return };
        let Ok(inputs) = session.fill_random(Inputs::new(), 0) else { return };
        if let Ok(outputs) = session.run(&inputs) {
            assert_eq!(outputs.iter().count(), session.outputs().len());
        }
    });
}

/// Session of a bundled model on one CPU device, and the predicted costs of its nodes.
static COSTED: LazyLock<(Session, StageCosts)> = LazyLock::new(|| {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/mlp.onnx");
    let session = Session::open(&model, one_cpu().with_dim("batch", 2)).expect("a sound model");
    let inputs = session.fill_random(Inputs::new(), 0).expect("its sizes are known");
    let costs =
        StageCosts::of(&session, &inputs, &PipelineOptions::default().with_measuring(false)).expect("it has one phase");
    (session, costs)
});

/// Rejects larger tensors.
fn small(spec: &TensorSpec) -> Result<(), String> {
    if spec.bytes() <= 1 << 20 { Ok(()) } else { Err("too large".into()) }
}

/// Arrays of an archive, each as a file of its own.
fn members(archive: &str) -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let arrays =
        anabranch_report::npy::read_npz(&Path::new(env!("CARGO_MANIFEST_DIR")).join(archive)).expect("bundled");
    let write = |tensor| {
        let path = directory.path().join("array.npy");
        anabranch_report::npy::write_npy(&path, tensor).expect("writable");
        fs::read(path).expect("just written")
    };
    arrays.values().map(write).collect()
}

/// A copy of the model on each core, and stages of one core each.
fn mappings() -> Vec<Vec<u8>> {
    let (session, costs) = &*COSTED;
    let found = |among| Pipeline::with_costs(session, costs, &PipelineOptions::default().with_among(among));
    let text = |pipeline: Pipeline| serde_json::to_vec(&pipeline.plan().mapping).expect("names are texts");
    // A machine of one core has no stages.
    [Among::Replicated(None), Among::Pipelined].into_iter().filter_map(|among| found(among).ok().map(text)).collect()
}

/// Returns a graph that can be run, graphs that only fit a machine, and the physical graph of the first.
fn graphs_of_drops() -> Vec<Vec<u8>> {
    let named = ["HelloWorld_simple", "eagle_gather_simple", "ArrayLoop"];
    let mut found = files(&named.map(|name| format!("../placement/tests/data/footprint/logical/{name}.graph")));
    found.insert(0, files(&["../examples/graphs/wordcount.graph"]).remove(0));
    let graph = logical::parse("wordcount", &found[0]).and_then(|graph| graph.unroll()).expect("it is bundled");
    let mut template = Vec::new();
    graph.write(None, &mut template).expect("memory takes it");
    found.push(template);
    found
}

/// Compiled model: a plan, and a branch that waits for its results.
static COMPILED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("compiled");
    let value = |name: &str| ValueInfoProto { name: name.into(), r#type: None };
    let branch = |operator: &str, made: &str| GraphProto {
        node: vec![NodeProto::of(operator, &["found", "one"], &[made])],
        output: vec![value(made)],
        ..GraphProto::default()
    };
    let graph = GraphProto {
        node: vec![
            NodeProto::of("Gemm", &["x", "w"], &["a"]),
            NodeProto::of("Softmax", &["a"], &["b"]),
            NodeProto::of("Greater", &["a", "one"], &["is"]),
            NodeProto::of("Compress", &["b", "is"], &["found"]),
            NodeProto::of("ReduceMax", &["found"], &["most"]).with(AttributeProto::int("keepdims", 0)),
            NodeProto::of("Less", &["most", "one"], &["small"]),
            NodeProto::of("If", &["small"], &["y"])
                .with(AttributeProto::graph("then_branch", &branch("Add", "t")))
                .with(AttributeProto::graph("else_branch", &branch("Mul", "f"))),
        ],
        initializer: vec![
            TensorProto::f32s("w", &[8, 8], &(0..64).map(|at| at as f32).collect::<Vec<_>>()),
            TensorProto::f32s("one", &[], &[1.0]),
        ],
        // More elements than a plan is made for.
        input: vec![ValueInfoProto::f32s("x", &[3, 8])],
        output: vec![value("b"), value("y")],
        ..GraphProto::default()
    };
    let session = Session::from_bytes(&ModelProto::of(graph, 17).to_bytes(), one_cpu()).expect("a sound model");
    let inputs = session.fill_random(Inputs::new(), 0).expect("its sizes are known");
    session.compile(&inputs, &path, "").expect("it has a first phase");
    fs::read(path).expect("just written")
});

/// Offsets of a compiled model's sizes of parts, its checksum and its description
/// (`backend/session/src/compiled/container.rs`).
const SIZES: usize = 24;
const CHECKSUM: Range<usize> = 64..96;

/// Returns the sizes of its description and its small constants, and the start of its weights.
fn sizes(compiled: &[u8]) -> [usize; 3] {
    let size = |at: usize| u64::from_le_bytes(*compiled[SIZES + 8 * at..].first_chunk().expect("a header is longer"));
    [0, 1, 2].map(|at| size(at) as usize)
}

fn description(compiled: &[u8]) -> &[u8] {
    &compiled[CHECKSUM.end..][..sizes(compiled)[0]]
}

/// Returns a compiled model with another description and the checksum that belongs to it.
fn described(compiled: &[u8], description: &[u8]) -> Vec<u8> {
    let [before, held, weights] = sizes(compiled);
    let held = &compiled[(CHECKSUM.end + before).next_multiple_of(64)..][..held];
    let mut front = [&compiled[..CHECKSUM.end], description].concat();
    front.resize(front.len().next_multiple_of(64), 0);
    front.extend_from_slice(held);
    front.resize(front.len().next_multiple_of(4096), 0);
    let (size, place) = (description.len() as u64, front.len() as u64);
    front[SIZES..SIZES + 8].copy_from_slice(&size.to_le_bytes());
    front[SIZES + 16..SIZES + 24].copy_from_slice(&place.to_le_bytes());
    let (told, rest) = (&front[..CHECKSUM.start], &front[CHECKSUM.end..]);
    let checksum = blake3::Hasher::new().update(told).update(rest).finalize();
    front[CHECKSUM].copy_from_slice(checksum.as_bytes());
    front.extend_from_slice(&compiled[weights..]);
    front
}

/// Writes the seeds of every target into a directory of its name under `root`.
///
/// # Errors
/// If a file cannot be written.
pub fn write_corpora(root: &Path) -> std::io::Result<()> {
    for target in targets() {
        let directory: PathBuf = root.join(target.name);
        fs::create_dir_all(&directory)?;
        for (at, seed) in (target.seeds)().iter().enumerate() {
            fs::write(directory.join(format!("seed_{at}")), seed)?;
        }
    }
    Ok(())
}
