//! Ends of runs: panics, cancellations, and flows that would never end.

use super::super::{Flow, FlowError, FlowOptions, Output};
use super::{all_options, options};
use crate::{Scheduler, WorkerConfig};
use anabranch_base::cancel::CancelToken;
use std::time::Duration;

#[test]
fn a_panic_is_named_by_node_and_iteration() {
    for options in all_options() {
        let mut flow = Flow::new();
        let numbers = flow.source("numbers", 0..100u32);
        let halves = flow.node("halves", &numbers, |n| if n == 17 { panic!("no half of {n}") } else { n / 2 });
        flow.collect("kept", &halves);
        let expected = FlowError::Panicked { node: "halves".into(), iteration: 17, message: "no half of 17".into() };
        assert_eq!(flow.run(&options).err(), Some(expected));
    }
}

#[test]
fn panics_of_serializers_and_sources_are_named_too() {
    let mut flow = Flow::new();
    let numbers = flow.source("numbers", (0..9).map(|n| if n == 4 { panic!("{}", "torn") } else { n }));
    flow.serializer("kept", &numbers, |_| ());
    let error = flow.run(&options(1, 2, Scheduler::Stealing)).expect_err("it panics");
    assert_eq!(error.to_string(), "node \"numbers\" panicked in iteration 4: torn");
}

#[test]
fn a_token_ends_an_endless_stream() {
    for options in all_options() {
        let token = CancelToken::new();
        let mut flow = Flow::new();
        let numbers = flow.source("numbers", 0u64..);
        flow.serializer("kept", &numbers, |n| {
            if n == 1000 {
                token.cancel()
            }
        });
        assert_eq!(flow.run(&options.with_cancel(token.clone())).err(), Some(FlowError::Cancelled));
    }
    let token = CancelToken::new();
    token.cancel();
    let mut flow = Flow::new();
    flow.source("numbers", 0u64..);
    let options = options(1, 2, Scheduler::Local).with_cancel(token);
    assert_eq!(flow.run(&options).err(), Some(FlowError::Cancelled));
}

#[test]
fn a_token_wakes_workers_that_wait() {
    let token = CancelToken::new();
    let mut flow = Flow::new();
    let numbers = flow.source(
        "numbers",
        std::iter::from_fn(|| {
            std::thread::sleep(Duration::from_millis(20));
            token.cancel();
            Some(1)
        }),
    );
    flow.collect("kept", &numbers);
    let options = options(2, 2, Scheduler::Local).with_cancel(token.clone()).with_spin(Duration::ZERO);
    assert_eq!(flow.run(&options).err(), Some(FlowError::Cancelled));
}

#[test]
fn sources_of_different_lengths_are_reported_instead_of_waited_for() {
    for options in all_options() {
        let mut flow = Flow::new();
        let (some, more) = (flow.source("some", 0..5), flow.source("more", 0..));
        let sums = flow.node("sums", (&some, &more), |(a, b)| a + b);
        let sums = flow.collect("kept", &sums);
        let error = flow.run(&options).expect_err("they differ");
        assert!(
            matches!(&error, FlowError::Uneven { ended, items: 5, other, more } if ended == "some" && other == "more" && *more > 5)
        );
        assert!(error.to_string().contains("`take`"), "{error}");
        assert_eq!(sums.take(), [0, 2, 4, 6, 8]);
    }
}

fn refusal(declare: impl FnOnce(&mut Flow<'_>)) -> FlowError {
    let mut flow = Flow::new();
    declare(&mut flow);
    flow.run(&options(2, 1, Scheduler::Local)).expect_err("it cannot run")
}

#[test]
fn what_would_wait_for_ever_is_refused() {
    let nobody = refusal(|flow| {
        let nobody: [Output<'_, u8>; 0] = [];
        flow.node("lonely", &nobody[..], |none| none.len());
    });
    assert!(nobody.to_string().contains("\"lonely\" reads no port"), "{nobody}");
    let pinned = refusal(|flow| {
        flow.feeder("far", 1).pin(2);
    });
    assert_eq!(pinned, FlowError::UnknownWorker { node: "far".into(), worker: 2, last: 1 });
    let bound = refusal(|flow| {
        flow.feeder("far", 1).machine(7);
    });
    assert_eq!(bound, FlowError::UnknownMachine { node: "far".into(), machine: 7, last: 1 });
    let torn = refusal(|flow| {
        flow.feeder("torn", 1).pin(0).machine(1);
    });
    assert_eq!(torn, FlowError::PinElsewhere { node: "torn".into(), worker: 0, machine: 1 });
    assert!(matches!(refusal(|_| ()), FlowError::Options(why) if why.contains("no nodes")));
}

#[test]
fn what_is_declared_wrongly_is_refused() {
    let twice = refusal(|flow| {
        flow.feeder("same", 1);
        flow.feeder("same", 2);
    });
    assert_eq!(twice, FlowError::TwoOfOneName { node: "same".into() });
    let mut other = Flow::new();
    let stranger = other.feeder("stranger", 1);
    let mut own = Flow::new();
    own.feeder("own", 1);
    own.node("reader", &stranger, |n| n);
    let foreign = own.run(&FlowOptions::default()).expect_err("it cannot run");
    assert_eq!(foreign, FlowError::Foreign { node: 1 });
    let weighty = refusal(|flow| {
        flow.feeder("weighty", 1).weight(f64::NAN);
    });
    assert!(matches!(weighty, FlowError::Weight { node, .. } if node == "weighty"));
    for (machines, workers) in [(0, 1), (1, 0), (1, 1025), (u32::MAX, u32::MAX)] {
        assert!(WorkerConfig::machines(machines, workers).is_err());
    }
    let mut flow = Flow::new();
    flow.source("numbers", 0..3);
    let wide = FlowOptions::default().with_window(usize::MAX);
    assert!(matches!(flow.run(&wide), Err(FlowError::Options(why)) if why.contains("smaller window")));
}
