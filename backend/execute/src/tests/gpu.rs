//! GPUs, links and streams.

use super::failures::{PANICS, REFUSES, WELL, bad};
use super::naive::hook;
use super::runs::ladder;
use super::{adapter, assert_right, devices, executor, executor_on, executor_with, gpu, inputs, kernels};
use crate::{Activity, ComputeDevice, DevicePool, GpuOpener, Lane, RunOptions};
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::lock::lock;
use anabranch_ir::program::Origin;
use anabranch_kernels::gpu::Gpu;
use anabranch_kernels::op::{Concat, Op, Precision, Reduce, ReduceKind};
use anabranch_placement_core::platform::DeviceKind;
use anabranch_plan::test_programs::{Maker, PlacedProgram, add, random_program, random_residency, relu};
use anabranch_plan::{ChunkRule, PlanOptions, Route, StreamMode};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

#[test]
fn values_cross_between_cpu_and_gpu() {
    let Some(_) = gpu() else { return };
    for kinds in [&["cpu", "gpu"][..], &["cpu", "gpu", "gpu"], &["cpu", "gpu", "cpu"]] {
        let executor = executor(&ladder(kinds, 4, &[9, 5]), &PlanOptions::default(), 1);
        for profile in [false, true, true] {
            assert_right(&executor, &RunOptions::default().with_profile(profile));
        }
    }
}

/// Number of submissions to a GPU and of mappings so far, which wgpu counts together; it takes one more.
fn calls(gpu: &Gpu) -> u64 {
    let index = format!("{:?}", gpu.queue().submit([]));
    index.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("a submission has a number")
}

#[test]
fn small_values_go_to_a_gpu_with_one_submission() {
    let Some(adapter) = adapter() else { return };
    let large = (5 << 20) / 4;
    let mut maker = Maker::new();
    let sizes = [3, 3, 1, 5, large, 7, 2, 4, 3];
    let parts: Vec<_> = sizes.iter().map(|elements| maker.input(&[*elements])).collect();
    let joined = maker.node(Op::Concat(Concat { axis: 0 }), &parts, &[sizes.iter().sum()]);
    let placed = PlacedProgram::new(maker.finish(&[joined]), &["cpu", "gpu"], &[1]);
    let gpu = Arc::new(Gpu::open(&adapter, Precision::F32).expect("it was found"));
    let (cpu, own) = (devices(&placed, 1).swap_remove(0), Arc::clone(&gpu));
    let pool = DevicePool::new(vec![cpu, ComputeDevice::Gpu(GpuOpener::with("gpu1", move || Ok(Arc::clone(&own))))]);
    let executor = executor_on(&pool, &placed, kernels(&placed.program), &PlanOptions::default());
    let given = inputs(&placed.program);
    let expected: Vec<f32> = given.iter().flat_map(|tensor| tensor.elements::<f32>().expect("f32").to_vec()).collect();
    let of_run = |options: &RunOptions| {
        let before = calls(&gpu);
        let run = executor.run(&given, options).expect("nothing fails");
        assert!(run.outputs[0].elements::<f32>() == Some(&expected[..]), "the inputs one after the other");
        calls(&gpu) - before - 1
    };
    of_run(&RunOptions::default());
    // The large input and the result go in two pieces each, and the small inputs before or behind the large one.
    let (uploads, downloads) = (2 + 1, 2);
    for _ in 0..20 {
        assert_eq!(of_run(&RunOptions::default()), 2 * (uploads + downloads) + 1, "with a mapping each, and the node");
    }
    let profiled = of_run(&RunOptions::default().with_profile(true));
    assert!(profiled > 2 * (2 + 8 + downloads), "a profile measures each value alone: {profiled}");
}

#[test]
fn pinned_and_staged_slots_give_the_same_bits_and_use_no_more_than_planned() {
    let Some(adapter) = adapter() else { return };
    let gpu = Arc::new(Gpu::open(&adapter, Precision::F32).expect("it was found"));
    // Each step waits for the one before, so that each run has the same submissions. Values are larger than staging
    // buffers.
    let placed = PlacedProgram::chain(&["cpu", "gpu"], &[0, 1, 0, 1, 0], &[1300, 1024]);
    let calls_of = |pins: bool| {
        let (cpu, own) = (devices(&placed, 1).swap_remove(0), Arc::clone(&gpu));
        let opener = GpuOpener::with("gpu1", move || Ok(Arc::clone(&own)));
        let pool = DevicePool::with_pinned(vec![cpu, ComputeDevice::Gpu(opener)], pins);
        let options = PlanOptions { streaming: StreamMode::Off, ..PlanOptions::default() };
        let executor = executor_on(&pool, &placed, kernels(&placed.program), &options);
        assert_right(&executor, &RunOptions::default().with_profile(true));
        let before = calls(&gpu);
        assert_right(&executor, &RunOptions::default());
        calls(&gpu) - before - 1
    };
    // A value goes through staging in two pieces, each of which is submitted and mapped. A copy from or to pinned
    // memory is submitted once, and asks once to be told of its end.
    let (staged, pinned) = (calls_of(false), calls_of(true));
    assert_eq!(staged, 4 * 2 * 2 + 2);
    assert_eq!(pinned, if gpu.pinned(4).is_some() { 4 * 2 + 2 } else { staged });
}

