//! Shapes that follow from computed values: such models run in phases. Each phase is placed and kept like a model.

mod compiled;
mod lengths;
mod parts;

use anabranch::device::{CpuGranularity, DetectOptions};
use anabranch::execute::{CancelToken, RunOptions};
use anabranch::import::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
};
use anabranch::session::{ErrorKind, Inputs, Outputs, Session, SessionConfig};
use anabranch::{Shape, Tensor};
use anabranch_tests::{one_cpu, options, same};
use std::time::Duration;

fn value(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: name.into(), r#type: None }
}

fn scalar(name: &str, code: i64) -> ValueInfoProto {
    ValueInfoProto::tensor(name, code, vec![])
}

fn number(name: &str, value: i64) -> TensorProto {
    TensorProto::i64s(name, &[1], &[value])
}

fn float(name: &str, value: f32) -> TensorProto {
    TensorProto::f32s(name, &[], &[value])
}

fn model(nodes: Vec<NodeProto>, constants: Vec<TensorProto>, outputs: &[&str]) -> Vec<u8> {
    let x = ValueInfoProto::tensor("x", data_type::FLOAT, vec![DimensionProto::symbol("n")]);
    let output = outputs.iter().map(|name| value(name)).collect();
    let graph = GraphProto { node: nodes, initializer: constants, input: vec![x], output, ..GraphProto::default() };
    ModelProto::of(graph, 17).to_bytes()
}

fn session(model: &[u8]) -> Session {
    Session::from_bytes(model, one_cpu()).expect("a sound model")
}

fn inputs(x: &[f32]) -> Inputs {
    Inputs::new().tensor("x", Tensor::from_elements(Shape::new([x.len()]).expect("small"), x).expect("as many"))
}

fn floats<'o>(outputs: &'o Outputs, name: &str) -> &'o [f32] {
    outputs.tensor(name).expect("made").elements().expect("floats")
}

/// Returns a model whose `y` is twice each positive element of the exponentials minus one; the number of these elements
/// is computed.
fn positives() -> Vec<u8> {
    let nodes = vec![
        NodeProto::of("Exp", &["x"], &["e"]),
        NodeProto::of("Sub", &["e", "one"], &["d"]),
        NodeProto::of("Greater", &["d", "zero"], &["is"]),
        NodeProto::of("NonZero", &["is"], &["at"]),
        NodeProto::of("Transpose", &["at"], &["places"]),
        NodeProto::of("GatherND", &["d", "places"], &["found"]),
        NodeProto::of("Add", &["found", "found"], &["y"]),
    ];
    model(nodes, vec![float("one", 1.0), float("zero", 0.0)], &["y"])
}

/// Returns seventeen elements, so that none of them decides a shape by itself.
fn some(positive: usize) -> Vec<f32> {
    (0..17).map(|at| if at < positive { 1.0 + at as f32 / 8.0 } else { -1.0 }).collect()
}

#[test]
fn elements_are_picked_by_computed_values_and_plans_are_kept_by_their_number() {
    let session = session(&positives());
    for (positive, phases) in [(3, 1), (5, 2), (3, 2), (0, 3), (5, 3)] {
        let x = some(positive);
        let outputs = session.run(&inputs(&x)).expect("it runs in phases");
        let want: Vec<f32> = x[..positive].iter().map(|x| 2.0 * (x.exp() - 1.0)).collect();
        let found = floats(&outputs, "y");
        assert_eq!(found.len(), positive);
        assert!(found.iter().zip(&want).all(|(found, want)| (found - want).abs() < 1e-4), "{found:?} {want:?}");
        assert_eq!((session.ready_plans(), session.ready_phases()), (1, phases));
    }
}

