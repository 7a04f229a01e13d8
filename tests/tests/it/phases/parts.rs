//! Inputs and outputs that are sequences or optionals, passed in parts. They are rejected by name if they differ from
//! the model's declaration.

use super::{float, value};
use anabranch::device::{CpuGranularity, DetectOptions};
use anabranch::import::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto, data_type,
};
use anabranch::session::{ErrorKind, Inputs, Outputs, Session, SessionConfig};
use anabranch::{Item, Shape, Tensor};
use anabranch_tests::one_cpu;

fn floats(name: &str) -> ValueInfoProto {
    ValueInfoProto::tensor(name, data_type::FLOAT, vec![DimensionProto::symbol("n")])
}

fn model(nodes: Vec<NodeProto>, input: Vec<ValueInfoProto>, output: Vec<ValueInfoProto>) -> Vec<u8> {
    let initializer = vec![float("one", 1.0)];
    ModelProto::of(GraphProto { node: nodes, input, output, initializer, ..GraphProto::default() }, 17).to_bytes()
}

fn session(nodes: Vec<NodeProto>, input: Vec<ValueInfoProto>, output: Vec<ValueInfoProto>) -> Session {
    Session::from_bytes(&model(nodes, input, output), one_cpu()).expect("a sound model")
}

fn tensor(elements: &[f32]) -> Tensor {
    Tensor::from_elements(Shape::new([elements.len()]).expect("small"), elements).expect("as many")
}

/// Returns the elements of an output that is a sequence.
fn listed(outputs: &Outputs, name: &str) -> Vec<Vec<f32>> {
    match outputs.item(name).expect("made") {
        Item::Sequence(list) => list.iter().map(|x| x.elements().expect("floats").to_vec()).collect(),
        other => panic!("{name} is {other:?}"),
    }
}

/// Returns a session whose `y` is `s` with the double of `x` appended.
fn longer() -> Session {
    let nodes = vec![
        NodeProto::of("Add", &["x", "x"], &["xx"]),
        NodeProto::of("SequenceInsert", &["s", "xx"], &["y"]),
        NodeProto::of("SequenceLength", &["y"], &["count"]),
    ];
    session(nodes, vec![floats("s").sequence(), floats("x")], vec![floats("y").sequence(), value("count")])
}

#[test]
fn sequences_are_given_and_made_in_parts() {
    let session = longer();
    assert_eq!(session.inputs()[0].to_string(), "s: sequence of f32[n]");
    let x = || Inputs::new().tensor("x", tensor(&[1.0, 2.0]));
    // The elements differ in size, although the model has one symbol for all of them.
    let given = x().sequence("s", [tensor(&[5.0]), tensor(&[6.0, 7.0, 8.0])]);
    let outputs = session.run(&given).expect("two elements");
    assert_eq!(listed(&outputs, "y"), [vec![5.0], vec![6.0, 7.0, 8.0], vec![2.0, 4.0]]);
    let names: Vec<_> = outputs.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["y[0]", "y[1]", "y[2]", "count"]);
    // A second value of a name replaces the first.
    let outputs = session.run(&given.sequence("s", [])).expect("no element");
    assert_eq!(listed(&outputs, "y"), [[2.0, 4.0]]);
    let by_name = x().tensor("s[1]", tensor(&[9.0])).tensor("s[0]", tensor(&[3.0]));
    assert_eq!(listed(&session.run(&by_name).expect("two elements"), "y").len(), 3);
    assert_eq!(session.ready_plans(), 1, "the program has no sequence");
    let random = session.fill_random(Inputs::new().tensor("x", tensor(&[1.0])), 0).expect("one element");
    assert_eq!(listed(&session.run(&random).expect("it runs"), "y").len(), 2);
}

#[test]
fn what_is_no_tensor_may_go_straight_through() {
    let (s, o) = (floats("s").sequence(), floats("o").optional());
    let session = session(vec![], vec![s.clone(), o.clone(), floats("x")], vec![s, o, floats("x")]);
    let given = Inputs::new().sequence("s", []).absent("o").tensor("x", tensor(&[1.0]));
    let outputs = session.run(&given).expect("nothing to compute");
    assert!(listed(&outputs, "s").is_empty() && matches!(outputs.item("o"), Ok(Item::Absent)));
    assert_eq!(outputs.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["s[]", "o[absent]", "x"]);
    let outputs = session.run(&given.tensor("x", tensor(&[2.0])).item("o", Item::Tensor(tensor(&[4.0])))).expect("o");
    assert!(matches!(outputs.item("o"), Ok(Item::Tensor(o)) if o.elements() == Some(&[4f32][..])));
}

/// Returns a session of a model of an optional: whether it holds a value, and that value plus one, or one.
fn sum(declared: ValueInfoProto, element: Vec<NodeProto>) -> Session {
    let branch =
        |node: Vec<NodeProto>, output: &str| GraphProto { node, output: vec![value(output)], ..GraphProto::default() };
    let there = branch([element, vec![NodeProto::of("Add", &["held", "one"], &["more"])]].concat(), "more");
    let not = branch(vec![NodeProto::of("Identity", &["one"], &["same"])], "same");
    let nodes = vec![
        NodeProto::of("OptionalHasElement", &["o"], &["is"]),
        NodeProto::of("If", &["is"], &["y"])
            .with(AttributeProto::graph("then_branch", &there))
            .with(AttributeProto::graph("else_branch", &not)),
    ];
    session(nodes, vec![declared], vec![value("is"), value("y")])
}

