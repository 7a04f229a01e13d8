//! Functions of models: the results of their calls, and rejected functions.

use anabranch::import::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
    attribute_type,
};
use anabranch::import::{Attribute, Limits, Model, from_bytes_within};

fn function(name: &str, inputs: &[&str], outputs: &[&str], node: Vec<NodeProto>) -> FunctionProto {
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let (input, output) = (owned(inputs), owned(outputs));
    FunctionProto { name: name.into(), domain: "mine".into(), input, output, node, ..FunctionProto::default() }
}

fn call(name: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto { domain: "mine".into(), ..NodeProto::of(name, inputs, outputs) }
}

fn node(operator: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto::of(operator, inputs, outputs)
}

/// An attribute that refers to a function's parameter.
fn referring(name: &str, parameter: &str) -> AttributeProto {
    let (name, ref_attr_name) = (name.into(), parameter.into());
    AttributeProto { name, ref_attr_name, r#type: attribute_type::FLOAT, ..AttributeProto::default() }
}

fn model(node: Vec<NodeProto>, functions: Vec<FunctionProto>) -> ModelProto {
    let input = ["x", "y"].map(|name| ValueInfoProto::f32s(name, &[2])).to_vec();
    let output = vec![ValueInfoProto { name: "z".into(), r#type: None }];
    let graph = GraphProto { node, input, output, ..GraphProto::default() };
    ModelProto { functions, ..ModelProto::of(graph, 17) }
}

fn load(node: Vec<NodeProto>, functions: Vec<FunctionProto>) -> Result<Model, String> {
    let bytes = model(node, functions).to_bytes();
    from_bytes_within(&bytes, None, &Limits::default()).map_err(|error| error.to_string())
}

/// Each node as operator, name, inputs and outputs.
fn shown(model: &Model) -> Vec<String> {
    let name = |value: &Option<_>| value.map_or("-", |value| model.value_name(value)).to_owned();
    let names = |values: &[Option<_>]| values.iter().map(name).collect::<Vec<_>>().join(",");
    let shown = |node: &anabranch::import::Node| {
        format!("{} {}({})={}", node.name, node.op_type, names(&node.inputs), names(&node.outputs))
    };
    model.nodes.iter().map(shown).collect()
}

#[test]
fn a_call_becomes_the_nodes_of_the_body_under_names_of_their_own() {
    let inner = function("Inner", &["a"], &["b"], vec![node("Relu", &["a"], &["b"])]);
    let body = vec![
        call("Inner", &["p"], &["t"]).named("first"),
        node("Add", &["t", "q"], &["s"]),
        call("Inner", &["s"], &["r"]),
    ];
    let outer = function("Outer", &["p", "q"], &["r"], body);
    let calls = vec![call("Outer", &["x", "y"], &["t"]).named("one"), call("Outer", &["t", "x"], &["z"]).named("two")];
    let model = load(calls, vec![outer, inner]).expect("sound");
    assert_eq!(
        shown(&model),
        [
            "one/first/Relu_0 Relu(x)=t#2",
            "one/Add_1 Add(t#2,y)=s",
            "one/Inner_2/Relu_2 Relu(s)=t",
            "two/first/Relu_3 Relu(t)=t#3",
            "two/Add_4 Add(t#3,x)=s#2",
            "two/Inner_5/Relu_5 Relu(s#2)=z",
        ]
    );
}

#[test]
fn what_is_left_out_passed_on_or_not_wanted_is() {
    let clip = node("Clip", &["a", "low", "high"], &["b"]);
    let body = vec![clip, node("Neg", &["a"], &["c"])];
    let given = function("Given", &["a", "low", "high"], &["b", "c", "a", "b"], body);
    let nodes = vec![
        call("Given", &["x", "", "y"], &["z", "", "w", "v"]).named("n"),
        node("Mul", &["w", "v"], &["u"]).named("m"),
    ];
    let model = load(nodes, vec![given]).expect("sound");
    assert_eq!(
        shown(&model),
        [
            "n/Clip_0 Clip(x,-,y)=z",
            "n/Neg_1 Neg(x)=c",
            "n/Identity_2 Identity(x)=w",
            "n/Identity_3 Identity(z)=v",
            "m Mul(w,v)=u",
        ]
    );
}

#[test]
fn parameters_come_from_the_call_or_the_function_and_versions_from_the_function() {
    let inner = function(
        "Inner",
        &["a"],
        &["b"],
        vec![node("Elu", &["a"], &["b"]).with(referring("alpha", "slope")).with(referring("beta", "nothing"))],
    );
    let body = vec![call("Inner", &["a"], &["b"]).with(referring("slope", "steep"))];
    let import = OperatorSetIdProto { domain: String::new(), version: 13 };
    let outer = FunctionProto {
        attribute_proto: vec![AttributeProto::float("steep", 3.0)],
        opset_import: vec![import],
        ..function("Outer", &["a"], &["b"], body)
    };
    let nodes = vec![
        call("Outer", &["x"], &["w"]),
        call("Outer", &["w"], &["v"]).with(AttributeProto::float("steep", 5.0)),
        call("Inner", &["v"], &["u"]),
        node("Neg", &["u"], &["z"]),
    ];
    let model = load(nodes, vec![outer, inner]).expect("sound");
    let slopes: Vec<_> = model.nodes.iter().map(|node| node.float("alpha").expect("a number")).collect();
    assert_eq!(slopes, [Some(3.0), Some(5.0), None, None]);
    assert!(model.nodes.iter().all(|node| node.attribute("beta").is_none()));
    // The inner function states no version: the model's applies.
    let versions: Vec<_> = model.nodes.iter().map(|node| node.version).collect();
    assert_eq!(versions, [17; 4]);
    let import = OperatorSetIdProto { domain: String::new(), version: 13 };
    let own = FunctionProto {
        opset_import: vec![import],
        ..function("Own", &["a"], &["b"], vec![node("Softmax", &["a"], &["b"])])
    };
    let model = load(vec![call("Own", &["x"], &["z"])], vec![own]).expect("sound");
    assert_eq!((model.nodes[0].version, model.opset()), (13, 17));
}

#[test]
fn calls_in_graphs_of_nodes_and_graphs_in_functions_see_what_is_theirs() {
    let output = |name: &str| ValueInfoProto { name: name.into(), r#type: None };
    let branch = |node: NodeProto| GraphProto { node: vec![node], output: vec![output("o")], ..GraphProto::default() };
    let twice = function("Twice", &["a"], &["b"], vec![node("Abs", &["a"], &["t"]), node("Add", &["t", "t"], &["b"])]);
    let inside = node("If", &["c"], &["r"])
        .with(AttributeProto::graph("then_branch", &branch(call("Twice", &["k"], &["o"]))))
        .with(AttributeProto::graph("else_branch", &branch(node("Neg", &["k"], &["o"]))));
    let chosen = function("Chosen", &["c", "a"], &["r"], vec![inside, node("Exp", &["a"], &["k"])]);
    let model = load(vec![call("Chosen", &["y", "x"], &["z"]).named("n")], vec![chosen, twice]).expect("sound");
    let operators: Vec<_> = model.nodes.iter().map(|node| node.op_type.as_str()).collect();
    assert_eq!(operators, ["Exp", "If"]);
    let then = model.nodes[1].graph("then_branch").expect("sound");
    let operators: Vec<_> = then.nodes.iter().map(|node| node.op_type.as_str()).collect();
    assert_eq!(operators, ["Abs", "Add"]);
    assert_eq!(then.captured, [model.nodes[0].outputs[0].expect("made")]);
}

#[test]
fn a_graph_that_is_given_to_a_function_sees_the_place_of_the_call() {
    let output = vec![ValueInfoProto { name: "o".into(), r#type: None }];
    let body = GraphProto { node: vec![node("Neg", &["x"], &["o"])], output, ..GraphProto::default() };
    let refer = |name: &str| AttributeProto { r#type: attribute_type::GRAPH, ..referring(name, "body") };
    let uses = |count: usize| {
        let names = ["b", "c"];
        let node = |name: &&str| node("If", &["a"], &[name]).with(refer("then_branch"));
        function("Uses", &["a"], &["b"], names[..count].iter().map(node).collect())
    };
    let nodes = || vec![call("Uses", &["y"], &["z"]).with(AttributeProto::graph("body", &body))];
    let model = load(nodes(), vec![uses(1)]).expect("sound");
    let graph = model.nodes[0].graph("then_branch").expect("sound");
    assert_eq!(graph.captured, [model.inputs[0].value]);
    let model = load(nodes(), vec![uses(2)]).expect("its second use is no graph");
    assert!(matches!(model.nodes[1].attribute("then_branch"), Some(Attribute::Other("a subgraph that is used twice"))));
}

#[test]
fn wrong_functions_and_calls_are_refused_by_name() {
    let plain = || vec![node("Relu", &["a"], &["b"])];
    let one = |node: Vec<NodeProto>| vec![function("F", &["a"], &["b"], node)];
    let calls = || vec![call("F", &["x"], &["z"]).named("n")];
    let foreign = FunctionProto {
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 99 }],
        ..function("F", &["a"], &["b"], plain())
    };
    let cases = [
        (vec![call("F", &["x", "y"], &["z"])], one(plain()), "gives 2 inputs to a function with 1"),
        (vec![call("F", &["x"], &["z", "w"])], one(plain()), "reads 2 outputs of a function with 1"),
        (calls(), [one(plain()), one(plain())].concat(), "calls a function that the model defines twice"),
        (calls(), one(vec![node("Relu", &["x"], &["b"])]), "reads `x`, but the function `F` has no such value"),
        (calls(), one(vec![node("Relu", &["a"], &["c"])]), "output `b` no node produces"),
        (calls(), one(vec![node("Relu", &["a"], &["a"])]), "produces its own input `a`"),
        (calls(), vec![function("F", &["a", "a"], &["b"], plain())], "input `a` has an empty or repeated name"),
        (calls(), one([plain(), plain()].concat()), "node `n/Relu_1` (`Relu`): produces `b`, but node"),
        (calls(), vec![foreign], "uses opset 99"),
        (vec![call("F", &["x"], &["x"])], one(plain()), "produces `x`, but an input"),
        (calls(), one(vec![call("F", &["a"], &["b"])]), "calls a function within itself: `F` → `F`"),
        (vec![node("Elu", &["x"], &["z"]).with(referring("alpha", "p"))], vec![], "outside of a function"),
    ];
    for (nodes, functions, text) in cases {
        let error = load(nodes, functions).expect_err(text);
        assert!(error.contains(text), "{error} should contain: {text}");
    }
    let two = vec![function("F", &["a"], &["b", "c"], vec![node("Split", &["a"], &["b", "c"])])];
    let error = load(vec![call("F", &["x"], &["z", "z"])], two).expect_err("one value twice");
    assert!(error.contains("produces one value twice"), "{error}");
    let absent = vec![function("F", &["a", "k"], &["k"], plain())];
    let error = load(calls(), absent).expect_err("an output that is left out");
    assert!(
        error.contains("reads the output `k` of a function, which is an input that the call leaves out"),
        "{error}"
    );
}

#[test]
fn what_grows_without_end_is_refused_before_it_is_made() {
    // Each calls the next twice: a million nodes from twenty functions, and ever deeper.
    let chain = |length: usize, twice: bool| {
        let last = function(&format!("F{length}"), &["a"], &["b"], vec![node("Relu", &["a"], &["b"])]);
        let link = |at: usize| {
            let next = format!("F{}", at + 1);
            let second = if twice { call(&next, &["t"], &["b"]) } else { node("Neg", &["t"], &["b"]) };
            function(&format!("F{at}"), &["a"], &["b"], vec![call(&next, &["a"], &["t"]), second])
        };
        (0..length).map(link).chain([last]).collect::<Vec<_>>()
    };
    let start = || vec![call("F0", &["x"], &["z"])];
    assert_eq!(load(start(), chain(30, false)).expect("deep enough").nodes.len(), 31);
    let error = load(start(), chain(40, false)).expect_err("too deep");
    assert!(error.contains("functions and graphs nested more than 32 deep"), "{error}");
    let error = load(start(), chain(25, true)).expect_err("too many");
    assert!(error.contains("exceed") && error.contains("if you trust the file"), "{error}");
    let bytes = model(start(), chain(8, true)).to_bytes();
    let few = Limits { nodes: 100, ..Limits::default() };
    let error = from_bytes_within(&bytes, None, &few).expect_err("too many").to_string();
    assert!(error.contains("raise the limit `nodes`"), "{error}");
}

#[test]
fn graphs_that_functions_put_into_each_other_stay_shallow() {
    let output = || vec![ValueInfoProto { name: "o".into(), r#type: None }];
    let graph = |node: NodeProto| {
        AttributeProto::graph("body", &GraphProto { node: vec![node], output: output(), ..GraphProto::default() })
    };
    let refer = || AttributeProto { r#type: attribute_type::GRAPH, ..referring("body", "body") };
    let first = function(
        "H0",
        &["c"],
        &["o"],
        vec![node("If", &["c"], &["o"]).with(graph(node("If", &["c"], &["o"]).with(refer())))],
    );
    // Each is twice as high as the former, at a depth of two more.
    let higher = |at: usize| {
        let lower = format!("H{}", at - 1);
        let inner = graph(call(&lower, &["c"], &["o"]).with(refer()));
        function(&format!("H{at}"), &["c"], &["o"], vec![call(&lower, &["c"], &["o"]).with(inner)])
    };
    let functions: Vec<_> = [first].into_iter().chain((1..14).map(higher)).collect();
    let of_height = |at: usize| {
        let node = call(&format!("H{at}"), &["x"], &["z"]).with(graph(node("Relu", &["x"], &["o"])));
        load(vec![node], functions.clone())
    };
    for at in [2, 6, 13] {
        let model = of_height(at).expect("a graph that cannot be read matters only where it is lowered");
        let (mut node, mut depth) = (&model.nodes[0], 0);
        let problem = loop {
            match node.attribute("body") {
                Some(Attribute::Graph(Ok(graph))) => (node, depth) = (&graph.nodes[0], depth + 1),
                Some(Attribute::Graph(Err(problem))) => break Some(problem),
                _ => break None,
            }
        };
        assert!(depth <= 32, "H{at} is {depth} graphs high");
        let is_refused = problem.is_some_and(|text| text.contains("functions and graphs nested more than 32 deep"));
        assert_eq!(is_refused, at > 2, "H{at}");
    }
}

#[test]
fn a_branch_may_give_back_an_input_that_a_call_leaves_out() {
    let branch = |name: &str, value: &str| {
        let output = vec![ValueInfoProto { name: value.into(), r#type: None }];
        AttributeProto::graph(name, &GraphProto { output, ..GraphProto::default() })
    };
    let chosen = node("If", &["h"], &["t"]).with(branch("then_branch", "k")).with(branch("else_branch", "a"));
    let clipped = node("Clip", &["t", "k"], &["b"]);
    let body = vec![node("OptionalHasElement", &["k"], &["h"]), chosen, clipped];
    let model = load(vec![call("F", &["x", ""], &["z"]).named("n")], vec![function("F", &["a", "k"], &["b"], body)]);
    let model = model.expect("it matters only where that branch is taken");
    assert_eq!(shown(&model)[2], "n/Clip_2 Clip(t)=z");
    assert_eq!(model.nodes[1].graph("then_branch").expect("sound").captured, []);
}

#[test]
fn a_call_that_fails_is_told_once() {
    let twice =
        node("Elu", &["a"], &["b"]).with(AttributeProto::float("alpha", 1.0)).with(AttributeProto::float("alpha", 2.0));
    let error = load(vec![call("F", &["x", ""], &["z"])], vec![function("F", &["a"], &["b"], vec![twice])]);
    let error = error.expect_err("an attribute twice");
    assert!(error.contains("alpha") && !error.contains("nothing makes"), "{error}");
}

#[test]
fn a_tensor_of_a_body_is_in_memory_once() {
    let large = AttributeProto::tensor("value", TensorProto::f32s("", &[1000], &[1.0; 1000]));
    let body = vec![NodeProto::of("Constant", &[], &["c"]).with(large), node("Add", &["a", "c"], &["b"])];
    let calls = vec![call("F", &["x"], &["w"]), call("F", &["w"], &["z"])];
    let bytes = model(calls, vec![function("F", &["a"], &["b"], body)]).to_bytes();
    let limits = Limits { tensor_bytes: 4000, ..Limits::default() };
    let model = from_bytes_within(&bytes, None, &limits).expect("4000 bytes once");
    let constants = model.nodes.iter().filter(|node| node.op_type == "Constant");
    let held: Vec<_> = constants.map(|node| node.attribute("value").cloned()).collect();
    let [Some(Attribute::Tensor(first)), Some(Attribute::Tensor(second))] = &held[..] else { panic!("{held:?}") };
    assert_eq!(first.bytes().as_ptr(), second.bytes().as_ptr());
}
