//! Files of every format become problems that strategies solve, with the figures of the files.

use anabranch_placement::check::check_placement;
use anabranch_placement::format::{Loaded, LoadedGraph, LoadedProblem, json, parse, read, read_problems, thesis};
use anabranch_placement::graph::TaskId;
use anabranch_placement::place::{ListScheduler, Placer, STRATEGIES, strategy_by_name};
use anabranch_placement::platform::DeviceKind;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/formats").join(name)
}

fn problems(name: &str) -> Vec<LoadedProblem> {
    match read(path(name)).unwrap() {
        Loaded::Problems(problems) => problems,
        other => panic!("{other:?}"),
    }
}

fn heft(loaded: &LoadedProblem) -> f64 {
    ListScheduler::HEFT.place(&loaded.problem().unwrap()).unwrap().planned.unwrap().makespan
}

#[test]
fn instances_of_list_schedulers_give_their_makespans() {
    let mut compared = 0;
    for loaded in problems("related.json").iter().chain(&problems("unrelated.json")) {
        let figures = ["textbook.HEFT", "heft_makespan"];
        if let Some(expected) = figures.iter().find_map(|figure| loaded.facts.figures.get(*figure)) {
            let found = heft(loaded);
            assert!((found - expected).abs() <= 1e-9 * expected, "{}: {found} instead of {expected}", loaded.name);
            compared += 1;
        }
    }
    assert_eq!(compared, 8);
}

#[test]
fn constrained_variants_allow_only_the_nodes_that_they_name() {
    let loaded = problems("related.json").into_iter().find(|loaded| loaded.name == "in_trees_6, constrained").unwrap();
    let problem = loaded.problem().unwrap();
    let feasible = |name: &str| {
        let task = loaded.graph.task_ids().find(|&task| loaded.graph.task(task).name == name).unwrap();
        problem.feasible(loaded.graph.unit(task)).map(|device| device.0).collect::<Vec<_>>()
    };
    assert_eq!(
        [feasible("T1"), feasible("T2"), feasible("T4"), feasible("T6")],
        [vec![0, 1, 2], vec![0], vec![2], vec![0, 2]]
    );
    assert!(loaded.facts.figures.contains_key("constrained_heft.makespan"));
}

#[test]
fn a_profiled_network_has_its_devices_times_and_memory() {
    let loaded = problems("bert24_layers.json").remove(0);
    let kinds = |kind| loaded.platform.devices().iter().filter(|device| device.kind == kind).count();
    assert_eq!((kinds(DeviceKind::Cpu), kinds(DeviceKind::Gpu)), (8, 5));
    assert_eq!((loaded.graph.task_count(), loaded.graph.edge_count()), (32, 55));
    let problem = loaded.problem().unwrap();
    for (strategy, _) in STRATEGIES {
        let placement = strategy_by_name(strategy).unwrap().place(&problem).unwrap();
        assert_eq!(check_placement(&problem, &placement.device_of), [], "{strategy}");
    }
    // The slowest edge of the file costs 58.2161 ms between an accelerator and the host.
    let (cpu, gpu) = (problem.platform().device_ids().next().unwrap(), problem.platform().device_ids().last().unwrap());
    let bytes = loaded.graph.datum_ids().map(|datum| loaded.graph.bytes(datum)).max().unwrap();
    assert!((problem.transfer_time(bytes, cpu, gpu) - 58.21610242128372).abs() < 1e-9);
}

#[test]
fn a_workflow_and_a_platform_make_a_problem() {
    let loaded = read_problems(&[path("workflow_1.6.json"), path("../devices_7.csv")]).unwrap().remove(0);
    assert_eq!((loaded.name.as_str(), loaded.facts.time_unit.as_deref()), ("workflow_1.6", Some("s")));
    let problem = loaded.problem().unwrap();
    let fastest =
        problem.platform().device_ids().map(|device| problem.time(TaskId(2), device)).fold(f64::MAX, f64::min);
    assert_eq!(fastest, 12.5 / 89.0);
    assert!(heft(&loaded) >= 4.25 / 89.0 + fastest + 1.0 / 89.0);
}

/// The thesis' files are written and read again; written files count tasks from 0.
#[test]
fn the_files_of_the_thesis_survive_both_ways() {
    let Loaded::Graph(loaded) = read(path("../convolutional_network_graph.csv")).unwrap() else { panic!() };
    assert_eq!((loaded.graph.task_count(), loaded.graph.edge_count()), (346, 531));
    let mut bytes = Vec::new();
    thesis::write_graph(&loaded.graph, &mut bytes).unwrap();
    let Loaded::Graph(again) = parse("convolutional_network_graph.csv", &bytes).unwrap() else { panic!() };
    assert_eq!(*again, LoadedGraph { task_ids: (0..346).collect(), ..*loaded });

    for name in ["../devices_7.csv", "../devices_50.csv"] {
        let Loaded::Platform(platform) = read(path(name)).unwrap() else { panic!() };
        let mut bytes = Vec::new();
        thesis::write_platform(&platform, &mut bytes).unwrap();
        assert_eq!(parse(name, &bytes).unwrap(), Loaded::Platform(platform));
    }
}

/// The JSON format holds all data of every other format.
#[test]
fn everything_survives_as_json() {
    for name in ["related.json", "unrelated.json", "bert24_layers.json", "example.json"] {
        for problem in problems(name) {
            let mut bytes = Vec::new();
            json::write_problem(&problem, &mut bytes).unwrap();
            assert_eq!(parse(name, &bytes).unwrap(), Loaded::Problems(vec![problem]));
        }
    }
}
