//! Flows under every scheduler, with one to four workers on one to four machines.

mod bindings;
mod ends;
mod random;
mod remote;
#[cfg(shuttle)]
mod schedules;
mod streams;

use super::{Crew, FlowOptions, Scheduler};

/// Returns options for every scheduler and some crews.
fn all_options() -> impl Iterator<Item = FlowOptions> {
    let crews = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (3, 1)];
    crews
        .into_iter()
        .flat_map(|(machines, workers)| Scheduler::ALL.map(|scheduler| options(machines, workers, scheduler)))
}

fn options(machines: u32, workers: u32, scheduler: Scheduler) -> FlowOptions {
    let crew = Crew::machines(machines, workers).expect("a small crew");
    FlowOptions::default().with_crew(crew).with_scheduler(scheduler)
}
