//! Measurements and predictions of a model in phases cover the whole run: all its plans, and the host between them.

use anabranch::compare::{CompareOptions, Series, SeriesOptions, compare, measure};
use anabranch::execute::{Activity, RunOptions};
use anabranch::import::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type,
};
use anabranch::planning::{Order, PlanChoice, Strategy};
use anabranch::refine::{RefineOptions, Verdict, refine};
use anabranch::session::{Inputs, Run, RunEvents, Session};
use anabranch::{Shape, Tensor};
use anabranch_tests::one_cpu;
use std::time::Duration;

/// Columns of the matrices of the second phase.
const WIDTH: usize = 64;

fn value(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: name.into(), r#type: None }
}

fn model(nodes: Vec<NodeProto>, outputs: &[&str]) -> Vec<u8> {
    let weights: Vec<f32> = (0..WIDTH * WIDTH).map(|at| ((at * 7 % 13) as f32 - 6.0) / 64.0).collect();
    let width = WIDTH as i64;
    let constants = vec![
        TensorProto::f32s("zero", &[], &[0.0]),
        TensorProto::f32s("half", &[], &[0.5]),
        TensorProto::f32s("row", &[1, width], &[0.5; WIDTH]),
        TensorProto::f32s("weights", &[width, width], &weights),
        TensorProto::i64s("axis", &[1], &[1]),
    ];
    let x = ValueInfoProto::tensor("x", data_type::FLOAT, vec![DimensionProto::symbol("n")]);
    let output = outputs.iter().map(|name| value(name)).collect();
    let graph = GraphProto { node: nodes, initializer: constants, input: vec![x], output, ..GraphProto::default() };
    ModelProto::of(graph, 17).to_bytes()
}

/// Returns nodes that compute `out` from a column by six products.
fn products(column: &str, out: &str) -> Vec<NodeProto> {
    let name = |at: usize| format!("{out}_{at}");
    let mut nodes = vec![
        NodeProto::of("Unsqueeze", &[column, "axis"], &[&name(7)]),
        NodeProto::of("Mul", &[&name(7), "row"], &[&name(0)]),
    ];
    for at in 0..6 {
        let to = if at == 5 { out.to_owned() } else { name(at + 1) };
        nodes.push(NodeProto::of("MatMul", &[&name(at), "weights"], &[&to]).named(&format!("{out}/MatMul_{at}")));
    }
    nodes
}

/// Returns a model of a comparison, then products of the positive elements: their number is computed.
fn picked() -> Vec<u8> {
    let nodes = vec![
        NodeProto::of("Greater", &["x", "zero"], &["is"]),
        NodeProto::of("Compress", &["x", "is"], &["p"]).named("compress"),
    ];
    model([nodes, products("p", "y")].concat(), &["y"])
}

/// Returns a model of a sum, then one of two branches that contain all the work.
fn branches() -> Vec<u8> {
    let branch = |out: &str| GraphProto { node: products("x", out), output: vec![value(out)], ..GraphProto::default() };
    let nodes = vec![
        NodeProto::of("ReduceSum", &["x"], &["sum"]).with(AttributeProto::int("keepdims", 0)),
        NodeProto::of("Greater", &["sum", "zero"], &["take"]),
        NodeProto::of("If", &["take"], &["y"])
            .with(AttributeProto::graph("then_branch", &branch("a")))
            .with(AttributeProto::graph("else_branch", &branch("b"))),
    ];
    model(nodes, &["y"])
}

/// Returns a model with as many products as the greatest element says.
fn loops() -> Vec<u8> {
    let body = GraphProto {
        node: vec![
            NodeProto::of("Identity", &["c"], &["again"]),
            NodeProto::of("MatMul", &["v", "weights"], &["w"]).named("body/MatMul"),
        ],
        input: vec![
            ValueInfoProto::tensor("i", data_type::INT64, vec![]),
            ValueInfoProto::tensor("c", data_type::BOOL, vec![]),
            value("v"),
        ],
        output: vec![value("again"), value("w")],
        ..GraphProto::default()
    };
    let nodes = vec![
        NodeProto::of("ReduceMax", &["x"], &["most"]).with(AttributeProto::int("keepdims", 0)),
        NodeProto::of("Cast", &["most"], &["passes"]).with(AttributeProto::int("to", data_type::INT64)),
        NodeProto::of("Unsqueeze", &["x", "axis"], &["column"]),
        NodeProto::of("Mul", &["column", "row"], &["first"]),
        NodeProto::of("Loop", &["passes", "", "first"], &["y"]).with(AttributeProto::graph("body", &body)),
    ];
    model(nodes, &["y"])
}

