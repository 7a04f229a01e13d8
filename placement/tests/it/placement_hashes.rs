//! Placements, planned schedules and reasons stay the same bit for bit while strategies become faster.
//!
//! `tests/data/placements.txt` has a hash per set of problems and strategy. If a strategy is to place differently, the
//! failure lists the new lines. `ANABRANCH_GOLDEN` adds the sets of larger graphs that it names.

use anabranch_placement::check::check_placement;
use anabranch_placement::format::{LoadedProblem, read_problems};
use anabranch_placement::generate::{Devices, Family, Layered, RandomDag, Sweep};
use anabranch_placement::order::{ORDERS, order_by_name};
use anabranch_placement::place::{STRATEGIES, strategy_by_name};
use anabranch_placement::problem::MemoryRule;
use anabranch_placement::rules::Rules;
use anabranch_placement::simulate::simulate;
use std::path::{Path, PathBuf};

/// Hash of bytes (FNV-1a).
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, value: impl std::fmt::Debug) {
        for byte in format!("{value:?}").bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Generated problems: every family, with and without constraints, groups and short memory.
fn generated() -> Vec<(LoadedProblem, Rules)> {
    let mut problems = Vec::new();
    let families = [("random", 90), ("fft", 8), ("gauss", 9), ("cholesky", 5), ("wavefront", 7), ("out-tree", 5)];
    for ((family, size), seed) in families.into_iter().chain([("in-tree", 5), ("fork-join", 3)]).zip(1..) {
        for devices in [1, 3, 9] {
            let graph = format!("{family}:{size}").parse::<Family>().unwrap().generate(seed).unwrap();
            let sweep = Sweep { devices, communication: f64::from(devices) / 3.0, ..Sweep::default() };
            problems.push((sweep.problem(family, graph, seed).unwrap(), Rules::default()));
        }
    }
    for (levels, count, memory_times_speed) in [(12, 7, 10_000_000_000), (9, 20, 60_000), (30, 70, 400_000)] {
        let layered = Layered { levels, ..Layered::default() };
        let graph = if count == 20 { Layered { edge_probability: 0.0005, ..layered } } else { layered }.generate(3);
        let platform = Devices { count, memory_times_speed, ..Devices::default() }.generate(4).unwrap();
        let problem = LoadedProblem::new("layered", graph.unwrap(), platform, MemoryRule::SizeEstimate);
        problems.push((problem, Rules::THESIS));
    }
    let wide = RandomDag { tasks: 400, shape: 4.0, out_degree: 5, ..RandomDag::default() }.generate(5).unwrap();
    let platform = Devices { count: 12, ..Devices::default() }.generate(5).unwrap();
    problems.push((LoadedProblem::new("wide", wide, platform, MemoryRule::Ignore), Rules::default()));
    problems
}

fn of_files(folder: &Path, pairs: &[(&str, &str)], rules: &Rules) -> Vec<(LoadedProblem, Rules)> {
    let paths = |&(graph, devices): &(&str, &str)| match devices {
        "" => vec![folder.join(graph)],
        _ => vec![folder.join(graph), folder.join(devices)],
    };
    let read = |pair| read_problems(&paths(pair)).unwrap();
    pairs.iter().flat_map(read).map(|problem| (problem, rules.clone())).collect()
}

fn sets() -> Vec<(&'static str, Vec<(LoadedProblem, Rules)>)> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let graph = "convolutional_network_graph.csv";
    let thesis = [(graph, "devices_7.csv"), (graph, "devices_50.csv")];
    let mut sets = vec![
        ("generated", generated()),
        ("convolutional", of_files(&data, &thesis, &Rules::THESIS)),
        ("related", of_files(&data, &[("related.json", ""), ("heft.json", "")], &Rules::default())),
    ];
    if let Some(golden) = std::env::var_os("ANABRANCH_GOLDEN").map(PathBuf::from) {
        let (rnn, dynamic) = ("recurrent_network_graph.csv", "dynamic_rnn_graph.csv");
        let mut thesis = Vec::new();
        for devices in ["devices_7.csv", "devices_50.csv"] {
            thesis.extend([(rnn, devices), (dynamic, devices)]);
        }
        sets.push(("thesis", of_files(&golden.join("thesis/graphs"), &thesis, &Rules::THESIS)));
        let layered = ["synthetic_1.csv", "synthetic_3.csv", "synthetic_5.csv"].map(|graph| (graph, "devices_100.csv"));
        sets.push(("synthetic", of_files(&golden.join("thesis/graphs"), &layered, &Rules::THESIS)));
        let networks =
            ["LayerGraphs_bert24", "LayerGraphs_inceptionv3", "OperatorGraphs_bert_l-12", "OperatorGraphs_bert_l-6"];
        let networks = networks.map(|network| format!("{network}_inference.json"));
        let networks: Vec<(&str, &str)> = networks.iter().map(|network| (network.as_str(), "")).collect();
        sets.push(("networks", of_files(&golden.join("schedulers/dnn"), &networks, &Rules::default())));
        let unrelated = [("related.json", ""), ("unrelated_heft.json", "")];
        sets.push(("schedulers", of_files(&golden.join("schedulers"), &unrelated, &Rules::default())));
    }
    sets
}

/// Returns the hash of everything that `strategy` returns for `problems`.
fn placed(problems: &[(LoadedProblem, Rules)], strategy: &str) -> u64 {
    let mut hash = Hash::new();
    for (loaded, rules) in problems {
        let problem = loaded.problem().unwrap().under(rules.clone()).unwrap();
        let placed = strategy_by_name(strategy).unwrap().place(&problem);
        if let Ok(placement) = &placed {
            assert_eq!(check_placement(&problem, &placement.device_of), [], "{strategy} on {}", loaded.name);
        }
        hash.add(placed);
    }
    hash.0
}

/// Returns the hash of the schedules of HEFT's placements under `order`.
fn simulated(problems: &[(LoadedProblem, Rules)], order: &str) -> u64 {
    let mut hash = Hash::new();
    for (loaded, rules) in problems {
        let problem = loaded.problem().unwrap().under(rules.clone()).unwrap();
        let Ok(placement) = strategy_by_name("heft").unwrap().place(&problem) else { continue };
        hash.add(simulate(&problem, &placement.device_of, order_by_name(order).unwrap().as_ref()).unwrap());
    }
    hash.0
}

#[test]
fn placements_and_schedules_are_as_they_were() {
    let known = include_str!("../data/placements.txt");
    let mut changed = Vec::new();
    for (set, problems) in sets() {
        let strategies = STRATEGIES.iter().map(|(name, _)| format!("{set} {name} {:016x}", placed(&problems, name)));
        let orders = ORDERS.iter().map(|order| format!("{set} under {order} {:016x}", simulated(&problems, order)));
        changed.extend(strategies.chain(orders).filter(|line| !known.lines().any(|known| known == line)));
    }
    assert!(changed.is_empty(), "these are new:\n{}", changed.join("\n"));
}
