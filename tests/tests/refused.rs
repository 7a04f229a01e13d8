//! The n-th buffer that is asked for is refused, for every n: the session opens, plans and runs, or says that there is no memory, and goes on
//! well once there is.
//! An executable of its own: its allocator refuses buffers of the whole process.

use anabranch::device::CpuGranularity;
use anabranch::session::Outputs;
use anabranch::{DetectOptions, ErrorKind, Inputs, Session, SessionError, SessionOptions, Strategy};
use anabranch_tests::{model, reference};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicIsize, Ordering};

/// The system's allocator, which refuses one buffer. Only buffers are zeroed and aligned to cache lines; the models here have none that is
/// large enough for pages of its own.
struct Refusing;

/// What a buffer is aligned to, see [`anabranch_kernels::Buffer`].
const LINE: usize = 64;

/// Buffers that are given before one is refused; below zero, all are given.
static GIVEN: AtomicIsize = AtomicIsize::new(-1);

// SAFETY: a call is refused as the trait allows, or goes on to the system's allocator as it is.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let is_buffer = layout.align() == LINE;
        if is_buffer && GIVEN.load(Ordering::Relaxed) >= 0 && GIVEN.fetch_sub(1, Ordering::Relaxed) == 0 {
            return ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// Does something that a refusal may end. What it ends with, and whether the refusal was met.
fn refused_at<T>(n: isize, work: impl FnOnce() -> Result<T, SessionError>) -> (Result<T, SessionError>, bool) {
    GIVEN.store(n, Ordering::Relaxed);
    let result = work();
    let met = GIVEN.swap(-1, Ordering::Relaxed) < 0;
    (result, met)
}

fn open(name: &str) -> Result<Session, SessionError> {
    let devices = DetectOptions::default().without_gpu().with_cpu_granularity(CpuGranularity::Core);
    Session::open(model(name), SessionOptions::default().with_devices(devices).with_strategy(Strategy::HEFT))
}

/// Within rounding: constants that found no memory to be folded are computed in each run, by other kernels perhaps.
fn assert_right(outputs: &Outputs, expected: &Outputs) {
    for ((name, made), (_, right)) in outputs.iter().zip(expected.iter()) {
        let (made, right) = (made.elements::<f32>().expect("floats"), right.elements::<f32>().expect("floats"));
        let most = right.iter().fold(0f32, |most, right| most.max(right.abs()));
        assert!(made.iter().zip(right).all(|(made, right)| (made - right).abs() <= 1e-6 * most), "{name}");
    }
}

/// Refuses each buffer of `work` in turn until none is left. The number of refusals that it ended with an error.
fn each<T>(what: &str, mut work: impl FnMut(isize) -> (Result<T, SessionError>, bool)) -> usize {
    let mut errors = 0;
    for n in 0.. {
        let (result, met) = work(n);
        if let Err(error) = result {
            // What an import fails for is the model's, whatever it is.
            assert!(matches!(error.kind(), ErrorKind::Memory | ErrorKind::Model), "{what}, buffer {n}: {error}");
            assert!(error.to_string().contains("memory"), "{what}, buffer {n}: {error}");
            errors += 1;
        }
        if !met {
            break;
        }
    }
    errors
}

/// One test, because all tests of a binary share its allocator.
#[test]
fn whatever_buffer_is_refused_it_is_said_and_the_next_run_is_right() {
    for name in ["mlp", "convnet", "fire"] {
        let inputs: Inputs = reference(name).0;
        let expected = open(name).and_then(|session| session.run(&inputs)).expect("there is memory");
        let errors = each(name, |n| refused_at(n, || open(name)));
        let planned = each(name, |n| {
            let session = open(name).expect("there is memory");
            let refused = refused_at(n, || session.run(&inputs));
            assert_right(&session.run(&inputs).expect("there is memory again"), &expected);
            refused
        });
        assert!(planned > 3, "{name}: {errors} errors of opening, {planned} of planning and running");
        // The caller keeps what runs have made, so that each takes memory for its outputs.
        let (session, mut kept) = (open(name).expect("there is memory"), Vec::new());
        kept.push(session.run(&inputs).expect("there is memory"));
        let again = each(name, |n| {
            let refused = refused_at(n, || session.run(&inputs));
            kept.push(session.run(&inputs).expect("there is memory again"));
            assert_right(&kept[kept.len() - 1], &expected);
            refused
        });
        assert!(again > 0, "{name}: outputs take memory");
    }
}
