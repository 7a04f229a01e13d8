//! Inputs and outputs that stay on a GPU.

use super::{adapter, executor_on, gpu, inputs, kernels, pool};
use crate::{ComputeDevice, DevicePool, DeviceTensor, Executor, GpuOpener, RunOptions, RunOutput};
use anabranch_base::error_kind::ErrorKind;
use anabranch_kernels::Tensor;
use anabranch_kernels::op::Precision;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::tasks::Residence;
use anabranch_plan::test_programs::{Maker, PlacedProgram, add, relu};
use anabranch_plan::{HOST, PlanOptions};
use std::sync::Arc;

/// `state' = relu(state + x)` on a GPU, and `y = state' + c` on the host, with the state on the device `home`.
fn step(home: DeviceId) -> PlacedProgram {
    let dims = [5, 7];
    let mut maker = Maker::new();
    let (x, state) = (maker.input(&dims), maker.input(&dims));
    let sum = maker.node(add(), &[state, x], &dims);
    let next = maker.node(relu(), &[sum], &dims);
    let bias = maker.constant(&dims, |at| at as f32);
    let y = maker.node(add(), &[x, bias], &dims);
    let residence = Residence { inputs: vec![HOST, home], outputs: vec![home, HOST] };
    PlacedProgram::with_residence(maker.finish(&[next, y]), &["cpu", "gpu"], &[1, 1, 0], &residence)
}

fn executor(pool: &Arc<DevicePool>, placed: &PlacedProgram) -> Executor {
    executor_on(pool, placed, kernels(&placed.program), &PlanOptions::default())
}

const GPU: DeviceId = DeviceId(1);

#[test]
fn a_state_that_stays_gives_the_same_bits_and_does_not_travel() {
    let Some(_) = gpu() else { return };
    let (on_host, on_gpu) = (step(HOST), step(GPU));
    let pool = pool(&on_gpu, 1);
    let given = inputs(&on_gpu.program);
    let (expected, resident) = (executor(&pool, &on_host), executor(&pool, &on_gpu));
    let moved = |executor: &Executor| executor.plan().links().iter().map(|link| link.transfers.len()).sum::<usize>();
    assert_eq!((moved(&expected), moved(&resident)), (3, 1), "only x has to travel");
    let (mut state, mut held) = (given[1].clone(), pool.upload(GPU, &given[1]).expect("it is open"));
    let mut output = RunOutput::default();
    let options = RunOptions::default().with_profile(true);
    for _ in 0..5 {
        let host = expected.run(&[&given[0], &state], &options).expect("nothing fails");
        resident.run_resident(&[&given[0]], &[held], &options, &mut output).expect("nothing fails");
        held = output.resident[0].clone();
        assert!(held.read().expect("it is open").same_bits(&host.outputs[0]));
        assert!(output.outputs[0].same_bits(&host.outputs[1]));
        for (taken, memory) in output.peaks.iter().zip(resident.plan().memory().devices()) {
            assert!(*taken <= memory.peak());
        }
        state = host.outputs[0].clone();
    }
}

#[test]
fn a_buffer_that_nobody_holds_is_written_again_and_one_that_is_held_is_not() {
    let Some(_) = gpu() else { return };
    let placed = step(GPU);
    let pool = pool(&placed, 1);
    let executor = executor(&pool, &placed);
    let given = inputs(&placed.program);
    let state = pool.upload(GPU, &given[1]).expect("it is open");
    let mut output = RunOutput::default();
    let mut run = |state: &DeviceTensor| {
        let (given, state) = ([&given[0]], std::slice::from_ref(state));
        executor.run_resident(&given, state, &RunOptions::default(), &mut output).expect("nothing fails");
        output.resident[0].clone()
    };
    let first = run(&state);
    let (before, buffer) = (first.read().expect("it is open"), first.buffer().cloned());
    let second = run(&first);
    assert_ne!(second.buffer().cloned(), buffer, "it is held");
    assert!(first.read().expect("it is open").same_bits(&before));
    let buffer = second.buffer().cloned();
    drop(second);
    assert_eq!(run(&first).buffer().cloned(), buffer);
}

#[test]
fn tensors_that_are_elsewhere_are_refused() {
    let Some(_) = gpu() else { return };
    let placed = step(GPU);
    let pool = pool(&placed, 1);
    let executor = executor(&pool, &placed);
    let given = inputs(&placed.program);
    let fails = |resident: &[DeviceTensor]| {
        let run = executor.run_resident(&[&given[0]], resident, &RunOptions::default(), &mut RunOutput::default());
        let error = run.expect_err("it must be refused");
        assert_eq!(error.kind, ErrorKind::Input);
        error.to_string()
    };
    assert!(fails(&[]).starts_with("0 tensors were given for 1 inputs that stay on GPUs"));
    let on_host = pool.upload(HOST, &given[1]).expect("it is there");
    assert!(fails(&[on_host]).contains("must be a tensor on \"gpu1\" as it is open now"));
    let flat = Tensor::zeroed(anabranch_plan::test_programs::spec(&[35]));
    assert!(fails(&[pool.upload(GPU, &flat).expect("it is open")]).contains("but is f32[35]"));
    let Some(adapter) = adapter() else { return };
    let own = ComputeDevice::Gpu(GpuOpener::new("gpu1", adapter, Precision::F32));
    let other = DevicePool::new(vec![pool.devices()[0].clone(), own]);
    let foreign = other.upload(GPU, &given[1]).expect("it opens");
    let text = fails(&[foreign]);
    assert!(text.contains("value1") && text.contains("gpu1") && text.contains("upload it again"), "{text}");
}