#[test]
fn a_run_tells_its_phases_and_is_learned_from() {
    let session = session(&positives());
    let run = session.run_with(&inputs(&some(4)), &RunOptions::default().with_profile(true)).expect("it runs");
    let later = run.later.as_ref().expect("it has later phases");
    assert_eq!((later.phases, later.host_operator_count, later.runs.len()), (1, 1, 1));
    assert!(later.took >= run.measured.makespan + later.in_plans);
    assert!(run.prepared.rest().is_some_and(|rest| rest.host_operators().eq(["NonZero_3"]) && rest.operators() == 4));
    session.learn(&run);
    let costs = session.costs();
    for planned in [run.prepared.planned(), &later.runs[0].planned] {
        let node = &planned.program.nodes[0];
        let device = session.inventory().cpus[0].key.to_string();
        assert!(costs.here().node(&device, &node.spec.key()).is_some(), "nothing was learned of {}", node.name);
    }
}

#[test]
fn the_number_of_threads_and_devices_changes_no_bit() {
    let alone = session(&positives()).run(&inputs(&some(6))).expect("it runs");
    for place in ["heft", "gpu"] {
        let session = Session::from_bytes(&positives(), options(place)).expect("a sound model");
        let outputs = session.run(&inputs(&some(6))).expect("it runs");
        let (a, b) = (floats(&alone, "y"), floats(&outputs, "y"));
        assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4), "{place}");
        assert!(same(&outputs, &session.run(&inputs(&some(6))).expect("again")), "{place}");
    }
}

/// Returns a model whose greatest element is the number of rows.
fn rows() -> Vec<u8> {
    let nodes = vec![
        NodeProto::of("ReduceMax", &["x"], &["most"]).with(AttributeProto::int("keepdims", 0)),
        NodeProto::of("Cast", &["most"], &["rows"]).with(AttributeProto::int("to", data_type::INT64)),
        NodeProto::of("Reshape", &["rows", "one"], &["list"]),
        NodeProto::of("Concat", &["list", "rest"], &["shape"]).with(AttributeProto::int("axis", 0)),
        NodeProto::of("Reshape", &["x", "shape"], &["r"]),
        NodeProto::of("Neg", &["r"], &["y"]),
    ];
    model(nodes, vec![number("one", 1), number("rest", -1)], &["y"])
}

#[test]
fn computed_sizes_decide_shapes() {
    let session = session(&rows());
    for (rows, phases) in [(3usize, 1), (6, 2), (3, 2)] {
        let mut x = vec![0.5f32; 18];
        x[7] = rows as f32;
        let outputs = session.run(&inputs(&x)).expect("it runs in phases");
        assert_eq!(outputs.tensor("y").expect("made").shape().dims(), [rows, 18 / rows]);
        assert_eq!(session.ready_phases(), phases);
    }
    let error = session.run(&inputs(&[7.0; 18])).expect_err("18 elements in 7 rows");
    assert_eq!((error.kind(), error.node()), (ErrorKind::Model, Some("Reshape_4")));
}

/// Returns a model that doubles until the sum is at least the limit, and collects the values of each pass.
fn doubling(limit: f32) -> Vec<u8> {
    let body = GraphProto {
        node: vec![
            NodeProto::of("Add", &["v", "v"], &["w"]),
            NodeProto::of("ReduceSum", &["w"], &["s"]).with(AttributeProto::int("keepdims", 0)),
            NodeProto::of("Less", &["s", "limit"], &["again"]),
            NodeProto::of("Identity", &["w"], &["had"]),
        ],
        input: vec![scalar("i", data_type::INT64), scalar("c", data_type::BOOL), value("v")],
        output: vec![value("again"), value("w"), ValueInfoProto::f32s("had", &[17])],
        ..GraphProto::default()
    };
    let nodes = vec![
        NodeProto::of("ReduceSum", &["x"], &["sum"]).with(AttributeProto::int("keepdims", 0)),
        NodeProto::of("Less", &["sum", "limit"], &["first"]),
        NodeProto::of("Loop", &["", "first", "x"], &["y", "all"]).with(AttributeProto::graph("body", &body)),
        NodeProto::of("Neg", &["y"], &["z"]),
    ];
    model(nodes, vec![float("limit", limit)], &["z", "all"])
}

