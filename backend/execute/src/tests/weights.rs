//! Weights are in memory once for all shapes, and are read on demand.

use crate::{ExecError, Kernels, Weights};
use anabranch_base::error_kind::ErrorKind;
use anabranch_kernels::Shape;
use anabranch_onnx::import::proto::{
    DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
};
use anabranch_onnx::import::{Model, load};
use anabranch_onnx::lower::{LowerOptions, lower};
use anabranch_placement_core::platform::DeviceKind;
use anabranch_plan::Needs;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;

/// Rows and columns of each matrix of weights, a multiple of all panels' widths.
const WIDE: usize = 240;

/// A model of a product with plain weights and a product with transposed weights, for any number of rows.
fn write(folder: &tempfile::TempDir) -> PathBuf {
    let weights = |name: &str| {
        let elements: Vec<f32> = (0..WIDE * WIDE).map(|at| (at % 13) as f32 - 6.0).collect();
        TensorProto::f32s(name, &[WIDE as i64, WIDE as i64], &elements)
    };
    let rows = |name: &str| {
        let dims = vec![DimensionProto::symbol("n"), DimensionProto::known(WIDE as i64)];
        ValueInfoProto::tensor(name, data_type::FLOAT, dims)
    };
    let graph = GraphProto {
        node: vec![
            NodeProto::of("MatMul", &["x", "a"], &["y"]),
            NodeProto::of("Transpose", &["b"], &["t"]),
            NodeProto::of("MatMul", &["y", "t"], &["z"]),
        ],
        input: vec![rows("x")],
        output: vec![rows("z")],
        initializer: vec![weights("a"), weights("b")],
        ..GraphProto::default()
    };
    let path = folder.path().join("model.onnx");
    fs::write(&path, ModelProto::of(graph, 17).to_bytes()).expect("a small file");
    path
}

/// Kernels of the model for `rows` rows.
fn kernels(model: &Model, rows: usize, weights: &Arc<Weights>) -> Kernels {
    let shape = Shape::new([rows, WIDE]).expect("small");
    let options = LowerOptions { input_shapes: BTreeMap::from([("x".to_owned(), shape)]), ..LowerOptions::default() };
    Kernels::with(Arc::new(lower(model, &options).expect("two products")), Arc::clone(weights))
}

fn ready(kernels: &Kernels) -> Result<(), ExecError> {
    let nodes: Vec<_> = kernels.program().node_ids().collect();
    kernels.ready(&nodes, &[]).map(|_| ())
}

#[test]
fn kernels_of_all_shapes_share_their_weights() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let model = load(&write(&folder)).expect("sound");
    assert!(model.initializers.values().all(|constant| constant.held().is_none()), "they stay in the file");
    let weights: Arc<Weights> = Arc::default();
    let mut all = Vec::new();
    for rows in 1..=20 {
        let kernels = kernels(&model, rows, &weights);
        ready(&kernels).expect("readable");
        for node in kernels.program().node_ids() {
            let needs = kernels.needs(node, DeviceKind::Cpu).expect("there is a kernel");
            assert_eq!((&needs.reads[..], needs.packed.len()), (&[true, false][..], 1), "only packed weights are read");
        }
        all.push(kernels);
        let (held, unused) = weights.host_bytes();
        let own = (2 * WIDE * WIDE * size_of::<f32>()) as u64;
        assert!(held >= own && 10 * held <= 11 * own && unused == 0, "{rows} rows: {held} bytes, {own} of weights");
    }
    drop(all);
    assert!(weights.host_bytes().1 > 0, "nobody uses them now");
    weights.trim();
    assert_eq!(weights.host_bytes(), (0, 0));
}

#[test]
fn weights_that_no_plan_uses_go_when_others_are_made() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let model = load(&write(&folder)).expect("sound");
    let weights: Arc<Weights> = Arc::default();
    ready(&kernels(&model, 3, &weights)).expect("readable");
    let (held, unused) = weights.host_bytes();
    assert!(held > 0 && held == unused, "the kernels are gone");
    weights.on_host(&[]).expect("nothing is wanted");
    assert_eq!(weights.host_bytes().0, 0);
}

#[test]
fn a_file_that_was_changed_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = write(&folder);
    let model = load(&path).expect("sound");
    let bytes = fs::metadata(&path).expect("it is there").len();
    for length in [bytes / 2, bytes + 1] {
        let file = File::options().write(true).open(&path).expect("it can be written");
        file.set_len(length).expect("it can be cut");
        let error = ready(&kernels(&model, 3, &Arc::default())).expect_err("another size");
        assert_eq!(error.kind, ErrorKind::Model);
        let text = error.to_string();
        assert!(text.contains("model.onnx` was changed") && text.contains("open the model again"), "{text}");
    }
    // The opened file is read, even if its name has another file now.
    let path = write(&folder);
    let model = load(&path).expect("sound");
    fs::rename(&path, folder.path().join("moved")).expect("it can be moved");
    fs::write(&path, "another").expect("a small file");
    ready(&kernels(&model, 3, &Arc::default())).expect("it is the same file");
}
