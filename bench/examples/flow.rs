//! Cost of a task of a flow without its function, in nanoseconds per task. The flows are a chain, and a fork and join
//! of 1,000 nodes, for each scheduler. It prints one line of JSON; `bench/peers/flow` compares it with oneTBB.
//!
//!     cargo run --release -p anabranch-bench --example flow -- --workers 2 --rounds 9

use anabranch::flow::{Flow, FlowError, FlowOptions, FlowReport, Scheduler, WorkerConfig};
use clap::Parser;
use serde_json::json;
use std::collections::BTreeMap;

const NODES: u64 = 1000;

/// Runs of the graph within a sample, one after the other.
const RUNS: u64 = 100;

/// Nanoseconds a task of tiny flows.
#[derive(Parser)]
struct Arguments {
    /// Workers on one machine.
    #[arg(long, default_value_t = 2)]
    workers: u32,
    /// Samples of each.
    #[arg(long, default_value_t = 9)]
    rounds: u32,
}

fn chain(options: &FlowOptions) -> Result<FlowReport, FlowError> {
    let mut flow = Flow::new();
    let mut last = flow.feeder("node 0", 1u64);
    for number in 1..NODES {
        last = flow.node(format!("node {number}"), &last, |n| n + 1);
    }
    flow.run(options)
}

fn fork_join(options: &FlowOptions) -> Result<FlowReport, FlowError> {
    let mut flow = Flow::new();
    let fork = flow.feeder("fork", 1u64);
    let nodes: Vec<_> =
        (0..NODES - 2).map(|number| flow.node(format!("node {number}"), &fork, move |n| n + number)).collect();
    flow.node("join", &nodes[..], |sums| sums.iter().sum::<u64>());
    flow.run(options)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { workers, rounds } = Arguments::parse();
    let options = FlowOptions::default().with_workers(WorkerConfig::of(workers)?).with_iterations(RUNS).with_window(1);
    let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for round in 0..=rounds {
        for scheduler in Scheduler::ALL {
            let options = options.clone().with_scheduler(scheduler);
            for (name, report) in [("chain", chain(&options)?), ("fork and join", fork_join(&options)?)] {
                // The first round warms everything up.
                if round > 0 {
                    let nanoseconds = report.time.as_secs_f64() * 1e9 / (RUNS * NODES) as f64;
                    samples.entry(format!("{name}, {}", scheduler.name())).or_default().push(nanoseconds);
                }
            }
        }
    }
    println!("{}", json!({ "samples": samples }));
    Ok(())
}
