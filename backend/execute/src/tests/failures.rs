//! Every failure is named, leaves all workers idle, and does not affect the next run.

use super::faults::{fail_at, refuse};
use super::naive::{hook, hook_team};
use super::runs::ladder;
use super::{assert_ended, assert_right, executor, executor_with, inputs, kernels, threads_named};
use crate::faults::Operation;
use crate::{Activity, CancelToken, ExecError, Executor, Kernels, RunOptions};
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::sync::{Mutex, lock};
use anabranch_ir::program::NodeId;
use anabranch_kernels::KernelError;
use anabranch_plan::test_programs::PlacedProgram;
use anabranch_plan::{ChunkRule, PlanOptions, StreamMode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(super) const WELL: u8 = 0;
pub(super) const REFUSES: u8 = 1;
pub(super) const PANICS: u8 = 2;
pub(super) const SLEEPS: u8 = 3;

/// A program with one node that misbehaves on demand.
pub(super) fn bad(placed: &PlacedProgram, node: u32) -> (Arc<Kernels>, Arc<AtomicU8>) {
    let (kernels, mood) = (kernels(&placed.program), Arc::new(AtomicU8::new(WELL)));
    let own = Arc::clone(&mood);
    hook(&kernels, node, move || {
        match own.load(Ordering::Relaxed) {
            REFUSES => return Err(KernelError::Value { op: "bad", reason: "index 7 is out of range".into() }),
            PANICS => std::panic::resume_unwind(Box::new("a bad kernel")),
            SLEEPS => std::thread::sleep(Duration::from_millis(100)),
            _ => {}
        }
        Ok(())
    });
    (kernels, mood)
}

fn run(executor: &Executor, options: &RunOptions) -> Result<(), ExecError> {
    executor.run(&inputs(executor.program()), options).map(|_| ())
}

#[test]
fn errors_and_panics_name_node_and_device_and_pass() {
    let placed = ladder(&["cpu", "cpu", "cpu"], 4, &[6]);
    for node in [0, 4, 11] {
        let (kernels, mood) = bad(&placed, node);
        let executor = executor_with(&placed, kernels, &PlanOptions::default(), 2);
        let device = placed.devices[placed.placement.device_of[node as usize].index()].name.clone();
        for _ in 0..3 {
            for ill in [REFUSES, PANICS] {
                mood.store(ill, Ordering::Relaxed);
                let error = run(&executor, &RunOptions::default()).expect_err("the kernel is bad");
                assert_eq!(error.node, Some(format!("node{node}")));
                assert_eq!(error.device, Some(device.clone()));
                let text = error.to_string();
                assert!(text.contains("index 7") || text.contains("a bad kernel"), "{text}");
                mood.store(WELL, Ordering::Relaxed);
                assert_right(&executor, &RunOptions::default());
            }
        }
    }
}

#[test]
fn events_of_a_failed_run_are_forgotten() {
    let placed = ladder(&["cpu", "cpu"], 2, &[6]);
    let (kernels, mood) = bad(&placed, 3);
    let executor = executor_with(&placed, kernels, &PlanOptions::default(), 1);
    let profiled = RunOptions::default().with_profile(true);
    mood.store(PANICS, Ordering::Relaxed);
    run(&executor, &profiled).expect_err("the kernel is bad");
    mood.store(WELL, Ordering::Relaxed);
    let events = |options: &RunOptions| executor.run(&inputs(&placed.program), options).expect("well again").events;
    assert_eq!(events(&RunOptions::default()), []);
    let nodes = events(&profiled).iter().filter(|event| matches!(event.what, Activity::Node(_))).count();
    assert_eq!(nodes, placed.program.nodes.len());
}

#[test]
fn threads_end_with_the_executor() {
    let mut placed = ladder(&["cpu", "cpu"], 1, &[5]);
    for device in &mut placed.devices {
        device.name = format!("ending-{}", device.name);
    }
    assert_eq!(threads_named("ending-"), 0);
    let executor = executor(&placed, &PlanOptions::default(), 1);
    assert_right(&executor, &RunOptions::default());
    assert_eq!(threads_named("ending-"), 1, "the caller is the host's");
    drop(executor);
    assert_ended("ending-");
}

#[test]
fn runs_can_be_cancelled_at_any_time() {
    let ladder = executor(&ladder(&["cpu", "cpu", "cpu"], 40, &[256]), &PlanOptions::default(), 1);
    let chunks =
        PlanOptions { streaming: StreamMode::Always, chunk: ChunkRule::Rows(1), capacity: 2, ..PlanOptions::default() };
    let gang = executor(&PlacedProgram::chain(&["cpu", "cpu", "cpu"], &[0, 1, 2], &[20, 11]), &chunks, 1);
    for (executor, step) in [(ladder, 1), (gang, 4)] {
        for microseconds in (0..35).map(|at| at * at * step) {
            let token = CancelToken::new();
            let options = RunOptions::default().with_cancel(token.clone());
            let result = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_micros(microseconds));
                    token.cancel();
                });
                run(&executor, &options)
            });
            assert!(matches!(result.map_err(|error| error.kind), Ok(()) | Err(ErrorKind::Cancelled)));
            let error = run(&executor, &options).expect_err("the token stays cancelled");
            assert_eq!(error.kind, ErrorKind::Cancelled);
            assert_right(&executor, &RunOptions::default());
        }
    }
}

