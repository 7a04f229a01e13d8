//! Inputs that decide shapes by their elements: each set of elements has its own plan, and no plan runs with other
//! elements.

use anabranch::execute::RunOptions;
use anabranch::import::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto, data_type,
};
use anabranch::session::{ErrorKind, Inputs, Session};
use anabranch::{Shape, Tensor};
use anabranch_tests::one_cpu;

fn session(nodes: Vec<NodeProto>, deciding: ValueInfoProto) -> Session {
    let input = vec![ValueInfoProto::f32s("x", &[6]), deciding];
    let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
    let graph = GraphProto { node: nodes, input, output, ..GraphProto::default() };
    Session::from_bytes(&ModelProto::of(graph, 17).to_bytes(), one_cpu()).expect("a sound model")
}

/// Returns a session of `y = r + r`, in which `r` is the input in the given shape.
fn reshaping() -> Session {
    let shape = ValueInfoProto::tensor("shape", data_type::INT64, vec![DimensionProto::known(2)]);
    session(vec![NodeProto::of("Reshape", &["x", "shape"], &["r"]), NodeProto::of("Add", &["r", "r"], &["y"])], shape)
}

fn x() -> Tensor {
    let shape = Shape::new([6]).expect("small");
    Tensor::from_elements(shape, &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).expect("six elements")
}

fn inputs(shape: [i64; 2]) -> Inputs {
    Inputs::new().tensor("x", x()).tensor("shape", Tensor::from_i64s(&shape))
}

#[test]
fn plans_are_made_for_elements_and_kept() {
    let session = reshaping();
    for (dims, plans) in [([2, 3], 1), ([3, 2], 2), ([2, 3], 2), ([-1, 1], 3)] {
        let outputs = session.run(&inputs(dims)).expect("a possible shape");
        let y = outputs.tensor("y").expect("made");
        let rows = if dims[0] < 0 { 6 } else { dims[0] as usize };
        assert_eq!(y.shape().dims(), [rows, 6 / rows]);
        assert_eq!(y.elements::<f32>(), Some(&[0.0, 2.0, 4.0, 6.0, 8.0, 10.0][..]));
        assert_eq!(session.ready_plans(), plans);
    }
    assert!(session.run(&inputs([4, 2])).is_err());
}

#[test]
fn a_plan_refuses_other_elements() {
    let session = reshaping();
    let prepared = session.prepare(&inputs([2, 3])).expect("a possible shape");
    assert!(session.run_prepared(&prepared, &inputs([2, 3]), &RunOptions::default()).is_ok());
    let error = session.run_prepared(&prepared, &inputs([3, 2]), &RunOptions::default()).err().expect("another shape");
    assert_eq!((error.kind(), error.input()), (ErrorKind::Input, Some("shape")));
}

#[test]
fn what_is_missing_or_large_is_refused_by_name() {
    let session = reshaping();
    let error = session.plan(&Inputs::new().tensor("x", x())).err().expect("the shape is not given");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("input 1 (shape) is computed from the model's inputs"), "{error}");
}

#[test]
fn elements_beyond_the_bound_are_not_fixed_once_a_name_is_known() {
    let shape = ValueInfoProto::tensor("shape", data_type::INT64, vec![DimensionProto::symbol("rank")]);
    let session = session(vec![NodeProto::of("Reshape", &["x", "shape"], &["y"])], shape);
    let plan = |dims: &[i64]| session.plan(&Inputs::new().tensor("x", x()).tensor("shape", Tensor::from_i64s(dims)));
    assert!(plan(&[2, 3]).is_ok() && plan(&[1, 6, 1]).is_ok());
    let error = plan(&[1; 257]).err().expect("257 elements");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("input 1 (shape) is computed from the model's inputs"), "{error}");
    assert!(plan(&[3, 2]).is_ok());
}

#[test]
fn callers_at_the_same_time_find_out_together() {
    for _ in 0..8 {
        let session = &reshaping();
        std::thread::scope(|scope| {
            let run = |dims| session.run(&inputs(dims)).map(drop);
            let callers = [[2, 3], [2, 3], [3, 2], [6, 1]].map(|dims| scope.spawn(move || run(dims)));
            for caller in callers {
                caller.join().expect("no panic").expect("a possible shape");
            }
        });
        assert_eq!(session.ready_plans(), 3);
    }
}

#[test]
fn the_branch_that_a_truth_value_chooses_is_run() {
    let output = vec![ValueInfoProto { name: "out".into(), r#type: None }];
    let branch = |operator: &str| GraphProto {
        node: vec![NodeProto::of(operator, &["x"], &["out"])],
        output: output.clone(),
        ..GraphProto::default()
    };
    let node = NodeProto::of("If", &["take"], &["y"])
        .with(AttributeProto::graph("then_branch", &branch("Neg")))
        .with(AttributeProto::graph("else_branch", &branch("Exp")));
    let session = session(vec![node], ValueInfoProto::tensor("take", data_type::BOOL, vec![]));
    for (take, second) in [(1u8, -1.0), (0, 1f32.exp()), (1, -1.0)] {
        let spec = anabranch::TensorSpec::new(anabranch::DType::Bool, Shape::scalar());
        let byte = Tensor::from_elements(Shape::scalar(), &[take]).expect("one element");
        let take = Tensor::new(spec, byte.buffer().clone()).expect("one byte");
        let outputs = session.run(&Inputs::new().tensor("x", x()).tensor("take", take)).expect("a known branch");
        let found = outputs.tensor("y").expect("made").elements::<f32>().expect("floats")[1];
        assert!((found - second).abs() < 1e-6, "{found} and {second}");
    }
    assert_eq!(session.ready_plans(), 2);
}
