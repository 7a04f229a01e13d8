//! Compared configurations give the same outputs, planned or scheduled at run time, and their reports are consistent.

use anabranch::Session;
use anabranch::compare::{CompareOptions, Comparison, DYNAMIC, SeriesOptions, compare, measure};
use anabranch::costs::CostSource;
use anabranch::execute::RunOptions;
use anabranch::plan::{PlanOptions, StreamMode};
use anabranch::planning::PlanChoice;
use anabranch::program::NodeId;
use anabranch::refine::{RefineOptions, Verdict, refine};
use anabranch::session::Inputs;
use anabranch_tests::{MODELS, assert_close, model, one_cpu, options, reference, same, session, strategy};

fn configuration(place: &str, order: &str, streaming: StreamMode) -> PlanChoice {
    let plan = PlanOptions::default().with_streaming(streaming);
    PlanChoice { strategy: strategy(place), order: order.parse().expect("an order's name"), plan }
}

fn compared(session: &Session, inputs: &Inputs, configurations: Vec<PlanChoice>) -> Comparison {
    let options = CompareOptions::new("model", configurations).with_runs(6, 1).with_refine(1);
    let mut steps = 0;
    let comparison = compare(session, inputs, &options, &mut || steps += 1).expect("all configurations run");
    assert_eq!(steps == options.steps(), comparison.failed.is_empty());
    comparison
}

#[test]
fn the_dynamic_scheduler_gives_every_models_reference_outputs() {
    for name in MODELS {
        let (inputs, references) = reference(name);
        let session = session(name, options("heft"));
        let dynamic = session.dynamic(&inputs).unwrap_or_else(|error| panic!("{name}: {error}"));
        for _ in 0..2 {
            let profiled = RunOptions::default().with_profile(true);
            let (outputs, measured) = session.run_dynamic(&dynamic, &inputs, &profiled).expect("runs");
            assert_close(name, &outputs, &references);
            assert!(measured.peaks.iter().any(|peak| *peak > 0), "{name}");
        }
    }
}

#[test]
fn on_cpus_alone_the_dynamic_scheduler_gives_the_planned_bits() {
    for name in ["convnet", "encoder", "gru"] {
        let options = options("heft").with_software_gpu(false).without_gpu();
        let session = Session::open(anabranch_tests::model(name), options).expect("a bundled model opens");
        let (inputs, _) = reference(name);
        let planned = session.run(&inputs).expect("runs");
        let dynamic = session.dynamic(&inputs).expect("is ready");
        let (outputs, _) = session.run_dynamic(&dynamic, &inputs, &RunOptions::default()).expect("runs");
        assert!(same(&planned, &outputs), "{name}");
    }
}

#[test]
fn a_comparison_is_consistent() {
    let session = session("convnet", options("heft"));
    let (inputs, _) = reference("convnet");
    let configurations = vec![
        configuration("cpu", "pct", StreamMode::Off),
        configuration("heft", "fifo", StreamMode::Auto),
        configuration("gpu0", "msr", StreamMode::Always),
        configuration("gpu", "pct", StreamMode::Off),
    ];
    let comparison = compared(&session, &inputs, configurations);
    assert!(comparison.failed.is_empty() && comparison.side_by_side, "{:?}", comparison.failed);
    let places: Vec<_> = comparison.outcomes.iter().map(|outcome| &*outcome.configuration.place).collect();
    assert_eq!(places, ["cpu", "heft", "gpu0", "gpu", DYNAMIC]);
    for outcome in &comparison.outcomes {
        let (place, median) = (&outcome.configuration.place, outcome.measured_ms);
        assert_eq!(outcome.samples_ms.len(), 6, "{place}");
        assert!(0.0 < median.low && median.low <= median.median && median.median <= median.high, "{place}: {median:?}");
        assert!(median.confidence >= 0.95, "{place}");
        assert!(outcome.outputs.within, "{place}: {:?}", outcome.outputs);
        assert_eq!(outcome.devices.iter().map(|device| device.nodes).sum::<usize>(), comparison.nodes, "{place}");
        assert_eq!(outcome.predicted_ms.is_some(), place != DYNAMIC);
        for (facts, device) in comparison.devices.iter().zip(&outcome.devices) {
            assert!((0.0..=1.01).contains(&device.utilisation), "{place} on {}: {device:?}", facts.name);
            assert!(device.predicted_peak_bytes.is_none_or(|planned| device.peak_bytes <= planned), "{place}");
        }
    }
    let of = |place: &str| {
        comparison.outcomes.iter().find(|outcome| outcome.configuration.place == place).expect("was compared")
    };
    assert!(of("cpu").outputs.same_bits, "a configuration gives its own bits");
    assert!(of("gpu").traffic_bytes > 0 && of("gpu").predicted_traffic_bytes == Some(of("gpu").traffic_bytes));
    // One round of learning has measured every node on the devices that the configurations used.
    assert!(of("cpu").node_error_percent.is_some());
    let ratio = comparison.against_others("cpu").expect("there are others");
    let best = comparison.best().expect("there are outcomes");
    assert_eq!(ratio <= 1.0, best.measured_ms == of("cpu").measured_ms);
    let text = serde_json::to_string(&comparison).expect("JSON");
    assert_eq!(serde_json::from_str::<Comparison>(&text).expect("the same form"), comparison);
}

