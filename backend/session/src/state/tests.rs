use super::*;
use crate::SessionConfig;
use anabranch_device::DetectOptions;
use anabranch_kernels::{DType, Shape, TensorSpec};
use anabranch_onnx::import::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto, data_type,
};
use anabranch_planning::{Constraints, Planned, Strategy};
use std::collections::BTreeSet;

fn grown(name: &str, length: &str) -> ValueInfoProto {
    ValueInfoProto::tensor(name, data_type::FLOAT, vec![DimensionProto::known(1), DimensionProto::symbol(length)])
}

/// `present = past ++ x` along the second axis, and `sum_out = sum_in + x`.
fn session() -> Session {
    let concat = NodeProto::of("Concat", &["past_key_values.0", "x"], &["present.0"]);
    let graph = GraphProto {
        node: vec![
            concat.with(AttributeProto::int("axis", 1)),
            NodeProto::of("Add", &["sum_in", "x"], &["sum_out"]),
            NodeProto::of("Neg", &["x"], &["y"]),
        ],
        input: vec![
            grown("past_key_values.0", "past"),
            ValueInfoProto::f32s("sum_in", &[1, 2]),
            ValueInfoProto::f32s("x", &[1, 2]),
        ],
        output: vec![
            ValueInfoProto::f32s("y", &[1, 2]),
            grown("present.0", "total"),
            ValueInfoProto::f32s("sum_out", &[1, 2]),
        ],
        ..GraphProto::default()
    };
    let options = SessionConfig::default().without_gpu();
    Session::from_bytes(&ModelProto::of(graph, 17).to_bytes(), options).expect("a model")
}

fn x(values: [f32; 2]) -> Inputs {
    Inputs::new().tensor("x", Tensor::from_elements(Shape::new([1, 2]).expect("small"), &values).expect("two"))
}

fn elements(state: &State, name: &str) -> Vec<f32> {
    state.tensors().expect("on the host")[name].elements::<f32>().expect("f32").to_vec()
}

#[test]
fn the_state_is_found_by_names_and_types() {
    let pair = |output: &str, input: &str, growing| StatePair { output: output.into(), input: input.into(), growing };
    let found = [pair("present.0", "past_key_values.0", Some(1)), pair("sum_out", "sum_in", None)];
    assert_eq!(session().found_state(), found);
    let named = session().state_pairs(&[("present.*", "past_key_values.*"), ("sum_out", "sum_in")]).expect("both");
    assert_eq!(named, found);
}

#[test]
fn a_state_of_given_tensors_is_gone_on_with_and_an_incomplete_one_is_an_error() {
    let mut model = session().stateful(&[]).expect("a state");
    let value =
        |values: &[f32]| Tensor::from_elements(Shape::new([1, values.len()]).expect("small"), values).expect("as many");
    let past = ("past_key_values.0".to_owned(), value(&[7.0, 8.0, 9.0]));
    model.restore(&State::new([past.clone(), ("sum_in".to_owned(), value(&[1.0, 2.0]))].into()));
    model.run(&x([3.0, 4.0])).expect("runs");
    let state = model.snapshot();
    assert_eq!(elements(&state, "past_key_values.0"), [7.0, 8.0, 9.0, 3.0, 4.0]);
    assert_eq!(elements(&state, "sum_in"), [4.0, 6.0]);
    model.restore(&State::new([past].into()));
    let error = model.run(&x([3.0, 4.0])).map(drop).expect_err("a value is missing").to_string();
    assert!(error.contains("sum_in") && !error.contains('\n') && !model.is_begun(), "{error}");
}

