//! Language models of two exporters make ONNX Runtime's greedy tokens, and lengths that are data make no plans.

use anabranch::session::Inputs;
use anabranch::{DType, Outputs, Session, SessionConfig, Shape, Tensor, TensorSpec};
use anabranch_report::npy::read_npz;
use anabranch_tests::one_cpu;
use std::path::{Path, PathBuf};

/// A model's prompt, the tokens that follow it, and the logits of the prompt.
pub(super) struct Reference {
    pub(super) prompt: Vec<i64>,
    pub(super) tokens: Vec<i64>,
    logits: Vec<f32>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/language").join(name)
}

pub(super) fn open(name: &str, options: SessionConfig) -> (Session, Reference) {
    let arrays = read_npz(&folder(name).join("greedy.npz")).expect("the reference is bundled");
    let find = |name: &str| arrays.iter().find(|(own, _)| *own == name).expect("a member").1;
    let integers = |name: &str| find(name).elements::<i64>().expect("integers").to_vec();
    let logits = find("logits").elements::<f32>().expect("floats").to_vec();
    let reference = Reference { prompt: integers("prompt"), tokens: integers("tokens"), logits };
    (Session::open(folder(name).join("model.onnx"), options).expect("opens"), reference)
}

pub(super) fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("small")
}

pub(super) fn integers(dims: &[usize], of: impl Fn(usize) -> i64) -> Tensor {
    let elements: Vec<i64> = (0..dims.iter().product()).map(of).collect();
    Tensor::from_elements(shape(dims), &elements).expect("as many")
}

/// The greatest of the last position's logits.
pub(super) fn greedy(outputs: &Outputs) -> i64 {
    let logits = outputs.tensor("logits").expect("made");
    let count = logits.shape().dims()[2];
    let last = &logits.elements::<f32>().expect("floats")[logits.shape().elements() - count..];
    (0..count).max_by(|a, b| last[*a].total_cmp(&last[*b])).expect("a token") as i64
}

/// Greedy decoding: of each step the tokens, the mask's length, and the caches of this length before the first step.
fn decode(name: &str, heads: usize, depth: usize, capacity: Option<usize>, steps: usize) -> Session {
    let (session, reference) = open(name, one_cpu());
    let parts = [0, 1].into_iter().flat_map(|layer| ["key", "value"].map(|part| format!("{layer}.{part}")));
    let parts: Vec<String> = parts.collect();
    let empty = TensorSpec::new(DType::F32, shape(&[1, heads, capacity.unwrap_or(0), depth]));
    let mut caches = vec![Tensor::zeroed(empty); parts.len()];
    let (mut fed, mut seen) = (reference.prompt.clone(), 0);
    for (step, want) in reference.tokens.iter().take(steps).enumerate() {
        let before = seen;
        seen += fed.len();
        let mask = integers(&[1, capacity.unwrap_or(seen)], |at| i64::from(at < seen));
        let mut inputs = Inputs::new().tensor("input_ids", integers(&[1, fed.len()], |at| fed[at]));
        inputs = inputs.tensor("attention_mask", mask);
        if session.inputs().iter().any(|input| input.name() == "position_ids") {
            inputs = inputs.tensor("position_ids", integers(&[1, fed.len()], |at| (before + at) as i64));
        }
        for (part, cache) in parts.iter().zip(&caches) {
            inputs = inputs.tensor(&format!("past_key_values.{part}"), cache.clone());
        }
        let outputs = session.run(&inputs).unwrap_or_else(|error| panic!("{name}, step {step}: {error}"));
        if step == 0 {
            let made = outputs.tensor("logits").expect("made").elements::<f32>().expect("floats").to_vec();
            assert!(made.iter().zip(&reference.logits).all(|(made, want)| (made - want).abs() < 1e-3), "{name}");
        }
        let token = greedy(&outputs);
        assert_eq!(token, *want, "{name}, step {step}");
        let present = |part: &String| outputs.tensor(&*format!("present.{part}")).expect("made").clone();
        caches = parts.iter().map(present).collect();
        assert_eq!(caches[0].shape().dims()[2], capacity.unwrap_or(seen));
        fed = vec![token];
    }
    session
}