#[test]
fn a_configuration_without_a_plan_fails_alone() {
    let options = options("heft").with_memory("gpu0", 1000);
    let session = session("convnet", options);
    let (inputs, _) = reference("convnet");
    let comparison = compared(
        &session,
        &inputs,
        vec![configuration("gpu0", "pct", StreamMode::Off), configuration("cpu", "pct", StreamMode::Off)],
    );
    assert_eq!(comparison.failed.len(), 1);
    assert!(
        comparison.failed[0].0.place == "gpu0" && comparison.failed[0].1.contains("1000"),
        "{:?}",
        comparison.failed
    );
    assert_eq!(comparison.outcomes.len(), 2);
}

/// Memory that is enough for a plan that streams is too little for a scheduler that keeps whole values.
#[test]
fn a_dynamic_scheduler_that_does_not_fit_fails_alone() {
    let limited = |bytes: Option<u64>| {
        let options = one_cpu().with_strategy(strategy("cpu"));
        let options = bytes.into_iter().fold(options, |options, bytes| options.with_memory("cpu0", bytes));
        Session::open(model("encoder"), options).expect("a bundled model opens")
    };
    let (inputs, _) = reference("encoder");
    let configuration = configuration("cpu", "frugal", StreamMode::Always);
    let free = limited(None).plan_with(&inputs, &configuration).expect("no limit");
    let session = limited(Some(free.plan().memory().devices()[0].peak()));
    let comparison = compared(&session, &inputs, vec![configuration]);
    let places: Vec<_> = comparison.outcomes.iter().map(|outcome| &*outcome.configuration.place).collect();
    assert_eq!((places, comparison.failed.len()), (vec!["cpu"], 1), "{:?}", comparison.failed);
    let (failed, reason) = &comparison.failed[0];
    assert!(failed.place == DYNAMIC && reason.contains("cpu0") && reason.contains("bytes"), "{failed:?}: {reason}");
    let text = serde_json::to_string(&comparison).expect("JSON");
    assert_eq!(serde_json::from_str::<Comparison>(&text).expect("the same form"), comparison);
}

#[test]
fn a_series_tells_cold_runs_from_warm_ones_and_profiles_apart() {
    let session = session("convnet", options("cpu"));
    let (inputs, _) = reference("convnet");
    let prepared = session.prepare(&inputs).expect("there is a plan");
    let series = |options: SeriesOptions| {
        let mut runs = Vec::new();
        let mut see = |run: &anabranch::session::Run| runs.push((run.cold, !run.measured.events.is_empty()));
        let series = measure(&session, &inputs, &prepared, &options, &mut see).expect("all runs end well");
        (series, runs)
    };
    let times = |repeat, warmup| SeriesOptions::default().with_runs(Some(repeat), Some(warmup));
    let (cold, runs) = series(times(1, 0));
    assert_eq!((cold.cold, cold.first_ms, runs), (true, cold.measured_ms.median, vec![(true, true)]));
    let (warm, runs) = series(times(2, 1));
    let expected: Vec<_> = [false, false, false, true, true, true].map(|profiled| (false, profiled)).to_vec();
    assert_eq!((warm.cold, warm.samples_ms.len(), runs), (false, 2, expected));
    assert!(warm.accuracy.node_error().is_some());
    let (usual, runs) = series(SeriesOptions::default());
    assert!((1..=15).contains(&usual.samples_ms.len()) && runs.len() as u64 <= SeriesOptions::default().steps());
    assert!(runs.last().is_some_and(|(_, profiled)| *profiled), "the last run shows when what happened");
}