#[test]
fn what_cannot_be_bound_is_refused_by_name() {
    for (feeds, parts) in [
        (&[("presnet.0", "past_key_values.0")][..], &["no output `presnet.0`", "did you mean `present.0`?"][..]),
        (&[("present.*", "past.*")], &["no input `past.0`", "for output `present.0`"]),
        (&[("y", "past_key_values.0"), ("present.0", "past_key_values.0")], &["`y` and `present.0`", "both bound"]),
        (&[("y", "sum_in"), ("sum_out", "sum_in")], &["`y` and `sum_out`", "`sum_in`"]),
    ] {
        let error = session().stateful(feeds).err().expect("not bound").to_string();
        assert!(parts.iter().all(|part| error.contains(part)) && !error.contains('\n'), "{error}");
    }
    let narrow = GraphProto {
        node: vec![NodeProto::of("Neg", &["a"], &["b"]), NodeProto::of("Neg", &["c"], &["d"])],
        input: vec![ValueInfoProto::f32s("a", &[2]), ValueInfoProto::f32s("c", &[3])],
        output: vec![ValueInfoProto::f32s("b", &[2]), ValueInfoProto::f32s("d", &[3])],
        ..GraphProto::default()
    };
    let model = ModelProto::of(narrow, 17).to_bytes();
    let open = || Session::from_bytes(&model, SessionConfig::default()).expect("a model");
    let error = open().stateful(&[("b", "c")]).err().expect("other sizes").to_string();
    assert!(error.contains("b: f32[2]") && error.contains("c: f32[3]"), "{error}");
    let error = open().stateful(&[]).err().expect("no known names").to_string();
    assert!(error.contains("present.*"), "{error}");
}

#[test]
fn outputs_are_the_next_inputs_until_a_reset() {
    let mut state = session().stateful(&[]).expect("state");
    for step in 0..3 {
        let outputs = state.run(&x([1.0, step as f32])).expect("runs");
        assert_eq!(outputs.tensor("y").expect("y").elements::<f32>(), Some(&[-1.0, -(step as f32)][..]));
    }
    let after = state.snapshot();
    assert_eq!(elements(&after, "past_key_values.0"), [1.0, 0.0, 1.0, 1.0, 1.0, 2.0]);
    assert_eq!(elements(&after, "sum_in"), [3.0, 3.0]);
    assert_eq!((state.runs(), state.bytes()), (3, 32));
    state.run(&x([5.0, 5.0])).expect("runs");
    assert_eq!(elements(&after, "sum_in"), [3.0, 3.0], "a snapshot stays as it was");
    state.restore(&after);
    state.run(&x([1.0, 1.0])).expect("runs");
    assert_eq!(elements(&state.snapshot(), "sum_in"), [4.0, 4.0]);
    state.reset();
    assert_eq!(state.snapshot().tensors().expect("none").len(), 0);
    state.run(&x([1.0, 1.0])).expect("runs");
    assert_eq!(elements(&state.snapshot(), "past_key_values.0"), [1.0, 1.0]);
}

#[test]
fn a_given_state_is_where_it_begins_and_a_failed_run_leaves_it() {
    let mut state = session().stateful(&[]).expect("state");
    let sum = Tensor::from_elements(Shape::new([1, 2]).expect("small"), &[7f32, 8.0]).expect("two");
    state.run(&x([1.0, 1.0]).tensor("sum_in", sum)).expect("runs");
    assert_eq!(elements(&state.snapshot(), "sum_in"), [8.0, 9.0]);
    let wrong = Tensor::from_elements(Shape::new([1, 3]).expect("small"), &[0f32; 3]).expect("three");
    state.run(&Inputs::new().tensor("x", wrong)).map(drop).expect_err("another shape");
    assert_eq!(elements(&state.snapshot(), "sum_in"), [8.0, 9.0]);
    state.run(&x([1.0, 1.0])).expect("runs again");
    assert_eq!(elements(&state.snapshot(), "sum_in"), [9.0, 10.0]);
}

