//! Nodes of different devices that run at the same time and pass each other chunks.

use super::failures::{PANICS, REFUSES, WELL, bad};
use super::{assert_right, executor, executor_with, gpu, inputs, kernels, pool, run};
use crate::{Activity, Executor, RunOptions};
use anabranch_base::error_kind::ErrorKind;
use anabranch_ir::program::NodeId;
use anabranch_kernels::Tensor;
use anabranch_plan::test_programs::{Maker, PlacedProgram, add, random_program, relu};
use anabranch_plan::{ChunkRule, Plan, PlanOptions, StreamMode, check, test_programs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const DIMS: [usize; 2] = [20, 11];

fn always(chunk: ChunkRule, capacity: u32) -> PlanOptions {
    PlanOptions { streaming: StreamMode::Always, chunk, capacity, ..PlanOptions::default() }
}

fn chain(kinds: &[&str], device_of: &[u32]) -> PlacedProgram {
    PlacedProgram::chain(kinds, device_of, &DIMS)
}

/// `a → b → c` and `a → c`: a cycle, if the edges' directions are ignored.
fn cycle(kinds: &[&str]) -> PlacedProgram {
    let mut maker = Maker::new();
    let x = maker.input(&DIMS);
    let a = maker.node(relu(), &[x], &DIMS);
    let b = maker.node(relu(), &[a], &DIMS);
    let c = maker.node(add(), &[a, b], &DIMS);
    PlacedProgram::new(maker.finish(&[c]), kinds, &[1, 2, 0])
}

/// Number of nodes of each gang with more than one node.
fn gangs(plan: &Plan) -> Vec<usize> {
    test_programs::gangs(plan).iter().map(Vec::len).collect()
}

#[test]
fn chains_and_cycles_over_cpus_run_together() {
    for (placed, members) in [
        (chain(&["cpu", "cpu"], &[0, 1]), 2),
        (chain(&["cpu", "cpu", "cpu"], &[1, 0, 2]), 3),
        (cycle(&["cpu", "cpu", "cpu"]), 3),
    ] {
        for rule in [ChunkRule::Rows(1), ChunkRule::Rows(7), ChunkRule::Bytes(256 << 10), ChunkRule::Auto] {
            for capacity in [2, 5] {
                let executor = executor(&placed, &always(rule, capacity), 2);
                let whole = matches!(rule, ChunkRule::Bytes(_) | ChunkRule::Auto);
                assert_eq!(gangs(executor.plan()), if whole { vec![] } else { vec![members] }, "{rule:?}");
                for profile in [false, true, false] {
                    assert_right(&executor, &RunOptions::default().with_profile(profile));
                }
            }
        }
    }
}

#[test]
fn gangs_reach_over_gpus() {
    let Some(_) = gpu() else { return };
    for (placed, members) in [
        (chain(&["cpu", "gpu"], &[0, 1]), 2),
        (chain(&["cpu", "gpu"], &[1, 0]), 2),
        (chain(&["cpu", "gpu", "cpu"], &[0, 1, 2]), 3),
        (chain(&["cpu", "gpu", "gpu"], &[1, 2, 0]), 3),
        (cycle(&["cpu", "gpu", "cpu"]), 3),
        (cycle(&["cpu", "cpu", "gpu"]), 3),
    ] {
        for (rows, capacity) in [(22, 2), (100, 5)] {
            let executor = executor(&placed, &always(ChunkRule::Rows(rows), capacity), 1);
            assert_eq!(gangs(executor.plan()), [members]);
            for profile in [false, true, false] {
                assert_right(&executor, &RunOptions::default().with_profile(profile));
            }
        }
    }
}

#[test]
fn what_is_wanted_whole_elsewhere_is_not_passed_through() {
    let mut maker = Maker::new();
    let x = maker.input(&DIMS);
    let a = maker.node(relu(), &[x], &DIMS);
    let b = maker.node(relu(), &[a], &DIMS);
    let c = maker.node(add(), &[a, b], &DIMS);
    let program = maker.finish(&[c]);
    // `c` reads `a` on the device that makes it.
    let placed = PlacedProgram::new(program, &["cpu", "cpu"], &[0, 1, 0]);
    let plan = placed.plan(&always(ChunkRule::Rows(7), 2)).expect("feasible");
    assert_eq!(check(&placed.program, &plan), []);
    // `b` and `c` cannot both run with `a`, but `b` streams into `c`.
    assert_eq!(gangs(&plan), [2]);
}

#[test]
fn random_programs_give_the_bits_of_unstreamed_ones() {
    let mut formed = 0;
    arbtest::arbtest(|u| {
        let placed = random_program(u, 3)?;
        let placed = if gpu().is_some() && u.ratio(1, 4)? { placed.maps_on_gpus() } else { placed.all_on_cpus() };
        let rule = *u.choose(&[ChunkRule::Rows(1), ChunkRule::Rows(7), ChunkRule::Bytes(256 << 10)])?;
        let streamed = executor(&placed, &always(rule, u.int_in_range(2..=6)?), 1);
        let off = PlanOptions { streaming: StreamMode::Off, ..PlanOptions::default() };
        let inputs = inputs(&placed.program);
        let expected = run(&executor(&placed, &off, 1), &inputs, &RunOptions::default());
        formed += gangs(streamed.plan()).len();
        for _ in 0..2 {
            let options = RunOptions::default().with_profile(u.arbitrary()?);
            let given = run(&streamed, &inputs, &options);
            let same = |(given, expected): (&Tensor, &Tensor)| given.same_bits(expected);
            assert!(given.outputs.iter().zip(&expected.outputs).all(same), "not the bits of the unstreamed run");
        }
        Ok(())
    })
    .budget_ms(2000);
    assert!(formed > 0, "no random program had a gang");
}

#[test]
fn a_gang_takes_the_memory_that_is_planned() {
    let placed = cycle(&["cpu", "cpu", "cpu"]);
    let executor = executor(&placed, &always(ChunkRule::Rows(7), 2), 1);
    let run = executor.run(&inputs(&placed.program), &RunOptions::default()).expect("nothing fails");
    let planned: Vec<u64> = executor.plan().memory().devices().iter().map(|memory| memory.peak()).collect();
    assert_eq!(run.peaks, planned);
    let whole = executor.program().values[0].spec.bytes() as u64;
    let a = executor.plan().memory().devices()[1].clone();
    assert!(a.slots.is_empty() && a.rings > 0 && a.rings < whole, "{a:?}");
}

#[test]
fn whoever_fails_in_a_gang_is_named_and_the_next_run_is_right() {
    let placed = cycle(&["cpu", "cpu", "cpu"]);
    for node in 0..3 {
        let (kernels, mood) = bad(&placed, node);
        let executor = executor_with(&placed, kernels, &always(ChunkRule::Rows(1), 2), 1);
        assert_eq!(gangs(executor.plan()), [3]);
        for ill in [REFUSES, PANICS, REFUSES] {
            mood.store(ill, Ordering::Relaxed);
            let error = executor.run(&inputs(&placed.program), &RunOptions::default()).expect_err("a member fails");
            assert_eq!(error.node, Some(format!("node{node}")));
            mood.store(WELL, Ordering::Relaxed);
            assert_right(&executor, &RunOptions::default());
        }
    }
}

#[test]
fn channels_that_hold_nothing_are_a_stall_with_its_graph() {
    let placed = cycle(&["cpu", "cpu", "cpu"]);
    let kernels = kernels(&placed.program);
    let plan = placed.plan_with(&*kernels, &always(ChunkRule::Rows(7), 2)).expect("feasible").with_capacity(0);
    assert_ne!(check(&placed.program, &plan), [], "the checker keeps this out");
    let executor = Executor::new(plan, Arc::clone(&kernels), &pool(&placed, 1)).expect("all devices are there");
    let options = RunOptions::default().with_stall_after(Duration::from_millis(50));
    let error = executor.run(&inputs(&placed.program), &options).expect_err("nobody can begin");
    let text = error.to_string();
    assert_eq!((error.kind, text.matches(" waits at ").count()), (ErrorKind::Internal, 3), "{text}");
    for waits in [
        "cpu1 waits at node \"node0\" with no empty buffer for a chunk of \"node0\" for cpu0, cpu2;",
        "cpu2 waits at node \"node1\" with a chunk of \"node0\" to come for cpu1;",
    ] {
        assert!(text.contains(waits), "{text}");
    }
}

#[test]
fn the_waits_of_a_member_are_no_time_of_its_own() {
    let placed = chain(&["cpu", "cpu"], &[0, 1]);
    let (kernels, mood) = bad(&placed, 0);
    let executor = executor_with(&placed, kernels, &always(ChunkRule::Rows(55), 2), 1);
    assert_eq!(gangs(executor.plan()), [2]);
    mood.store(super::failures::SLEEPS, Ordering::Relaxed);
    let options = RunOptions::default().with_profile(true).with_stall_after(Duration::from_secs(60));
    let run = executor.run(&inputs(&placed.program), &options).expect("nothing fails");
    let of = |node: u32| run.events.iter().find(|event| event.what == Activity::Node(NodeId(node))).expect("it ran");
    let (slow, fast) = (of(0), of(1));
    assert!(fast.start < slow.end, "they run at the same time");
    assert!(slow.busy() >= 400_000_000 && fast.waited >= 200_000_000, "{slow:?} {fast:?}");
    assert!(fast.busy() < slow.busy(), "{slow:?} {fast:?}");
}