#[test]
fn large_values_go_in_pieces() {
    let Some(_) = gpu() else { return };
    let placed = ladder(&["cpu", "gpu"], 2, &[1300, 1024]);
    let executor = executor(&placed, &PlanOptions { streaming: StreamMode::Off, ..PlanOptions::default() }, 2);
    assert!(executor.plan().links().iter().all(|link| link.staging.bytes < 1300 * 1024 * 4));
    assert_right(&executor, &RunOptions::default());
    assert_right(&executor, &RunOptions::default());
}

/// A value of a GPU that a CPU reduces row by row and adds to, and a value of a CPU that a GPU adds to; all can be
/// streamed.
fn streams() -> PlacedProgram {
    let dims = [60, 33];
    let mut maker = Maker::new();
    let x = maker.input(&dims);
    let bias = maker.constant(&[33], |at| at as f32 * 0.5 - 3.0);
    let on_cpu = maker.node(relu(), &[x], &dims);
    let on_gpu = maker.node(add(), &[on_cpu, bias], &dims);
    let again = maker.node(add(), &[on_gpu, on_gpu], &dims);
    let other = maker.node(relu(), &[on_gpu], &dims);
    let sum = Op::Reduce(Reduce { kind: ReduceKind::Sum, axes: vec![1] });
    let sums = maker.node(sum, &[again], &[60, 1]);
    let joined = maker.node(add(), &[other, on_cpu], &dims);
    PlacedProgram::new(maker.finish(&[sums, joined]), &["cpu", "gpu"], &[0, 1, 1, 1, 0, 0])
}

#[test]
fn streamed_and_whole_transfers_give_the_same_bits() {
    let Some(_) = gpu() else { return };
    let placed = streams();
    for rule in [ChunkRule::Rows(1), ChunkRule::Rows(7), ChunkRule::Bytes(1000), ChunkRule::Auto] {
        for capacity in [2, 5] {
            let options =
                PlanOptions { streaming: StreamMode::Always, chunk: rule, capacity, ..PlanOptions::default() };
            let executor = executor(&placed, &options, 1);
            let streamed = executor.plan().transfers().iter().filter(|t| matches!(t.route, Route::Streamed(_))).count();
            assert_eq!(streamed, if rule == ChunkRule::Auto { 0 } else { 3 }, "{rule:?}");
            for profile in [false, true] {
                assert_right(&executor, &RunOptions::default().with_profile(profile));
            }
        }
    }
    assert_right(
        &executor(&placed, &PlanOptions { streaming: StreamMode::Off, ..PlanOptions::default() }, 1),
        &RunOptions::default(),
    );
}

#[test]
fn the_wait_for_a_gpu_node_is_no_time_of_the_copy() {
    let Some(_) = gpu() else { return };
    let placed = ladder(&["cpu", "gpu"], 4, &[1300, 1024]);
    let options = PlanOptions { streaming: StreamMode::Off, ..PlanOptions::default() };
    let executor = executor(&placed, &options, 1);
    let run = executor.run(&inputs(&placed.program), &RunOptions::default().with_profile(true)).expect("nothing fails");
    let (plan, mut copies) = (executor.plan(), 0);
    for copy in &run.events {
        let Activity::Transfer(id) = copy.what else { continue };
        let Origin::Node(maker) = placed.program.value(plan.transfer(id).value).origin else { continue };
        if plan.device(plan.transfer(id).from).kind == DeviceKind::Gpu {
            let made = run.events.iter().find(|event| event.what == Activity::Node(maker)).expect("it ran");
            assert!(copy.start >= made.end.min(copy.end), "{copy:?} of {made:?}");
            copies += 1;
        }
    }
    assert!(copies > 0);
}

