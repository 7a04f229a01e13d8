//! For any state of a cost store, predictions stay sane and no measurement is lost.

use anabranch::costs::{CostSource, CostStore, MachineCosts, NodeCost, Predictor, Sample};
use anabranch::device::{CpuGranularity, DetectOptions, detect};
use anabranch::execute::RunOptions;
use anabranch::session::{Inputs, Session, SessionConfig};
use anabranch_kernels::op::{Domain, Expression, Map, NodeSpec, Op, Unary};
use anabranch_kernels::{DType, Shape, TensorSpec};
use std::path::Path;

const DEVICE: &str = "cpu | a processor";

fn relu(elements: usize) -> NodeSpec {
    let spec = TensorSpec::new(DType::F32, Shape::new(vec![elements]).expect("small"));
    let op = Op::Map(Map { domain: Domain::F32, expression: Expression::unary(Unary::Relu) });
    NodeSpec { op, inputs: vec![spec.clone()], outputs: vec![spec] }
}

fn record(costs: &mut MachineCosts, elements: usize, nanoseconds: f64, cold: bool) -> bool {
    costs.record(DEVICE, &relu(elements), Sample { nanoseconds, cold, at: 7 })
}

fn predict(costs: &MachineCosts, elements: usize) -> NodeCost {
    Predictor::new(costs.devices.get(DEVICE)).predict(&relu(elements))
}

#[test]
fn predictions_stay_sane_whatever_is_measured() {
    let mut costs = MachineCosts::default();
    assert!(record(&mut costs, 64, 5e7, true), "a cold start is kept apart");
    for _ in 0..10 {
        assert!(record(&mut costs, 64, 1000.0, false));
    }
    for none in [0.0, -0.0, -5.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(!record(&mut costs, 64, none, false), "{none} is no time");
    }
    for spike in [1e11, 1000.0, 1e9, 1000.0] {
        assert!(record(&mut costs, 64, spike, false));
        let cost = predict(&costs, 64);
        assert!((cost.seconds - 1e-6).abs() < 1e-15, "a spike of {spike} ns: {cost:?}");
        assert!(
            matches!(cost.source, CostSource::Measured { .. }) && cost.uncertainty.is_some_and(|factor| factor <= 2.0)
        );
    }
    for _ in 0..4 {
        record(&mut costs, 64, 3000.0, false);
    }
    assert!((predict(&costs, 64).seconds - 3e-6).abs() < 1e-15, "a lasting change is followed");
    let history = costs.node(DEVICE, &relu(64).key()).expect("recorded");
    assert_eq!((history.count + history.faded, history.cold.count), (18, 1), "every sample is counted");
    for elements in [1, 32, 128, 1 << 20] {
        let cost = predict(&costs, elements);
        assert!(
            cost.seconds > 0.0 && cost.seconds < 10.0 && cost.source == CostSource::Scaled { nodes: 1 },
            "{cost:?}"
        );
    }
}

/// Writes a file with one node, of the machine `fingerprint`.
fn store_file(directory: &Path, fingerprint: &str) -> std::path::PathBuf {
    let mut store = CostStore::default();
    store.settle(fingerprint);
    for _ in 0..3 {
        record(store.here_mut(), 64, 1000.0, false);
    }
    let path = directory.join("costs.json");
    store.save(&path).expect("writable");
    path
}

#[test]
fn a_store_carried_to_this_machine_is_kept_named_and_not_used() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = store_file(directory.path(), "another machine");
    let options = SessionConfig::default()
        .without_gpu()
        .with_costs(CostStore::load(&path).expect("readable").store)
        .with_dim("batch", 2);
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/mlp.onnx");
    let session = Session::open(model, options).expect("a model");
    let notes = &session.inventory().notes;
    assert!(notes.iter().any(|note| note.contains("another machine") && note.contains("not used")), "{notes:?}");

    let inputs = session.fill_random(Inputs::new(), 0).expect("known shapes");
    let profiled = RunOptions::default().with_profile(true);
    let run = session.run_with(&inputs, &profiled).expect("runs");
    let assumed = |cost: &NodeCost| cost.source == CostSource::Assumed;
    assert!(run.prepared.placed.costs.iter().flatten().flatten().all(assumed), "nothing foreign was predicted from");
    assert!(run.cold && session.learn(&run).cold);
    let warm = session.run_with(&inputs, &profiled).expect("runs");
    assert!(!warm.cold && session.learn(&warm).nodes > 0);

    session.save_costs(&path).expect("writable");
    let mut home = CostStore::load(&path).expect("readable").store;
    home.settle("another machine");
    assert_eq!(predict(home.here(), 64).source, CostSource::Measured { samples: 3 });
    let here = detect(&DetectOptions::default().without_gpu()).expect("no device is named");
    assert!(home.others().any(|machine| machine == here.fingerprint()), "what was learned here is kept, too");
}

#[test]
fn what_was_learned_is_used_when_the_session_plans_anew() {
    let devices = DetectOptions::default().without_gpu().with_cpu_granularity(CpuGranularity::Machine);
    let options = SessionConfig::default().with_devices(devices).with_dim("batch", 2);
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/mlp.onnx");
    let session = Session::open(model, options).expect("a model");
    let inputs = session.fill_random(Inputs::new(), 0).expect("known shapes");
    let profiled = RunOptions::default().with_profile(true);
    for _ in 0..4 {
        session.learn(&session.run_with(&inputs, &profiled).expect("runs"));
    }
    let before = session.run_with(&inputs, &profiled).expect("runs");
    let planned = session.plan_with(&inputs, &session.choice()).expect("a plan");
    let prepared = session.ready(&planned).expect("ready");
    let after = session.run_prepared(&prepared, &inputs, &profiled).expect("runs");
    let measured = |run: &anabranch::session::Run| {
        let nodes = run.accuracy().nodes;
        nodes.iter().filter(|node| node.cost.is_some_and(|c| matches!(c.source, CostSource::Measured { .. }))).count()
    };
    assert_eq!(measured(&before), 0);
    assert!(measured(&after) > 0 && after.cold);
    let accuracy = after.accuracy();
    assert!(accuracy.makespan.predicted > 0.0 && accuracy.node_error().is_some());
    let sum: f64 = accuracy.nodes.iter().map(|node| node.time.predicted).sum();
    assert!(accuracy.makespan.predicted >= sum * (1.0 - 1e-9), "one device does one node after the other");
}
