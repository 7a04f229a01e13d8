//! Planning ends wherever nobody wants the plan any more: by a run's token and clock, and by what its thread is told to
//! look at.

use anabranch::device::{CpuGranularity, DetectOptions};
use anabranch::execute::CancelToken;
use anabranch::import::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use anabranch::interruption::{Interrupt, under};
use anabranch::session::ErrorKind;
use anabranch::{Inputs, RunOptions, Session, SessionOptions, Strategy};
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

fn session(layers_count: usize, strategy: Strategy) -> (Session, Inputs) {
    let devices = DetectOptions::default().with_cpu_granularity(CpuGranularity::Core).without_gpu();
    let options = SessionOptions::default().with_devices(devices).with_strategy(strategy);
    let session = Session::from_bytes(&layers(layers_count).to_bytes(), options).expect("a sound model");
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