#[test]
fn optionals_hold_something_or_nothing() {
    let own = sum(floats("o").optional(), vec![NodeProto::of("OptionalGetElement", &["o"], &["held"])]);
    let list = vec![
        NodeProto::of("OptionalGetElement", &["o"], &["list"]),
        NodeProto::of("ConcatFromSequence", &["list"], &["held"]).with(AttributeProto::int("axis", 0)),
    ];
    let listed = sum(floats("o").sequence().optional(), list);
    assert_eq!(listed.inputs()[0].to_string(), "o: optional sequence of f32[n]");
    let held = [tensor(&[3.0]), tensor(&[4.0])];
    for (session, given, wanted) in [
        (&own, Inputs::new().absent("o"), (0, vec![1.0])),
        (&own, Inputs::new().tensor("o", tensor(&[3.0])), (1, vec![4.0])),
        (&listed, Inputs::new().absent("o"), (0, vec![1.0])),
        (&listed, Inputs::new().sequence("o", held), (1, vec![4.0, 5.0])),
    ] {
        let outputs = session.run(&given).expect("it runs");
        assert_eq!(outputs.tensor("is").expect("made").bytes(), [wanted.0]);
        assert_eq!(outputs.tensor("y").expect("made").elements::<f32>(), Some(&wanted.1[..]));
    }
    let nodes = vec![NodeProto::of("OptionalGetElement", &["o"], &["y"])];
    let error = session(nodes, vec![floats("o").optional()], vec![floats("y")]).run(&Inputs::new().absent("o"));
    let error = error.expect_err("there is no element");
    assert_eq!((error.kind(), error.node()), (ErrorKind::Model, Some("OptionalGetElement_0")), "{error}");
}

#[test]
fn a_map_runs_its_graph_for_each_element() {
    let body = GraphProto {
        node: vec![NodeProto::of("Add", &["a", "b"], &["ab"]), NodeProto::of("Mul", &["ab", "twice"], &["c"])],
        input: ["a", "b"].map(value).into(),
        output: ["c", "a"].map(value).into(),
        ..GraphProto::default()
    };
    let nodes = |second: &str| {
        vec![
            NodeProto::of("Add", &["one", "one"], &["twice"]),
            NodeProto::of("SequenceMap", &["s", second], &["y", "z"]).with(AttributeProto::graph("body", &body)),
        ]
    };
    let inputs = || vec![floats("s").sequence(), floats("t").sequence(), floats("x")];
    let outputs = || ["y", "z"].map(|name| floats(name).sequence()).to_vec();
    let given = || {
        let list = |first: f32| [tensor(&[first]), tensor(&[first + 1.0, first + 2.0])];
        Inputs::new().sequence("s", list(1.0)).sequence("t", list(10.0)).tensor("x", tensor(&[100.0]))
    };
    for (second, wanted) in [("t", [vec![22.0], vec![26.0, 30.0]]), ("x", [vec![202.0], vec![204.0, 206.0]])] {
        let session = session(nodes(second), inputs(), outputs());
        let outputs = session.run(&given()).expect("it runs");
        assert_eq!(listed(&outputs, "y"), wanted, "{second}");
        assert_eq!(listed(&outputs, "z"), [vec![1.0], vec![2.0, 3.0]]);
        let empty = session.run(&given().sequence("s", []).sequence("t", [])).expect("no element");
        assert!(listed(&empty, "y").is_empty() && listed(&empty, "z").is_empty());
    }
    let error = session(nodes("t"), inputs(), outputs()).run(&given().sequence("t", [])).expect_err("2 and none");
    assert_eq!(error.node(), Some("SequenceMap_1"));
    assert!(error.to_string().contains("input 1 is a sequence of 0 tensors"), "{error}");
    let error = session(nodes("t"), inputs(), outputs()[..1].to_vec()).run(&Inputs::new()).expect_err("nothing given");
    assert_eq!(error.kind(), ErrorKind::MissingInput, "{error}");
}

