//! Caches that go on in place on a GPU: a step copies nothing, and loses nothing.

use super::in_place::{CAPACITY, at, new, program};
use super::{Executor, executor_on, gpu, inputs, pool};
use crate::{CancelToken, DevicePool, DeviceTensor, Kernels, RunOptions, RunOutput};
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::sync::lock;
use anabranch_ir::program::{Program, floats};
use anabranch_kernels::op::{Append, Op};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::tasks::Residence;
use anabranch_plan::test_programs::PlacedProgram;
use anabranch_plan::{HOST, InPlace, PlanOptions};
use std::sync::Arc;

const GPU: DeviceId = DeviceId(1);
const BYTES: u64 = (2 * CAPACITY * 3 * 4) as u64;

/// The program with its cache on `home`, which also computes it; with a pool of a CPU and a GPU.
fn on(home: DeviceId, devices: &Arc<DevicePool>) -> Executor {
    let placed = placed(home);
    let kernels = Arc::new(Kernels::new(Arc::new(placed.program.clone())));
    executor_on(devices, &placed, kernels, &PlanOptions::default())
}

fn placed(home: DeviceId) -> PlacedProgram {
    let residence = Residence { inputs: vec![home, HOST, HOST], outputs: vec![HOST, home] };
    PlacedProgram::with_residence(program(1), &["cpu", "gpu"], &[home.0, home.0], &residence)
}

fn past() -> Tensor {
    inputs(&program(1)).swap_remove(0)
}

fn step(
    executor: &Executor,
    cache: &DeviceTensor,
    step: usize,
    options: &RunOptions,
    own: &mut RunOutput,
) -> Result<(), crate::ExecError> {
    executor.run_resident(&[&new(step), &at(step)], std::slice::from_ref(cache), options, own)
}

fn standing() -> DeviceTensor {
    DeviceTensor::placeholder(DType::F32)
}

#[test]
fn steps_copy_no_position_of_a_cache_and_have_the_bits_of_the_host() {
    let Some(_) = gpu() else { return };
    let pool = pool(&placed(GPU), 1);
    let (on_host, on_gpu) = (on(HOST, &pool), on(GPU, &pool));
    assert_eq!(on_gpu.in_place_on_gpus(), [InPlace { input: 0, output: 0, device: GPU }]);
    assert!(on_gpu.in_place().is_empty());
    let memory = &on_gpu.plan().memory().devices()[1];
    assert_eq!(memory.given, BYTES, "the output is in its slot");
    let options = RunOptions::default();
    let (mut own, mut cache) = (RunOutput::default(), past());
    let mut place = None;
    for at_step in 0..CAPACITY {
        let given = if at_step == 0 { pool.upload(GPU, &cache).expect("it is open") } else { standing() };
        step(&on_gpu, &given, at_step, &options, &mut own).expect("sound");
        assert_eq!(own.copied_on_gpus, if at_step == 0 { BYTES } else { 0 }, "step {at_step}");
        let alone = on_host.run(&[&cache, &new(at_step), &at(at_step)], &options).expect("sound");
        cache = alone.outputs[1].clone();
        assert!(own.resident[0].read().expect("it is open").same_bits(&cache), "step {at_step}");
        assert!(own.outputs[0].same_bits(&alone.outputs[0]), "step {at_step}");
        assert_eq!(place.get_or_insert_with(|| own.resident[0].buffer().cloned()), &own.resident[0].buffer().cloned());
        for (taken, memory) in own.peaks.iter().zip(on_gpu.plan().memory().devices()) {
            assert!(*taken <= memory.peak());
        }
    }
}

#[test]
fn the_first_output_lies_in_the_memory_of_the_plan() {
    let Some(_) = gpu() else { return };
    let pool = pool(&placed(GPU), 1);
    let [untouched, executor] = [on(GPU, &pool), on(GPU, &pool)];
    let engine = |executor: &Executor| lock(&executor.state).engine.clone().expect("built");
    assert!(engine(&untouched).unused_slot(GPU, 0).is_some());
    let (engine, given) = (engine(&executor), pool.upload(GPU, &past()).expect("it is open"));
    let tensors = executor.on_gpus(&engine).tensors(&[given], &mut Vec::new()).expect("they fit");
    assert!(tensors.outputs[0].buffer().is_some());
    assert!(engine.unused_slot(GPU, 0).is_none(), "it was not used");
}

#[test]
fn a_cache_that_somebody_holds_is_copied_once_and_left_as_it_is() {
    let Some(_) = gpu() else { return };
    let pool = pool(&placed(GPU), 1);
    let executor = on(GPU, &pool);
    let (options, mut own) = (RunOptions::default(), RunOutput::default());
    step(&executor, &pool.upload(GPU, &past()).expect("open"), 0, &options, &mut own).expect("sound");
    let held = own.resident[0].clone();
    let before = held.read().expect("open");
    for at_step in 1..3 {
        step(&executor, &standing(), at_step, &options, &mut own).expect("sound");
        assert_eq!(own.copied_on_gpus, if at_step == 1 { BYTES } else { 0 });
    }
    assert!(held.read().expect("open").same_bits(&before));
    // The held one is what a run from there begins with.
    let mut other = RunOutput::default();
    step(&executor, &held, 1, &options, &mut other).expect("sound");
    step(&executor, &standing(), 2, &options, &mut other).expect("sound");
    assert!(other.resident[0].read().expect("open").same_bits(&own.resident[0].read().expect("open")));
}

