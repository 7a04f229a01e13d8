//! The workers' protocol under a model checker: matching, turns, the reuse of slots, sleeping and waking. Many of the
//! possible interleavings are explored. A deadlock, a lost wake-up, a wrong result or a panic in any of them is a
//! failure.
//!
//! Operations of the deques and on operands are atomic steps.

use super::super::{Flow, FlowError, FlowOptions, Scheduler};
use super::options;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};
use std::time::Duration;

/// Interleavings that are explored per scenario and scheduler, half at random, half by probabilistic concurrency
/// testing.
const SCHEDULES: usize = 300;

/// Preemptions of a schedule by probabilistic concurrency testing.
const DEPTH: usize = 3;

fn explore(scenario: impl Fn(FlowOptions) + Send + Sync + Copy + 'static) {
    for scheduler in Scheduler::ALL {
        for (machines, workers) in [(1, 2), (2, 1), (1, 3)] {
            let run = move || scenario(options(machines, workers, scheduler).with_spin(Duration::ZERO));
            Runner::new(RandomScheduler::new(SCHEDULES / 2), Config::new()).run(run);
            Runner::new(PctScheduler::new(DEPTH, SCHEDULES / 2), Config::new()).run(run);
        }
    }
}

#[test]
fn streams_end_and_are_right() {
    explore(|options| {
        let mut flow = Flow::new();
        let numbers = flow.source("numbers", 0..4u32);
        let odd = flow.filter("odd", &numbers, |n| (n % 2 == 1).then_some(n));
        let doubled = flow.node("doubled", &numbers, |n| 2 * n);
        let sums = flow.node("sums", (&odd, &doubled), |(a, b)| a + b);
        let sums = flow.collect("kept", &sums);
        flow.run(&options.with_window(2)).expect("a sound flow");
        assert_eq!(sums.take(), [3, 9]);
    });
}

#[test]
fn forks_join_however_their_nodes_are_bound() {
    explore(|options| {
        let last = options.worker_config().worker_count() - 1;
        let mut flow = Flow::new();
        let base = flow.feeder("base", 1u32);
        let parts = [0, 1, 2].map(|n| flow.node(format!("part {n}"), &base, move |base| base << n));
        let pinned = flow.node("pinned", &base, |base| base << 3).pin(last);
        let sum = flow.node("sum", (&parts[0], &parts[1], &parts[2], &pinned), |(a, b, c, d)| a + b + c + d).pin(0);
        let sums = flow.collect("kept", &sum);
        flow.run(&options.with_iterations(2).with_window(1)).expect("a sound flow");
        assert_eq!(sums.take(), [15, 15]);
    });
}

#[test]
fn a_panic_ends_every_worker() {
    explore(|options| {
        let mut flow = Flow::new();
        let numbers = flow.source("numbers", 0..u32::MAX);
        let bad = flow.filter("bad", &numbers, |n| if n == 2 { std::panic::panic_any("bad") } else { Some(n) });
        flow.collect("kept", &bad);
        let error = flow.run(&options.with_window(2)).expect_err("it panics");
        assert!(matches!(error, FlowError::Panicked { iteration: 2, .. }));
    });
}