#[test]
fn what_cpu_devices_read_in_place_is_no_traffic() {
    // Devices in turn, and one node on the GPU, independent of the number of cores before it.
    let constraints = anabranch::planning::Constraints::default().with_pin("/MaxPool", "gpu0");
    let session = session("convnet", options("hash").with_constraints(constraints));
    let (inputs, _) = reference("convnet");
    let run = session.run_with(&inputs, &RunOptions::default().with_profile(true)).expect("runs");
    let plan = run.prepared.plan();
    let (planned, measured) = (plan.traffic(), run.measured.traffic(Some(plan)));
    assert_eq!(planned, measured);
    let in_place = |transfer: &&anabranch::plan::Transfer| transfer.route == anabranch::plan::Route::Shared;
    assert_eq!(planned.in_place.transfers, plan.transfers().iter().filter(in_place).count());
    assert_eq!(planned.moved().transfers + planned.in_place.transfers, plan.transfers().len());
    assert!(planned.moved().transfers > 0, "the GPU takes part");
    let moved =
        plan.transfers().iter().filter(|transfer| !in_place(transfer)).map(|transfer| transfer.bytes).sum::<u64>();
    assert_eq!(planned.moved().bytes, moved);
}

#[test]
fn a_refined_plan_is_no_slower_than_a_single_device() {
    let session = session("convnet", options("hash"));
    let (inputs, references) = reference("convnet");
    let options = RefineOptions::new(3, 5);
    let refined = refine(&session, &inputs, &options, &mut || {}).expect("all plans run");
    assert_close("convnet", &refined.series.run.outputs, &references);
    let rounds = &refined.refinement.rounds;
    assert_eq!(rounds.iter().map(|round| round.round).collect::<Vec<_>>(), [1, 2, 3]);
    let kept = refined.refinement.kept().expect("a round was run").measured_ms.median;
    for round in rounds {
        let others: Vec<f64> = round.singles.iter().chain([&round.plan]).map(|m| m.measured_ms.median).collect();
        let new_is_fastest =
            round.proposal.as_ref().is_some_and(|new| others.iter().all(|o| new.measured_ms.median < *o));
        assert_eq!(round.verdict == Verdict::Kept, new_is_fastest, "{round:?}");
        assert!(round.proposal.is_none() || round.predicted_gain_percent.is_some_and(|gain| gain > 2.0));
    }
    let last = rounds.last().expect("three rounds");
    assert!(last.singles.iter().all(|single| kept <= single.measured_ms.median));
    assert!(kept <= last.plan.measured_ms.median);
    assert!(last.node_error_percent.is_some(), "every node was measured");
    let (series, planned) = (&refined.series, &refined.planned);
    assert!(std::sync::Arc::ptr_eq(series.run.prepared.planned(), planned));
    assert_eq!((series.warmup, series.samples_ms.len(), series.cold), (2, 5, false));
    // The report at the end shows the knowledge at the end.
    let again = session.predict(&inputs, planned, &session.choice().plan).expect("it still fits");
    assert_eq!(again.plan().predicted(), planned.plan().predicted());
    for node in planned.program.node_ids() {
        let cost = planned.placed.costs[node.index()][planned.plan().device_of(node).index()].expect("it ran there");
        assert!(
            matches!(cost.source, CostSource::Measured { .. }),
            "{}: {}",
            planned.program.node(node).name,
            cost.source
        );
    }
    assert!(again.is_same_plan(planned) && again.plan().reason(NodeId(0)) == planned.plan().reason(NodeId(0)));
}
