//! Integers of every width at their ends: every operator that the standard has for them, against its definition in
//! 128-bit integers.
//!
//! Each operator is computed while the model is lowered (all inputs constant), in a run, and in a run without fusion.
//! All bits equal those of the definition. Arithmetic wraps in the type itself.

mod elementwise;
mod errors;
mod kind;
mod lines;
mod made;
mod volumes;
use anabranch::import::from_bytes;
use anabranch::import::proto::{DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use anabranch::lower::{LowerOptions, Rewrites, lower};
use anabranch::session::{Inputs, Session, SessionConfig};
use anabranch::{Shape, Tensor};
use anabranch_kernels::{Buffer, DType, TensorSpec};
use kind::Kind;
use std::sync::Arc;

/// An input or constant of a graph.
#[derive(Clone)]
struct Given {
    name: &'static str,
    code: i64,
    dtype: DType,
    dims: Vec<usize>,
    data: Vec<u8>,
    /// Whether it is constant in each case, because it decides shapes or axes.
    fixed: bool,
}

/// Nodes that make `output`, and its expected value.
struct Case {
    nodes: Vec<NodeProto>,
    output: String,
    dtype: DType,
    want: Vec<u8>,
}

impl Given {
    fn new(name: &'static str, kind: Kind, dims: &[usize], values: &[i128]) -> Self {
        let (code, dtype, data) = (kind.code, kind.dtype, kind.bytes(values));
        Self { name, code, dtype, dims: dims.to_vec(), data, fixed: false }
    }

    fn fixed(name: &'static str, kind: Kind, dims: &[usize], values: &[i128]) -> Self {
        Self { fixed: true, ..Self::new(name, kind, dims, values) }
    }

    fn dims(&self) -> Vec<i64> {
        self.dims.iter().map(|dim| *dim as i64).collect()
    }

    fn tensor(&self) -> Tensor {
        let spec = TensorSpec::new(self.dtype, Shape::new(&self.dims[..]).expect("small"));
        Tensor::new(spec, Arc::new(Buffer::copied(&self.data))).expect("as many")
    }

    fn declared(&self) -> ValueInfoProto {
        ValueInfoProto::tensor(self.name, self.code, self.dims().into_iter().map(DimensionProto::known).collect())
    }
}

impl Case {
    /// One node that makes integers.
    fn of(node: NodeProto, kind: Kind, want: &[i128]) -> Self {
        Self::typed(node, kind.dtype, kind.bytes(want))
    }

    fn typed(mut node: NodeProto, dtype: DType, want: Vec<u8>) -> Self {
        let output = format!("{} {}", node.op_type, node.output[0]);
        node.output[0].clone_from(&output);
        Self { nodes: vec![node], output, dtype, want }
    }

    /// One node that makes bools.
    fn truths(node: NodeProto, want: &[bool]) -> Self {
        Self::typed(node, DType::Bool, want.iter().map(|truth| u8::from(*truth)).collect())
    }

    fn compare(&self, how: &str, found: &Tensor) {
        let what = || format!("{} {how}", self.nodes.iter().map(|node| &*node.op_type).collect::<Vec<_>>().join(", "));
        assert_eq!(found.dtype(), self.dtype, "{}", what());
        assert!(found.bytes() == self.want, "{}: {:?} rather than {:?}", what(), found.bytes(), self.want);
    }
}

fn model(cases: &[Case], given: &[Given], constant: bool) -> Vec<u8> {
    let (constants, inputs): (Vec<_>, Vec<_>) = given.iter().partition(|given| constant || given.fixed);
    let raw = |given: &&Given| TensorProto::raw(given.name, given.code, &given.dims(), given.data.clone());
    let graph = GraphProto {
        node: cases.iter().flat_map(|case| case.nodes.clone()).collect(),
        initializer: constants.iter().map(raw).collect(),
        input: inputs.iter().map(|given| given.declared()).collect(),
        output: cases.iter().map(|case| ValueInfoProto { name: case.output.clone(), r#type: None }).collect(),
        ..GraphProto::default()
    };
    ModelProto::of(graph, 21).to_bytes()
}

fn session(bytes: &[u8], fuse: Rewrites) -> Session {
    let options = SessionConfig::default().without_gpu().with_fusion(fuse);
    Session::from_bytes(bytes, options).unwrap_or_else(|error| panic!("{error}"))
}

fn inputs(given: &[Given]) -> Inputs {
    given.iter().filter(|given| !given.fixed).fold(Inputs::new(), |all, given| all.tensor(given.name, given.tensor()))
}

/// Checks all cases, computed ahead, and in runs with and without fusion.
fn check(what: &str, cases: &[Case], given: &[Given]) {
    folded(what, cases, given);
    computed(what, cases, given);
}

fn folded(what: &str, cases: &[Case], given: &[Given]) {
    let whole = from_bytes(&model(cases, given, true), None).expect("a sound model");
    let program = lower(&whole, &LowerOptions::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
    for (case, output) in cases.iter().zip(&program.outputs) {
        let constant = program.constant(output.value).unwrap_or_else(|| panic!("{what}: {} is left", case.output));
        case.compare(&format!("of {what}, folded"), &constant.load().expect("in memory"));
    }
}

fn computed(what: &str, cases: &[Case], given: &[Given]) {
    let bytes = model(cases, given, false);
    for (fuse, how) in [(Rewrites::default(), "fused"), (Rewrites::NONE, "unfused")] {
        let outputs = session(&bytes, fuse).run(&inputs(given)).unwrap_or_else(|error| panic!("{what}: {error}"));
        for case in cases {
            case.compare(&format!("of {what}, run {how}"), outputs.tensor(&case.output).expect("made"));
        }
    }
}
