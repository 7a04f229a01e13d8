//! Sizes of dimensions: meaningless names, names for each dimension, and the report of `inspect` on models with open
//! sizes.

use crate::command::{Anabranch, bundled};
use anabranch::import::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
};
use serde_json::Value;
use std::fs;

fn node(operator: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto::of(operator, inputs, &[output]).named(&format!("n_{output}"))
}

/// Returns an input. Numbers are fixed sizes, all other words are symbols.
fn input(name: &str, dtype: i64, dims: &str) -> ValueInfoProto {
    let dim = |dim: &str| dim.parse().map_or_else(|_| DimensionProto::symbol(dim), DimensionProto::known);
    ValueInfoProto::tensor(name, dtype, dims.split_whitespace().map(dim).collect())
}

fn floats(name: &str, dims: &str) -> ValueInfoProto {
    input(name, data_type::FLOAT, dims)
}

fn weights(name: &str, dims: &[i64]) -> TensorProto {
    let count = dims.iter().product::<i64>() as usize;
    TensorProto::f32s(name, dims, &vec![0.5; count])
}

fn bytes(graph: GraphProto, output: &str) -> Vec<u8> {
    let output = vec![ValueInfoProto { name: output.into(), r#type: None }];
    ModelProto::of(GraphProto { output, ..graph }, 17).to_bytes()
}

/// Returns a model of nodes, inputs and constants.
fn model(node: Vec<NodeProto>, input: Vec<ValueInfoProto>, initializer: Vec<TensorProto>, output: &str) -> Vec<u8> {
    bytes(GraphProto { node, input, initializer, ..GraphProto::default() }, output)
}

/// Returns the report of `inspect`, which must find flags with which `run` works.
fn runs(command: &Anabranch, name: &str, model: &[u8]) -> Value {
    fs::write(command.path(name), model).expect("writable");
    let shown = command.json(&["inspect", name, "--no-gpu"]);
    assert_eq!(shown["runs"], true, "{name}: {shown:#}");
    let elements = shown["sizes"]["elements"].as_object().expect("elements");
    if elements.is_empty() {
        let mut arguments = vec!["run".to_owned(), name.into(), "--no-gpu".into(), "--random".into(), "1".into()];
        arguments.extend(["--repeat".into(), "1".into(), "--warmup".into(), "0".into(), "-q".into()]);
        for open in shown["sizes"]["dimensions"].as_array().expect("dimensions") {
            arguments.extend(["--dim".into(), format!("{}={}", open["name"].as_str().expect("a name"), open["size"])]);
        }
        command.text(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    }
    shown
}

/// Returns the size of an open dimension with which a model runs, and the impossible sizes.
fn size(shown: &Value, name: &str) -> (u64, Vec<u64>) {
    let all = shown["sizes"]["dimensions"].as_array().expect("dimensions");
    let found = all.iter().find(|open| open["name"] == name).unwrap_or_else(|| panic!("no {name}: {all:?}"));
    let impossible = found["impossible"].as_array().expect("a list").iter().filter_map(Value::as_u64);
    (found["size"].as_u64().expect("a size"), impossible.collect())
}

#[test]
fn placeholders_are_dimensions_of_their_own() {
    let command = Anabranch::new();
    let (file, arrays) = (bundled("faults/dims_odd_question.onnx"), bundled("faults/dims_odd_question.npz"));
    let run = ["run", &file, "--no-gpu", "--repeat", "1", "--warmup", "0", "-q"];
    command.text(&[&run[..], &["--input", &arrays, "--expect", &arrays]].concat());
    command.text(&[&run[..], &["--random", "1", "--dim", "x[0]=3", "--dim", "x[1]=4"]].concat());
    command.refuses(&[&run[..], &["--random", "1", "--dim", "x[0]=3"]].concat(), &["x[1]", "--dim 'x[1]=N'"]);
    command.refuses(&[&run[..], &["--random", "1", "--dim", "?=3"]].concat(), &["no open dimension", "`x[0]`, `x[1]`"]);
    for name in ["None", "-1", "*", "", "dynamic", "unk__7", "past + current"] {
        let shapes = ["a", "b"].map(|name| node("Shape", &[name], &format!("s{name}")));
        let nodes = shapes.into_iter().chain([node("Concat", &["sa", "sb"], "y").with(AttributeProto::int("axis", 0))]);
        let inputs =
            ["a", "b"].map(|input| ValueInfoProto::tensor(input, data_type::FLOAT, vec![DimensionProto::symbol(name)]));
        fs::write(command.path("m.onnx"), model(nodes.collect(), inputs.into(), vec![], "y")).expect("writable");
        let random = ["run", "m.onnx", "--no-gpu", "--random", "1", "--repeat", "1", "-q"];
        command.text(&[&random[..], &["--dim", "a[0]=3", "--dim", "b[0]=4", "--output", "y.npz"]].concat());
    }
}

#[test]
fn a_symbol_has_one_size_and_every_dimension_a_name() {
    let command = Anabranch::new();
    let inputs = vec![floats("a", "batch 2"), floats("b", "batch 2")];
    fs::write(command.path("m.onnx"), model(vec![node("Add", &["a", "b"], "y")], inputs, vec![], "y"))
        .expect("writable");
    fn run<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["run", "m.onnx", "--no-gpu", "--random", "1", "--repeat", "1", "-q"], more].concat()
    }
    command.text(&run(&["--dim", "batch=3"]));
    command.text(&run(&["--dim", "a[0]=3"]));
    command.refuses(
        &run(&["--dim", "a[0]=3", "--dim", "b[0]=4"]),
        &["`batch`", "3 as given for `a[0]`", "4 as given for `b[0]`"],
    );
    command.refuses(&run(&["--dim", "batch=3", "--dim", "a[0]=4"]), &["`batch`", "3 as given", "`a[0]`"]);
    command.refuses(&run(&["--dim", "batch=3", "--dim", "batch=4"]), &["--dim names batch twice", "3", "4"]);
    command.refuses(&run(&["--dim", "a[1]=4"]), &["fixes `a[1]` to 2"]);
    command.refuses(&run(&["--dim", "a[2]=4"]), &["`a[2]`"]);
    command.refuses(&run(&["--dim", "batch=1", "--pin", "*=cpu0", "--pin", "*=cpu1"]), &["--pin names * twice"]);
    command.text(&["place", "m.onnx", "--no-gpu", "--random", "1", "--dim", "b[0]=3"]);
    command.text(&["compile", "m.onnx", "--no-gpu", "--random", "1", "--dim", "b[0]=3", "-o", "m.anabranch"]);
    command.text(&["dataflow", "m.onnx", "--dim", "b[0]=3", "--pes", "4"]);
    command.text(&["pipe", "m.onnx", "--no-gpu", "--random", "4", "--batch", "2"]);
}

/// Returns a layer of eight features over inputs of six, whose states are inputs of unknown sizes.
fn recurrent(operator: &str, gates: i64, direction: &str, features: &str, states: &[&str]) -> Vec<u8> {
    let directions = if direction == "bidirectional" { 2 } else { 1 };
    let names = [&["x", "w", "r", "", ""], states].concat();
    let layer = node(operator, &names, "y").with(AttributeProto::int("hidden_size", 8));
    let unknown = |name: &&str| ValueInfoProto::tensor(name, data_type::FLOAT, vec![DimensionProto::symbol("?"); 3]);
    let states = states.iter().filter(|name| !name.is_empty()).map(unknown);
    let weights = vec![weights("w", &[directions, gates * 8, 6]), weights("r", &[directions, gates * 8, 8])];
    let inputs = std::iter::once(floats("x", features)).chain(states).collect();
    model(vec![layer.with(AttributeProto::string("direction", direction))], inputs, weights, "y")
}

#[test]
fn inspect_finds_the_sizes_of_states() {
    let command = Anabranch::new();
    let cases = [
        ("LSTM", 4, "bidirectional", "T B F", &["h", "c"][..]),
        ("LSTM", 4, "forward", "T 3 6", &["", "c"]),
        ("GRU", 3, "bidirectional", "T B 6", &["h"]),
    ];
    for (operator, gates, direction, features, states) in cases {
        let model = recurrent(operator, gates, direction, features, states);
        runs(&command, &format!("{operator}_{direction}.onnx"), &model);
    }
}

/// `inspect` reports that a model runs if `run` runs it.
#[test]
fn inspect_and_run_agree_about_bundled_models() {
    let command = Anabranch::new();
    let folder = bundled("");
    let entries = |name: &str| fs::read_dir(format!("{folder}/{name}")).expect("a folder");
    let files = ["", "faults"].into_iter().flat_map(entries).map(|entry| entry.expect("readable").path());
    let mut count = 0;
    for path in files.filter(|path| path.extension().is_some_and(|ending| ending == "onnx")) {
        let (file, arrays) = (path.display().to_string(), path.with_extension("npz").display().to_string());
        let sure = ["--no-gpu", "--repeat", "1", "--warmup", "0", "--no-learn", "-q"];
        let ran = command.run(&[&["run", &file, "--input", &arrays][..], &sure].concat()).status.success();
        let shown = command.run(&["inspect", &file, "--no-gpu", "-q"]).status.success();
        assert_eq!(ran, shown, "{file}");
        count += 1;
    }
    assert!(count > 20, "{count}");
}

#[test]
fn inspect_finds_sizes_that_a_model_runs_with() {
    let command = Anabranch::new();
    let reshape = |shape: &[i64]| TensorProto::i64s("shape", &[shape.len() as i64], shape);

    let multiple =
        model(vec![node("Reshape", &["x", "shape"], "y")], vec![floats("x", "N")], vec![reshape(&[-1, 6])], "y");
    let shown = runs(&command, "multiple.onnx", &multiple);
    let (found, impossible) = size(&shown, "N");
    assert!(found % 6 == 0 && impossible == [1, 2, 8, 32, 64, 224], "{shown:#}");

    let conv = model(
        vec![node("Conv", &["x", "w"], "y")],
        vec![floats("x", "N 3 H W")],
        vec![weights("w", &[2, 3, 31, 31])],
        "y",
    );
    let shown = runs(&command, "conv.onnx", &conv);
    assert_eq!((size(&shown, "N").0, size(&shown, "H").1), (1, vec![1, 2, 8]), "{shown:#}");

    let inner =
        model(vec![node("MatMul", &["x", "w"], "y")], vec![floats("x", "? ?")], vec![weights("w", &[576, 10])], "y");
    let shown = runs(&command, "inner.onnx", &inner);
    assert_eq!((size(&shown, "x[0]"), size(&shown, "x[1]").0), ((1, vec![]), 576), "{shown:#}");

    let image = model(
        vec![node("Conv", &["x", "k"], "c"), node("Flatten", &["c"], "f"), node("Gemm", &["f", "w"], "y")],
        vec![floats("x", "? ? ? ?")],
        vec![weights("k", &[2, 3, 1, 1]), weights("w", &[2 * 28 * 28, 5])],
        "y",
    );
    let shown = runs(&command, "image.onnx", &image);
    assert_eq!((size(&shown, "x[1]").0, size(&shown, "x[2]").0, size(&shown, "x[3]").0), (3, 28, 28), "{shown:#}");

    let past = model(
        vec![node("Concat", &["past", "x"], "y").with(AttributeProto::int("axis", 2))],
        vec![floats("past", "None None None None"), floats("x", "1 12 7 64")],
        vec![],
        "y",
    );
    let shown = runs(&command, "past.onnx", &past);
    assert_eq!((size(&shown, "past[1]").0, size(&shown, "past[3]").0), (12, 64), "{shown:#}");

    let unranked = ValueInfoProto::tensor("x", data_type::FLOAT, vec![]);
    let unranked = ValueInfoProto {
        r#type: unranked.r#type.map(|mut own| {
            own.tensor_type.iter_mut().for_each(|tensor| tensor.shape = None);
            own
        }),
        ..unranked
    };
    let unranked = model(vec![node("Conv", &["x", "k"], "y")], vec![unranked], vec![weights("k", &[2, 3, 1, 1])], "y");
    let shown = runs(&command, "unranked.onnx", &unranked);
    assert_eq!(size(&shown, "x[1]").0, 3, "{shown:#}");

    let text = command.text(&["inspect", "inner.onnx", "--no-gpu"]);
    for part in ["--dim 'x[1]=576'", "x[1]: works with 576; fails with 1, 2", "It runs on this machine"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn masks_ids_and_elements_that_decide_shapes_are_plausible() {
    let command = Anabranch::new();
    let integers = |name: &str, dims: &str| input(name, data_type::INT64, dims);
    let sum = node("ReduceSum", &["attention_mask"], "sum").with(AttributeProto::int("keepdims", 0));
    let masked = model(
        vec![
            sum,
            node("Reshape", &["sum", "one"], "rows"),
            node("Concat", &["rows", "two"], "shape").with(AttributeProto::int("axis", 0)),
            node("Reshape", &["x", "shape"], "y"),
        ],
        vec![integers("attention_mask", "2 3"), floats("x", "6 2")],
        vec![TensorProto::i64s("one", &[1], &[1]), TensorProto::i64s("two", &[1], &[2])],
        "y",
    );
    runs(&command, "masked.onnx", &masked);

    let ids = model(
        vec![
            node("Gather", &["words", "ids"], "a"),
            node("Gather", &["kinds", "types"], "b"),
            node("Add", &["a", "b"], "y"),
        ],
        vec![integers("ids", "batch sequence"), integers("types", "batch sequence")],
        vec![weights("words", &[30, 4]), weights("kinds", &[1, 4])],
        "y",
    );
    runs(&command, "ids.onnx", &ids);

    let shaped = model(
        vec![node("Reshape", &["x", "shape"], "y")],
        vec![floats("x", "n 4"), integers("shape", "2")],
        vec![],
        "y",
    );
    let shown = runs(&command, "shaped.onnx", &shaped);
    assert!(shown["sizes"]["elements"]["shape"].is_string(), "{shown:#}");
}

#[test]
fn a_node_to_which_sizes_do_not_matter_hides_no_size_that_another_needs() {
    let command = Anabranch::new();
    let softmax = node("Softmax", &["x"], "a").with(AttributeProto::int("axis", 9));
    let wrong = model(
        vec![softmax, node("MatMul", &["x", "w"], "b"), node("Add", &["a", "b"], "y")],
        vec![floats("x", "N K")],
        vec![weights("w", &[5, 3])],
        "y",
    );
    fs::write(command.path("wrong.onnx"), wrong).expect("writable");
    let output = command.run(&["inspect", "wrong.onnx", "--no-gpu"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("It does not run: 1 obstacle") && text.contains("n_a") && text.contains("K=5"), "{text}");
    let advice = &text[text.find("It does not run").expect("told")..];
    assert!(!advice.contains("--dim") && !advice.contains("n_b"), "{text}");
}

#[test]
fn a_model_that_cannot_run_ends_with_status_3() {
    let command = Anabranch::new();
    let wrong = model(
        vec![node("MatMul", &["x", "w"], "a"), node("MatMul", &["a", "w"], "y")],
        vec![floats("x", "N K")],
        vec![weights("w", &[5, 3])],
        "y",
    );
    fs::write(command.path("wrong.onnx"), wrong).expect("writable");
    let output = command.run(&["inspect", "wrong.onnx", "--no-gpu"]);
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("wrong.onnx does not run: 1 obstacle"), "{said}");
    for part in [
        "It does not run: 1 obstacle",
        "n_y",
        "the model gets furthest with --dim K=5 --dim N=1",
        "--dim K=N --dim N=N",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn limits_on_models_are_raised_by_a_flag() {
    let command = Anabranch::new();
    let mlp = bundled("mlp.onnx");
    let run = ["run", &mlp, "--no-gpu", "--dim", "batch=2", "--random", "1", "--repeat", "1", "-q"];
    command.text(&[&run[..], &["--limit", "nodes=2000000", "--limit", "tensor-bytes=128GiB"]].concat());
    for name in ["file_bytes", "structure_bytes", "fields", "nodes", "depth", "name_bytes", "tensor_bytes"] {
        let low = format!("{name}=1");
        command.refuses(&[&run[..], &["--limit", &low]].concat(), &[&format!("--limit {name}=N")]);
    }
    command.refuses(
        &[&run[..], &["--limit", "fields=1", "--limit", "fields=2"]].concat(),
        &["--limit names fields twice"],
    );
    command.refuses(&[&run[..], &["--limit", "speed=1"]].concat(), &["there is no such limit", "file_bytes"]);
}
