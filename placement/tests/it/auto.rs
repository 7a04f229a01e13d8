//! Auto beats every strategy on a TensorFlow graph, and its schedule passes the checker.

use anabranch_placement::check::{check_placement, check_schedule};
use anabranch_placement::format::read_problems;
use anabranch_placement::place::{Auto, STRATEGIES};
use anabranch_placement::rules::Rules;

/// The best strategies reach 77.5 and 62.4 on the thesis' convolutional network.
#[test]
fn the_convolutional_network_gets_shorter() {
    for (devices, strategies, at_most) in [("devices_7.csv", 77.6, 73.0), ("devices_50.csv", 62.5, 58.5)] {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/");
        let paths = ["convolutional_network_graph.csv", devices].map(|name| format!("{data}{name}"));
        let loaded = read_problems(&paths).unwrap().remove(0);
        let problem = loaded.problem().unwrap().under(Rules::THESIS).unwrap();
        let improved = Auto { evaluations: Some(1000), seed: 0 }.improve(&problem, |_, _| {}).unwrap();
        let makespan = improved.schedule.makespan;
        assert_eq!(check_placement(&problem, &improved.placement().device_of), []);
        assert_eq!(check_schedule(&problem, &improved.placement().device_of, &improved.schedule), []);
        assert_eq!(improved.portfolio.len(), STRATEGIES.len());
        assert!(improved.portfolio[0].1 <= strategies, "{devices}: {:?}", improved.portfolio);
        assert!(improved.bound.value <= makespan && makespan <= at_most, "{devices}: {makespan}");
    }
}
