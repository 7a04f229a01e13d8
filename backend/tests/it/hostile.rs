//! Hostile model files: attacks that succeeded against other readers of ONNX, and the largest files that the limits
//! admit.

use anabranch::import::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, ValueInfoProto, data_type,
};

/// Required outcome of a hostile file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// An error, in every process that loads the file.
    Refused,
    /// A model: the file is strange, but within every limit.
    Loaded,
}
use Fate::{Loaded, Refused};

/// A file of this name and content.
pub(crate) struct Hostile {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) fate: Fate,
}

pub(crate) const GRAPH: u8 = 0x3a;
pub(crate) const NODE: u8 = 0x0a;
const ATTRIBUTE: u8 = 0x2a;
const SUBGRAPH: u8 = 0x32;
const INITIALIZER: u8 = 0x2a;
const RAW_DATA: u8 = 0x4a;
const OPSET: u8 = 0x42;

/// A field of bytes or a message: key, length, content.
pub(crate) fn field(key: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![key];
    bytes.extend(varint(content.len() as u64));
    bytes.extend(content);
    bytes
}

/// A variable-length integer: seven bits a byte, the lowest first.
fn varint(value: u64) -> Vec<u8> {
    let length = (1..10).find(|length| value >> (7 * length) == 0).unwrap_or(10);
    (0..length).map(|at| (value >> (7 * at)) as u8 & 0x7f | if at + 1 < length { 0x80 } else { 0 }).collect()
}

/// Graphs within nodes' attributes within graphs, written from the inside out and then reversed.
fn nested(graphs: usize) -> Vec<u8> {
    let mut reversed = Vec::new();
    let mut wrap = |key: u8| {
        let mut head = vec![key];
        head.extend(varint(reversed.len() as u64));
        reversed.extend(head.into_iter().rev());
    };
    // The subgraphs' nodes have no operator, which matters only if a graph is run.
    (1..graphs).for_each(|_| [SUBGRAPH, ATTRIBUTE, NODE].into_iter().for_each(&mut wrap));
    reversed.reverse();
    reversed
}

/// A graph whose node has a subgraph whose node has a subgraph …
fn subgraphs(depth: usize) -> Vec<u8> {
    let attribute = [field(0x0a, b"body"), field(SUBGRAPH, &nested(depth - 1)), vec![0xa0, 1, 5]].concat();
    let node = [field(0x22, b"Loop"), field(ATTRIBUTE, &attribute)].concat();
    [field(GRAPH, &field(NODE, &node)), field(OPSET, &[0x10, 17])].concat()
}

/// Raw data that claims 2 to the power of `exponent` bytes but has none.
fn lie(exponent: u32) -> Vec<u8> {
    let mut raw_data = vec![RAW_DATA];
    raw_data.extend(varint(1 << exponent));
    // The enclosing lengths are correct.
    field(GRAPH, &field(INITIALIZER, &raw_data))
}

fn with_initializer(tensor: TensorProto) -> Vec<u8> {
    ModelProto::of(GraphProto { initializer: vec![tensor], ..GraphProto::default() }, 17).to_bytes()
}

fn with_nodes(node: impl IntoIterator<Item = NodeProto>) -> Vec<u8> {
    let input = vec![ValueInfoProto::f32s("x", &[1])];
    ModelProto::of(GraphProto { node: node.into_iter().collect(), input, ..GraphProto::default() }, 17).to_bytes()
}

fn sparse(elements: i64) -> Vec<u8> {
    let sparse = SparseTensorProto {
        values: Some(TensorProto::f32s("s", &[0], &[])),
        indices: Some(TensorProto::i64s("", &[0], &[])),
        dims: vec![elements],
    };
    ModelProto::of(GraphProto { sparse_initializer: vec![sparse], ..GraphProto::default() }, 17).to_bytes()
}

/// A model of one 32-bit float initialiser whose data is in `location`.
pub(crate) fn external(elements: i64, location: &str) -> Vec<u8> {
    with_initializer(TensorProto::external("w", data_type::FLOAT, &[elements], &[("location", location)]))
}

