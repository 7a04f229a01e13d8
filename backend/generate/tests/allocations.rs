//! A decoding step does not allocate more than it did. The test is a separate executable because its allocator counts
//! the allocations of the whole process.

use anabranch_kernels::{Shape, Tensor};
use anabranch_session::{Inputs, Session, SessionConfig};
use std::alloc::{GlobalAlloc, Layout, System};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// System allocator with a counter.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches no memory except the counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Positions of the cache.
const CAPACITY: usize = 64;

/// Steps before those that are counted, and those.
const STEPS: [usize; 2] = [16, 32];

/// Greatest number of allocations of a step, of any number of layers: lists of what is given and of what is replaced.
const MOST: f64 = 3.0;

/// The cache is a buffer, so that all steps have the same shapes.
#[test]
fn a_step_of_a_decoder_makes_no_more_allocations() {
    for threads in [1, 2] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/language/llama/model.onnx");
        let config = SessionConfig::default().without_gpu().with_threads(NonZeroUsize::new(threads).expect("some"));
        let session = Session::open(file, config).expect("a bundled model opens");
        let mut model = session.stateful(&[]).expect("outputs that are inputs of the next step");
        let integers = |values: &[i64]| {
            let shape = Shape::new([1, values.len()]).expect("small");
            Tensor::from_elements(shape, values).expect("as many")
        };
        let step = |end: usize| {
            let mask: Vec<i64> = (0..CAPACITY).map(|at| i64::from(at < end)).collect();
            Inputs::new().tensor("input_ids", integers(&[5])).tensor("attention_mask", integers(&mask))
        };
        let steps: Vec<Inputs> = (1..=STEPS.iter().sum()).map(step).collect();
        model.resize(&steps[0], CAPACITY).expect("a capacity");
        let (warm, counted) = steps.split_at(STEPS[0]);
        warm.iter().for_each(|inputs| _ = model.run(inputs).expect("runs"));
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        counted.iter().for_each(|inputs| _ = model.run(inputs).expect("runs"));
        let each = (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / STEPS[1] as f64;
        assert!(each <= MOST, "{each} allocations of a step with {threads} threads, not {MOST}");
    }
}