#[test]
fn a_state_of_one_size_lives_in_two_buffers_and_its_plan_is_made_once() {
    let mut state = session().stateful(&[("sum_out", "sum_in")]).expect("state");
    let past = Tensor::from_elements(Shape::new([1, 0]).expect("small"), &[0f32; 0]).expect("none");
    let inputs = x([1.0, 0.5]).tensor("past_key_values.0", past);
    let mut places = BTreeSet::new();
    for _ in 0..100 {
        state.run(&inputs).expect("runs");
        let made = state.outputs().tensor("sum_out").expect("there").bytes().as_ptr();
        let kept = state.snapshot().tensors().expect("on the host")["sum_in"].bytes().as_ptr();
        assert_eq!(made, kept, "the state is moved");
        places.insert(made);
    }
    assert_eq!(elements(&state.snapshot(), "sum_in"), [100.0, 50.0]);
    assert!(places.len() <= 3, "{} buffers for one state", places.len());
    assert_eq!(state.session().plans_made(), 1);
}

#[test]
fn a_longer_state_keeps_what_it_has_in_front() {
    let mut state = session().stateful(&[]).expect("state");
    state.run(&x([1.0, 2.0])).expect("runs");
    state.resize(&Inputs::new(), 4).expect("longer");
    assert_eq!(elements(&state.snapshot(), "past_key_values.0"), [1.0, 2.0, 0.0, 0.0]);
    state.align(3, 1).expect("shorter");
    assert_eq!(elements(&state.snapshot(), "past_key_values.0"), [0.0; 3]);
    state.resize(&Inputs::new(), 4).expect("longer");
    let error = state.resize(&Inputs::new(), 3).expect_err("shorter").to_string();
    assert!(error.contains("past_key_values.0"), "{error}");
}

#[test]
fn a_padded_state_has_one_plan_and_stays_in_its_memory() {
    let mut state = session().stateful(&[]).expect("state");
    state.run(&x([-1.0, 0.0])).expect("runs");
    let mut places = BTreeSet::new();
    for step in 0..20 {
        state.align(40, 2 * (step + 1)).expect("aligned");
        places.insert(state.snapshot().tensors().expect("on the host")["past_key_values.0"].bytes().as_ptr());
        state.run(&x([step as f32, 0.0])).expect("runs");
        places.insert(state.outputs().tensor("present.0").expect("made").bytes().as_ptr());
    }
    assert_eq!((places.len(), state.session().plans_made()), (2, 2), "buffers and plans");
    state.align(42, 42).expect("as it is");
    let first = (-1..20).flat_map(|step| [step as f32, 0.0]);
    assert_eq!(elements(&state.snapshot(), "past_key_values.0"), first.collect::<Vec<_>>());
    let error = state.align(3, 4).expect_err("shorter").to_string();
    assert!(error.contains("past_key_values.0") && error.contains("a size of 3"), "{error}");
}

#[test]
fn a_state_stays_on_the_gpu_that_makes_it() {
    let graph = GraphProto {
        node: vec![NodeProto::of("Add", &["sum_in", "x"], &["sum_out"]), NodeProto::of("Neg", &["sum_out"], &["y"])],
        input: vec![ValueInfoProto::f32s("sum_in", &[1, 2]), ValueInfoProto::f32s("x", &[1, 2])],
        output: vec![ValueInfoProto::f32s("y", &[1, 2]), ValueInfoProto::f32s("sum_out", &[1, 2])],
        ..GraphProto::default()
    };
    let devices = DetectOptions { software_gpu: true, ..DetectOptions::default() };
    let options = SessionConfig::default().with_devices(devices).with_strategy(Strategy::GPU);
    let session = Session::from_bytes(&ModelProto::of(graph, 17).to_bytes(), options).expect("a model");
    let mut state = session.stateful(&[]).expect("state");
    for step in 0..4 {
        let outputs = state.run(&x([1.0, step as f32])).expect("runs");
        let sums = [-(step as f32 + 1.0), -(0..=step).sum::<i32>() as f32];
        assert_eq!(outputs.tensor("y").expect("on the host").elements::<f32>(), Some(&sums[..]));
    }
    assert!(state.is_on_gpu() && state.outputs().tensor("sum_out").is_err());
    let after = state.snapshot();
    assert_eq!((elements(&after, "sum_in"), state.session().plans_made()), (vec![4.0, 6.0], 1));
    state.run(&x([1.0, 1.0])).expect("runs");
    assert_eq!(elements(&after, "sum_in"), [4.0, 6.0], "a snapshot stays as it was");
    state.restore(&after);
    state.run(&x([2.0, 1.0])).expect("runs");
    assert_eq!(elements(&state.snapshot(), "sum_in"), [6.0, 7.0]);
}