/// Every kind of hostile file, one after another so that only one is in memory.
pub(crate) fn files() -> impl Iterator<Item = Hostile> {
    let parse = [("empty", vec![]), ("one_byte", vec![0x08]), ("text", b"version https://git-lfs".to_vec())];
    let parse = parse.map(|(name, bytes)| (name.to_owned(), bytes, Refused));
    let depth = [(10, Loaded), (33, Refused), (34, Refused), (1_000, Refused), (200_000, Refused)];
    let depth = depth.map(|(depth, fate)| (format!("subgraphs_{depth}"), subgraphs(depth), fate));
    let lies = [30, 36, 46, 62].map(|exponent| (format!("lie_{exponent}"), lie(exponent), Refused));
    let made = parse.into_iter().chain(depth).chain(lies).chain(sizes());
    let made = made.map(|(name, bytes, fate)| Hostile { name, bytes, fate });
    made.chain((0..11).map(|number| {
        let (name, bytes, fate) = crowd(number);
        Hostile { name: name.to_owned(), bytes, fate }
    }))
}

/// Tensors that claim more, or fewer, bytes than they have.
fn sizes() -> impl Iterator<Item = (String, Vec<u8>, Fate)> {
    let float = |dims: &[i64], bytes| with_initializer(TensorProto::raw("t", data_type::FLOAT, dims, vec![0; bytes]));
    let cases = [
        ("dims_2_64", float(&[1 << 32, 1 << 32], 0), Refused),
        ("dims_most", float(&[i64::MAX], 0), Refused),
        ("dims_negative", float(&[-1], 0), Refused),
        ("dims_least", float(&[i64::MIN], 0), Refused),
        ("dims_0_huge", float(&[0, i64::MAX, 4], 0), Refused),
        ("dims_0", float(&[0, 1 << 20], 0), Loaded),
        ("rank_1000", float(&[1; 1000], 4), Refused),
        ("short", float(&[2, 2], 15), Refused),
        ("long", float(&[2, 2], 17), Refused),
        ("dense_8_gib", float(&[1 << 31], 0), Refused),
        ("sparse_1_tib", sparse(1 << 38), Refused),
        ("sparse_8_gib", sparse(1 << 31), Refused),
    ];
    cases.into_iter().map(|(name, bytes, fate)| (name.to_owned(), bytes, fate))
}

/// Files of very many small items, which take many times their size when they are decoded.
fn crowd(number: usize) -> (&'static str, Vec<u8>, Fate) {
    let node = |inputs: &[&str], outputs: &[&str]| NodeProto::of("A", inputs, outputs);
    match number {
        0 => ("empty_nodes", field(GRAPH, &[NODE, 0].repeat(4_000_000)), Refused),
        1 => ("empty_inputs", field(GRAPH, &field(NODE, &[0x0a, 0].repeat(16_000_000))), Refused),
        2 => ("empty_attributes", field(GRAPH, &field(NODE, &[ATTRIBUTE, 0].repeat(4_000_000))), Refused),
        3 => ("unknown_fields", [0x28, 0].repeat(20_000_000), Refused),
        4 => ("functions", [0xca, 1, 0].repeat(8_000_000), Refused),
        5 => ("opsets", [OPSET, 0].repeat(8_000_000), Refused),
        6 => ("long_name", with_nodes([node(&[], &[&"n".repeat(1 << 20)])]), Refused),
        // Within the limits, and as much as they admit.
        7 => ("many_nodes", with_nodes(std::iter::repeat_n(node(&[], &[]), 1_000_000)), Loaded),
        8 => {
            let chain = (0..300_000).map(|at| node(&[&format!("v{at}")], &[&format!("v{}", at + 1)]));
            ("chain_backwards", with_nodes(chain.rev().chain([node(&["x"], &["v0"])])), Loaded)
        }
        9 => {
            let integers = AttributeProto::ints("a", &vec![1; 30_000_000]);
            ("many_integers", with_nodes([node(&[], &[]).with(integers)]), Loaded)
        }
        10 => {
            // One attribute's strings of one byte each: a block of memory each.
            let strings = field(NODE, &field(ATTRIBUTE, &[0x4a, 1, b's'].repeat(11_000_000)));
            ("many_short_strings", field(GRAPH, &strings), Refused)
        }
        _ => {
            let names = (0..100_000).map(|at| node(&[], &[]).named(["same", "same#1"][at % 2]));
            ("same_names", with_nodes(names), Loaded)
        }
    }
}
