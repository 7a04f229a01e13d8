//! Longest common subsequence of two texts as a wavefront: a flow with one node per block, placed on two machines by
//! several strategies.
//!
//!     cargo run --release -p anabranch-examples --example flow_wavefront

use anabranch::flow::programs::{Lcs, Program};
use anabranch::flow::{FlowOptions, Scheduler, WorkerConfig};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let program = Lcs::random(4000, 250, 1);
    let started = Instant::now();
    let length = program.sequential();
    println!("a plain loop finds {length} in {:?}", started.elapsed());
    let worker_config = WorkerConfig::machines(2, 1)?;
    println!("{:8} {:>12} {:>9} {:>10}", "place", "measured", "messages", "bytes");
    for place in ["sucuri", "heft", "hash"] {
        let (flow, lengths) = program.flow();
        let allocation = flow.place(place, &worker_config)?;
        let options = FlowOptions::default().with_workers(worker_config.clone()).with_scheduler(Scheduler::Local);
        let report = flow.run(&options.with_allocation(allocation))?;
        assert_eq!(lengths.take(), [length]);
        println!(
            "{place:8} {:>9.3} ms {:>9} {:>10}",
            report.time.as_secs_f64() * 1e3,
            report.traffic.messages,
            report.traffic.bytes
        );
    }
    Ok(())
}
