//! Flows under every scheduler, with one to four workers on one to four machines.

mod bindings;
mod ends;
mod random;
#[cfg(shuttle)]
mod schedules;
mod streams;

use super::{FlowOptions, Scheduler, WorkerConfig};

/// Returns options for every scheduler and some worker configurations.
fn all_options() -> impl Iterator<Item = FlowOptions> {
    let configs = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (3, 1)];
    configs
        .into_iter()
        .flat_map(|(machines, workers)| Scheduler::ALL.map(|scheduler| options(machines, workers, scheduler)))
}

fn options(machines: u32, workers: u32, scheduler: Scheduler) -> FlowOptions {
    let worker_config = WorkerConfig::machines(machines, workers).expect("a few workers");
    FlowOptions::default().with_workers(worker_config).with_scheduler(scheduler)
}