/// One token of `llama` with empty caches of a capacity.
fn step_inputs(capacity: usize, mask: impl Fn(usize) -> i64) -> Inputs {
    let mut inputs = Inputs::new().tensor("input_ids", integers(&[1, 1], |_| 5));
    inputs = inputs.tensor("attention_mask", integers(&[1, capacity], mask));
    for part in ["0.key", "0.value", "1.key", "1.value"] {
        let cache = Tensor::zeroed(TensorSpec::new(DType::F32, shape(&[1, 2, capacity, 16])));
        inputs = inputs.tensor(&format!("past_key_values.{part}"), cache);
    }
    inputs
}

#[test]
fn a_cache_of_a_capacity_is_one_plan_for_all_lengths() {
    let session = decode("llama", 2, 16, Some(256), 200);
    assert_eq!(session.ready_plans(), 2, "one of the prompt, one of a step");
}

#[test]
fn masks_of_any_length_make_no_phases() {
    let session = decode("llama", 2, 16, Some(1024), 3);
    assert!(session.deciding_inputs().is_empty());
    assert_eq!((session.ready_plans(), session.ready_phases()), (2, 0));
}

#[test]
fn costs_count_the_positions_that_are_stated() {
    let work = |cached: Option<usize>| {
        let options = cached.map_or_else(one_cpu, |positions| one_cpu().with_cached(positions));
        let session = Session::open(folder("llama").join("model.onnx"), options).expect("opens");
        let prepared = session.prepare(&step_inputs(1024, |at| i64::from(at < 9))).expect("is planned");
        let is_attention = |name: &&str| *name == "attention";
        let nodes = prepared.program.nodes.iter();
        nodes.filter(|node| is_attention(&node.spec.op.name())).map(|node| node.spec.work().bytes()).sum::<f64>()
    };
    let (full, short, long) = (work(None), work(Some(64)), work(Some(5000)));
    assert!(full == long && short < full / 8.0, "{full} {short} {long}");
}

#[test]
fn attention_over_a_cache_is_that_of_onnx_runtime() {
    let files = std::fs::read_dir(folder("attention")).expect("bundled").map(|entry| entry.expect("readable").path());
    let models: Vec<_> = files.filter(|path| path.extension().is_some_and(|kind| kind == "onnx")).collect();
    assert!(models.len() > 3);
    for model in models {
        let (mut inputs, mut wanted) = (Inputs::new(), Vec::new());
        for (key, tensor) in read_npz(&model.with_extension("npz")).expect("next to the model") {
            match key.strip_prefix("in__") {
                Some(input) => inputs = inputs.tensor(input, tensor),
                None => wanted.push((key["out__".len()..].to_owned(), tensor)),
            }
        }
        let session = Session::open(&model, one_cpu()).expect("opens");
        let outputs = session.run(&inputs).unwrap_or_else(|error| panic!("{}: {error}", model.display()));
        for (name, want) in &wanted {
            let made = outputs.tensor(name).expect("made");
            assert_eq!(made.spec(), want.spec(), "{}: {name}", model.display());
            let pairs = made.elements::<f32>().expect("floats").iter().zip(want.elements::<f32>().expect("floats"));
            let most = pairs.map(|(made, want)| (made - want).abs()).fold(0.0, f32::max);
            assert!(most < 2e-5, "{}: {name} by {most}", model.display());
        }
    }
}

#[test]
fn caches_that_each_step_concatenates() {
    decode("llama", 2, 16, None, 12);
    decode("gpt2", 4, 8, None, 12);
    decode("optimum", 2, 8, None, 12);
}

#[test]
fn lengths_that_lie_are_refused_by_node_and_number() {
    let (session, _) = open("llama", one_cpu());
    let refused = |mask: i64, expected: [&str; 2]| {
        let error = session.run(&step_inputs(32, |_| mask)).expect_err("a length that lies").to_string();
        assert!(expected.iter().all(|text| error.contains(text)) && !error.contains('\n'), "{error}");
    };
    refused(2, ["\"/model/layers.0/attn/GroupQueryAttention\"", "seqlens_k is 63"]);
    refused(0, ["\"/model/layers.0/attn/GroupQueryAttention\"", "seqlens_k is -1"]);
    refused(-1, ["\"/model/layers.0/attn/GroupQueryAttention\"", "seqlens_k is -33"]);
    refused(i64::MAX, ["\"/model/layers.0/attn/GroupQueryAttention\"", "seqlens_k is -"]);
    assert_eq!(session.ready_plans(), 1);
}
