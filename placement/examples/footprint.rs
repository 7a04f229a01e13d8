//! Evaluation of footprints on generated graphs, as the tables of `bench/FOOTPRINT.md`.
//!
//! * `footprint figures`: cores, devices and partitions that keep a deadline, with their bounds. Also edge zeroing
//!   against HEFT on an equal number of devices. The figures depend on the seeds only.
//! * `footprint times`: time of antichains, edge zeroing and memory bounds on graphs of some thousand tasks. Build with
//!   `--release`.

use anabranch_placement::cost::CostTable;
use anabranch_placement::evaluate::{Baseline, Metrics};
use anabranch_placement::footprint::check::{check_cores, check_devices, check_partitioning};
use anabranch_placement::footprint::{
    Capacity, Partitioning, Problem, fewest_cores, fewest_devices, fewest_partitions, heaviest_antichain, live_bytes,
    merge_rest, zero_edges,
};
use anabranch_placement::generate::Family;
use anabranch_placement::graph::TaskGraph;
use anabranch_placement::order::Pct;
use anabranch_placement::pipeline::Link;
use anabranch_placement::place::{ListScheduler, Placer};
use anabranch_placement::platform::{Device, DeviceKind, Platform};
use anabranch_placement::problem::{self, MemoryRule};
use anabranch_placement::simulate::simulate;
use std::error::Error;
use std::time::Instant;

const GRAPHS: [(&str, u32); 8] = [
    ("wavefront", 20),
    ("fft", 64),
    ("gauss", 24),
    ("cholesky", 12),
    ("fork-join", 20),
    ("in-tree", 8),
    ("random", 400),
    ("layered", 10),
];
const LARGE: [(&str, u32); 5] =
    [("wavefront", 100), ("fft", 512), ("cholesky", 36), ("random", 10_000), ("layered", 200)];
/// Cores of a device.
const CORES: u64 = 4;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("figures") => figures(),
        Some("times") => times(),
        _ => Err("usage: footprint figures | times".into()),
    }
}

/// Generates a graph of a family, with seed 1.
fn generated(name: &str, size: u32) -> Result<TaskGraph, Box<dyn Error>> {
    Ok(format!("{name}:{size}").parse::<Family>()?.generate(1)?)
}

/// Creates a problem with tasks of one core and a mean time of 1; the mean transfer of an edge takes as long.
fn problem(graph: &TaskGraph, cores: u64) -> Result<Problem<'_>, Box<dyn Error>> {
    let operations: f64 = graph.tasks().iter().map(|task| task.operations).sum();
    let scale = if operations > 0.0 { graph.task_count() as f64 / operations } else { 1.0 };
    let times = graph.tasks().iter().map(|task| if operations > 0.0 { task.operations * scale } else { 1.0 }).collect();
    let bytes: f64 =
        graph.datum_ids().map(|datum| graph.bytes(datum) as f64 * graph.consumers(datum).len() as f64).sum();
    let bandwidth = if bytes > 0.0 { bytes / graph.edge_count() as f64 } else { f64::INFINITY };
    let capacity = Capacity { cores, memory: None };
    Ok(Problem::new(graph, vec![1; graph.task_count()], times, capacity, Link { latency: 0.0, bandwidth })?)
}

