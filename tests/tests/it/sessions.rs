//! One session over many input shapes. The memory that it keeps is bounded, and within the devices' limits in total.
//! Runs of different shapes do not disturb each other.

use anabranch::device::{CpuGranularity, DetectOptions};
use anabranch::session::Prepared;
use anabranch::{ErrorKind, Inputs, Outputs, Session, SessionConfig, Strategy};
use anabranch_tests::load::{Process, encoded as inputs};
use anabranch_tests::{model, one_cpu, options, same, session};
use std::sync::Arc;
use std::thread;

fn encoder(options: SessionConfig) -> Session {
    Session::open(model("encoder"), options).expect("a bundled model opens")
}

/// Returns the bytes of the first device that the plan for these inputs takes.
fn peak(prepared: &Arc<Prepared>) -> u64 {
    prepared.plan().memory().devices()[0].peak()
}

#[test]
fn plans_share_weights_and_old_ones_are_forgotten() {
    let session = encoder(one_cpu().with_plan_capacity(3));
    let mut alone = 0;
    for length in 1..=6 {
        let prepared = session.prepare(&inputs(1, length)).expect("is planned");
        assert_eq!(session.ready_plans(), length.min(3));
        alone += peak(&prepared);
        if length == 3 {
            assert!(session.held_bytes()[0] < alone, "weights count once: {:?} of {alone}", session.held_bytes());
        }
    }
    let held = session.held_bytes()[0];
    for length in 4..=6 {
        session.run(&inputs(1, length)).expect("runs");
    }
    assert_eq!(session.held_bytes(), [held], "plans that are there are found");
}

#[test]
fn the_limit_of_a_device_holds_for_all_plans_together() {
    let free = encoder(one_cpu());
    let (small, large) = (inputs(1, 5), inputs(2, 40));
    let prepared = [&small, &large].map(|inputs| free.prepare(inputs).expect("is planned"));
    let references = [&small, &large].map(|inputs| free.run(inputs).expect("runs"));
    let both = free.held_bytes()[0];
    let most = prepared.iter().map(peak).max().expect("two");
    assert!(most < both);

    let limit = both - 1;
    let session = encoder(one_cpu().with_memory("cpu0", limit));
    for _ in 0..3 {
        for (inputs, reference) in [&small, &large].into_iter().zip(&references) {
            assert!(same(&session.run(inputs).expect("the other plan makes room"), reference));
            assert!(session.held_bytes()[0] <= limit);
            assert_eq!(session.ready_plans(), 1);
        }
    }
    // Plans that the caller holds count, and are not removed.
    let held = session.prepare(&small).expect("is planned");
    let refused = session.run(&large).expect_err("no room beside the plan that is held");
    assert_eq!((refused.kind(), refused.device()), (ErrorKind::Memory, Some("cpu0")), "{refused}");
    assert!(same(&session.run(&small).expect("is ready"), &references[0]));
    drop(held);
    assert!(same(&session.run(&large).expect("there is room again"), &references[1]));
}

#[test]
fn a_plan_that_is_held_runs_after_it_was_forgotten() {
    let session = encoder(one_cpu().with_plan_capacity(1));
    let (first, second) = (inputs(1, 6), inputs(1, 7));
    let held = session.prepare(&first).expect("is planned");
    let reference = session.run(&first).expect("runs");
    let before = session.held_bytes()[0];
    session.run(&second).expect("runs");
    assert!(session.held_bytes()[0] > before, "both are held");
    let run = session.run_prepared(&held, &first, &Default::default()).expect("it is there as long as it is held");
    assert!(same(&run.outputs, &reference));
    drop((held, run));
    assert!(session.held_bytes()[0] < before * 2, "{:?}", session.held_bytes());
}