#[test]
fn a_loop_ends_by_a_computed_condition_and_its_body_is_planned_once() {
    let session = session(&doubling(1e6));
    for (x, passes) in [(1f32, 16), (1000.0, 6), (1e5, 0)] {
        let run = session.run_with(&inputs(&[x; 17]), &RunOptions::default()).expect("it runs");
        let end = -x * 2f32.powi(passes);
        assert_eq!(floats(&run.outputs, "z"), [end; 17]);
        let all = run.outputs.tensor("all").expect("made");
        assert_eq!(all.shape().dims(), [passes as usize, 17]);
        assert!(
            all.elements::<f32>().expect("floats").chunks(17).zip(1..).all(|(had, pass)| had[3] == x * 2f32.powi(pass))
        );
        // Each pass, and the phase after the loop.
        assert_eq!(run.later.map(|later| later.phases), Some(passes as usize + 1));
    }
    // The plan of the body, and that of the phase after the loop.
    assert_eq!(session.ready_phases(), 2);
}

#[test]
fn an_endless_loop_ends_by_timeout_and_cancellation() {
    let session = session(&doubling(f32::INFINITY));
    let x = inputs(&[0.0; 17]);
    let late = session.run_with(&x, &RunOptions::default().with_timeout(Duration::from_millis(300)));
    assert_eq!(late.err().map(|error| error.kind()), Some(ErrorKind::Timeout));
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| session.run_with(&x, &RunOptions::default().with_cancel(token.clone())).map(drop));
        std::thread::sleep(Duration::from_millis(100));
        token.cancel();
        assert!(run.join().expect("no panic").is_err_and(|error| error.is_cancelled()));
    });
}

#[test]
fn what_a_loop_collects_keeps_to_the_hosts_memory() {
    let devices = DetectOptions::default().with_cpu_granularity(CpuGranularity::Machine).without_gpu();
    let options = SessionConfig::default().with_devices(devices.with_memory("cpu0", 1 << 16));
    let session = Session::from_bytes(&doubling(f32::INFINITY), options).expect("a sound model");
    let error = session.run(&inputs(&[0.0; 17])).expect_err("it has no end");
    assert_eq!((error.kind(), error.device()), (ErrorKind::Memory, Some("cpu0")), "{error}");
}

#[test]
fn plans_of_phases_make_room_for_each_other() {
    let picked = |from: &str, to: &str| {
        let [is, at, places] = ["is", "at", "places"].map(|name| format!("{name}_{to}"));
        vec![
            NodeProto::of("Greater", &[from, "zero"], &[&is]),
            NodeProto::of("NonZero", &[&is], &[&at]),
            NodeProto::of("Transpose", &[&at], &[&places]),
            NodeProto::of("GatherND", &[from, &places], &[to]),
        ]
    };
    let nodes = [picked("x", "a"), vec![NodeProto::of("Exp", &["a"], &["b"])], picked("b", "y")].concat();
    let bytes = model(nodes, vec![float("zero", 0.0)], &["y"]);
    let x: Vec<f32> = (0..4096).map(|at| (at % 7) as f32 - 1.0).collect();
    let free = session(&bytes);
    let run = free.run_with(&inputs(&x), &RunOptions::default().with_profile(true)).expect("there is room");
    let peak = |planned: &anabranch::planning::Planned| planned.plan().memory().devices()[0].peak();
    let first = peak(&run.prepared);
    let later: Vec<u64> = run.later.iter().flat_map(|later| &later.runs).map(|run| peak(&run.planned)).collect();
    // The first plan stays, since the caller holds it.
    let limit = first + later.iter().max().expect("two later phases");
    assert!(limit < first + later.iter().sum::<u64>(), "{first} {later:?}");
    let devices = DetectOptions::default().with_cpu_granularity(CpuGranularity::Machine).without_gpu();
    let options = SessionConfig::default().with_devices(devices.with_memory("cpu0", limit));
    let tight = Session::from_bytes(&bytes, options).expect("a sound model");
    for _ in 0..2 {
        let outputs = tight.run_with(&inputs(&x), &RunOptions::default().with_timeout(Duration::from_secs(60)));
        assert!(same(&outputs.expect("phase by phase there is room").outputs, &run.outputs));
        assert!(tight.held_bytes()[0] <= limit);
    }
}

