//! Matrix product by blocks under each scheduler, with the messages that each would send between two machines.
//!
//!     cargo run --release -p anabranch-examples --example flow_matmul

use anabranch::flow::programs::{Matmul, Program};
use anabranch::flow::{FlowOptions, Scheduler, WorkerConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let program = Matmul::random(400, 100, 1);
    let expected = program.sequential();
    for scheduler in Scheduler::ALL {
        let options = FlowOptions::default().with_workers(WorkerConfig::machines(2, 1)?).with_scheduler(scheduler);
        let (product, report) = program.run(&options)?;
        assert!(product.as_ref() == Some(&expected), "bit for bit what a loop gives");
        println!(
            "{:16} {:?}, {} messages, {} bytes",
            scheduler.name(),
            report.time,
            report.traffic.messages,
            report.traffic.bytes
        );
    }
    Ok(())
}
