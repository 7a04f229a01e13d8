//! Small models of constants, which are folded while they are lowered.

use anabranch::Tensor;
use anabranch::import::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
};
use anabranch::import::{OPSETS, from_bytes};
use anabranch::lower::{LowerError, LowerOptions, lower};
use anabranch::program::Program;

fn untyped(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: name.into(), r#type: None }
}

/// Lowers nodes that compute `y`.
fn lowered(
    node: Vec<NodeProto>,
    input: Vec<ValueInfoProto>,
    initializer: Vec<TensorProto>,
) -> Result<Program, LowerError> {
    let graph = GraphProto { node, input, initializer, output: vec![untyped("y")], ..GraphProto::default() };
    let model = from_bytes(&ModelProto::of(graph, *OPSETS.end()).to_bytes(), None).expect("a sound model");
    lower(&model, &LowerOptions::default())
}

/// Returns the constant to which `y` is folded.
fn folded(node: NodeProto, initializer: Vec<TensorProto>) -> Tensor {
    let program = lowered(vec![node], Vec::new(), initializer).expect("it has a lowering");
    let output = &program.outputs[0];
    let tensor = program.constant(output.value).expect("folded").load().expect("in memory");
    tensor.reshaped(output.spec.shape.clone()).expect("as many elements")
}

#[test]
fn borders_of_narrow_floats_have_their_value() {
    // 1.5, in three and in two bits of fraction.
    for (code, byte) in [(data_type::FLOAT8E4M3FN, 0x3C), (data_type::FLOAT8E5M2, 0x3E)] {
        let constants = vec![
            TensorProto::raw("x", code, &[1], vec![0x01]),
            TensorProto::i64s("pads", &[2], &[1, 2]),
            TensorProto::raw("value", code, &[], vec![byte]),
        ];
        let y = folded(NodeProto::of("Pad", &["x", "pads", "value"], &["y"]), constants);
        assert_eq!(y.bytes(), [byte, 0x01, byte, byte]);
    }
}

#[test]
fn zero_points_of_narrow_floats_are_lowered() {
    for code in [data_type::FLOAT8E4M3FN, data_type::FLOAT8E4M3FNUZ, data_type::FLOAT8E5M2, data_type::FLOAT8E5M2FNUZ] {
        let constants = vec![TensorProto::f32s("scale", &[], &[0.5]), TensorProto::raw("zero", code, &[], vec![0])];
        let nodes = vec![
            NodeProto::of("QuantizeLinear", &["x", "scale", "zero"], &["q"]),
            NodeProto::of("DequantizeLinear", &["q", "scale", "zero"], &["y"]),
        ];
        let program = lowered(nodes, vec![ValueInfoProto::f32s("x", &[3])], constants);
        assert!(program.is_ok_and(|program| !program.nodes.is_empty()), "{code}");
    }
}

#[test]
fn the_corners_of_a_filter_may_lie_far_beyond_the_bins() {
    let names = ["filters", "length", "rate", "low", "high"];
    let constants = vec![
        TensorProto::i64s("filters", &[], &[2]),
        TensorProto::i64s("length", &[], &[8]),
        TensorProto::i64s("rate", &[], &[16000]),
        TensorProto::f32s("low", &[], &[0.0]),
        TensorProto::f32s("high", &[], &[1e30]),
    ];
    let y = folded(NodeProto::of("MelWeightMatrix", &names, &["y"]), constants);
    assert_eq!(y.shape().dims(), [5, 2]);
    // The first filter rises from the first bin on, too slowly to see a difference.
    assert!(y.elements::<f32>().is_some_and(|weights| weights.iter().all(|weight| (0.0..1e-3).contains(weight))));
}

#[test]
fn loops_of_too_many_nodes_are_refused() {
    let steps = 4096;
    let name = |step: usize| format!("s{step}");
    let mut node: Vec<_> =
        (0..steps).map(|step| NodeProto::of("Identity", &[&name(step)], &[&name(step + 1)])).collect();
    node.push(NodeProto::of("Identity", &["c"], &["d"]));
    let input = ["i", "c", "s0"].map(untyped).to_vec();
    let body = GraphProto { node, input, output: vec![untyped("d"), untyped(&name(steps))], ..GraphProto::default() };
    let lowered = |passes: i64| {
        let constants = vec![TensorProto::i64s("passes", &[], &[passes]), TensorProto::f32s("x", &[1], &[1.0])];
        let node = NodeProto::of("Loop", &["passes", "", "x"], &["y"]).with(AttributeProto::graph("body", &body));
        lowered(vec![node], Vec::new(), constants)
    };
    assert!(lowered(2).is_ok());
    let error = lowered(4096).expect_err("16 million nodes").to_string();
    assert!(error.contains("more than 262144 nodes"), "{error}");
}

