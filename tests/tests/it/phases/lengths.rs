//! Ranges whose ends, and regions whose points, are known only at run time.

use super::{number, scalar, session, value};
use anabranch::import::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
};
use anabranch::session::Inputs;
use anabranch::{Shape, Tensor};
use anabranch_kernels::dtype::Element;

/// Returns a scalar.
fn one<T: Element>(value: T) -> Tensor {
    Tensor::from_elements(Shape::scalar(), &[value]).expect("one element")
}

/// Checks the range up to an end that a caller gives, and up to the greatest element of a tensor that a caller gives.
fn ranges<T: Element + PartialEq + std::fmt::Debug>(code: i64, [start, delta]: [T; 2], ends: [T; 3], want: [&[T]; 3]) {
    let bytes = |value: T| bytemuck::bytes_of(&value).to_vec();
    let constants =
        vec![TensorProto::raw("s", code, &[], bytes(start)), TensorProto::raw("d", code, &[], bytes(delta))];
    let reduced = NodeProto::of("ReduceMax", &["e"], &["end"]).with(AttributeProto::int("keepdims", 0));
    for (nodes, end) in [(vec![], "e"), (vec![reduced], "end")] {
        let range = NodeProto::of("Range", &["s", end, "d"], &["y"]);
        let list = ValueInfoProto::tensor("e", code, vec![DimensionProto::symbol("n")]);
        let graph = GraphProto {
            node: [nodes, vec![range]].concat(),
            initializer: constants.clone(),
            input: vec![if end == "e" { scalar("e", code) } else { list }],
            output: vec![value("y")],
            ..GraphProto::default()
        };
        let session = session(&ModelProto::of(graph, 18).to_bytes());
        for (given, want) in ends.iter().zip(want) {
            let given = match end {
                "e" => one(*given),
                // More elements than a tensor may have to decide shapes by itself.
                _ => Tensor::from_elements(Shape::new([20]).expect("small"), &[*given; 20]).expect("as many"),
            };
            let outputs = session.run(&Inputs::new().tensor("e", given)).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(outputs.tensor("y").expect("made").elements::<T>(), Some(want), "{end}");
        }
    }
}

#[test]
fn a_range_ends_where_the_run_says() {
    ranges(data_type::FLOAT, [1.0f32, 2.0], [1.0, 6.5, 7.5], [&[], &[1.0, 3.0, 5.0], &[1.0, 3.0, 5.0, 7.0]]);
    ranges(data_type::DOUBLE, [0.5f64, -0.25], [0.5, 0.0, 0.1], [&[], &[0.5, 0.25], &[0.5, 0.25]]);
    ranges(data_type::INT32, [1i32, 2], [-9, 2, 6], [&[], &[1], &[1, 3, 5]]);
    ranges(
        data_type::INT64,
        [1i64 << 60, 1],
        [0, (1 << 60) + 1, (1 << 60) + 2],
        [&[], &[1 << 60], &[1 << 60, (1 << 60) + 1]],
    );
    // 0.3 as a number of 32 bits is more than three times 0.1: both ONNX Runtime and the definition make four elements.
    ranges(data_type::FLOAT, [0.0f32, 0.1], [0.3, 0.1, 0.0], [&[0.0, 0.1, 0.2, 0.3], &[0.0], &[]]);
}

#[test]
fn regions_of_computed_corners_are_sampled_as_their_sizes_say() {
    let nodes = vec![
        NodeProto::of("Add", &["corners", "corners"], &["twice"]),
        NodeProto::of("RoiAlign", &["x", "twice", "images"], &["regions"]).named("align"),
        NodeProto::of("Neg", &["regions"], &["y"]),
    ];
    let graph = GraphProto {
        node: nodes,
        initializer: vec![number("images", 0)],
        input: vec![ValueInfoProto::f32s("x", &[1, 1, 4, 4]), ValueInfoProto::f32s("corners", &[1, 4])],
        output: vec![value("y")],
        ..GraphProto::default()
    };
    let session = session(&ModelProto::of(graph, 16).to_bytes());
    let run = |corners: [f32; 4]| {
        let x: Vec<f32> = (0..16).map(|at| at as f32).collect();
        let x = Tensor::from_elements(Shape::new([1, 1, 4, 4]).expect("small"), &x).expect("as many");
        let corners = Tensor::from_elements(Shape::new([1, 4]).expect("small"), &corners).expect("as many");
        session.run(&Inputs::new().tensor("x", x).tensor("corners", corners))
    };
    // Points at 0, 1, 2 and 3 along each axis: the mean of all elements; and one point at row 1 and column 2.
    for (corners, want) in [([0.0, 0.0, 2.0, 2.0], -7.5), ([1.0, 0.5, 1.5, 1.0], -6.0)] {
        let outputs = run(corners).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(outputs.tensor("y").expect("made").elements::<f32>(), Some(&[want][..]), "{corners:?}");
    }
    let error = run([0.0, 0.0, 1e9, 1.0]).expect_err("too many points").to_string();
    assert!(error.contains("align") && error.contains("region 0 from (0, 0)"), "{error}");
}
