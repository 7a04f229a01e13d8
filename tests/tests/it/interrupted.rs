//! Planning ends at any look after its end is wanted: by a run's token and clock, and by what its thread is told to
//! look at.

use anabranch::device::{CpuGranularity, DetectOptions};
use anabranch::execute::CancelToken;
use anabranch::import::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use anabranch::interruption::{Interrupt, is_due, under};
use anabranch::session::{ErrorKind, SessionError};
use anabranch::{Inputs, RunOptions, Session, SessionConfig, Strategy};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Looks that may follow the one that ends the work: each function on the way back may look once more.
const AFTER: usize = 60;

/// Layers with a shortcut around each, of rows that can stream.
fn layers(count: usize) -> ModelProto {
    let mut graph = GraphProto {
        initializer: vec![TensorProto::f32s("w", &[8, 8], &[0.1; 64])],
        input: vec![ValueInfoProto::f32s("x0", &[32, 8])],
        output: vec![ValueInfoProto::f32s(&format!("x{count}"), &[32, 8])],
        ..GraphProto::default()
    };
    for at in 0..count {
        let [x, product, active] = ["x", "p", "a"].map(|name| format!("{name}{at}"));
        let next = format!("x{}", at + 1);
        graph.node.extend([
            NodeProto::of("MatMul", &[&x, "w"], &[&product]),
            NodeProto::of("Erf", &[&product], &[&active]),
            NodeProto::of("Add", &[&active, &x], &[&next]),
        ]);
    }
    ModelProto::of(graph, 17)
}

fn options(strategy: Strategy) -> SessionConfig {
    let devices = DetectOptions::default().with_cpu_granularity(CpuGranularity::Core).without_gpu();
    SessionConfig::default().with_devices(devices).with_strategy(strategy)
}

fn session(layers_count: usize, strategy: Strategy) -> (Session, Inputs) {
    let session = Session::from_bytes(&layers(layers_count).to_bytes(), options(strategy)).expect("a sound model");
    let inputs = session.fill_random(Inputs::new(), 0).expect("known shapes");
    (session, inputs)
}

/// Counts looks, and calls `at` with the number of each, which says whether the work is to end.
fn counted(at: impl Fn(usize) -> bool + Send + Sync + 'static) -> (Interrupt, Arc<AtomicUsize>) {
    let looks = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&looks);
    (Arc::new(move || at(counter.fetch_add(1, Ordering::Relaxed))), looks)
}

#[test]
fn planning_ends_soon_after_any_look() {
    for (count, strategy, parts) in [(12, Strategy::HEFT, 12), (3, Strategy::AUTO, 6)] {
        let (whole, inputs) = session(count, strategy.clone());
        let (never, looks) = counted(|_| false);
        under(Some(never), || whole.prepare(&inputs)).expect("nothing stops it");
        let all = looks.load(Ordering::Relaxed);
        // The lowering looks once for each of the three nodes of a layer, and planning for what is left of them.
        assert!(all > 4 * count, "{all} looks");
        for end in (0..parts).map(|part| part * all / parts).chain([all - 1]) {
            let (session, _) = session(count, strategy.clone());
            let (soon, looks) = counted(move |look| look >= end);
            let planned = under(Some(soon), || session.prepare(&inputs));
            let looks = looks.load(Ordering::Relaxed);
            match planned.err() {
                Some(error) => assert_eq!(error.kind(), ErrorKind::Cancelled, "at {end} of {all}: {error}"),
                // Measured times choose among plans, so that a session may look less often than another.
                None => assert!(looks <= end, "{looks} looks, and it went on after {end} of {all}"),
            }
            assert!(looks <= end + AFTER, "{looks} looks, with the end at {end} of {all}");
            assert!(!is_due());
            // Nothing that was left half done is kept.
            assert_eq!(session.run(&inputs).expect("it is planned again").iter().count(), 1);
        }
    }
}

#[test]
fn every_way_to_a_plan_is_cancelled_at_any_look() {
    let (session, inputs) = session(3, Strategy::HEFT);
    let choice = session.choice();
    let planned = session.plan_with(&inputs, &choice).expect("it fits");
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("m.anabranch");
    session.compile(&inputs, &file, "").expect("one phase");
    let compiled = Session::open(&file, options(Strategy::HEFT)).expect("just written");
    let uncalibrated = options(Strategy::HEFT).with_calibration(true);
    let uncalibrated = Session::from_bytes(&layers(3).to_bytes(), uncalibrated).expect("a sound model");
    uncalibrated.check(&inputs).expect("it is lowered");
    type Way<'a> = &'a dyn Fn() -> Result<(), SessionError>;
    // To calibrate takes long: its first looks have to do.
    let ways: [(&str, Option<usize>, Way<'_>); 4] = [
        ("plan", None, &|| session.plan_with(&inputs, &choice).map(drop)),
        ("predict", None, &|| session.predict(&inputs, &planned, &choice.plan).map(drop)),
        ("restore", None, &|| compiled.plan(&inputs).map(drop)),
        ("calibrate", Some(3), &|| uncalibrated.plan_with(&inputs, &choice).map(drop)),
    ];
    for (name, known, way) in ways {
        let all = known.unwrap_or_else(|| {
            let (never, looks) = counted(|_| false);
            under(Some(never), way).expect(name);
            looks.load(Ordering::Relaxed)
        });
        assert!(all > 0, "{name} never looks");
        for end in (0..all).step_by(all.div_ceil(12)).chain([all - 1]) {
            let (soon, _) = counted(move |look| look >= end);
            let error = under(Some(soon), way).expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{name} at {end} of {all}: {error}");
        }
    }
}

#[test]
fn planning_hears_of_its_runs_token_and_clock() {
    let (session, inputs) = session(20, Strategy::HEFT);
    let token = CancelToken::new();
    let cancel = token.clone();
    let (cancels, looks) = counted(move |look| {
        if look == 30 {
            cancel.cancel();
        }
        false
    });
    let options = RunOptions::default().with_cancel(token);
    let error = under(Some(cancels), || session.prepare_with(&inputs, &options)).err().expect("it is cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    assert!((30..30 + AFTER).contains(&looks.load(Ordering::Relaxed)));
    let late = session.prepare_with(&inputs, &RunOptions::default().with_timeout(Duration::ZERO));
    assert_eq!(late.err().expect("there is no time").kind(), ErrorKind::Timeout);
    session.run(&inputs).expect("another has all the time");
}
