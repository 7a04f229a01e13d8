//! Promises of a pool of devices to several plans and to several callers.

use super::failures::{PANICS, WELL, bad};
use super::naive::hook;
use super::runs::ladder;
use super::{adapter, assert_right, devices, executor_on, gpu, inputs, kernels, pool, threads_named};
use crate::runner::LONG;
use crate::{CancelToken, ComputeDevice, DevicePool, Executor, GpuOpener, RunOptions, RunOutput};
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::lock::lock;
use anabranch_device::affinity;
use anabranch_kernels::KernelError;
use anabranch_kernels::gpu::Gpu;
use anabranch_kernels::op::Precision;
use anabranch_plan::PlanOptions;
use anabranch_plan::test_programs::PlacedProgram;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

const NO_SPIN: Duration = Duration::ZERO;

fn on(pool: &Arc<DevicePool>, placed: &PlacedProgram) -> Executor {
    executor_on(pool, placed, kernels(&placed.program), &PlanOptions::default())
}

/// Number of open file descriptors.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

#[test]
fn plans_of_one_pool_share_threads_and_give_back_their_memory() {
    let mut first = ladder(&["cpu", "cpu", "cpu"], 2, &[5]);
    for device in &mut first.devices {
        device.name = format!("shared-{}", device.name);
    }
    let pool = pool(&first, 2);
    let mut shapes = Vec::new();
    let mut steady = 0;
    for number in 0..60 {
        let mut placed = ladder(&["cpu", "cpu", "cpu"], 1 + number % 4, &[3 + number, 1 + number % 7]);
        placed.devices = first.devices.clone();
        let executor = on(&pool, &placed);
        assert_right(&executor, &RunOptions::default());
        assert_eq!(threads_named("shared-"), 2, "one for each device but the host");
        let planned: u64 = executor.plan().memory().devices().iter().map(|memory| memory.peak()).sum();
        assert!(pool.held().iter().sum::<u64>() <= planned + shapes.len() as u64 * (1 << 20));
        if number % 20 == 0 {
            shapes.push(executor);
        }
        if number == 5 {
            steady = descriptors();
        }
    }
    // Other tests open files meanwhile.
    assert!(descriptors() < steady + 30, "{} descriptors after {steady}", descriptors());
    for executor in &shapes {
        assert_right(executor, &RunOptions::default());
    }
    drop(shapes);
    assert_eq!(pool.held(), [0, 0, 0]);
    drop(pool);
    assert_eq!(threads_named("shared-"), 0);
}

#[test]
fn work_between_plans_hears_of_the_token_and_the_clock() {
    let pool = pool(&ladder(&["cpu", "cpu"], 1, &[5]), 2);
    let token = CancelToken::new();
    let options = RunOptions::default().with_cancel(token.clone());
    let asked = pool.on_host(&options, |team, interrupt| {
        let interrupt = interrupt.expect("there is a token");
        let before = interrupt();
        token.cancel();
        let done = AtomicU32::new(0);
        team.run(10, &|_| _ = done.fetch_add(1, Ordering::Relaxed));
        (before, interrupt(), done.into_inner())
    });
    assert_eq!(asked.expect("nobody else runs"), (false, true, 0));
    let ended = pool.on_host(&options, |_, _| panic!("it was cancelled before"));
    assert_eq!(ended.map_err(|error| error.kind).expect_err("cancelled"), ErrorKind::Cancelled);
    let late = RunOptions::default().with_timeout(Duration::from_millis(1));
    let waits = |interrupt: Option<&_>| {
        interrupt.is_some_and(|interrupt: &anabranch_kernels::cpu::Interrupt| {
            while !interrupt() {
                std::thread::yield_now();
            }
            true
        })
    };
    assert!(pool.on_host(&late, |_, interrupt| waits(interrupt)).expect("nobody else runs"));
    assert!(pool.on_host(&RunOptions::default(), |_, interrupt| interrupt.is_none()).expect("nobody else runs"));
}

