//! A decoder of one layer that concatenates its cache, with the habits of exporters that matter for padding.

use super::{folder, open_in};
use anabranch_base::random::SplitMix64;
use anabranch_generate::Generator;
use anabranch_onnx::import::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
    data_type,
};
use std::fs;
use tempfile::TempDir;

/// Positions that are learned.
pub(super) const CONTEXT: usize = 330;
const WIDTH: usize = 12;

/// The habits of a decoder.
#[derive(Clone, Copy)]
pub(super) struct Tiny {
    pub(super) positions: Positions,
    /// Whether there is an attention mask.
    pub(super) mask: bool,
    /// Keys farther back are hidden.
    pub(super) window: Option<i64>,
    /// Only keys of the query's chunk are seen; chunks are counted from the first key.
    pub(super) chunk: Option<i64>,
    /// Type of the cache.
    pub(super) cache: i64,
    /// Whether an input says that there is a cache, as in merged decoders.
    pub(super) branch: bool,
    /// Length of a cache that GroupQueryAttention takes as a buffer, instead of a cache that is concatenated.
    pub(super) capacity: Option<i64>,
    /// Whether the batch is declared to be 1.
    pub(super) fixed: bool,
    /// Whether each row is hidden what the others are hidden, too.
    pub(super) mixed: bool,
}

/// Where a decoder has positions from.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Positions {
    /// An input.
    Given,
    /// The mask, which counts the tokens before.
    Counted,
    /// The mask of the first row, for all rows.
    OfFirst,
    /// The length of the past.
    OfShape,
}

pub(super) const TINY: Tiny = Tiny {
    positions: Positions::Given,
    mask: true,
    window: None,
    chunk: None,
    cache: data_type::FLOAT,
    branch: false,
    capacity: None,
    fixed: false,
    mixed: false,
};

/// Nodes in the making.
#[derive(Default)]
struct Nodes(Vec<NodeProto>);

impl Nodes {
    fn add(&mut self, operator: &str, inputs: &[&str], output: &str) {
        self.0.push(NodeProto::of(operator, inputs, &[output]));
    }

    fn with(&mut self, operator: &str, inputs: &[&str], output: &str, attribute: AttributeProto) {
        self.0.push(NodeProto::of(operator, inputs, &[output]).with(attribute));
    }

    fn size(&mut self, value: &str, at: &str, output: &str) {
        let shape = format!("{output}_shape");
        self.add("Shape", &[value], &shape);
        self.add("Gather", &[&shape, at], output);
    }
}