/// Returns a model of twice the positive elements, or minus twice the sum of all elements.
fn branching() -> Vec<u8> {
    let picked = GraphProto {
        node: vec![NodeProto::of("Greater", &["x", "zero"], &["is"]), NodeProto::of("Compress", &["x", "is"], &["p"])],
        output: vec![value("p")],
        ..GraphProto::default()
    };
    let summed = GraphProto {
        node: vec![NodeProto::of("Neg", &["sum"], &["m"])],
        output: vec![value("m")],
        ..GraphProto::default()
    };
    let nodes = vec![
        NodeProto::of("ReduceSum", &["x"], &["sum"]),
        NodeProto::of("Reshape", &["sum", "none"], &["flat"]),
        NodeProto::of("Greater", &["flat", "zero"], &["take"]),
        NodeProto::of("If", &["take"], &["b"])
            .with(AttributeProto::graph("then_branch", &picked))
            .with(AttributeProto::graph("else_branch", &summed)),
        NodeProto::of("Add", &["b", "b"], &["y"]),
    ];
    let none = TensorProto::i64s("none", &[0], &[]);
    model(nodes, vec![float("zero", 0.0), none], &["y"])
}

#[test]
fn branches_may_hold_what_only_their_run_tells() {
    let session = session(&branching());
    let mut x = [-1f32; 17];
    assert_eq!(floats(&session.run(&inputs(&x)).expect("the sum"), "y"), [34.0]);
    x[4] = 30.0;
    x[9] = 2.0;
    assert_eq!(floats(&session.run(&inputs(&x)).expect("two elements"), "y"), [60.0, 4.0]);
}

/// Returns a model that adds `x` times 0, 1 and 2 to a sequence.
fn growing() -> Vec<u8> {
    let body = GraphProto {
        node: vec![
            NodeProto::of("Cast", &["i"], &["f"]).with(AttributeProto::int("to", data_type::FLOAT)),
            NodeProto::of("Mul", &["x", "f"], &["part"]),
            NodeProto::of("SequenceInsert", &["before", "part"], &["after"]),
            NodeProto::of("Identity", &["c"], &["again"]),
        ],
        input: vec![scalar("i", data_type::INT64), scalar("c", data_type::BOOL), value("before")],
        output: vec![value("again"), value("after")],
        ..GraphProto::default()
    };
    let nodes = vec![
        NodeProto::of("SequenceEmpty", &[], &["empty"]),
        NodeProto::of("Loop", &["three", "", "empty"], &["all"]).with(AttributeProto::graph("body", &body)),
        NodeProto::of("ConcatFromSequence", &["all"], &["y"]).with(AttributeProto::int("axis", 0)),
        NodeProto::of("SequenceLength", &["all"], &["count"]),
    ];
    model(nodes, vec![number("three", 3)], &["y", "count"])
}

#[test]
fn sequences_grow_in_loops() {
    let outputs = session(&growing()).run(&inputs(&[2.0; 2])).expect("a sequence of three");
    assert_eq!(floats(&outputs, "y"), [0.0, 0.0, 2.0, 2.0, 4.0, 4.0]);
    assert_eq!(outputs.tensor("count").expect("made").elements::<i64>(), Some(&[3i64][..]));
}

