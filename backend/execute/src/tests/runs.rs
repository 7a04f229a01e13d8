//! CPU devices compute right results for every placement.

use super::{assert_right, executor, executor_with, inputs, kernels};
use crate::{Activity, DevicePool, Executor, Lane, RunOptions};
use anabranch_base::error_kind::ErrorKind;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::test_programs::{Maker, PlacedProgram, add, random_program, relu};
use anabranch_plan::{PlanError, PlanOptions};
use std::sync::Arc;

/// `layers` forks of two branches on two devices, each joined on the first device, from `x`, which is an output, too.
pub(super) fn ladder(kinds: &[&str], layers: usize, dims: &[usize]) -> PlacedProgram {
    let mut maker = Maker::new();
    let x = maker.input(dims);
    let mut value = x;
    let mut device_of = Vec::new();
    for _ in 0..layers {
        let left = maker.node(relu(), &[value], dims);
        let right = maker.node(add(), &[value, value], dims);
        value = maker.node(add(), &[left, right], dims);
        device_of.extend([0, 1, (kinds.len() - 1) as u32]);
    }
    PlacedProgram::new(maker.finish(&[value, x]), kinds, &device_of)
}

#[test]
fn values_cross_between_cpus_and_slots_are_used_again() {
    let placed = ladder(&["cpu", "cpu", "cpu"], 6, &[3, 7]);
    for threads in [1, 2, 4] {
        let executor = executor(&placed, &PlanOptions::default(), threads);
        for _ in 0..20 {
            assert_right(&executor, &RunOptions::default());
        }
    }
}

#[test]
fn constants_and_inputs_can_be_outputs() {
    let mut maker = Maker::new();
    let (x, c) = (maker.input(&[4]), maker.constant(&[4], |at| at as f32));
    let y = maker.node(add(), &[x, c], &[4]);
    let placed = PlacedProgram::new(maker.finish(&[c, x, y, y]), &["cpu", "cpu"], &[1]);
    assert_right(&executor(&placed, &PlanOptions::default(), 1), &RunOptions::default());
}

#[test]
fn a_program_without_nodes_runs() {
    let mut maker = Maker::new();
    let x = maker.input(&[0, 3]);
    let placed = PlacedProgram::new(maker.finish(&[x]), &["cpu"], &[]);
    assert_right(&executor(&placed, &PlanOptions::default(), 1), &RunOptions::default());
}

#[test]
fn outputs_belong_to_the_caller() {
    let placed = ladder(&["cpu", "cpu"], 1, &[5]);
    let executor = executor(&placed, &PlanOptions::default(), 1);
    let inputs = inputs(&placed.program);
    let first = executor.run(&inputs, &RunOptions::default()).expect("nothing fails").outputs;
    let kept: Vec<u8> = first[0].bytes().to_vec();
    let zeros = vec![anabranch_kernels::Tensor::zeroed(inputs[0].spec().clone())];
    let second = executor.run(&zeros, &RunOptions::default()).expect("nothing fails").outputs;
    assert_ne!(second[0].bytes(), kept);
    assert_eq!(first[0].bytes(), kept);
}

#[test]
fn random_programs_give_the_bits_of_node_after_node() {
    arbtest::arbtest(|u| {
        let placed = random_program(u, 3)?.all_on_cpus();
        let executor = executor(&placed, &PlanOptions::default(), u.int_in_range(1..=2)?);
        for _ in 0..3 {
            assert_right(&executor, &RunOptions::default().with_profile(u.arbitrary()?));
        }
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn a_thousand_short_runs_from_two_threads() {
    let placed = ladder(&["cpu", "cpu"], 2, &[8]);
    let executor = executor(&placed, &PlanOptions::default(), 1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..500).for_each(|_| assert_right(&executor, &RunOptions::default())));
        }
    });
}

#[test]
fn events_tell_of_every_node_and_transfer_in_order() {
    let placed = ladder(&["cpu", "cpu"], 3, &[64]);
    let executor = executor(&placed, &PlanOptions::default(), 1);
    let inputs = inputs(&placed.program);
    assert_eq!(executor.run(&inputs, &RunOptions::default()).expect("nothing fails").events, []);
    let run = executor.run(&inputs, &RunOptions::default().with_profile(true)).expect("nothing fails");
    let nodes = run.events.iter().filter(|event| matches!(event.what, Activity::Node(_))).count();
    assert_eq!((nodes, run.events.len() - nodes), (9, executor.plan().transfers().len()));
    assert!(run.events.iter().all(|event| event.ready <= event.start && event.start <= event.end));
    assert!(run.events.iter().all(|event| u128::from(event.end) <= run.makespan.as_nanos()));
    for device in 0..2 {
        let on: Vec<_> = run.events.iter().filter(|event| event.lane == Lane::Device(DeviceId(device))).collect();
        assert!(on.windows(2).all(|pair| pair[0].end <= pair[1].start), "node overlaps node");
    }
}

#[test]
fn wrong_inputs_are_named() {
    let placed = ladder(&["cpu", "cpu"], 1, &[5]);
    let executor = executor(&placed, &PlanOptions::default(), 1);
    let error = executor.run(&inputs(&placed.program)[..0], &RunOptions::default()).expect_err("one input is missing");
    assert_eq!(error.kind, ErrorKind::Input);
    assert_eq!(error.to_string(), "0 tensors were given for 1 inputs");
    let other = super::inputs(&ladder(&["cpu", "cpu"], 1, &[6]).program);
    let text = executor.run(&other, &RunOptions::default()).expect_err("another shape").to_string();
    assert!(["value0", "f32[5]", "f32[6]"].iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn memory_is_enough_at_the_peak_and_refused_one_byte_below() {
    let placed = ladder(&["cpu", "cpu"], 3, &[50]);
    let kernels = kernels(&placed.program);
    let plan = placed.plan_with(&*kernels, &PlanOptions::default()).expect("no limits");
    let peaks: Vec<u64> = plan.memory().devices().iter().map(|memory| memory.peak()).collect();
    let exact = placed.limited(|device| peaks[device]);
    let executor = executor_with(&exact, Arc::clone(&kernels), &PlanOptions::default(), 1);
    assert_right(&executor, &RunOptions::default());
    let taken = executor.run(&inputs(&placed.program), &RunOptions::default()).expect("nothing fails").peaks;
    assert_eq!(taken, peaks, "all that is planned is taken, and no more");
    for device in 0..2 {
        let short = placed.limited(|other| peaks[other] - u64::from(other == device));
        assert!(matches!(short.plan_with(&*kernels, &PlanOptions::default()), Err(PlanError::Memory(_))));
    }
}

#[test]
fn other_devices_than_planned_are_refused() {
    let placed = ladder(&["cpu", "cpu"], 1, &[5]);
    let kernels = kernels(&placed.program);
    let plan = placed.plan_with(&*kernels, &PlanOptions::default()).expect("no limits");
    let mut devices = super::devices(&placed, 1);
    devices.pop();
    let text = Executor::new(plan, kernels, &DevicePool::new(devices)).expect_err("one device is missing").to_string();
    assert!(text.contains("cpu0, cpu1") && text.contains("devices are cpu0;"), "{text}");
}
