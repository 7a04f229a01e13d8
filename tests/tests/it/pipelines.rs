//! Pipelines give the bits of sequential runs for all mappings, and report their memory before they run.

use anabranch::device::CpuGranularity;
use anabranch::device::DetectOptions;
use anabranch::pipeline::{
    Among, Goal, Pipeline, PipelineError, PipelineOptions, StageCosts, StageDevices, StageMapping,
};
use anabranch::{Dim, ErrorKind, Inputs, Outputs, Session, SessionConfig, SessionError};
use anabranch_kernels::{Shape, Tensor};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

/// Bundled models.
pub(super) const MODELS: [&str; 6] = ["mlp", "convnet", "fire", "gru", "unet", "encoder"];

fn options(software_gpu: bool) -> SessionConfig {
    let devices = DetectOptions::default().with_software_gpu(software_gpu);
    let devices = if software_gpu { devices } else { devices.without_gpu() };
    SessionConfig::default().with_devices(devices.with_cpu_granularity(CpuGranularity::Machine))
}

fn session(model: &str, options: SessionConfig) -> Session {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("data/{model}.onnx"));
    let session = Session::open(path, options).expect("a model");
    assert!(!session.inputs().is_empty());
    session
}

pub(super) fn open(model: &str, software_gpu: bool) -> Session {
    let bare = session(model, options(false));
    let dims = bare.inputs().iter().flat_map(|input| input.dims().unwrap_or_default());
    let symbols = dims.filter_map(|dim| if let Dim::Symbol(name) = dim { Some(name.clone()) } else { None });
    session(model, symbols.fold(options(software_gpu), |options, symbol| options.with_dim(symbol, 2)))
}

/// Returns inputs that differ.
pub(super) fn sets(session: &Session, count: u64) -> Vec<Inputs> {
    (0..count).map(|seed| session.fill_random(Inputs::new(), seed).expect("known shapes")).collect()
}

fn run(session: &Session, costs: &StageCosts, sets: &[Inputs], among: Among) -> Vec<Outputs> {
    let options = PipelineOptions::default().with_among(among);
    let pipeline = Pipeline::with_costs(session, costs, &options).expect("a mapping");
    let mut results = Vec::new();
    let ran = pipeline.run_all(sets.iter().cloned().map(Ok), |finished| {
        assert_eq!(finished.data_set, results.len() as u64);
        results.push(finished.outputs);
        Ok::<(), PipelineError>(())
    });
    ran.expect("no stage fails");
    let measured = pipeline.measured();
    assert_eq!(measured.data_sets, sets.len() as u64);
    results
}

#[track_caller]
pub(super) fn assert_same(found: &[Outputs], expected: &[Outputs], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(found.iter().map(|(name, _)| name).eq(expected.iter().map(|(name, _)| name)));
        for ((name, a), (_, b)) in found.iter().zip(expected.iter()) {
            assert!(a.same_bits(b), "{what}: output {name} of sample {at} differs");
        }
    }
}

/// Returns stages of about equally many nodes, on these devices.
fn stages(session: &Session, costs: &StageCosts, on: &[&[&str]]) -> StageMapping {
    let whole = PipelineOptions::default().with_among(Among::Replicated(NonZeroUsize::new(1)));
    let whole = Pipeline::with_costs(session, costs, &whole).expect("one core");
    let nodes = &whole.plan().stages[0].nodes;
    let size = nodes.len().div_ceil(on.len());
    let devices = |on: &[&str]| on.iter().map(|device| (*device).to_owned()).collect();
    let stage = |(nodes, on): (&[String], &&[&str])| StageDevices { nodes: nodes.to_vec(), devices: devices(on) };
    StageMapping { stages: nodes.chunks(size).zip(on).map(stage).collect() }
}

#[test]
fn however_they_are_mapped_results_are_those_of_runs() {
    for model in MODELS {
        let session = open(model, false);
        let sets = sets(&session, 9);
        let expected: Vec<Outputs> = sets.iter().map(|inputs| session.run(inputs).expect("it runs")).collect();
        let costs =
            StageCosts::of(&session, &sets[0], &PipelineOptions::default().with_measuring(false)).expect("costs");
        let cores: Vec<String> = costs.processors().map(str::to_owned).collect();
        for among in [Among::All, Among::Together, Among::Replicated(None), Among::Pipelined] {
            assert_same(&run(&session, &costs, &sets, among.clone()), &expected, &format!("{model}, {among:?}"));
        }
        if let [first, second, ..] = &cores[..] {
            let on: &[&[&str]] = &[&[second], &[first]];
            let mapping = stages(&session, &costs, on);
            let found = run(&session, &costs, &sets, Among::Given(mapping));
            assert_same(&found, &expected, &format!("{model} in two stages"));
            let found = run(&session, &costs, &sets, Among::DataParallel(NonZeroUsize::new(2)));
            assert_same(&found, &expected, &format!("{model} on a group of cores"));
        }
    }
}

