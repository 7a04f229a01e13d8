//! Auto beats every strategy on a TensorFlow graph, and its schedule passes the checker.

use anabranch_placement::check::{check_placement, check_schedule};
use anabranch_placement::cost::OperationsOverSpeed;
use anabranch_placement::format::thesis::{read_graph, read_platform};
use anabranch_placement::place::{Auto, STRATEGIES};
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_placement::simulate::SimulateOptions;
use std::fs::File;
use std::path::PathBuf;

fn data(name: &str) -> File {
    File::open(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

/// On the thesis' convolutional network the best strategies come to 77.5 and 62.4.
#[test]
fn the_convolutional_network_gets_shorter() {
    for (devices, strategies, at_most) in [("devices_7.csv", 77.6, 73.0), ("devices_50.csv", 62.5, 58.5)] {
        let graph = read_graph(data("convolutional_network_graph.csv")).unwrap().0;
        let platform = read_platform(data(devices)).unwrap();
        let costs = OperationsOverSpeed::new(&graph, &platform);
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::SizeEstimate).unwrap();
        let options = SimulateOptions::THESIS;
        let improved = Auto { evaluations: Some(1000), seed: 0, options }.improve(&problem, |_, _| {}).unwrap();
        let makespan = improved.schedule.makespan;
        assert_eq!(check_placement(&problem, &improved.placement.device_of), []);
        assert_eq!(check_schedule(&problem, &improved.placement.device_of, &improved.schedule, &options), []);
        assert_eq!(improved.portfolio.len(), STRATEGIES.len());
        assert!(improved.portfolio[0].1 <= strategies, "{devices}: {:?}", improved.portfolio);
        assert!(improved.bound.value <= makespan && makespan <= at_most, "{devices}: {makespan}");
    }
}