impl Tiny {
    /// Opens the decoder in a folder as optimum writes it.
    pub(super) fn open(self) -> (Generator, TempDir) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let write = |name: &str, content: &[u8]| fs::write(directory.path().join(name), content).expect("written");
        write("model.onnx", &self.model());
        write("config.json", format!("{{\"n_positions\": {CONTEXT}, \"vocab_size\": 128, \"n_layer\": 1}}").as_bytes());
        write("tokenizer.json", &fs::read(folder("gpt2").join("tokenizer.json")).expect("bundled"));
        (open_in(directory.path(), 1).expect("a decoder"), directory)
    }

    fn model(self) -> Vec<u8> {
        let mut nodes = Nodes::default();
        if self.capacity.is_none() {
            self.add_bias(&mut nodes);
        }
        self.add_positions(&mut nodes);
        self.add_attention(&mut nodes);
        let (node, input, output, initializer) = (nodes.0, self.inputs(), self.outputs(), self.constants());
        let graph = GraphProto { node, input, output, initializer, ..GraphProto::default() };
        let mut model = ModelProto::of(graph, 17);
        model.opset_import.push(OperatorSetIdProto { domain: "com.microsoft".into(), version: 1 });
        model.to_bytes()
    }

    /// Adds 0 for keys that a query sees, and the lowest number for others.
    fn add_bias(self, nodes: &mut Nodes) {
        nodes.size("past_key_values.0.key", "two", "past");
        nodes.size("input_ids", "one", "new");
        nodes.add("Add", &["past", "new"], "total");
        nodes.add("Range", &["past", "total", "one"], "rows");
        nodes.add("Range", &["zero", "total", "one"], "columns");
        nodes.add("Unsqueeze", &["rows", "axis_1"], "queries");
        nodes.add("Greater", &["columns", "queries"], "hidden");
        let mut hidden = "hidden".to_owned();
        let mut hide = |nodes: &mut Nodes, condition: &str| {
            let all = format!("{condition}_or_before");
            nodes.add("Or", &[&hidden, condition], &all);
            hidden = all;
        };
        if self.window.is_some() {
            nodes.add("Sub", &["queries", "window"], "oldest");
            nodes.add("Less", &["columns", "oldest"], "too_old");
            hide(nodes, "too_old");
        }
        if self.chunk.is_some() {
            nodes.add("Div", &["queries", "chunk"], "own_chunk");
            nodes.add("Div", &["columns", "chunk"], "chunks");
            nodes.add("Less", &["chunks", "own_chunk"], "other_chunk");
            hide(nodes, "other_chunk");
        }
        if self.mask {
            let axes = if self.mixed { "axes_0_1" } else { "axes_1_2" };
            nodes.add("Unsqueeze", &["attention_mask", axes], "mask");
            nodes.add("Equal", &["mask", "zero"], "padding");
            hide(nodes, "padding");
        }
        nodes.add("Where", &[&hidden, "least", "nothing"], "bias");
    }

    fn add_positions(self, nodes: &mut Nodes) {
        match self.positions {
            Positions::Given => nodes.add("Identity", &["position_ids"], "own_positions"),
            Positions::OfShape => nodes.add("Unsqueeze", &["rows", "axis_0"], "own_positions"),
            Positions::Counted | Positions::OfFirst => {
                let rows = if self.positions == Positions::Counted { "attention_mask" } else { "first_row" };
                nodes.add("Gather", &["attention_mask", "axis_0"], "first_row");
                nodes.add("CumSum", &[rows, "one"], "counts");
                nodes.add("Sub", &["counts", "one"], "all_positions");
                nodes.add("Unsqueeze", &["past", "axis_0"], "begin");
                nodes.add("Unsqueeze", &["total", "axis_0"], "end");
                nodes.add("Slice", &["all_positions", "begin", "end", "axis_1"], "own_positions");
            }
        }
        if !self.branch {
            nodes.add("Identity", &["own_positions"], "positions");
            return;
        }
        let branch = |operator: &str| GraphProto {
            node: vec![NodeProto::of(operator, &["own_positions"], &[operator])],
            output: vec![ValueInfoProto::tensor(operator, data_type::INT64, Vec::new())],
            ..GraphProto::default()
        };
        let node = NodeProto::of("If", &["use_cache_branch"], &["positions"]);
        let node = node.with(AttributeProto::graph("then_branch", &branch("Identity")));
        nodes.0.push(node.with(AttributeProto::graph("else_branch", &branch("Neg"))));
    }

    /// Attention of one head over the cache, and the logits.
    fn add_attention(self, nodes: &mut Nodes) {
        nodes.add("Gather", &["words", "input_ids"], "word");
        nodes.add("Gather", &["places", "positions"], "place");
        nodes.add("Add", &["word", "place"], "x");
        for part in ["query", "key", "value"] {
            let [own, new, narrow] = ["own", "new", "narrow"].map(|what| format!("{part}_{what}"));
            nodes.add("MatMul", &["x", part], &own);
            nodes.add("Unsqueeze", &[&own, "axis_1"], &new);
            if part != "query" && self.capacity.is_none() {
                let [past, present] = ["past_key_values", "present"].map(|what| format!("{what}.0.{part}"));
                nodes.with("Cast", &[&new], &narrow, AttributeProto::int("to", self.cache));
                nodes.with("Concat", &[&past, &narrow], &present, AttributeProto::int("axis", 2));
                nodes.with("Cast", &[&present], &format!("{part}s"), AttributeProto::int("to", data_type::FLOAT));
            }
        }
        match self.capacity {
            Some(_) => self.add_grouped(nodes),
            None => self.add_products(nodes),
        }
        nodes.add("MatMul", &["mixed", "out"], "changed");
        nodes.add("Add", &["word", "changed"], "y");
        nodes.add("MatMul", &["y", "head"], "logits");
    }

    fn add_grouped(self, nodes: &mut Nodes) {
        let axis = || AttributeProto::int("axis", 0);
        nodes.with("ReduceSum", &["attention_mask", "axis_1"], "count", AttributeProto::int("keepdims", 0));
        nodes.add("Sub", &["count", "one"], "last");
        nodes.with("Cast", &["last"], "seqlens_k", AttributeProto::int("to", data_type::INT32));
        nodes.add("Shape", &["attention_mask"], "mask_shape");
        nodes.with("Gather", &["mask_shape", "one"], "length", axis());
        nodes.with("Cast", &["length"], "total_length", AttributeProto::int("to", data_type::INT32));
        let past = ["past_key_values.0.key", "past_key_values.0.value", "seqlens_k", "total_length"];
        let inputs = [&["query_own", "key_own", "value_own"][..], &past].concat();
        let node = NodeProto::of("GroupQueryAttention", &inputs, &["mixed", "present.0.key", "present.0.value"]);
        let node = node.named("gqa").with(AttributeProto::int("num_heads", 1));
        let node = node.with(AttributeProto::int("kv_num_heads", 1)).with(AttributeProto::float("scale", 1.0));
        nodes.0.push(NodeProto { domain: "com.microsoft".into(), ..node });
    }

    fn add_products(self, nodes: &mut Nodes) {
        nodes.with("Transpose", &["keys"], "across", AttributeProto::ints("perm", &[0, 1, 3, 2]));
        nodes.add("MatMul", &["query_new", "across"], "scores");
        nodes.add("Add", &["scores", "bias"], "masked");
        nodes.with("Softmax", &["masked"], "weights", AttributeProto::int("axis", -1));
        nodes.add("MatMul", &["weights", "values"], "by_head");
        nodes.add("Squeeze", &["by_head", "axis_1"], "mixed");
    }

    fn inputs(self) -> Vec<ValueInfoProto> {
        let integers = |name: &str, length: &str| {
            ValueInfoProto::tensor(name, data_type::INT64, vec![self.batch(), DimensionProto::symbol(length)])
        };
        let branch = || ValueInfoProto::tensor("use_cache_branch", data_type::BOOL, vec![DimensionProto::known(1)]);
        let mut inputs = vec![integers("input_ids", "sequence_length")];
        inputs.extend(self.mask.then(|| integers("attention_mask", "total_sequence_length")));
        let is_given = self.positions == Positions::Given;
        inputs.extend(is_given.then(|| integers("position_ids", "sequence_length")));
        inputs.extend(self.branch.then(branch));
        inputs.extend(self.caches("past_key_values", "past_sequence_length"));
        inputs
    }

    fn outputs(self) -> Vec<ValueInfoProto> {
        let (known, symbol) = (DimensionProto::known, DimensionProto::symbol);
        let logits = vec![self.batch(), symbol("sequence_length"), known(128)];
        let mut outputs = vec![ValueInfoProto::tensor("logits", data_type::FLOAT, logits)];
        outputs.extend(self.caches("present", "total_sequence_length"));
        outputs
    }

    fn batch(self) -> DimensionProto {
        if self.fixed { DimensionProto::known(1) } else { DimensionProto::symbol("batch_size") }
    }

    fn caches(self, name: &str, length: &str) -> [ValueInfoProto; 2] {
        let (known, symbol) = (DimensionProto::known, DimensionProto::symbol);
        ["key", "value"].map(|part| {
            let length = self.capacity.map_or_else(|| symbol(length), known);
            let dims = vec![self.batch(), known(1), length, known(WIDTH as i64)];
            ValueInfoProto::tensor(&format!("{name}.0.{part}"), self.cache, dims)
        })
    }

    fn constants(self) -> Vec<TensorProto> {
        let number = |name: &str, value: i64| TensorProto::i64s(name, &[], &[value]);
        let axis = |at: i64| TensorProto::i64s(&format!("axis_{at}"), &[1], &[at]);
        let real = |name: &str, value: f32| TensorProto::f32s(name, &[], &[value]);
        let mut constants = vec![number("zero", 0), number("one", 1), number("two", 2), axis(0), axis(1)];
        constants.push(TensorProto::i64s("axes_1_2", &[2], &[1, 2]));
        constants.push(TensorProto::i64s("axes_0_1", &[2], &[0, 1]));
        constants.extend(self.window.map(|window| number("window", window)));
        constants.extend(self.chunk.map(|chunk| number("chunk", chunk)));
        constants.extend([real("least", f32::MIN), real("nothing", 0.0)]);
        constants.extend([noise("words", &[128, WIDTH]), noise("places", &[CONTEXT, WIDTH])]);
        constants.extend(["query", "key", "value", "out"].map(|name| noise(name, &[WIDTH, WIDTH])));
        constants.push(noise("head", &[WIDTH, 128]));
        constants
    }
}

/// Random numbers between −1 and 1.
fn noise(name: &str, dims: &[usize]) -> TensorProto {
    let seed = name.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(131).wrapping_add(u64::from(byte)));
    let mut random = SplitMix64::new(seed);
    let values: Vec<f32> = (0..dims.iter().product()).map(|_| (2.0 * random.unit() - 1.0) as f32).collect();
    TensorProto::f32s(name, &dims.iter().map(|dim| *dim as i64).collect::<Vec<_>>(), &values)
}
