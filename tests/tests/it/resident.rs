//! Inputs and outputs that stay on a device between runs give the same results as host tensors, and are not
//! transferred.

use anabranch::import::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use anabranch::plan::HOST;
use anabranch::{ErrorKind, Inputs, Session, SessionConfig, Shape, Tensor};
use anabranch_tests::{one_cpu, options};

const WIDTH: usize = 16;

/// Returns a model of `state' = relu(state · W + x)`, and of `-state'` for the host.
fn model() -> Vec<u8> {
    let width = WIDTH as i64;
    let weights: Vec<f32> = (0..WIDTH * WIDTH).map(|at| ((at * 7) % 13) as f32 * 0.02 - 0.1).collect();
    let graph = GraphProto {
        node: vec![
            NodeProto::of("MatMul", &["state", "W"], &["product"]),
            NodeProto::of("Add", &["product", "x"], &["sum"]),
            NodeProto::of("Relu", &["sum"], &["next"]),
            NodeProto::of("Neg", &["next"], &["y"]),
        ],
        input: vec![ValueInfoProto::f32s("state", &[1, width]), ValueInfoProto::f32s("x", &[1, width])],
        output: vec![ValueInfoProto::f32s("next", &[1, width]), ValueInfoProto::f32s("y", &[1, width])],
        initializer: vec![TensorProto::f32s("W", &[width, width], &weights)],
        ..GraphProto::default()
    };
    ModelProto::of(graph, 17).to_bytes()
}

fn tensor(element: impl Fn(usize) -> f32) -> Tensor {
    let elements: Vec<f32> = (0..WIDTH).map(element).collect();
    Tensor::from_elements(Shape::new([1, WIDTH]).expect("small"), &elements).expect("one for each")
}

fn session(options: SessionConfig) -> Session {
    Session::from_bytes(&model(), options).expect("a sound model")
}

/// Returns the state after five steps, and the last `y`. The state stays on `device`, or on the host.
fn five_steps(session: &Session, device: &str) -> [Tensor; 2] {
    let first = tensor(|at| at as f32 * 0.1);
    let mut state = session.upload(device, &first).expect("the device is there");
    let mut y = first;
    for step in 0..5 {
        let x = tensor(|at| ((at + step) % 3) as f32 - 0.5);
        let outputs = session.run(&Inputs::new().device_tensor("state", state).tensor("x", x)).expect("runs");
        state = outputs.device_tensor("next").expect("an output");
        y = outputs.tensor("y").expect("an output on the host").clone();
    }
    [state.read().expect("the device is there"), y]
}

/// Returns options with all nodes on the GPU.
fn on_gpu() -> SessionConfig {
    options("gpu0")
}

#[test]
fn a_state_stays_on_the_gpu() {
    let host = session(on_gpu());
    let expected = five_steps(&host, "cpu0");
    let session = session(on_gpu().with_resident("state", "gpu0").with_resident("next", "gpu0"));
    let inputs = Inputs::new().tensor("state", tensor(|_| 0.0)).tensor("x", tensor(|_| 0.0));
    let prepared = session.prepare(&inputs).expect("is planned");
    let (plan, program) = (prepared.plan(), &prepared.program);
    let travels = |name: &str| plan.transfers().iter().any(|transfer| program.value(transfer.value).name == name);
    assert_eq!([travels("state"), travels("next"), travels("x"), travels("y")], [false, false, true, true]);
    assert!(plan.input_device(0) != HOST && plan.input_device(1) == HOST);
    let given = five_steps(&session, "gpu0");
    assert!(given.iter().zip(&expected).all(|(given, expected)| given.same_bits(expected)));
    assert_eq!(session.ready_plans(), 1, "a tensor of the host has the same plan");
    let outputs = session.run(&inputs).expect("the state is uploaded");
    let text = outputs.tensor("next").expect_err("it is on the GPU").to_string();
    assert!(text.contains("`next` stays on gpu0"), "{text}");
    assert_eq!(outputs.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["y"]);
    let state = outputs.device_tensor("next").expect("an output");
    let error = host.run(&inputs.device_tensor("state", state)).expect_err("it is read on the host");
    assert_eq!((error.kind(), error.input()), (ErrorKind::Input, Some("state")));
}

#[test]
fn the_same_calls_work_without_a_gpu() {
    let resident = session(one_cpu().with_resident("state", "cpu0").with_resident("next", "cpu0"));
    let (given, expected) = (five_steps(&resident, "cpu0"), five_steps(&session(one_cpu()), "cpu0"));
    assert!(given.iter().zip(&expected).all(|(given, expected)| given.same_bits(expected)));
}

#[test]
fn what_is_not_there_is_named() {
    let inputs = Inputs::new().tensor("state", tensor(|_| 0.0)).tensor("x", tensor(|_| 0.0));
    for (name, device, known) in [("stat", "gpu0", "state, x, next, y"), ("state", "gpu7", "cpu0")] {
        let error = session(on_gpu().with_resident(name, device)).run(&inputs).expect_err("it must be refused");
        assert_eq!(error.kind(), ErrorKind::Constraint);
        assert!(error.to_string().contains(known), "{error}");
    }
    let error = session(on_gpu()).upload("gpu7", &tensor(|_| 0.0)).expect_err("no such device");
    assert_eq!(error.kind(), ErrorKind::Device);
}
