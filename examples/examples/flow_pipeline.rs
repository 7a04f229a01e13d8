//! Pipeline of three nodes under a local scheduler without and with stealing: a stage is one node, which a placement
//! keeps on one machine.
//!
//!     cargo run --release -p anabranch-examples --example flow_pipeline

use anabranch::flow::{Flow, FlowError, FlowOptions, FlowReport, Scheduler, WorkerConfig};

/// Returns the digits of the factorial of each number that ends in 7, in order.
fn digits(options: &FlowOptions) -> Result<(Vec<String>, FlowReport), FlowError> {
    let mut flow = Flow::new();
    let numbers = flow.source("numbers", 0..400u32);
    let wanted = flow.filter("wanted", &numbers, |number| (number % 10 == 7).then_some(number));
    let factorials = flow.node("factorials", &wanted, |number| {
        let mut digits = vec![1u32];
        for factor in 2..=number {
            let mut carry = 0;
            for digit in &mut digits {
                (*digit, carry) = ((*digit * factor + carry) % 10, (*digit * factor + carry) / 10);
            }
            while carry > 0 {
                digits.push(carry % 10);
                carry /= 10;
            }
        }
        (number, digits.len())
    });
    let mut total = 0;
    let lines = flow.serializer("lines", &factorials, move |(number, digits)| {
        total += digits;
        format!("{number}! has {digits} digits, {total} until here")
    });
    let lines = flow.collect("kept", &lines);
    let report = flow.run(options)?;
    Ok((lines.take(), report))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let worker_config = WorkerConfig::machines(2, 1)?;
    for scheduler in [Scheduler::Central, Scheduler::Local, Scheduler::Stealing] {
        let options = FlowOptions::default().with_workers(worker_config.clone()).with_scheduler(scheduler);
        let (lines, report) = digits(&options)?;
        let tasks: Vec<u64> = report.workers.iter().map(|worker| worker.tasks).collect();
        println!(
            "{:8} {:?}, tasks by worker {tasks:?}, {} messages",
            scheduler.name(),
            report.time,
            report.traffic.messages
        );
        lines.last().into_iter().for_each(|line| println!("         {line}"));
    }
    Ok(())
}