#[test]
fn a_group_of_cores_is_a_device_of_a_stage_by_its_name() {
    let session = open("convnet", false);
    let sets = sets(&session, 9);
    let mut costs =
        StageCosts::of(&session, &sets[0], &PipelineOptions::default().with_measuring(false)).expect("costs");
    let cores: Vec<String> = costs.processors().map(str::to_owned).collect();
    if cores.len() < 2 {
        return;
    }
    let group = cores[..2].join("+");
    let on: &[&[&str]] = if cores.len() > 2 { &[&[&group], &[&cores[2]]] } else { &[&[&group]] };
    let mapping = stages(&session, &costs, on);
    let file = std::env::temp_dir().join(format!("anabranch-group-{}.json", std::process::id()));
    std::fs::write(&file, serde_json::to_vec(&mapping).expect("plain data")).expect("writable");
    let read = StageMapping::read(&file);
    std::fs::remove_file(&file).expect("it was written");
    assert_eq!(read.expect("it was written so"), mapping);
    let expected: Vec<Outputs> = sets.iter().map(|inputs| session.run(inputs).expect("it runs")).collect();
    let options = PipelineOptions::default().with_among(Among::Given(mapping.clone()));
    let pipeline = Pipeline::with_costs(&session, &costs, &options).expect("a mapping");
    let mut results = Vec::new();
    let ran = pipeline.run_all(sets.iter().cloned().map(Ok), |finished| {
        results.push(finished.outputs);
        Ok::<(), PipelineError>(())
    });
    ran.expect("no stage fails");
    assert_same(&results, &expected, "a group of cores");
    let (plan, measured) = (pipeline.plan(), pipeline.measured());
    assert_eq!(plan.mapping, mapping);
    assert_eq!((&plan.stages[0].devices[..], plan.stages[0].in_turn), (&[group.clone()][..], false));
    assert_eq!((&measured.stages[0].devices[0].device, measured.stages[0].devices[0].data_sets), (&group, 9));
    assert!(plan.handover > 0.0 && plan.period >= plan.stages[0].seconds[0] + plan.handover * (1.0 - 1e-9));
    // The measured time becomes the next prediction.
    costs.learn_from(plan, &measured);
    drop(pipeline);
    let again = Pipeline::with_costs(&session, &costs, &options).expect("a mapping");
    let (found, wanted) = (again.plan().stages[0].seconds[0], measured.stages[0].devices[0].seconds);
    assert!((found / wanted - 1.0).abs() < 1e-9, "{found} {wanted}");
}

#[test]
fn a_group_holds_its_memory_once() {
    let session = open("convnet", false);
    let set = &sets(&session, 1)[0];
    let costs = StageCosts::of(&session, set, &PipelineOptions::default().with_measuring(false)).expect("costs");
    if costs.processors().count() < 2 {
        return;
    }
    let held = |among: Among| {
        let options = PipelineOptions::default().with_among(among);
        let pipeline = Pipeline::with_costs(&session, &costs, &options).expect("it fits");
        (pipeline.plan().held[0].1 - pipeline.plan().in_flight, session.held_bytes()[0])
    };
    let two = NonZeroUsize::new(2);
    let (one, group, copies) =
        (held(Among::Replicated(NonZeroUsize::new(1))), held(Among::DataParallel(two)), held(Among::Replicated(two)));
    // A team's threads have their own workspaces for packing, which are small compared with a copy of the values.
    assert!(one.0 <= group.0 && group.0 < copies.0, "{one:?} {group:?} {copies:?}");
    assert!(group.1 < copies.1);
}