const CAPACITY: usize = 8;

/// `present = past with x at index`, and `y = −present`.
fn cached() -> Session {
    cached_of(CAPACITY)
}

fn cached_of(capacity: usize) -> Session {
    let cache = |name: &str| ValueInfoProto::f32s(name, &[1, capacity as i64, 2]);
    let index = ValueInfoProto::tensor("index", data_type::INT64, vec![DimensionProto::known(1)]);
    let graph = GraphProto {
        node: vec![
            NodeProto::of("TensorScatter", &["past", "x", "index"], &["present"]),
            NodeProto::of("Neg", &["present"], &["y"]),
        ],
        input: vec![cache("past"), ValueInfoProto::f32s("x", &[1, 1, 2]), index],
        output: vec![cache("y"), cache("present")],
        ..GraphProto::default()
    };
    let options = SessionConfig::default().without_gpu();
    Session::from_bytes(&ModelProto::of(graph, 24).to_bytes(), options).expect("a model")
}

fn at(index: i64) -> Inputs {
    let x = Tensor::from_elements(Shape::new([1, 1, 2]).expect("small"), &[index as f32 + 1.0; 2]).expect("two");
    Inputs::new().tensor("x", x).tensor("index", Tensor::from_i64s(&[index]))
}

/// Each position twice, 0 where nothing was written.
fn held(stateful: &Stateful) -> Vec<f32> {
    let outputs = stateful.outputs();
    let (present, y) = (outputs.tensor("present").expect("made"), outputs.tensor("y").expect("made"));
    let present = present.elements::<f32>().expect("floats");
    assert!(present.iter().zip(y.elements::<f32>().expect("floats")).all(|(present, y)| *present == -y));
    present.iter().step_by(2).copied().collect()
}