fn figures() -> Result<(), Box<dyn Error>> {
    println!(
        "| graph | tasks | at a time | cores, path | + 5 % | + 50 % | devices of {CORES}, + 50 % | partitions of {CORES} | data at least / at most |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    for (name, size) in GRAPHS {
        let graph = generated(name, size)?;
        let problem = problem(&graph, CORES)?;
        let path = problem.longest_path(|_, _| false);
        let cores = |times: f64| -> Result<String, Box<dyn Error>> {
            let found = fewest_cores(&problem, path * times)?;
            assert!(check_cores(&problem, &found).is_empty());
            Ok(format!("{} ({})", found.cores, found.bound))
        };
        let merged = merge_rest(&problem);
        let devices = match fewest_devices(&problem, &merged, path * 1.5) {
            Ok(found) => {
                assert!(check_devices(&problem, &found).is_empty());
                format!("{} ({})", found.devices, found.bound)
            }
            Err(_) => "none".into(),
        };
        let partitions = fewest_partitions(&problem, merged, f64::MAX)?;
        assert!(check_partitioning(&problem, &partitions.partitioning).is_empty());
        let live = live_bytes(&graph)?;
        println!(
            "| {name} {size} | {} | {} | {} | {} | {} | {devices} | {} ({}) | {:.2} |",
            graph.task_count(),
            problem.parallelism(),
            cores(1.0)?,
            cores(1.05)?,
            cores(1.5)?,
            partitions.partitioning.parts.len(),
            partitions.bound,
            live.each_order as f64 / live.any_order.max(1) as f64,
        );
    }
    println!(
        "\n| graph | devices of 1 core | makespan, edge zeroing | HEFT | edges' bytes moved, edge zeroing | HEFT |"
    );
    println!("|---|--:|--:|--:|--:|--:|");
    for (name, size) in GRAPHS {
        against_heft(name, size)?;
    }
    Ok(())
}

/// Compares edge zeroing with HEFT, on the fewest devices of one core that edge zeroing needs for twice the longest
/// path.
fn against_heft(name: &str, size: u32) -> Result<(), Box<dyn Error>> {
    let graph = generated(name, size)?;
    // Colocated tasks that run in parallel do not fit on a device of one core.
    let Ok(footprint) = problem(&graph, 1) else { return Ok(()) };
    let path = footprint.longest_path(|_, _| false);
    let found = fewest_devices(&footprint, &merge_rest(&footprint), 2.0 * path)?;
    let zeroed = Partitioning::of(&footprint, &found.timetable.device_of);
    let devices = (0..found.devices).map(|number| Device::new(format!("d{number}"), DeviceKind::Cpu)).collect();
    let rate = graph
        .datum_ids()
        .map(|datum| graph.bytes(datum) as f64 / footprint.transfer(datum))
        .find(|rate| rate.is_finite());
    let platform = Platform::uniform(devices, 0.0, rate.unwrap_or(f64::INFINITY))?;
    let costs = CostTable::from_fn(&graph, &platform, |task, _| Some(footprint.time(task)))?;
    let problem = problem::Problem::new(&graph, &platform, &costs, MemoryRule::Ignore)?;
    let placement = ListScheduler::HEFT.place(&problem)?;
    let planned = placement.planned.ok_or("HEFT plans a schedule")?;
    let simulated = simulate(&problem, &placement.device_of, &Pct)?;
    let schedule = if simulated.makespan < planned.makespan { simulated } else { planned };
    let metrics = Metrics::of(&problem, &Baseline::of(&problem), &schedule);
    println!(
        "| {name} {size} | {} | {:.2} | {:.2} | {} | {} |",
        found.devices,
        found.timetable.makespan / path,
        schedule.makespan / path,
        zeroed.movement,
        metrics.traffic_per_edge,
    );
    Ok(())
}

fn times() -> Result<(), Box<dyn Error>> {
    println!(
        "| graph | tasks | edges | antichain | edge zeroing, 4 cores | and the rest merged | fewest cores, + 20 % | bytes of any order |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for (name, size) in LARGE {
        let graph = generated(name, size)?;
        let problem = problem(&graph, CORES)?;
        let path = problem.longest_path(|_, _| false);
        let ones = vec![1; graph.task_count()];
        let milliseconds = |work: &dyn Fn()| {
            let begun = Instant::now();
            work();
            begun.elapsed().as_secs_f64() * 1e3
        };
        let taken: [f64; 5] = [
            milliseconds(&|| drop(heaviest_antichain(&graph, &ones))),
            milliseconds(&|| drop(zero_edges(&problem))),
            milliseconds(&|| drop(merge_rest(&problem))),
            milliseconds(&|| drop(fewest_cores(&problem, path * 1.2))),
            milliseconds(&|| drop(live_bytes(&graph))),
        ];
        let taken = taken.map(|time| format!("{time:.1} ms")).join(" | ");
        println!("| {name} {size} | {} | {} | {taken} |", graph.task_count(), graph.edge_count());
    }
    Ok(())
}
