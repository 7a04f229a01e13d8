//! Scheduling at run time computes the same bits as node after node, and fails as planned runs do.

use super::failures::{PANICS, REFUSES, WELL, bad};
use super::runs::ladder;
use super::{inputs, kernels, naive, pool};
use crate::{Activity, CancelToken, DynamicExecutor, Forecast, Kernels, Lane, RunOptions};
use anabranch_base::error_kind::ErrorKind;
use anabranch_ir::program::Program;
use anabranch_placement_core::cost::TransferCurve;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::test_programs::{PlacedProgram, random_program};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Times that send neighbouring nodes to different devices; GPUs run the nodes that the forecast allows.
fn forecast(placed: &PlacedProgram, on_gpus: impl Fn(usize) -> bool) -> Forecast {
    let seconds = |node: usize, device: usize| {
        let open = placed.devices[device].kind == DeviceKind::Cpu || on_gpus(node);
        open.then(|| if node % placed.devices.len() == device { 1e-6 } else { 1e-3 })
    };
    let count = placed.devices.len();
    let nodes = 0..placed.program.nodes.len();
    let link = TransferCurve::affine(1e-6, 1e9);
    Forecast {
        nodes: nodes.map(|node| (0..count).map(|device| seconds(node, device)).collect()).collect(),
        links: vec![vec![link; count]; count],
    }
}

fn executor(placed: &PlacedProgram, kernels: Arc<Kernels>, forecast: Forecast) -> DynamicExecutor {
    DynamicExecutor::new(kernels, &pool(placed, 2), placed.devices.clone(), forecast).expect("all devices are there")
}

fn assert_right(executor: &DynamicExecutor, program: &Program) {
    let inputs = inputs(program);
    let expected = naive::evaluate(program, &inputs);
    for _ in 0..3 {
        let run = executor.run(&inputs, &RunOptions::default().with_profile(true)).expect("nothing fails");
        assert!(run.outputs.iter().zip(&expected).all(|(output, expected)| output.same_bits(expected)));
        assert_eq!(run.outputs.len(), expected.len());
        let nodes = run.events.iter().filter(|event| matches!(event.what, Activity::Node(_))).count();
        assert_eq!(nodes, program.nodes.len());
        assert!(run.events.iter().all(|event| event.start <= event.end));
    }
}

#[test]
fn random_programs_on_several_cpus_give_the_right_bits() {
    arbtest::arbtest(|u| {
        let placed = random_program(u, 3)?.all_on_cpus();
        assert_right(&executor(&placed, kernels(&placed.program), forecast(&placed, |_| false)), &placed.program);
        Ok(())
    })
    .budget_ms(300);
}

#[test]
fn random_programs_over_gpus_give_the_right_bits() {
    arbtest::arbtest(|u| {
        let placed = random_program(u, 3)?;
        let map = |node: usize| matches!(placed.program.nodes[node].spec.op, anabranch_kernels::op::Op::Map(_));
        assert_right(&executor(&placed, kernels(&placed.program), forecast(&placed, map)), &placed.program);
        Ok(())
    })
    .budget_ms(1500);
}

#[test]
fn a_device_that_is_expected_to_be_slow_gets_nothing() {
    let placed = ladder(&["cpu", "cpu"], 4, &[6]);
    let mut forecast = forecast(&placed, |_| false);
    forecast.nodes.iter_mut().for_each(|devices| devices[1] = Some(1e6));
    let executor = executor(&placed, kernels(&placed.program), forecast);
    let run = executor.run(&inputs(&placed.program), &RunOptions::default().with_profile(true));
    let events = run.expect("nothing fails").events;
    assert!(!events.is_empty() && events.iter().all(|event| event.lane == Lane::Device(DeviceId(0))), "{events:?}");
}

#[test]
fn failures_name_the_node_and_the_next_run_works() {
    let placed = ladder(&["cpu", "cpu"], 4, &[6]);
    let (kernels, mood) = bad(&placed, 3);
    let executor = executor(&placed, kernels, forecast(&placed, |_| false));
    let run = || executor.run(&inputs(&placed.program), &RunOptions::default());
    for ill in [REFUSES, PANICS] {
        mood.store(ill, Ordering::Relaxed);
        let error = run().expect_err("the kernel is bad");
        assert_eq!(error.node.as_deref(), Some("node3"), "{error}");
        assert!(error.device.is_some_and(|device| device.starts_with("cpu")));
        mood.store(WELL, Ordering::Relaxed);
        run().expect("the next run works");
    }
}

#[test]
fn a_run_can_be_cancelled_and_is_refused_where_memory_is_short() {
    let placed = ladder(&["cpu", "cpu"], 4, &[6]);
    let free = executor(&placed, kernels(&placed.program), forecast(&placed, |_| false));
    let cancel = CancelToken::new();
    cancel.cancel();
    let cancelled = free.run(&inputs(&placed.program), &RunOptions::default().with_cancel(cancel));
    assert_eq!(cancelled.expect_err("it was cancelled").kind, ErrorKind::Cancelled);
    let hasty = RunOptions::default().with_timeout(Duration::ZERO);
    let late = free.run(&inputs(&placed.program), &hasty).expect_err("no time");
    assert_eq!(late.kind, ErrorKind::Timeout);
    // The input and the scratch memory of two devices leave 40 bytes.
    let placed = placed.limited(|_| (24 + 2 * 64 + 40) / 2);
    let short = executor(&placed, kernels(&placed.program), forecast(&placed, |_| false));
    let error = short.run(&inputs(&placed.program), &RunOptions::default()).expect_err("40 bytes hold no two tensors");
    assert_eq!(error.kind, ErrorKind::Memory);
    assert!(error.to_string().contains("of 192 bytes only 16 are left"), "{error}");
}