#[test]
fn a_stage_may_be_on_a_gpu() {
    let session = open("convnet", true);
    let Some(gpu) = session.inventory().gpus.first().map(|gpu| gpu.name.clone()) else { return };
    let sets = sets(&session, 5);
    let costs = StageCosts::of(&session, &sets[0], &PipelineOptions::default().with_measuring(false)).expect("costs");
    let core = costs.processors().next().expect("a core").to_owned();
    let one = stages(&session, &costs, &[&[gpu.as_str()]]);
    let two = stages(&session, &costs, &[&[gpu.as_str()], &[core.as_str()]]);
    let whole = run(&session, &costs, &sets, Among::Given(one));
    let half = run(&session, &costs, &sets, Among::Given(two.clone()));
    // Kernels of a GPU and of a core round differently, so only equal stages on equal devices give equal bits.
    assert_same(&run(&session, &costs, &sets, Among::Given(two)), &half, "twice the same");
    for (whole, half) in whole.iter().zip(&half) {
        for ((_, a), (_, b)) in whole.iter().zip(half.iter()) {
            let (a, b) = (a.elements::<f32>().expect("floats"), b.elements::<f32>().expect("floats"));
            assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-3 * (1.0 + b.abs())));
        }
    }
}

#[test]
fn several_threads_push_and_each_data_set_has_its_result() {
    let session = open("mlp", false);
    let sets = sets(&session, 4);
    let expected: Vec<Outputs> = sets.iter().map(|inputs| session.run(inputs).expect("it runs")).collect();
    let options = PipelineOptions::default().with_measuring(false);
    let pipeline = Pipeline::open(&session, &sets[0], &options).expect("a mapping");
    let mut of = vec![None; 400];
    thread::scope(|scope| {
        let pushers: Vec<_> = (0..4usize)
            .map(|kind| {
                let (pipeline, inputs) = (&pipeline, &sets[kind]);
                scope.spawn(move || (0..100).map(|_| pipeline.push(inputs).expect("open")).collect::<Vec<_>>())
            })
            .collect();
        let taken: Vec<_> = (0..400).map(|_| pipeline.next().expect("as many").expect("no failure")).collect();
        for (kind, pusher) in pushers.into_iter().enumerate() {
            pusher.join().expect("no panic").into_iter().for_each(|number| of[number as usize] = Some(kind));
        }
        for finished in taken {
            let kind = of[finished.data_set as usize].expect("somebody pushed it");
            assert_same(&[finished.outputs], &expected[kind..=kind], "pushed from several threads");
        }
    });
    pipeline.finish();
    assert!(pipeline.next().is_none());
}

#[test]
fn a_hundred_thousand_small_data_sets_go_through() {
    let session = open("mlp", false);
    let sets = sets(&session, 3);
    let expected: Vec<Outputs> = sets.iter().map(|inputs| session.run(inputs).expect("it runs")).collect();
    let options = PipelineOptions::default().with_measuring(false).with_among(Among::Replicated(None));
    let pipeline = Pipeline::open(&session, &sets[0], &options).expect("a mapping");
    let mut count = 0;
    let feed = (0..100_000usize).map(|at| Ok(sets[at % 3].clone()));
    let ran = pipeline.run_all(feed, |finished| {
        let at = (finished.data_set % 3) as usize;
        count += 1;
        if finished.data_set % 997 == 0 {
            assert_same(&[finished.outputs], &expected[at..=at], "one of many");
        }
        Ok::<(), PipelineError>(())
    });
    ran.expect("no stage fails");
    assert_eq!((count, pipeline.measured().data_sets), (100_000, 100_000));
}

#[test]
fn what_does_not_fit_is_refused_and_does_not_end_the_pipeline() {
    let session = open("mlp", false);
    let sets = sets(&session, 1);
    let options = PipelineOptions::default().with_measuring(false);
    let pipeline = Pipeline::open(&session, &sets[0], &options).expect("a mapping");
    let name = session.inputs()[0].name().to_owned();
    let wrong = Tensor::from_elements(Shape::new([1, 1]).expect("small"), &[0f32]).expect("one");
    let error = pipeline.push(&Inputs::new().tensor(&name, wrong)).expect_err("another shape");
    assert_eq!((error.kind(), error.data_set(), error.stage()), (ErrorKind::Input, Some(0), None));
    assert!(error.to_string().starts_with("sample 0: input"), "{error}");
    assert_eq!(pipeline.push(&sets[0]).expect("the pipeline goes on"), 0);
    pipeline.finish();
    assert!(pipeline.next().expect("one result").is_ok() && pipeline.next().is_none());
    let error = pipeline.push(&sets[0]).expect_err("it was finished").to_string();
    assert!(error.contains("finished"), "{error}");
}