/// The faults are found whether or not an iteration runs, but for a changed type.
#[test]
fn loops_that_contradict_their_definition_are_refused() {
    let lowered = |body: &[&str], to: i64, most: TensorProto| {
        let node = vec![
            NodeProto::of("Identity", &["c"], &["d"]),
            NodeProto::of("Cast", &["s"], &["t"]).with(AttributeProto::int("to", to)),
        ];
        let (input, output) = (["i", "c", "s"].map(untyped).to_vec(), body.iter().map(|name| untyped(name)).collect());
        let body = GraphProto { node, input, output, ..GraphProto::default() };
        let node = NodeProto::of("Loop", &["m", "", "x"], &["y"]).with(AttributeProto::graph("body", &body));
        lowered(vec![node], Vec::new(), vec![most, TensorProto::f32s("x", &[1], &[1.0])])
    };
    let passes = |count: i64| TensorProto::i64s("m", &[], &[count]);
    for count in [0, 2] {
        assert!(lowered(&["d", "t"], data_type::FLOAT, passes(count)).is_ok());
        let error = lowered(&["d"], data_type::FLOAT, passes(count)).expect_err("no output for x").to_string();
        assert!(error.contains("too few outputs"), "{error}");
    }
    let error = lowered(&["d", "t"], data_type::INT64, passes(1)).expect_err("another type").to_string();
    assert!(error.contains("state 0 from f32 to i64"), "{error}");
    let error = lowered(&["d", "t"], data_type::FLOAT, TensorProto::f32s("m", &[], &[1.0])).expect_err("no integer");
    assert!(error.to_string().contains("input 0 (M)"), "{error}");
}

#[test]
fn branches_of_another_type_than_declared_are_refused() {
    let typed = |name: &str, kind: i64| ValueInfoProto::tensor(name, kind, Vec::new());
    let lowered = |then: i64, other: i64| {
        let branch = |declared: i64| GraphProto {
            node: vec![NodeProto::of("Identity", &["x"], &["b"])],
            output: vec![typed("b", declared)],
            ..GraphProto::default()
        };
        let node = NodeProto::of("If", &["c"], &["y"])
            .with(AttributeProto::graph("then_branch", &branch(then)))
            .with(AttributeProto::graph("else_branch", &branch(other)));
        let not = NodeProto::of("Not", &["n"], &["c"]);
        let none = NodeProto::of("IsNaN", &["x"], &["n"]);
        lowered(vec![none, not, node], Vec::new(), vec![TensorProto::f32s("x", &[], &[1.0])])
    };
    let (float, integer) = (data_type::FLOAT, data_type::INT64);
    assert!(lowered(float, float).is_ok());
    let error = lowered(integer, integer).expect_err("both are computed as f32").to_string();
    assert!(error.contains("declared as i64, but computed as f32"), "{error}");
    let error = lowered(float, integer).expect_err("two types").to_string();
    assert!(error.contains("output 0 is f32 in its then_branch, but i64 in its else_branch"), "{error}");
}

#[test]
fn a_product_with_zero_stays_zero() {
    let axis = || TensorProto::i64s("axis", &[], &[0]);
    let node = || NodeProto::of("CumProd", &["x", "axis"], &["y"]);
    let y = folded(node(), vec![TensorProto::f32s("x", &[5], &[2.0, 0.0, 1e30, 1e30, 1e30]), axis()]);
    assert_eq!(y.elements::<f32>(), Some(&[2.0, 0.0, 0.0, 0.0, 0.0][..]));
    // Sums beyond the type become infinite in the end.
    let y = folded(node(), vec![TensorProto::f32s("x", &[3], &[1e30, 1e30, -1.0]), axis()]);
    assert_eq!(y.elements::<f32>(), Some(&[1e30, f32::INFINITY, f32::NEG_INFINITY][..]));
}

#[test]
fn an_output_of_another_type_than_declared_is_refused_by_name() {
    let cast = || NodeProto::of("Cast", &["x"], &["y"]).with(AttributeProto::int("to", data_type::INT64));
    for (node, code, wrong) in [
        (cast(), data_type::INT64, None),
        (cast(), data_type::FLOAT, Some(["node `Cast_0` (`Cast`)", "declared as f32, but has elements of i64"])),
        (NodeProto::of("Relu", &["x"], &["y"]), data_type::FLOAT, None),
        (NodeProto::of("Relu", &["x"], &["y"]), data_type::FLOAT16, Some(["(`Relu`)", "f16, but has elements of f32"])),
    ] {
        let output = vec![ValueInfoProto::tensor("y", code, vec![DimensionProto::known(2)])];
        let input = vec![ValueInfoProto::f32s("x", &[2])];
        let graph = GraphProto { node: vec![node], input, output, ..GraphProto::default() };
        let model = from_bytes(&ModelProto::of(graph, 17).to_bytes(), None).expect("sound names");
        match (lower(&model, &LowerOptions::default()), wrong) {
            (Ok(_), None) => {}
            (Err(error), Some(parts)) => {
                let text = error.to_string();
                assert!(text.contains("output `y`") && parts.iter().all(|part| text.contains(part)), "{text}");
            }
            (found, _) => panic!("{code}: {:?}", found.err()),
        }
    }
}