#[test]
fn sequences_pass_through_identity_and_nothing_else_waits_for_ever() {
    let through = |operator: &str, inputs: &[&str]| {
        let nodes = vec![
            NodeProto::of("SequenceConstruct", &["x"], &["s"]),
            NodeProto::of(operator, inputs, &["t"]),
            NodeProto::of("SequenceAt", &["t", "first"], &["y"]),
        ];
        session(&model(nodes, vec![TensorProto::i64s("first", &[], &[0])], &["y"]))
    };
    let outputs = through("Identity", &["s"]).run(&inputs(&[1.0, 2.0])).expect("a sequence goes through");
    assert_eq!(floats(&outputs, "y"), [1.0, 2.0]);
    let error = through("Add", &["s", "x"]).run(&inputs(&[1.0])).expect_err("a sequence is no operand");
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("a sequence"), "{error}");
}

#[test]
fn an_optional_sequence_is_there() {
    let nodes = vec![
        NodeProto::of("SequenceConstruct", &["x"], &["s"]),
        NodeProto::of("Optional", &["s"], &["o"]),
        NodeProto::of("OptionalHasElement", &["o"], &["is"]),
        NodeProto::of("Where", &["is", "x", "zero"], &["y"]),
    ];
    let session = session(&model(nodes, vec![float("zero", 0.0)], &["y"]));
    assert_eq!(floats(&session.run(&inputs(&[1.0, 2.0])).expect("there"), "y"), [1.0, 2.0]);
}

/// Returns attention with a graph that needs a computed size, and attention without it.
fn attending() -> Vec<u8> {
    let graph = GraphProto {
        node: vec![NodeProto::of("Expand", &["in", "size"], &["out"])],
        input: vec![value("in")],
        output: vec![value("out")],
        ..GraphProto::default()
    };
    let attention = |made: &str| NodeProto {
        domain: "ai.onnx.preview".into(),
        ..NodeProto::of("FlexAttention", &["q", "q", "q"], &[made])
    };
    let nodes = vec![
        NodeProto::of("Unsqueeze", &["x", "axes"], &["q"]),
        NodeProto::of("Mul", &["x", "zero"], &["zeros"]),
        NodeProto::of("ReduceSum", &["zeros"], &["none"]),
        NodeProto::of("Cast", &["none"], &["nothing"]).with(AttributeProto::int("to", data_type::INT64)),
        NodeProto::of("Add", &["nothing", "one"], &["size"]),
        attention("y").with(AttributeProto::graph("score_mod", &graph)),
        attention("plain"),
    ];
    let constants = vec![TensorProto::i64s("axes", &[3], &[0, 1, 3]), float("zero", 0.0), number("one", 1)];
    model(nodes, constants, &["y", "plain"])
}

#[test]
fn a_graph_of_attention_waits_for_what_a_run_computes() {
    let outputs = session(&attending()).run(&inputs(&[1.0, 2.0])).expect("two phases");
    assert_eq!(floats(&outputs, "y"), floats(&outputs, "plain"));
}

#[test]
fn an_axis_without_elements_is_no_list_to_make() {
    let dims = [1 << 40, 0];
    for (operator, outputs) in [("Unique", 1), ("SplitToSequence", 0)] {
        let empty = TensorProto::f32s("empty", &dims, &[]);
        let mut nodes = vec![NodeProto::of(operator, &["empty"], &["u"]).with(AttributeProto::int("axis", 0))];
        if outputs == 0 {
            nodes.push(NodeProto::of("SequenceLength", &["u"], &["y"]));
        }
        let output = if outputs == 0 { "y" } else { "u" };
        nodes.push(NodeProto::of("Identity", &["x"], &["z"]));
        let session = Session::from_bytes(&model(nodes, vec![empty], &[output, "z"]), one_cpu());
        let error = session.and_then(|session| session.run(&inputs(&[1.0])).map(|_| ()));
        assert!(error.expect_err("no memory holds that").to_string().contains("axis of"), "{operator}");
    }
}