#[test]
fn profiles_have_the_times_of_gpu_nodes() {
    let Some(_) = gpu() else { return };
    let executor = executor(
        &streams(),
        &PlanOptions { streaming: StreamMode::Always, chunk: ChunkRule::Rows(16), ..PlanOptions::default() },
        1,
    );
    let run = executor.run(&inputs(executor.program()), &RunOptions::default().with_profile(true));
    let run = run.expect("nothing fails");
    let on_gpu = |event: &&crate::Event| matches!(event.lane, Lane::Device(device) if device.0 == 1);
    let nodes: Vec<_> = run.events.iter().filter(on_gpu).collect();
    assert_eq!(nodes.len(), 3);
    assert!(nodes.iter().all(|event| matches!(event.what, Activity::Node(_)) && event.ready <= event.start));
    assert!(nodes.iter().any(|event| event.end > event.start), "{nodes:?}");
    assert!(nodes.windows(2).all(|pair| pair[0].end <= pair[1].start));
    let moved = run.events.iter().filter(|event| matches!(event.what, Activity::Transfer(_))).count();
    assert_eq!(moved, executor.plan().transfers().len());
}

#[test]
fn random_programs_give_the_bits_of_node_after_node() {
    let Some(_) = gpu() else { return };
    arbtest::arbtest(|u| {
        let placed = random_program(u, 3)?.maps_on_gpus();
        let options = PlanOptions {
            streaming: if u.arbitrary()? { StreamMode::Always } else { StreamMode::Off },
            chunk: ChunkRule::Rows(u.int_in_range(1..=9)?),
            capacity: u.int_in_range(2..=4)?,
            weights: random_residency(u, &placed)?,
        };
        let executor = executor(&placed, &options, 1);
        for _ in 0..2 {
            assert_right(&executor, &RunOptions::default().with_profile(u.arbitrary()?));
        }
        Ok(())
    })
    .budget_ms(1500);
}

#[test]
fn a_stream_whose_reader_fails_ends_and_the_next_run_is_right() {
    let Some(_) = gpu() else { return };
    let placed = streams();
    // Node 4 reads a stream of 60 chunks through a ring of two buffers.
    let (kernels, mood) = bad(&placed, 4);
    let options =
        PlanOptions { streaming: StreamMode::Always, chunk: ChunkRule::Rows(1), capacity: 2, ..PlanOptions::default() };
    let executor = executor_with(&placed, kernels, &options, 1);
    for ill in [REFUSES, PANICS, REFUSES] {
        mood.store(ill, Ordering::Relaxed);
        let error = executor.run(&inputs(&placed.program), &RunOptions::default()).expect_err("the reader fails");
        assert_eq!((error.node.as_deref(), error.device.as_deref()), (Some("node4"), Some("cpu0")));
        mood.store(WELL, Ordering::Relaxed);
        assert_right(&executor, &RunOptions::default());
    }
}

#[test]
fn a_lost_gpu_is_named_and_opened_again() {
    let Some(adapter) = adapter() else { return };
    let placed = ladder(&["cpu", "gpu"], 4, &[9, 5]);
    // The present opened GPU, which a kernel destroys on demand.
    let (open, armed) = (Arc::new(Mutex::new(None::<Arc<Gpu>>)), Arc::new(AtomicU8::new(0)));
    let shown = Arc::clone(&open);
    let opener = GpuOpener::with("gpu1", move || {
        let gpu = Arc::new(Gpu::open(&adapter, Precision::F32)?);
        *lock(&shown) = Some(Arc::clone(&gpu));
        Ok(gpu)
    });
    let kernels = kernels(&placed.program);
    for node in [0, 6, 9] {
        let (open, armed) = (Arc::clone(&open), Arc::clone(&armed));
        hook(&kernels, node, move || {
            if armed.swap(0, Ordering::Relaxed) > 0
                && let Some(gpu) = lock(&open).take()
            {
                gpu.destroy();
            }
            Ok(())
        });
    }
    let cpu = devices(&placed, 1).swap_remove(0);
    let pool = DevicePool::new(vec![cpu, ComputeDevice::Gpu(opener)]);
    let executor = executor_on(&pool, &placed, kernels, &PlanOptions::default());
    assert_right(&executor, &RunOptions::default());
    for before_the_run in [true, false, false] {
        if before_the_run {
            let gpu = lock(&open).take().expect("it was opened");
            gpu.destroy();
        } else {
            armed.store(1, Ordering::Relaxed);
        }
        let error = executor.run(&inputs(&placed.program), &RunOptions::default()).expect_err("the GPU is lost");
        assert_eq!(error.kind, ErrorKind::DeviceFailure, "{error}");
        assert_eq!(error.device.as_deref(), Some("gpu1"));
        assert_right(&executor, &RunOptions::default());
    }
}