#[test]
fn idle_devices_are_not_started_and_not_opened() {
    let mut placed = PlacedProgram::chain(&["cpu", "cpu", "gpu"], &[0, 0, 0], &[5]);
    placed.devices[1].name = "idle-cpu".into();
    placed.devices[2].name = "idle-gpu".into();
    let opened = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&opened);
    let opener = GpuOpener::with("idle-gpu", move || {
        count.fetch_add(1, Ordering::Relaxed);
        Err(KernelError::Gpu("not to be opened".into()))
    });
    let mut given = devices(&placed, 2);
    given[2] = ComputeDevice::Gpu(opener);
    let executor = on(&DevicePool::new(given), &placed);
    assert_right(&executor, &RunOptions::default());
    assert_eq!((opened.load(Ordering::Relaxed), threads_named("idle-")), (0, 0));
}

#[test]
fn spinning_or_not_the_bits_are_the_same() {
    for placed in
        [ladder(&["cpu", "cpu", "cpu"], 5, &[9, 4]), PlacedProgram::chain(&["cpu", "cpu"], &[0, 1].repeat(15), &[16])]
    {
        let executor = on(&pool(&placed, 1), &placed);
        for spin in [NO_SPIN, Duration::from_micros(1), Duration::from_millis(1)] {
            for _ in 0..30 {
                assert_right(&executor, &RunOptions::default().with_spin(spin).with_linger(spin));
            }
        }
    }
}

#[test]
fn eight_callers_of_two_plans_all_get_their_runs() {
    let (one, two) = (ladder(&["cpu", "cpu"], 3, &[8]), PlacedProgram::chain(&["cpu", "cpu"], &[1, 0, 1, 0, 1], &[6]));
    let pool = pool(&one, 1);
    let executors = [on(&pool, &one), on(&pool, &two)];
    for spin in [NO_SPIN, Duration::from_micros(50)] {
        std::thread::scope(|scope| {
            for caller in 0..8 {
                let executor = &executors[caller % 2];
                scope.spawn(move || {
                    let options = RunOptions::default().with_spin(spin).with_linger(spin);
                    (0..50).for_each(|_| assert_right(executor, &options));
                });
            }
        });
    }
}

#[test]
fn a_queued_run_ends_at_its_own_timeout_and_token() {
    let placed = PlacedProgram::chain(&["cpu"], &[0], &[6]);
    let slow_kernels = kernels(&placed.program);
    let [entered, released] = [(); 2].map(|()| Arc::new(Barrier::new(2)));
    let own = [Arc::clone(&entered), Arc::clone(&released)];
    hook(&slow_kernels, 0, move || {
        own.iter().for_each(|barrier| _ = barrier.wait());
        Ok(())
    });
    let pool = pool(&placed, 1);
    let slow = executor_on(&pool, &placed, slow_kernels, &PlanOptions::default());
    // A run that its caller executes itself, and a run of the runner thread.
    for (length, is_long) in [(1, false), (9, true)] {
        let queued = on(&pool, &PlacedProgram::chain(&["cpu"], &vec![0; length], &[6]));
        assert_eq!(queued.plan().predicted().makespan >= LONG, is_long);
        let inputs = inputs(queued.program());
        let (timed_out, cancelled) = std::thread::scope(|scope| {
            scope.spawn(|| assert_right(&slow, &RunOptions::default()));
            entered.wait();
            // The checked run usually starts first, so that the timed-out runs have not started to wait for their turn
            // when they end.
            scope.spawn(|| assert_right(&queued, &RunOptions::default()));
            std::thread::sleep(Duration::from_millis(1));
            let timed_out = queued.run(&inputs, &RunOptions::default().with_timeout(Duration::from_millis(5)));
            let token = CancelToken::new();
            let options = RunOptions::default().with_cancel(token.clone());
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(5));
                token.cancel();
            });
            let cancelled = queued.run(&inputs, &options);
            released.wait();
            (timed_out, cancelled)
        });
        assert_eq!(timed_out.expect_err("it is queued").kind, ErrorKind::Timeout);
        assert_eq!(cancelled.expect_err("it is queued").kind, ErrorKind::Cancelled);
        assert_right(&queued, &RunOptions::default());
    }
}