#[test]
fn a_sleeping_kernel_is_left_after_the_timeout() {
    let placed = ladder(&["cpu", "cpu"], 4, &[6]);
    let (kernels, mood) = bad(&placed, 1);
    let executor = executor_with(&placed, kernels, &PlanOptions::default(), 1);
    mood.store(SLEEPS, Ordering::Relaxed);
    let (timeout, begin) = (Duration::from_millis(20), Instant::now());
    let options = RunOptions::default().with_timeout(timeout);
    let error = run(&executor, &options).expect_err("too slow");
    let (node, device) = (&placed.program.node(NodeId(1)).name, "cpu1");
    assert_eq!((error.node.as_ref(), error.device.as_deref()), (Some(node), Some(device)));
    let text = format!("node {node:?} on {device:?}: the run did not end within 20ms");
    assert_eq!((error.kind, error.to_string()), (ErrorKind::Timeout, text));
    assert!(begin.elapsed() >= Duration::from_millis(100), "a part of a kernel is not interrupted");
    mood.store(WELL, Ordering::Relaxed);
    assert_right(&executor, &RunOptions::default());
}

/// On each device and number of threads, by a token and by a clock.
#[test]
fn a_kernel_is_left_between_its_parts() {
    const PARTS: usize = 20_000;
    let placed = ladder(&["cpu", "cpu"], 4, &[6]);
    for (node, threads) in (0..6).flat_map(|node| [(node, 1), (node, 2)]) {
        let (kernels, token) = (kernels(&placed.program), CancelToken::new());
        let (long, begun) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (is_long, count, cancel) = (Arc::clone(&long), Arc::clone(&begun), token.clone());
        hook_team(&kernels, node, move |team| {
            if is_long.load(Ordering::Relaxed) {
                team.run(PARTS, &|part| {
                    count.fetch_add(1, Ordering::Relaxed);
                    if part == 3 {
                        cancel.cancel();
                    }
                    std::thread::sleep(Duration::from_millis(1));
                });
                // The missing part makes the kernel fail, but that is not the reason for the run's end.
                return Err(KernelError::Value { op: "long", reason: "parts are missing".into() });
            }
            Ok(())
        });
        let executor = executor_with(&placed, kernels, &PlanOptions::default(), threads);
        let clock = RunOptions::default().with_timeout(Duration::from_millis(20));
        let by_token = RunOptions::default().with_cancel(token.clone());
        // The token comes first, while it is not cancelled.
        for (options, kind) in [(by_token, ErrorKind::Cancelled), (clock, ErrorKind::Timeout)] {
            begun.store(0, Ordering::Relaxed);
            let error = run(&executor, &options).expect_err("it takes too long");
            assert_eq!(error.kind, kind, "node {node}: {error}");
            let begun = begun.load(Ordering::Relaxed);
            // On a busy machine the clock may end before the kernel starts.
            let least = usize::from(kind == ErrorKind::Cancelled);
            assert!((least..PARTS).contains(&begun), "node {node}, {threads} threads: {begun} parts");
        }
        long.store(false, Ordering::Relaxed);
        assert_right(&executor, &RunOptions::default());
    }
}

#[test]
fn a_lost_message_is_a_stall_with_its_graph() {
    let placed = ladder(&["cpu", "cpu"], 2, &[6]);
    let executor = executor(&placed, &PlanOptions::default(), 1);
    // First message of the host to the second device: the input is present.
    fail_at(&executor, Operation::Message, 0, &refuse());
    let options = RunOptions::default().with_stall_after(Duration::from_millis(50));
    let error = run(&executor, &options).expect_err("a message is lost");
    let text = error.to_string();
    assert_eq!((error.kind, text.matches(" waits at ").count()), (ErrorKind::Internal, 2), "{text}");
    let (_, second) = text.split_once("cpu1 waits at node \"node").expect("it lacks what was lost");
    assert!(second.split(';').next().is_some_and(|waits| waits.ends_with(" for cpu0")), "{text}");
    assert!(lock(&executor.state).engine.is_none(), "it is made anew");
    assert_right(&executor, &RunOptions::default());
}

#[test]
fn a_run_within_a_run_is_refused() {
    let placed = ladder(&["cpu", "cpu"], 1, &[6]);
    let (kernels, own) = (kernels(&placed.program), Arc::new(Mutex::new(None::<Arc<Executor>>)));
    let known = Arc::clone(&own);
    // A kernel that runs its own executor.
    hook(&kernels, 0, move || {
        let executor = lock(&known).clone().expect("set before the run");
        // A refusal must not let the next attempt through, which would wait for its own run.
        let _ = run(&executor, &RunOptions::default());
        let refused = |error: ExecError| KernelError::Value { op: "nested", reason: error.to_string() };
        run(&executor, &RunOptions::default()).map_err(refused)
    });
    let executor = Arc::new(executor_with(&placed, kernels, &PlanOptions::default(), 1));
    *lock(&own) = Some(Arc::clone(&executor));
    let error = run(&executor, &RunOptions::default()).expect_err("a run within a run");
    assert!(error.to_string().contains("from within a kernel"), "{error}");
    *lock(&own) = None;
}
