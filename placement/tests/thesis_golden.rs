//! The simulator reproduces, for given assignments of a TensorFlow graph, what the thesis' evaluation reports about them under
//! PCT, and the schedule that its section 2.5 works out by hand. `thesis_reference.rs` is about MSR and FIFO.

use anabranch_placement::check::{Violation, check_placement, check_schedule};
use anabranch_placement::cost::OperationsOverSpeed;
use anabranch_placement::format::thesis::{read_graph, read_platform};
use anabranch_placement::graph::{TaskGraph, TaskId};
use anabranch_placement::order::{Fifo, Msr, Order, Pct};
use anabranch_placement::platform::{DeviceId, Platform};
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_placement::simulate::{SimulateOptions, simulate};
use anabranch_placement::transfer::Sends;
use serde::Deserialize;
use std::fs::File;
use std::path::PathBuf;

/// An assignment of the convolutional network, and what the thesis' evaluation says about it.
#[derive(Deserialize)]
struct Case {
    partitioner: String,
    devices: String,
    pct: f64,
    traffic: u64,
    sends: usize,
    traffic_by_edge: u64,
    cut_edges: usize,
    device_of: Vec<u32>,
}

fn data(name: &str) -> File {
    File::open(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

fn load(graph: &str, devices: &str) -> (TaskGraph, Platform) {
    (read_graph(data(graph)).unwrap().0, read_platform(data(devices)).unwrap())
}

fn assert_close(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found - expected).abs() <= tolerance * expected, "{what}: {found} instead of {expected}");
}

#[test]
fn makespans_traffic_and_sends_of_given_assignments() {
    let cases: Vec<Case> = serde_json::from_reader(data("convolutional_network_assignments.json")).unwrap();
    for case in cases {
        let (graph, platform) = load("convolutional_network_graph.csv", &case.devices);
        let costs = OperationsOverSpeed::new(&graph, &platform);
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::SizeEstimate).unwrap();
        let device_of: Vec<DeviceId> = case.device_of.iter().copied().map(DeviceId).collect();
        let name = format!("{} on {}", case.partitioner, case.devices);

        let sends = Sends::of(&graph, &device_of);
        let found = (sends.traffic(), sends.count(), sends.traffic_by_edge(), sends.cut_edges());
        assert_eq!(found, (case.traffic, case.sends, case.traffic_by_edge, case.cut_edges), "{name}");

        let makespan = |order: &dyn Order| {
            let schedule = simulate(&problem, &device_of, order, &SimulateOptions::THESIS).unwrap();
            assert_eq!(check_schedule(&problem, &device_of, &schedule, &SimulateOptions::THESIS), [], "{name}");
            schedule.makespan
        };
        assert_close(makespan(&Pct), case.pct, 1e-9, &name);
        // The checker judges the others too.
        makespan(&Msr);
        makespan(&Fifo);
    }
}

/// The reference's ICP puts nodes on devices of a kind that they do not allow. All other assignments are valid.
#[test]
fn the_checker_finds_the_one_invalid_assignment() {
    let cases: Vec<Case> = serde_json::from_reader(data("convolutional_network_assignments.json")).unwrap();
    for case in cases {
        let (graph, platform) = load("convolutional_network_graph.csv", &case.devices);
        let costs = OperationsOverSpeed::new(&graph, &platform);
        let problem = Problem::new(&graph, &platform, &costs, MemoryRule::SizeEstimate).unwrap();
        let device_of: Vec<DeviceId> = case.device_of.iter().copied().map(DeviceId).collect();
        let violations = check_placement(&problem, &device_of);
        assert_eq!(violations.is_empty(), case.partitioner != "ICP", "{}: {violations:?}", case.partitioner);
        assert!(violations.iter().all(|violation| matches!(violation, Violation::Kind { .. })));
    }
}

/// Figures 2.3 and 2.4. The text does not print the edges; 0→1, 1→2, 1→4, 2→3, 4→5 are the ones that give its times.
#[test]
fn the_schedule_of_section_2_5() {
    let (graph, platform) = load("fig2_3_graph.csv", "fig2_3_devices.csv");
    let costs = OperationsOverSpeed::new(&graph, &platform);
    let problem = Problem::new(&graph, &platform, &costs, MemoryRule::SizeEstimate).unwrap();
    let device_of = [0, 0, 1, 1, 2, 2].map(DeviceId);
    for order in [&Pct as &dyn Order, &Msr, &Fifo] {
        let schedule = simulate(&problem, &device_of, order, &SimulateOptions::THESIS).unwrap();
        let times: Vec<(f64, f64)> = schedule.tasks.iter().map(|span| (span.start, span.end)).collect();
        assert_eq!(times, [(0.0, 3.0), (3.0, 8.0), (11.0, 13.0), (13.0, 14.0), (11.0, 12.0), (12.0, 14.0)]);
        let transfers: Vec<(u32, f64, f64)> =
            schedule.transfers.iter().map(|transfer| (transfer.to.0, transfer.send_end, transfer.end)).collect();
        assert_eq!(transfers, [(1, 9.0, 11.0), (2, 10.0, 11.0)]);
        assert_eq!((schedule.makespan, schedule.traffic), (14.0, 100));
        assert_eq!(schedule.order, [0, 1, 2, 4, 5, 3].map(TaskId));
    }
}