#[test]
fn what_is_not_given_as_the_model_declares_it_is_refused_by_name() {
    let session = longer();
    let one = || tensor(&[1.0]);
    let long = || Tensor::from_i64s(&[1]);
    let flat = || Tensor::from_elements(Shape::new([1, 1]).expect("small"), &[1f32]).expect("one");
    let x = || Inputs::new().tensor("x", one());
    for (given, told) in [
        (x(), "`s[0]`, `s[1]` and so on, or `s[]` for none) is missing"),
        (x().tensor("s", one()), "input `s` is given as `s`"),
        (x().tensor("s[1]", one()), "input `s` is given as `s[1]`"),
        (x().tensor("s[0]", one()).tensor("s[2]", one()), "`s[0]`, `s[2]`"),
        (x().tensor("s[0]", one()).tensor("s[]", tensor(&[])), "`s[0]`, `s[]`"),
        (x().tensor("s[]", one()), "input `s` is given as `s[]`"),
        (x().absent("s"), "input `s` is given as `s[absent]`"),
        (x().tensor("s[01]", one()), "no input `s[01]`"),
        (x().sequence("s", [one(), long()]), "i64[1] in it"),
        (x().sequence("s", [flat()]), "f32[1×1] in it"),
        (Inputs::new().sequence("s", []).sequence("x", [one()]), "no input `x[0]`"),
        (Inputs::new().sequence("s", []), "`x`"),
    ] {
        let error = session.run(&given).expect_err(told);
        assert!(error.to_string().contains(told), "{error} should contain: {told}");
        assert!(matches!(error.kind(), ErrorKind::Input | ErrorKind::MissingInput | ErrorKind::Dimension), "{error}");
    }
    let many = x().sequence("s", vec![tensor(&[]); 100]);
    assert_eq!(listed(&session.run(&many).expect("many without elements"), "y").len(), 101);
    let devices = DetectOptions::default().with_cpu_granularity(CpuGranularity::Machine).without_gpu();
    let options = SessionConfig::default().with_devices(devices.with_memory("cpu0", 1 << 16));
    let nodes = vec![NodeProto::of("SequenceLength", &["s"], &["count"])];
    let bytes = model(nodes, vec![floats("s").sequence()], vec![value("count")]);
    let tight = Session::from_bytes(&bytes, options).expect("a sound model");
    let error = tight.run(&Inputs::new().sequence("s", vec![tensor(&[]); 10_000])).expect_err("a list takes memory");
    assert_eq!((error.kind(), error.input()), (ErrorKind::Memory, Some("s")), "{error}");
}

#[test]
fn outputs_are_what_the_model_declares() {
    let made = |node: NodeProto, output: ValueInfoProto| {
        let inputs = Inputs::new().sequence("s", [tensor(&[1.0])]).tensor("x", tensor(&[1.0]));
        session(vec![node], vec![floats("s").sequence(), floats("x")], vec![output]).run(&inputs).map(drop)
    };
    let of_type = |code: i64| ValueInfoProto::tensor("y", code, vec![]).sequence();
    let same = || NodeProto::of("Identity", &["s"], &["y"]);
    made(same(), floats("y").sequence().optional()).expect("an optional sequence is there");
    for (node, output, told) in [
        (same(), floats("y"), "output `y` is a sequence, but the model declares a tensor"),
        (same(), value("y"), "is a sequence"),
        (same(), of_type(data_type::DOUBLE), "with an element of f32[1], but the model declares sequence of f64"),
        (NodeProto::of("Optional", &[], &["y"]), floats("y"), "is an empty optional"),
    ] {
        let error = made(node, output).expect_err(told);
        assert!(error.to_string().contains(told), "{error} should contain: {told}");
    }
}

#[test]
fn a_tensor_is_no_sequence_even_if_nothing_runs_on_the_host() {
    let nodes = vec![NodeProto::of("Relu", &["x"], &["y"])];
    let session = session(nodes, vec![floats("x")], vec![floats("y").sequence()]);
    let error = session.run(&Inputs::new().tensor("x", tensor(&[1.0]))).expect_err("a tensor is made").to_string();
    assert!(error.contains("`y`") && error.contains("a tensor"), "{error}");
}

#[test]
fn models_that_cannot_be_told_apart_or_hold_more_are_refused() {
    let nodes = || vec![NodeProto::of("SequenceLength", &["s"], &["y"])];
    let refused = |input: Vec<ValueInfoProto>| {
        Session::from_bytes(&model(nodes(), input, vec![value("y")]), one_cpu()).map(drop).expect_err("refused")
    };
    for (input, told) in [
        (
            vec![floats("s").sequence(), floats("s[0]")],
            "input `s[0]`: has the name of a part of the sequence or optional `s`",
        ),
        (vec![floats("s").sequence(), floats("s").sequence()], "input `s`: is defined twice"),
        (vec![floats("s").sequence().sequence()], "input `s`: has an unsupported type"),
        (vec![floats("s").optional().sequence()], "input `s`: has an unsupported type"),
        (vec![floats("s").optional().optional()], "input `s`: has an unsupported type"),
        (vec![ValueInfoProto::tensor("s", data_type::STRING, vec![]).sequence()], "type string"),
        (
            vec![floats("s").sequence(), floats("one").sequence()],
            "input `one`: is a sequence or an optional, but its default",
        ),
    ] {
        let error = refused(input).to_string();
        assert!(error.contains(told), "{error} should contain: {told}");
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let inputs = Inputs::new().sequence("s", []).tensor("x", tensor(&[1.0]));
    let error = longer().compile(&inputs, &folder.path().join("m.anabranch"), "").expect_err("it runs in phases");
    assert!(error.to_string().contains("`s: sequence of f32[n]` is not a tensor"), "{error}");
}