#[test]
fn memory_is_known_before_and_limits_hold_for_all_together() {
    // Returns the bytes that copies on all cores hold under a limit.
    let held = |limit: u64| -> Result<u64, SessionError> {
        let devices = DetectOptions::default().without_gpu().with_cpu_granularity(CpuGranularity::Machine);
        let options = SessionConfig::default().with_devices(devices.with_memory("cpu0", limit));
        let session = session("convnet", options);
        // If latency is the goal, inputs are passed one at a time, so no measured time affects the bytes.
        let options = PipelineOptions::default().with_measuring(false).with_among(Among::Replicated(None));
        let pipeline = Pipeline::open(&session, &sets(&session, 1)[0], &options.with_goal(Goal::Latency))?;
        let (plan, held) = (pipeline.plan(), session.held_bytes());
        assert_eq!(plan.held, [("cpu0".to_owned(), held[0])]);
        assert!(plan.in_flight > 0 && plan.in_flight < held[0]);
        drop(pipeline);
        assert_eq!(session.held_bytes(), [0]);
        Ok(held[0])
    };
    let all = held(1 << 30).expect("it fits");
    assert_eq!(held(all).expect("exactly as much"), all);
    let error = held(all - 1).expect_err("a byte is missing");
    assert_eq!((error.kind(), error.device()), (ErrorKind::Memory, Some("cpu0")));
}

#[test]
fn mappings_that_cannot_be_are_refused_with_what_is_wrong() {
    let session = open("mlp", false);
    let sets = sets(&session, 1);
    let costs = StageCosts::of(&session, &sets[0], &PipelineOptions::default().with_measuring(false)).expect("costs");
    let core = costs.processors().next().expect("a core").to_owned();
    let good = stages(&session, &costs, &[&[core.as_str()]]);
    let refuse = |change: &dyn Fn(&mut StageMapping), about: &str| {
        let mut mapping = good.clone();
        change(&mut mapping);
        let options = PipelineOptions::default().with_among(Among::Given(mapping));
        let error = Pipeline::with_costs(&session, &costs, &options).expect_err(about);
        assert!(error.kind() == ErrorKind::PlanFile && error.to_string().contains(about), "{error}");
    };
    refuse(&|mapping| mapping.stages[0].devices[0] = "tpu0".into(), "tpu0");
    refuse(&|mapping| mapping.stages[0].nodes.reverse(), "which it reads");
    refuse(&|mapping| mapping.stages[0].nodes[0] = "nonsense".into(), "nonsense");
    refuse(&|mapping| drop(mapping.stages[0].nodes.pop()), "no stage");
    refuse(&|mapping| mapping.stages[0].devices.push(core.clone()), "twice");
    refuse(&|mapping| mapping.stages[0].devices.clear(), "no device");
    if let Some(other) = costs.processors().nth(1) {
        let group = format!("{core}+{other}");
        refuse(&|mapping| mapping.stages[0].devices = vec![group.clone(), core.clone()], "either one group");
        refuse(&|mapping| mapping.stages[0].devices = vec![format!("{group}+{core}")], "twice");
    }
    let far = PipelineOptions::default().with_goal(Goal::LatencyWithin { period: 1e-12 });
    let error = Pipeline::with_costs(&session, &costs, &far).expect_err("nothing is so fast");
    assert!(error.kind() == ErrorKind::Infeasible && error.to_string().contains("the nearest has a period"), "{error}");
}

#[test]
fn only_cores_of_one_device_share_a_data_set() {
    let devices = DetectOptions::default().with_software_gpu(true).with_cpu_granularity(CpuGranularity::Core);
    let session = session("convnet", SessionConfig::default().with_devices(devices));
    let set = &sets(&session, 1)[0];
    let costs = StageCosts::of(&session, set, &PipelineOptions::default().with_measuring(false)).expect("costs");
    let devices: Vec<String> = costs.processors().map(str::to_owned).collect();
    for other in &devices[1..] {
        let group = format!("{}+{other}", devices[0]);
        let mapping = stages(&session, &costs, &[&[&group]]);
        let options = PipelineOptions::default().with_among(Among::Given(mapping));
        let error = Pipeline::with_costs(&session, &costs, &options).expect_err("they have memories of their own");
        assert_eq!(error.kind(), ErrorKind::PlanFile);
        assert!(error.to_string().contains(&group) && error.to_string().contains("of one CPU device"), "{error}");
    }
    let options = PipelineOptions::default().with_among(Among::DataParallel(None));
    let error = Pipeline::with_costs(&session, &costs, &options).expect_err("each device is one core").to_string();
    assert!(error.contains("the largest has 1"), "{error}");
}