/// An operator on the host makes the indices, and a later phase their negation.
#[test]
fn an_output_of_another_type_than_declared_is_refused_in_every_phase() {
    let nodes = || vec![NodeProto::of("NonZero", &["x"], &["at"]), NodeProto::of("Neg", &["at"], &["y"])];
    for name in ["at", "y"] {
        for (code, is_right) in [(data_type::INT64, true), (data_type::FLOAT, false)] {
            let (n, m) = (DimensionProto::symbol("n"), DimensionProto::symbol("m"));
            let input = vec![ValueInfoProto::tensor("x", data_type::FLOAT, vec![n])];
            let output = vec![ValueInfoProto::tensor(name, code, vec![DimensionProto::known(1), m])];
            let graph = GraphProto { node: nodes(), input, output, ..GraphProto::default() };
            let ran = session(&ModelProto::of(graph, 17).to_bytes()).run(&inputs(&some(3)));
            match ran.map(drop) {
                Ok(()) => assert!(is_right, "{name} is no float"),
                Err(error) => {
                    let text = error.to_string();
                    let says = text.contains(&format!("output `{name}`"));
                    assert!(!is_right && says && text.contains("i64") && text.contains("f32"), "{text}");
                }
            }
        }
    }
}

#[test]
fn a_fault_of_a_later_phase_names_its_node() {
    let nodes = vec![
        NodeProto::of("Greater", &["x", "zero"], &["is"]),
        NodeProto::of("Compress", &["x", "is"], &["p"]),
        NodeProto::of("Add", &["p", "x"], &["y"]),
    ];
    let bytes = model(nodes, vec![float("zero", 0.0)], &["y"]);
    let error = session(&bytes).run(&inputs(&some(3))).expect_err("3 and 17 elements");
    assert_eq!((error.kind(), error.node()), (ErrorKind::Model, Some("Add_2")), "{error}");
    let resident = one_cpu().with_resident("y", "cpu0");
    let error = Session::from_bytes(&bytes, resident).expect("a sound model").run(&inputs(&some(17))).err();
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Unsupported));
    // A missing lowering is reported before anything runs.
    let nodes = vec![
        NodeProto::of("Compress", &["x", "is"], &["p"]),
        NodeProto::of("Greater", &["x", "zero"], &["is"]),
        NodeProto::of("Nowhere", &["p"], &["y"]),
    ];
    let error = session(&model(nodes, vec![float("zero", 0.0)], &["y"])).run(&inputs(&some(3))).expect_err("unknown");
    assert_eq!((error.kind(), error.node()), (ErrorKind::Unsupported, Some("Nowhere_2")), "{error}");
}

#[test]
fn plans_of_phases_are_bounded() {
    let session = Session::from_bytes(&positives(), one_cpu().with_plan_capacity(1)).expect("a sound model");
    for positive in 0..17 {
        session.run(&inputs(&some(positive))).expect("it runs");
        session.run(&inputs(&[some(positive), vec![-1.0; 20]].concat())).expect("it runs");
    }
    assert_eq!(session.ready_plans(), 1);
    assert!((2..=32).contains(&session.ready_phases()), "{}", session.ready_phases());
}

#[test]
fn a_step_over_the_hosts_memory_is_refused_by_its_name() {
    let x: Vec<f32> = (0..100_000).map(|at| at as f32).collect();
    let graph =
        model(vec![NodeProto::of("NonZero", &["x"], &["i"]), NodeProto::of("Neg", &["i"], &["y"])], vec![], &["y"]);
    let run = |limit: u64| {
        let options = one_cpu().with_memory("cpu0", limit);
        Session::from_bytes(&graph, options).expect("a sound model").run(&inputs(&x))
    };
    // Its input, a list of positions and its result.
    let error = run(1_500_000).expect_err("0.4 MB, 0.8 MB and 0.8 MB");
    assert_eq!((error.kind(), error.node()), (ErrorKind::Memory, Some("NonZero_0")), "{error}");
    let made = run(4_000_000).expect("enough");
    assert_eq!(made.tensor("y").expect("made").shape().dims(), [1, x.len() - 1]);
}