#[test]
fn runs_of_many_shapes_from_many_threads_are_right() {
    let shapes: Vec<Inputs> = (0..8).map(|at| inputs(1 + at % 3, 3 + at)).collect();
    let free = encoder(one_cpu());
    let references: Vec<Outputs> = shapes.iter().map(|inputs| free.run(inputs).expect("runs")).collect();
    let largest = shapes.iter().map(|inputs| peak(&free.prepare(inputs).expect("is planned"))).max().expect("eight");
    let limited = one_cpu().with_memory("cpu0", largest + largest / 4);
    for options in [one_cpu(), one_cpu().with_plan_capacity(2), limited] {
        let session = encoder(options);
        thread::scope(|scope| {
            for worker in 0..8 {
                let (session, shapes, references) = (&session, &shapes, &references);
                scope.spawn(move || {
                    let mut outputs = Outputs::default();
                    for turn in 0..6 {
                        let at = (worker * 3 + turn * 5) % shapes.len();
                        session.run_into(&shapes[at], &mut outputs).expect("runs");
                        assert!(same(&outputs, &references[at]), "shape {at} on thread {worker}");
                    }
                });
            }
        });
    }
}

#[test]
fn a_wish_that_cannot_be_met_is_told_to_all_who_wait() {
    let session = encoder(one_cpu().with_strategy(Strategy::Device("gpu7".into())));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let error = session.run(&inputs(1, 4)).expect_err("there is no such device");
                assert_eq!(error.kind(), ErrorKind::Strategy, "{error}");
            });
        }
    });
    assert_eq!(session.ready_plans(), 0, "what failed is not kept");
}

#[test]
fn threads_change_no_bits() {
    let reference = encoder(one_cpu()).run(&inputs(2, 9)).expect("runs");
    for threads in [1, 2, 5] {
        let options = one_cpu().with_threads(threads.try_into().expect("not zero"));
        assert!(same(&encoder(options).run(&inputs(2, 9)).expect("runs"), &reference), "{threads}");
    }
}

/// The test below runs this test in a separate process, whose threads and files no other test opens.
#[test]
fn a_hundred_shapes() {
    if std::env::var_os("ANABRANCH_TEST_ALONE").is_none() {
        return;
    }
    let options = options("heft").with_plan_capacity(4).with_pin("*linear1*", "gpu0").with_pin("*pooler*", "gpu0");
    let session = session("encoder", options);
    let mut shapes: Vec<(usize, usize)> =
        (1..=5).flat_map(|batch| (1..=20).map(move |length| (batch, length))).collect();
    let mut seed = 7u64;
    for at in (1..shapes.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        shapes.swap(at, (seed >> 33) as usize % (at + 1));
    }
    let mut outputs = Outputs::default();
    let mut run = |shapes: &[(usize, usize)]| {
        let mut most = vec![0; session.held_bytes().len()];
        for (batch, length) in shapes {
            session.run_into(&inputs(*batch, *length), &mut outputs).expect("runs");
            most.iter_mut().zip(session.held_bytes()).for_each(|(most, held)| *most = held.max(*most));
        }
        most
    };
    // The largest shapes come first, so that all later shapes find that much memory in use.
    let most = run(&[(5, 20), (5, 19), (4, 20), (5, 18), (5, 17)]);
    run(&shapes[..20]);
    let warm = Process::now();
    let held = run(&shapes);
    let after = Process::now();
    assert!(held.iter().zip(&most).all(|(held, most)| held <= most), "{held:?}, first {most:?}");
    assert!(most.last().is_some_and(|gpu| *gpu > 0), "the GPU takes part");
    assert_eq!(session.ready_plans(), 4);
    assert!(after.threads <= warm.threads + 2 && after.files <= warm.files + 2, "{warm:?}, then {after:?}");
    assert!(after.resident <= warm.resident + warm.resident / 4 + (32 << 10), "{warm:?}, then {after:?}");
}

#[test]
fn a_hundred_shapes_leave_threads_files_and_memory_as_they_were() {
    let binary = std::env::current_exe().expect("this test runs");
    let child = std::process::Command::new(binary)
        .args(["--exact", "sessions::a_hundred_shapes", "--nocapture"])
        .env("ANABRANCH_TEST_ALONE", "1")
        .output()
        .expect("starts");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"), "the test has another name");
}

/// Every plan is made on a calibrated machine: known costs are not measured again.
#[test]
fn a_machine_is_calibrated_once() {
    let devices = DetectOptions::default().with_cpu_granularity(CpuGranularity::Core).without_gpu();
    let options = SessionConfig::default().with_devices(devices).with_calibration(true);
    let session = Session::open(model("mlp"), options).expect("a bundled model opens");
    session.calibrate().expect("probes run");
    let known = session.costs();
    session.calibrate().expect("nothing is left");
    assert_eq!(session.costs(), known);
}