#[test]
fn a_cache_moves_between_plans_without_a_copy() {
    let Some(_) = gpu() else { return };
    let pool = pool(&placed(GPU), 1);
    let executors = [on(GPU, &pool), on(GPU, &pool)];
    let (options, mut own) = (RunOptions::default(), RunOutput::default());
    step(&executors[0], &pool.upload(GPU, &past()).expect("open"), 0, &options, &mut own).expect("sound");
    let mut cache = on(HOST, &pool).run(&[&past(), &new(0), &at(0)], &options).expect("sound").outputs.swap_remove(1);
    for at_step in 1..CAPACITY {
        step(&executors[at_step % 2], &standing(), at_step, &options, &mut own).expect("sound");
        assert_eq!(own.copied_on_gpus, 0);
        let alone = on(HOST, &pool).run(&[&cache, &new(at_step), &at(at_step)], &options).expect("sound");
        cache = alone.outputs[1].clone();
        assert!(own.resident[0].read().expect("open").same_bits(&cache), "step {at_step}");
        assert!(own.outputs[0].same_bits(&alone.outputs[0]), "step {at_step}");
    }
}

#[test]
fn a_run_that_fails_gives_the_cache_back() {
    let Some(_) = gpu() else { return };
    let pool = pool(&placed(GPU), 1);
    let executor = on(GPU, &pool);
    let (options, mut own) = (RunOptions::default(), RunOutput::default());
    step(&executor, &pool.upload(GPU, &past()).expect("open"), 0, &options, &mut own).expect("sound");
    let before = own.resident[0].read().expect("open");
    let cancelled = RunOptions { cancel: Some(CancelToken::default()), ..RunOptions::default() };
    cancelled.cancel.as_ref().expect("set").cancel();
    step(&executor, &standing(), 1, &cancelled, &mut own).expect_err("cancelled");
    assert!(
        own.resident[0].read().expect("open").elements::<f32>().expect("floats")[..3]
            == before.elements::<f32>().expect("floats")[..3]
    );
    step(&executor, &standing(), 1, &options, &mut own).expect("goes on");
    let host = on(HOST, &pool);
    let want = host.run(&[&before, &new(1), &at(1)], &options).expect("sound");
    assert!(own.resident[0].read().expect("open").same_bits(&want.outputs[1]));
    let error = step(&executor, &standing(), 1, &options, &mut RunOutput::default()).expect_err("nothing is there");
    assert_eq!(error.kind, ErrorKind::Input);
    assert!(error.to_string().contains("continues a former output"), "{error}");
}

#[test]
fn caches_may_change_places_between_runs() {
    let Some(_) = gpu() else { return };
    let placed = |home: DeviceId| {
        let mut program = Program::default();
        let spec = |dims: &[usize]| floats(dims);
        let pasts = ["a", "b"].map(|name| program.add_input(name, spec(&[1, 2, CAPACITY, 3])));
        let new = program.add_input("new", spec(&[1, 2, 1, 3]));
        let start = program.add_input("start", TensorSpec::new(DType::I64, Shape::new([1]).expect("small")));
        for past in pasts {
            let op = Op::Append(Append { circular: false });
            let present = program.add_node("append", op, &[past, new, start], spec(&[1, 2, CAPACITY, 3]));
            program.add_output("present", present);
        }
        let residence = Residence { inputs: vec![home, home, HOST, HOST], outputs: vec![home; 2] };
        PlacedProgram::with_residence(program, &["cpu", "gpu"], &[home.0; 2], &residence)
    };
    let pool = pool(&placed(GPU), 1);
    let [on_host, on_gpu] = [HOST, GPU].map(|home| {
        let placed = placed(home);
        let kernels = Arc::new(Kernels::new(Arc::new(placed.program.clone())));
        executor_on(&pool, &placed, kernels, &PlanOptions::default())
    });
    let (options, mut own) = (RunOptions::default(), RunOutput::default());
    let mut caches = inputs(on_host.program());
    caches.truncate(2);
    assert!(!caches[0].same_bits(&caches[1]));
    for at_step in 0..4 {
        let upload = |cache: &Tensor| pool.upload(GPU, cache).expect("it is open");
        let given = if at_step == 0 { caches.iter().map(upload).collect() } else { vec![standing(); 2] };
        on_gpu.run_resident(&[&new(at_step), &at(at_step)], &given, &options, &mut own).expect("sound");
        let alone = on_host.run(&[&caches[0], &caches[1], &new(at_step), &at(at_step)], &options).expect("sound");
        caches = alone.outputs;
        for (made, want) in own.resident.iter().zip(&caches) {
            assert!(made.read().expect("open").same_bits(want), "step {at_step}");
        }
        own.resident.reverse();
        caches.reverse();
    }
}