fn session(model: &[u8]) -> Session {
    Session::from_bytes(model, one_cpu()).expect("a sound model")
}

/// Returns 500 elements, alternating between 5 and −1.
fn inputs() -> Inputs {
    let x: Vec<f32> = (0..500).map(|at| if at % 2 == 0 { 5.0 } else { -1.0 }).collect();
    Inputs::new().tensor("x", Tensor::from_elements(Shape::new([500]).expect("small"), &x).expect("as many"))
}

fn profiled(session: &Session) -> Run {
    session.run_with(&inputs(), &RunOptions::default().with_profile(true)).expect("it runs in phases")
}

/// Returns the number of runs of products, alone or in blocks.
fn products_in(run: &Run) -> usize {
    let parts = run.parts();
    let products = parts.iter().flat_map(|part| {
        part.events()
            .filter(|event| matches!(event.what, Activity::Node(_)) && part.name(event.what).contains("MatMul"))
    });
    products.count()
}

#[test]
fn a_run_is_all_of_its_phases_and_the_host_between_them() {
    for (name, bytes, products) in [("picked", picked(), 6), ("branches", branches(), 6), ("loops", loops(), 5)] {
        let session = session(&bytes);
        let [first, run] = [profiled(&session), profiled(&session)];
        let later = run.later.as_ref().expect("later phases");
        let parts = run.parts();
        assert_eq!((parts.len(), later.left_out), (later.phases + 1, 0), "{name}");
        // No part begins before the one before it has ended, and the whole is at least their sum.
        assert!(parts.windows(2).all(|pair| pair[0].begun + pair[0].measured.makespan <= pair[1].begun), "{name}");
        let sum: Duration = parts.iter().map(|part| part.measured.makespan).sum();
        let steps: Duration = run.host_operators().iter().map(|step| step.took).sum();
        assert!(run.took() == later.took && run.took() >= sum + steps, "{name}");
        assert_eq!(sum, run.measured.makespan + later.in_plans, "{name}");
        assert_eq!(products_in(&run), products, "{name}");
        // Events of all phases are within the run, and in its JSON.
        let json = serde_json::to_value(RunEvents::of(&run)).expect("serialisable");
        let (end, events) = (json["makespan_ns"].as_u64(), json["events"].as_array().expect("events").clone());
        assert_eq!(end, Some(run.took().as_nanos() as u64), "{name}");
        assert!(events.iter().all(|event| event["end_ns"].as_u64() <= end), "{name}: {events:?}");
        assert_eq!(
            events.len(),
            parts.iter().map(|part| part.measured.events.len()).sum::<usize>() + run.host_operators().len()
        );
        // Peaks are those of the plan that takes most.
        let peak = parts.iter().map(|part| part.measured.peaks[0]).max();
        assert!(Some(run.peaks()[0]) == peak && peak > Some(run.measured.peaks[0]), "{name}: {peak:?}");
        // The later phases are unknown before the first run.
        assert!(first.is_cold() && first.predicted().is_none(), "{name}");
        let predicted = run.predicted().expect("the plans are known by now").makespan;
        let plans: f64 = parts.iter().map(|part| part.planned.plan().predicted().makespan).sum();
        let host = first.later.as_ref().expect("later phases").on_host(&first).as_secs_f64();
        assert!((predicted - plans - host).abs() < 1e-9 * predicted, "{name}: {predicted} {plans} {host}");
        assert!(!run.is_cold() && predicted > run.prepared.plan().predicted().makespan, "{name}");
    }
}

#[test]
fn a_loops_body_is_one_plan_that_is_run_several_times() {
    let session = session(&loops());
    drop(profiled(&session));
    let run = profiled(&session);
    let (parts, plans, accuracy) = (run.parts(), run.plans(), run.accuracy());
    assert!(parts.len() > plans.len(), "{} runs of {} plans", parts.len(), plans.len());
    let body = accuracy.nodes.iter().find(|node| plans[node.plan].program.node(node.node).name.contains("body/MatMul"));
    let body = body.expect("the body's node is told of");
    assert_eq!(body.runs, 5);
    let busy: f64 = parts
        .iter()
        .filter(|part| part.plan == body.plan)
        .map(|part| {
            part.measured.node_times().filter(|(node, _)| *node == body.node).map(|(_, seconds)| seconds).sum::<f64>()
        })
        .sum();
    assert!((body.time.measured - busy).abs() < 1e-12, "{body:?} {busy}");
}