#[test]
fn a_failure_of_one_plan_does_not_touch_another() {
    let placed = ladder(&["cpu", "cpu", "cpu"], 3, &[6]);
    let (bad_kernels, mood) = bad(&placed, 4);
    let pool = pool(&placed, 2);
    let (failing, other) = (executor_on(&pool, &placed, bad_kernels, &PlanOptions::default()), on(&pool, &placed));
    for _ in 0..20 {
        mood.store(PANICS, Ordering::Relaxed);
        failing.run(&inputs(&placed.program), &RunOptions::default()).expect_err("the kernel is bad");
        assert_right(&other, &RunOptions::default());
        mood.store(WELL, Ordering::Relaxed);
        assert_right(&failing, &RunOptions::default());
    }
}

#[test]
fn a_gpu_that_one_plan_finds_lost_is_opened_again_for_all() {
    let Some(adapter) = adapter().filter(|_| gpu().is_some()) else { return };
    let placed = ladder(&["cpu", "gpu"], 2, &[9, 5]);
    let opened = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&opened);
    let opener = GpuOpener::with("gpu1", move || {
        count.fetch_add(1, Ordering::Relaxed);
        Gpu::open(&adapter, Precision::F32).map(Arc::new)
    });
    let cpu = devices(&placed, 1).swap_remove(0);
    let pool = DevicePool::new(vec![cpu, ComputeDevice::Gpu(opener)]);
    let executors = [on(&pool, &placed), on(&pool, &placed)];
    executors.iter().for_each(|executor| assert_right(executor, &RunOptions::default()));
    assert_eq!(opened.load(Ordering::Relaxed), 1, "plans share it");
    pool.gpu(anabranch_placement_core::platform::DeviceId(1)).expect("it is open").destroy();
    let error = executors[0].run(&inputs(&placed.program), &RunOptions::default()).expect_err("it is lost");
    assert_eq!(error.kind, ErrorKind::DeviceFailure, "{error}");
    executors.iter().rev().for_each(|executor| assert_right(executor, &RunOptions::default()));
    assert_eq!(opened.load(Ordering::Relaxed), 2);
}

#[test]
fn a_result_is_written_over_a_former_one_that_nobody_else_has() {
    let placed = ladder(&["cpu", "cpu"], 2, &[64]);
    let executor = on(&pool(&placed, 1), &placed);
    let inputs = inputs(&placed.program);
    let expected = executor.run(&inputs, &RunOptions::default()).expect("nothing fails").outputs;
    let address = |output: &RunOutput| output.outputs[0].bytes().as_ptr();
    let (mut one, mut other) = (RunOutput::default(), RunOutput::default());
    let run = |output: &mut RunOutput| {
        executor.run_into(&inputs.iter().collect::<Vec<_>>(), &RunOptions::default(), output).expect("nothing fails");
        assert!(output.outputs.iter().zip(&expected).all(|(output, expected)| output.same_bits(expected)));
        assert_eq!(output.outputs.len(), expected.len());
    };
    run(&mut one);
    run(&mut other);
    let places = [address(&one), address(&other)];
    for _ in 0..3 {
        run(&mut one);
        run(&mut other);
        assert_eq!([address(&one), address(&other)], places, "each keeps its memory");
    }
    let kept = one.outputs[0].clone();
    run(&mut one);
    assert_ne!(address(&one), kept.bytes().as_ptr(), "somebody else has it");
    assert!(kept.same_bits(&expected[0]));
}

#[test]
fn a_large_result_is_the_callers_alone_and_its_memory_comes_back() {
    let placed = ladder(&["cpu", "cpu"], 2, &[1 << 16]);
    let executor = on(&pool(&placed, 1), &placed);
    let inputs = inputs(&placed.program);
    let run = || executor.run(&inputs, &RunOptions::default()).expect("nothing fails").outputs;
    let expected = run();
    let address = |outputs: &[anabranch_kernels::Tensor]| outputs[0].bytes().as_ptr();
    // A caller in a loop still holds the last result while the next is made.
    let (mut last, mut places) = (run(), BTreeSet::new());
    for _ in 0..6 {
        let next = run();
        assert!(next.iter().zip(&expected).all(|(output, expected)| output.same_bits(expected)));
        places.insert(address(&last) as usize);
        last = next;
    }
    assert!(places.len() <= 2, "{places:?}");
    let (_, buffer) = last.swap_remove(0).into_parts();
    let mut own = Arc::try_unwrap(buffer).expect("nothing else holds it");
    own.bytes_mut().fill(1);
    assert!(run()[0].same_bits(&expected[0]), "it was written over by the caller, and lies elsewhere");
    drop(executor);
    assert_eq!(own.bytes()[0], 1, "it outlives the executor");
}

