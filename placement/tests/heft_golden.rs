//! HEFT finds the schedules of the paper and of two established implementations.

use anabranch_placement::check::check_schedule;
use anabranch_placement::cost::CostTable;
use anabranch_placement::graph::{GraphBuilder, Task, TaskId};
use anabranch_placement::place::{Heft, Placer};
use anabranch_placement::platform::{Device, DeviceKind, Platform};
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_placement::simulate::SimulateOptions;
use serde::Deserialize;

/// A graph with a time for each task and device, and the makespan that HEFT reaches.
#[derive(Deserialize)]
struct Case {
    name: String,
    times: Vec<Vec<Option<f64>>>,
    rates: Vec<Vec<f64>>,
    edges: Vec<(u32, u32, f64)>,
    makespan: f64,
}

/// Sizes in the file are decimal fractions with at most nine digits; data have whole bytes.
const BYTES_A_UNIT: f64 = 1e9;

fn heft_makespan(case: &Case) -> f64 {
    let mut builder = GraphBuilder::new();
    for number in 0..case.times.len() {
        builder.task(Task::new(format!("t{number}")));
    }
    for &(from, to, size) in &case.edges {
        builder.edge(TaskId(from), TaskId(to), (size * BYTES_A_UNIT).round() as u64);
    }
    let graph = builder.build().unwrap();
    let devices = (0..case.rates.len()).map(|number| Device::new(format!("d{number}"), DeviceKind::Cpu)).collect();
    let link = |from: usize, to: usize| (0.0, case.rates[from][to] * BYTES_A_UNIT);
    let platform = Platform::new(devices, |from, to| link(from.index(), to.index())).unwrap();
    let costs = CostTable::from_fn(&graph, &platform, |task, device| case.times[task.index()][device.index()]).unwrap();
    let problem = Problem::new(&graph, &platform, &costs, MemoryRule::Ignore).unwrap();
    let placement = Heft.place(&problem).unwrap();
    let planned = placement.planned.unwrap();
    let violations = check_schedule(&problem, &placement.device_of, &planned, &SimulateOptions::default());
    assert_eq!(violations, [], "{}", case.name);
    planned.makespan
}

#[test]
fn makespans_are_those_of_the_reference() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("data/heft.json")).unwrap();
    for case in &cases {
        let makespan = heft_makespan(case);
        assert!((makespan - case.makespan).abs() <= 1e-9 * case.makespan, "{}: {makespan}", case.name);
    }
}