#[test]
fn a_cache_is_written_where_it_lies_and_a_failed_step_loses_nothing() {
    let mut stateful = cached().stateful(&[("present", "past")]).expect("bound");
    let place = |stateful: &Stateful| stateful.outputs().tensor("present").expect("made").bytes().as_ptr();
    stateful.run(&at(0)).expect("runs");
    let own = place(&stateful);
    for index in 1..4 {
        stateful.run(&at(index)).expect("runs");
        assert_eq!(place(&stateful), own, "step {index}");
    }
    let (kept, want) = (stateful.snapshot(), [1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(held(&stateful), want);
    let error = stateful.run(&at(CAPACITY as i64)).expect_err("beyond the capacity").to_string();
    assert!(error.contains("write_indices is 8") && error.contains("from 0 to 7"), "{error}");
    let snapshot = |state: &State| {
        let tensor = state.tensors().expect("on the host").remove("past").expect("the cache");
        tensor.elements::<f32>().expect("floats").iter().step_by(2).copied().collect::<Vec<_>>()
    };
    assert_eq!(snapshot(&stateful.snapshot()), want);
    stateful.run(&at(4)).expect("goes on");
    assert_eq!(held(&stateful), [1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0, 0.0]);
    assert_eq!(snapshot(&kept), want, "a snapshot stays as it is");
}

#[test]
fn an_append_in_place_is_predicted_to_cost_its_new_positions() {
    let times = [CAPACITY, 1 << 18].map(|capacity| {
        let stateful = cached_of(capacity).stateful(&[("present", "past")]).expect("bound");
        let predicted = |planned: &Planned| {
            let nodes = || planned.program.node_ids();
            let append = nodes().find(|node| planned.program.node(*node).spec.in_place().is_some()).expect("there");
            let (start, end) = planned.plan().predicted().nodes[append.index()];
            end - start
        };
        let copied = stateful.forecast_under(&at(0), None, &Constraints::default()).expect("a plan");
        [predicted(&stateful.forecast(&at(0), None, false).expect("a plan").0), predicted(&copied)]
    });
    let [[small, _], [large, copied]] = times;
    assert!((small / large - 1.0).abs() < 1e-6, "{times:?}");
    assert!(copied > 10.0 * large, "{times:?}");
}

#[test]
fn plans_of_runs_without_state_do_not_predict_steps() {
    let session = cached_of(1 << 18);
    let past = TensorSpec::new(DType::F32, Shape::new([1, 1 << 18, 2]).expect("small"));
    let inputs = at(0).tensor("past", Tensor::zeroed(past));
    session.run(&inputs).expect("copies the cache");
    let copied = session.plan(&inputs).expect("a plan").plan().predicted().makespan;
    let mut state = session.stateful(&[("present", "past")]).expect("bound");
    state.run(&at(0)).expect("runs");
    let step = state.predicted().expect("not in phases").makespan;
    assert!(step < 0.8 * copied, "{step} {copied}");
}

#[test]
fn inputs_of_a_run_that_fails_are_not_kept() {
    let mut state = session().stateful(&[]).expect("a state");
    state.run(&x([1.0, 2.0])).expect("a run");
    let typo =
        Inputs::new().tensor("sum", Tensor::from_elements(Shape::new([1]).expect("small"), &[1f32]).expect("one"));
    state.run(&typo).map(drop).expect_err("no such input");
    let wrong = Tensor::from_elements(Shape::new([3]).expect("small"), &[9f32; 3]).expect("three");
    let other = Tensor::from_elements(Shape::new([1, 2]).expect("small"), &[7f32; 2]).expect("two");
    state.run(&Inputs::new().tensor("sum_in", other).tensor("x", wrong)).map(drop).expect_err("another shape");
    assert_eq!(elements(&state.snapshot(), "sum_in"), [1.0, 2.0]);
    state.run(&Inputs::new()).expect("the last inputs again");
    assert_eq!(elements(&state.snapshot(), "sum_in"), [2.0, 4.0]);
}

#[test]
fn a_reset_keeps_other_inputs_and_a_clear_does_not() {
    let mut state = session().stateful(&[]).expect("a state");
    state.run(&x([1.0, 2.0])).expect("a run");
    state.reset();
    state.run(&Inputs::new()).expect("`x` as before");
    assert_eq!(elements(&state.snapshot(), "sum_in"), [1.0, 2.0]);
    state.clear();
    let error = state.run(&Inputs::new()).map(drop).expect_err("nothing is given").to_string();
    assert!(error.contains("`x`"), "{error}");
    state.run(&x([3.0, 4.0])).expect("the first run again");
    assert_eq!(elements(&state.snapshot(), "sum_in"), [3.0, 4.0]);
}

#[test]
fn a_resize_that_fails_begins_no_state() {
    let mut state = session().stateful(&[]).expect("a state");
    state.resize(&Inputs::new(), 1 << 62).expect_err("too large");
    assert_eq!(state.snapshot().tensors().expect("none").len(), 0);
    state.run(&x([1.0, 1.0])).expect("runs");
    assert_eq!(elements(&state.snapshot(), "past_key_values.0"), [1.0, 1.0]);
}

#[test]
fn a_state_that_a_failed_run_has_lost_is_named_and_forgotten_whole() {
    let mut state = session().stateful(&[]).expect("a state");
    state.run(&x([1.0, 2.0])).expect("a run");
    // As after a panic in the node that appends to it.
    state.inputs.forget(|name| name == "sum_in");
    let error = state.run(&x([1.0, 2.0])).map(drop).expect_err("nothing to go on with").to_string();
    assert!(error.contains("state `sum_in` was lost") && !error.contains('\n'), "{error}");
    assert_eq!(state.snapshot().tensors().expect("none").len(), 0);
    state.run(&x([1.0, 2.0])).expect("the first run again");
    assert_eq!(elements(&state.snapshot(), "sum_in"), [1.0, 2.0]);
}