#[test]
fn a_thread_that_cannot_be_pinned_is_noted() {
    let placed = ladder(&["cpu", "cpu"], 1, &[6]);
    let mut given = devices(&placed, 1);
    for device in &mut given {
        if let ComputeDevice::Cpu(cpu) = device {
            cpu.units = vec![u32::MAX];
        }
    }
    let pool = DevicePool::new(given);
    assert_eq!(pool.notes(), Vec::<String>::new());
    assert_right(&on(&pool, &placed), &RunOptions::default());
    let notes = pool.notes();
    assert!(notes.iter().any(|note| note.starts_with("cpu0:")) && notes.iter().any(|note| note.starts_with("cpu1:")));
}

/// Processing units of the calling thread, and its present unit.
type Affinity = (BTreeSet<u32>, Option<u32>);

/// Runs a chain of two nodes on these devices, the first with these units. Returns where the thread of the first node
/// was.
fn affinity_of_a_node(devices_of: &[u32], threads: usize, units: &[u32]) -> Affinity {
    let placed = PlacedProgram::chain(&vec!["cpu"; devices_of.len()], devices_of, &[6]);
    let (kernels, affinity) = (kernels(&placed.program), Arc::new(Mutex::new(Affinity::default())));
    let seen = Arc::clone(&affinity);
    hook(&kernels, 0, move || {
        *lock(&seen) = (affinity::allowed().unwrap_or_default(), affinity::current_unit());
        Ok(())
    });
    let mut given = devices(&placed, threads);
    if let ComputeDevice::Cpu(cpu) = &mut given[0] {
        cpu.units = units.to_vec();
    }
    let executor = executor_on(&DevicePool::new(given), &placed, kernels, &PlanOptions::default());
    executor.run(&inputs(&placed.program), &RunOptions::default()).expect("all is well");
    lock(&affinity).clone()
}

#[test]
fn callers_keep_off_the_cores_of_other_threads() {
    let allowed = affinity::allowed().unwrap_or_default();
    let (Some(&first), Some(&last)) = (allowed.first(), allowed.last()) else { return };
    if first == last {
        return;
    }
    let units = [first, last];
    // A thread that is not moved stays there.
    drop(affinity::pin_current_thread(&[last]).expect("a thread may narrow its own affinity"));
    assert_eq!(affinity_of_a_node(&[0, 0], 2, &units).1, Some(first), "a team's caller");
    assert_eq!(affinity_of_a_node(&[0, 1], 1, &units), ([first].into(), Some(first)), "who may sleep is pinned");
    assert_eq!(affinity_of_a_node(&[0, 0], 1, &units).0, allowed, "who is alone is not");
    assert_eq!(affinity::allowed(), Some(allowed), "as before");
    let _elsewhere = affinity::pin_current_thread(&[last]).expect("a thread may narrow its own affinity");
    for devices_of in [[0, 0], [0, 1]] {
        assert_eq!(affinity_of_a_node(&devices_of, 2, &units), ([last].into(), Some(last)), "its own affinity counts");
    }
}

#[test]
fn the_caller_is_left_on_the_units_where_it_was() {
    let placed = ladder(&["cpu", "cpu"], 1, &[6]);
    let before = affinity::allowed();
    let Some(unit) = before.as_ref().and_then(|units| units.first().copied()) else { return };
    let (kernels, mood) = bad(&placed, 0);
    let mut given = devices(&placed, 1);
    if let ComputeDevice::Cpu(cpu) = &mut given[0] {
        cpu.units = vec![unit];
    }
    let executor = executor_on(&DevicePool::new(given), &placed, kernels, &PlanOptions::default());
    for ill in [WELL, PANICS] {
        mood.store(ill, Ordering::Relaxed);
        let result = executor.run(&inputs(&placed.program), &RunOptions::default());
        assert_eq!(result.is_err(), ill == PANICS);
        assert_eq!(affinity::allowed(), before);
    }
}