#[test]
fn series_and_comparisons_measure_whole_runs() {
    let session = session(&picked());
    let prepared = session.prepare(&inputs()).expect("a plan");
    let mut seen = Vec::new();
    let options = SeriesOptions::default().with_runs(Some(4), Some(1));
    let series = measure(&session, &inputs(), &prepared, &options, &mut |run| {
        seen.push((run.took().as_secs_f64() * 1e3, !run.measured.events.is_empty()));
    });
    let Series { run, samples_ms, measured_ms, predicted, first_ms, .. } = series.expect("it runs in phases");
    let plain: Vec<f64> = seen.iter().filter(|(_, profiled)| !profiled).map(|(ms, _)| *ms).collect();
    assert_eq!((first_ms, &samples_ms[..]), (plain[0], &plain[1..]));
    // The run shown is the profiled run nearest to the median.
    let distance = |ms: f64| (ms - measured_ms.median).abs();
    let shown = run.took().as_secs_f64() * 1e3;
    assert!(seen.iter().filter(|(_, profiled)| *profiled).all(|(ms, _)| distance(shown) <= distance(*ms)), "{seen:?}");
    assert_eq!(predicted, run.predicted());
    assert!(predicted.is_some() && run.outputs.tensor("y").is_ok());
    let options = CompareOptions::new("picked", vec![session.choice()]).with_runs(2, 1);
    let comparison = compare(&session, &inputs(), &options, &mut || ()).expect("one configuration");
    let outcome = &comparison.outcomes[0];
    let nodes = run.parts().iter().map(|part| part.measured.node_times().count()).sum::<usize>();
    assert_eq!((outcome.devices[0].nodes, outcome.devices[0].peak_bytes), (nodes, run.peaks()[0]));
    let first = run.prepared.plan().predicted().makespan * 1e3;
    assert!(outcome.predicted_ms > Some(first), "{:?} of the whole, {first} of the first phase", outcome.predicted_ms);
    assert!(comparison.load.wall_ms > Some(0.0) && comparison.load.processor_ms > Some(0.0), "{:?}", comparison.load);
}

#[test]
fn a_cold_run_of_phases_is_told_as_such() {
    let session = session(&picked());
    let prepared = session.prepare(&inputs()).expect("a plan");
    let options = SeriesOptions::default().with_runs(Some(1), Some(0));
    let series = measure(&session, &inputs(), &prepared, &options, &mut |_| ()).expect("one run");
    assert!(series.cold && series.predicted.is_none());
}

#[test]
fn a_choice_holds_for_the_plans_of_all_phases() {
    let session = session(&picked());
    let ways = ["cp", "heft", "mite"].map(|name| {
        let Ok(strategy) = name.parse::<Strategy>();
        let choice = PlanChoice { strategy, order: Order::Frugal, ..PlanChoice::default() };
        (name, session.ready(&session.plan_with(&inputs(), &choice).expect("a plan")).expect("memory"))
    });
    for _ in 0..2 {
        for (name, prepared) in &ways {
            let options = RunOptions::default().with_profile(true);
            let run = session.run_prepared(prepared, &inputs(), &options).expect("it runs in phases");
            let plans = run.plans();
            assert_eq!(plans.iter().map(|planned| planned.plan().strategy()).collect::<Vec<_>>(), [*name; 2]);
        }
    }
    let [one, other, _] = &ways;
    assert!(!one.1.planned().is_same_plan(other.1.planned()), "later phases differ");
    // One plan per configuration: the second round made none.
    assert_eq!(session.ready_phases(), ways.len());
}

#[test]
fn plans_of_phases_are_refined_by_whole_runs() {
    let session = session(&picked());
    let refined = refine(&session, &inputs(), &RefineOptions::new(3, 2), &mut || {}).expect("all plans run");
    for round in &refined.refinement.rounds[1..] {
        let new = round.proposal.as_ref().expect("only runs tell whether it is faster");
        assert!(round.predicted_gain_percent.is_none() && new.predicted_ms.is_none(), "{round:?}");
        let others = round.singles.iter().chain([&round.plan]).map(|plan| plan.measured_ms.median);
        let is_fastest = others.fold(f64::INFINITY, f64::min) > new.measured_ms.median;
        assert_eq!(round.verdict == Verdict::Kept, is_fastest, "{round:?}");
    }
    assert_eq!(refined.series.run.later.map(|later| later.phases), Some(1));
}
