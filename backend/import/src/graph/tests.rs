//! Tests of graphs that are built, and of graphs that are rejected with an error that names the fault.

use crate::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
    data_type,
};
use crate::{Dim, Model, from_bytes};

fn graph(node: Vec<NodeProto>) -> GraphProto {
    GraphProto {
        node,
        input: vec![ValueInfoProto::f32s("x", &[1])],
        initializer: vec![TensorProto::f32s("w", &[1], &[2.0])],
        ..GraphProto::default()
    }
}

fn load(model: &ModelProto) -> Result<Model, String> {
    from_bytes(&model.to_bytes(), None).map_err(|error| error.to_string())
}

fn model(nodes: Vec<NodeProto>) -> Result<Model, String> {
    load(&ModelProto::of(graph(nodes), 17))
}

#[test]
fn wrong_graphs_are_refused_by_the_name_of_what_is_wrong() {
    let relu = |input: &str, output: &str, name: &str| NodeProto::of("Relu", &[input], &[output]).named(name);
    let cases = [
        (vec![relu("a", "b", "n")], "node `n` (`Relu`): reads `a`, but no node, input or initializer provides it"),
        (vec![relu("a", "a", "n")], "node `n` (`Relu`): waits for its own output: `n` → `n`"),
        (vec![relu("x", "a", "m"), relu("c", "b", "n"), relu("b", "c", "o")], "`o` → `n` → `o`"),
        (vec![relu("x", "a", "m"), relu("x", "a", "n")], "node `n` (`Relu`): produces `a`, but node `m`"),
        (vec![NodeProto::of("Split", &["x"], &["a", "a"]).named("n")], "produces `a`, but node `n`"),
        (vec![relu("x", "w", "n")], "produces `w`, but an initializer"),
        (vec![relu("x", "x", "n")], "produces `x`, but an input"),
        (vec![NodeProto::of("", &["x"], &["a"])], "its operator has no name"),
        (vec![relu("x", "a\0", "n")], "an output has a control character in its name"),
        (vec![relu("x", "a", "n\u{1b}")], "node `n\\u{1b}` (`Relu`): it has a control character"),
        (
            vec![relu("x", "a", "n").with(AttributeProto::int("k", 1)).with(AttributeProto::int("k", 1))],
            "has two attributes `k`",
        ),
        (vec![relu("x", "a", "n").with(AttributeProto::default())], "an attribute has no name"),
        (
            vec![relu("x", "a", "n").with(AttributeProto { r#type: 99, ..AttributeProto::int("k", 1) })],
            "attribute `k` holds no value",
        ),
        (
            vec![relu("x", "a", "n").with(AttributeProto::tensor("k", TensorProto::raw("", 24, &[2], vec![0])))],
            "node `n` (`Relu`), attribute `k`: elements of type float8e8m0 are not supported",
        ),
    ];
    for (nodes, text) in cases {
        let error = model(nodes).expect_err(text);
        assert!(error.contains(text), "{error} should contain: {text}");
    }
}

#[test]
fn wrong_declarations_are_refused_by_name() {
    let base = || graph(vec![NodeProto::of("Relu", &["x"], &["y"])]);
    let output = |name: &str| ValueInfoProto { name: name.into(), r#type: None };
    let cases = [
        (GraphProto { output: vec![output("z")], ..base() }, "output `z`: it has no source"),
        (GraphProto { input: vec![output("x")], ..base() }, "input `x`: has an unsupported type"),
        (
            GraphProto { input: vec![ValueInfoProto::f32s("x", &[]), ValueInfoProto::f32s("x", &[])], ..base() },
            "input `x`: is defined twice",
        ),
        (
            GraphProto { initializer: vec![TensorProto::f32s("w", &[0], &[]); 2], ..base() },
            "initializer `w`: is defined twice",
        ),
        (GraphProto { initializer: vec![TensorProto::f32s("", &[0], &[])], ..base() }, "initializer ``: has no name"),
        (
            GraphProto { input: vec![ValueInfoProto::tensor("x", data_type::STRING, vec![])], ..base() },
            "input `x`: elements of type string are not supported",
        ),
        (
            GraphProto { initializer: vec![TensorProto::f32s("w", &[3], &[0.0])], ..base() },
            "initializer `w`: f32[3] takes 12 bytes, but has 4",
        ),
    ];
    for (graph, text) in cases {
        let error = load(&ModelProto::of(graph, 17)).expect_err(text);
        assert!(error.contains(text), "{error} should contain: {text}");
    }
}

#[test]
fn only_known_operator_sets_are_accepted() {
    let with = |imports: &[(&str, i64)]| ModelProto {
        opset_import: imports
            .iter()
            .map(|(domain, version)| OperatorSetIdProto { domain: (*domain).into(), version: *version })
            .collect(),
        ..ModelProto::of(graph(vec![]), 17)
    };
    for (imports, text) in [
        (&[][..], "does not state the version"),
        (&[("com.microsoft", 1)], "does not state the version"),
        (&[("", 0)], "uses opset 0, but only opsets 1 to 28 are supported"),
        (&[("", 999)], "uses opset 999"),
        (&[("", 17), ("ai.onnx", 18)], "gives two versions"),
        (&[("", 17), ("ai.onnx.ml", 6)], "uses version 6 of the domain ai.onnx.ml"),
    ] {
        let error = load(&with(imports)).expect_err(text);
        assert!(error.contains(text), "{error} should contain: {text}");
    }
    let model = load(&with(&[("ai.onnx", 17), ("com.microsoft", 1)])).expect("known");
    assert_eq!((model.opset(), model.opsets["com.microsoft"]), (17, 1));
    assert!(load(&with(&[("ai.onnx.ml", 3)])).is_ok(), "a graph without standard operators");
    assert!(load(&ModelProto::default()).expect_err("empty").contains("holds no graph"));
}

#[test]
fn nodes_are_put_in_order_and_named_uniquely() {
    let nodes = vec![
        NodeProto::of("Add", &["b", "w"], &["c"]).named("n"),
        NodeProto::of("Clip", &["x", "", "w", ""], &["b", ""]).named("n"),
        NodeProto::of("Relu", &["x"], &["d"]),
    ];
    let model = model(nodes).expect("sound");
    let names: Vec<_> = model.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["n#1", "n", "Relu_2"]);
    let clip = &model.nodes[0];
    assert_eq!((clip.inputs.len(), clip.outputs.len()), (3, 1));
    assert_eq!((clip.input(1), clip.input(3)), (None, None));
    assert_eq!(clip.input(2).map(|value| model.value_name(value)), Some("w"));
    assert_eq!(clip.output(0), model.nodes[1].input(0));
}

#[test]
fn an_initializer_of_an_inputs_name_is_its_default() {
    let dims = vec![DimensionProto::symbol("batch"), DimensionProto::known(-1), DimensionProto::known(3)];
    let input = vec![ValueInfoProto::tensor("x", data_type::FLOAT16, dims), ValueInfoProto::f32s("w", &[1])];
    let graph = GraphProto { input, output: vec![ValueInfoProto::f32s("w", &[1])], ..graph(vec![]) };
    let model = load(&ModelProto::of(graph, 17)).expect("sound");
    let dims = vec![Dim::Symbol("batch".into()), Dim::Unknown, Dim::Known(3)];
    assert_eq!(model.inputs[0].dims, Some(dims));
    assert_eq!((model.inputs[0].optional, model.inputs[1].optional), (false, true));
    assert!(model.initializers.contains_key(&model.inputs[1].value));
    assert_eq!(model.outputs[0].value, model.inputs[1].value);
}

#[test]
fn a_subgraph_is_read() {
    let output = vec![ValueInfoProto { name: "z".into(), r#type: None }];
    let body = GraphProto { node: vec![NodeProto::of("Foo", &["w"], &["z"])], output, ..GraphProto::default() };
    let node = NodeProto::of("If", &["x"], &["y"]).with(AttributeProto::graph("then_branch", &body));
    assert!(model(vec![node]).expect("sound").nodes[0].graph("then_branch").is_ok());
}

#[test]
fn branches_with_too_few_or_different_outputs_are_refused() {
    let body = |count: usize| GraphProto {
        node: vec![NodeProto::of("Foo", &["w"], &["z"])],
        output: vec![ValueInfoProto { name: "z".into(), r#type: None }; count],
        ..GraphProto::default()
    };
    let model = |outputs: &[&str], then: usize, other: usize| {
        let branch = |name, count| AttributeProto::graph(name, &body(count));
        let node = NodeProto::of("If", &["x"], outputs).named("choice");
        self::model(vec![node.with(branch("then_branch", then)).with(branch("else_branch", other))])
    };
    for (outputs, then, other) in [(&["y"][..], 1, 1), (&["y"], 2, 2), (&["y", ""], 1, 1), (&["y", "v"], 2, 2)] {
        assert!(model(outputs, then, other).is_ok(), "{outputs:?} {then} {other}");
    }
    for (outputs, then, other, expected) in [
        (&["y"][..], 0, 1, "its then_branch gives 0 outputs, but the node has 1"),
        (&["y", "v"], 2, 1, "its else_branch gives 1 output, but the node has 2"),
        (&["y"], 2, 1, "its then_branch gives 2 outputs, but its else_branch 1"),
    ] {
        let error = model(outputs, then, other).expect_err("it fails when the branch is taken");
        assert!(error.contains("node `choice`") && error.contains(expected), "{error}");
    }
}

#[test]
fn a_subgraphs_names_are_its_own_and_what_it_captures_comes_before_it() {
    let output = |name: &str| ValueInfoProto { name: name.into(), r#type: None };
    let body = |read: &str| GraphProto {
        node: vec![NodeProto::of("Neg", &["t"], &["out"]), NodeProto::of("Relu", &[read], &["t"])],
        output: vec![output("out")],
        ..GraphProto::default()
    };
    let node = |read| NodeProto::of("If", &["x"], &["y"]).with(AttributeProto::graph("then_branch", &body(read)));
    let late = NodeProto::of("Abs", &["x"], &["late"]);
    let own = NodeProto::of("Exp", &["late"], &["t"]);
    let model = self::model(vec![own, node("late"), late]).expect("sound");
    let operators: Vec<_> = model.nodes.iter().map(|node| node.op_type.as_str()).collect();
    assert_eq!(operators, ["Abs", "Exp", "If"]);
    let graph = model.nodes[2].graph("then_branch").expect("sound");
    assert_eq!(graph.nodes[0].op_type, "Relu");
    assert_eq!(graph.captured, [model.nodes[0].outputs[0].expect("made")]);
    assert_ne!(graph.nodes[0].outputs[0], model.nodes[1].outputs[0]);
    let error = self::model(vec![node("nowhere")]).expect_err("nothing makes it");
    assert!(error.contains("reads `nowhere`, but no node, input or initializer provides it"), "{error}");
}
