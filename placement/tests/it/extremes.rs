//! Graphs at the limits of what is allowed: the empty graph, one task, long chains, wide fans, costs of zero.

use anabranch_placement::check::{check_placement, check_schedule};
use anabranch_placement::cost::CostTable;
use anabranch_placement::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use anabranch_placement::order::{ORDERS, order_by_name};
use anabranch_placement::place::{Auto, STRATEGIES, strategy_by_name};
use anabranch_placement::platform::{Device, DeviceKind, Platform};
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_placement::simulate::simulate;

/// Returns a platform of a CPU and a GPU device.
fn pair() -> Platform {
    let devices = vec![Device::new("cpu", DeviceKind::Cpu), Device::new("gpu", DeviceKind::Gpu).with_memory(1 << 30)];
    Platform::uniform(devices, 0.25, 100.0).unwrap()
}

/// Places and simulates `graph` with all strategies and orders, and returns the makespans.
fn run_in_every_way(graph: &TaskGraph, platform: &Platform, time: f64) -> Vec<f64> {
    let costs = CostTable::from_fn(graph, platform, |_, _| Some(time)).unwrap();
    let problem = Problem::new(graph, platform, &costs, MemoryRule::SizeEstimate).unwrap();
    let mut makespans = Vec::new();
    let mut strategies: Vec<_> = STRATEGIES.iter().filter_map(|&(name, _)| strategy_by_name(name)).collect();
    strategies.push(Box::new(Auto { evaluations: Some(20), ..Auto::default() }));
    for strategy in strategies {
        let placement = strategy.place(&problem).unwrap();
        assert_eq!(check_placement(&problem, &placement.device_of), []);
        for order in ORDERS {
            let order = order_by_name(order).unwrap();
            let schedule = simulate(&problem, &placement.device_of, order.as_ref()).unwrap();
            assert_eq!(check_schedule(&problem, &placement.device_of, &schedule), []);
            makespans.push(schedule.makespan);
        }
    }
    makespans
}

fn tasks(builder: &mut GraphBuilder, count: usize) -> Vec<TaskId> {
    (0..count).map(|number| builder.task(Task::new(format!("t{number}")))).collect()
}

#[test]
fn an_empty_graph_takes_no_time_even_on_an_empty_platform() {
    let graph = GraphBuilder::new().build().unwrap();
    for platform in [pair(), Platform::uniform(Vec::new(), 0.0, 1.0).unwrap()] {
        assert!(run_in_every_way(&graph, &platform, 1.0).iter().all(|&makespan| makespan == 0.0));
    }
}

#[test]
fn a_single_task_takes_its_time() {
    let mut builder = GraphBuilder::new();
    tasks(&mut builder, 1);
    assert!(run_in_every_way(&builder.build().unwrap(), &pair(), 3.0).iter().all(|&makespan| makespan == 3.0));
}

#[test]
fn a_chain_of_ten_thousand_tasks() {
    let mut builder = GraphBuilder::new();
    let tasks = tasks(&mut builder, 10_000);
    for pair in tasks.windows(2) {
        builder.edge(pair[0], pair[1], 8);
    }
    let makespans = run_in_every_way(&builder.build().unwrap(), &pair(), 1.0);
    assert!(makespans.iter().all(|&makespan| makespan >= 10_000.0));
    assert!(makespans[..ORDERS.len()].iter().all(|&makespan| makespan == 10_000.0), "HEFT keeps a chain together");
}

#[test]
fn a_fan_of_five_thousand_tasks_and_back() {
    let mut builder = GraphBuilder::new();
    let tasks = tasks(&mut builder, 5_002);
    let spread = builder.datum(tasks[0], 1);
    for &middle in &tasks[1..5_001] {
        builder.consume(spread, middle);
        builder.edge(middle, tasks[5_001], 1);
    }
    let makespans = run_in_every_way(&builder.build().unwrap(), &pair(), 1.0);
    assert!(makespans.iter().all(|&makespan| (2_502.0..=5_100.0).contains(&makespan)), "{makespans:?}");
    assert!(makespans[0] < 2_504.0, "HEFT uses both devices");
}

#[test]
fn costs_of_zero_are_costs() {
    let mut builder = GraphBuilder::new();
    let tasks = tasks(&mut builder, 200);
    for (number, &task) in tasks.iter().enumerate().skip(1) {
        builder.edge(tasks[number / 2], task, 0);
    }
    // Only latencies are left, and the strategies that compare finish times avoid them.
    let makespans = run_in_every_way(&builder.build().unwrap(), &pair(), 0.0);
    assert!(makespans[..ORDERS.len()].iter().all(|&makespan| makespan == 0.0));
    assert!(makespans.iter().all(|&makespan| makespan <= 0.25 * 200.0));
}

#[test]
fn a_time_that_is_no_number_is_refused() {
    let mut builder = GraphBuilder::new();
    tasks(&mut builder, 1);
    let graph = builder.build().unwrap();
    assert!(CostTable::from_fn(&graph, &pair(), |_, _| Some(f64::NAN)).is_err());
}
