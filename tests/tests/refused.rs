//! Refuses the n-th buffer allocation, for every n. The session then opens, plans and runs, or reports that there is no
//! memory, and works again once there is memory. The test is a separate executable because its allocator refuses
//! buffers of the whole process.

use anabranch::device::CpuGranularity;
use anabranch::session::Outputs;
use anabranch::{DetectOptions, ErrorKind, Inputs, Session, SessionConfig, SessionError, Strategy};
use anabranch_tests::{model, reference};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicIsize, Ordering};

/// System allocator that refuses one buffer. Only buffers are zeroed and aligned to cache lines; the models here have
/// no buffer that is large enough for its own pages.
struct Refusing;

/// Alignment of a buffer, see [`anabranch_kernels::Buffer`].
const LINE: usize = 64;

/// Number of buffers that are granted before one is refused; if negative, all are granted.
static GIVEN: AtomicIsize = AtomicIsize::new(-1);

// SAFETY: a call is refused as the trait allows, or is passed on to the system's allocator unchanged.
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

/// Does work that a refusal may end. Returns its result, and whether the refusal took place.
fn refused_at<T>(n: isize, work: impl FnOnce() -> Result<T, SessionError>) -> (Result<T, SessionError>, bool) {
    GIVEN.store(n, Ordering::Relaxed);
    let result = work();
    let met = GIVEN.swap(-1, Ordering::Relaxed) < 0;
    (result, met)
}

fn open(name: &str) -> Result<Session, SessionError> {
    let devices = DetectOptions::default().without_gpu().with_cpu_granularity(CpuGranularity::Core);
    Session::open(model(name), SessionConfig::default().with_devices(devices).with_strategy(Strategy::HEFT))
}

/// Checks equality within rounding: constants that found no memory for folding are computed in each run, perhaps by
/// other kernels.
fn assert_right(outputs: &Outputs, expected: &Outputs) {
    for ((name, made), (_, right)) in outputs.iter().zip(expected.iter()) {
        let (made, right) = (made.elements::<f32>().expect("floats"), right.elements::<f32>().expect("floats"));
        let most = right.iter().fold(0f32, |most, right| most.max(right.abs()));
        assert!(made.iter().zip(right).all(|(made, right)| (made - right).abs() <= 1e-6 * most), "{name}");
    }
}

/// Refuses each buffer of `work` in turn until none is left. Returns the number of refusals that ended it with an
/// error.
fn each<T>(what: &str, mut work: impl FnMut(isize) -> (Result<T, SessionError>, bool)) -> usize {
    let mut errors = 0;
    for n in 0.. {
        let (result, met) = work(n);
        if let Err(error) = result {
            // Every failed import is an error of the model.
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

/// A single test, because all tests of a binary share its allocator.
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
        // The caller keeps the results of runs, so that each run takes memory for its outputs.
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
