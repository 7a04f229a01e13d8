//! Repeated runs allocate no memory: neither the queue nor the workers, the transfers nor the result. The test is a
//! separate executable because its allocator counts the allocations of the whole process.

use anabranch::execute::{ComputeDevice, CpuTeam, DevicePool, Executor, RunOptions, RunOutput};
use anabranch::plan::PlanOptions;
use anabranch::{Inputs, Outputs, Session, SessionConfig};
use anabranch_bench::chains::Chain;
use anabranch_kernels::op::{Domain, Expression, Map, Op, Unary};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use anabranch_tests::{model, reference};
use std::alloc::{GlobalAlloc, Layout, System};
use std::num::NonZeroUsize;
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

/// Positions of the decoder's cache.
const CAPACITY: usize = 64;

fn executor(devices: u32, elements: usize) -> Executor {
    let cpu = |at: u32| {
        ComputeDevice::Cpu(CpuTeam { name: format!("cpu{at}"), threads: 1, units: Vec::new(), slowdown: 1.0 })
    };
    let op = Op::Map(Map { domain: Domain::F32, expression: Expression::unary(Unary::Relu) });
    let spec = TensorSpec::new(DType::F32, Shape::new(vec![elements]).expect("small"));
    let pool = DevicePool::new((0..devices).map(cpu).collect());
    let chain = Chain { op, spec, length: 40, kernel: None, seconds: 1e-6 };
    chain.executor_on(&pool, &PlanOptions::default()).expect("a kernel for every node")
}

/// A single test, because all tests of a binary share its allocator.
#[test]
fn repeated_runs_take_no_memory() {
    // Large outputs are given away, and their memory is used again.
    for (devices, elements) in [(1, 16), (2, 16), (1, 8192), (2, 8192)] {
        let executor = executor(devices, elements);
        let input = Tensor::zeroed(executor.program().outputs[0].spec.clone());
        let mut output = RunOutput::default();
        for options in [RunOptions::default(), RunOptions::default().with_profile(true)] {
            let mut run = || {
                executor.run_into(&[&input], &options, &mut output).expect("nothing fails");
            };
            (0..20).for_each(|_| run());
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            (0..100).for_each(|_| run());
            assert_eq!(
                ALLOCATIONS.load(Ordering::Relaxed),
                before,
                "{devices} devices, {elements} elements, profile {}",
                options.profile
            );
        }
    }
    // A session finds the plan for the inputs' shapes, and takes a list of inputs.
    let options = SessionConfig::default().without_gpu();
    let session = Session::open(model("mlp"), options).expect("a bundled model opens");
    let (inputs, mut outputs) = (reference("mlp").0, Outputs::default());
    let mut run = || session.run_into(&inputs, &mut outputs).expect("runs");
    (0..20).for_each(|_| run());
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..100).for_each(|_| run());
    let each = (ALLOCATIONS.load(Ordering::Relaxed) - before) / 100;
    assert!(each <= 1, "{each} allocations in a run of a session");
    // So does a step of a decoder, of any number of layers. Its cache is a buffer, so that all steps have one shape.
    for threads in [1, 2] {
        let options = SessionConfig::default().without_gpu().with_threads(NonZeroUsize::new(threads).expect("some"));
        let session = Session::open(model("language/llama/model"), options).expect("a bundled model opens");
        let mut decoder = session.stateful(&[]).expect("outputs that are inputs of the next step");
        let integers = |values: &[i64]| {
            Tensor::from_elements(Shape::new([1, values.len()]).expect("small"), values).expect("as many")
        };
        let step = |end: usize| {
            let mask: Vec<i64> = (0..CAPACITY).map(|at| i64::from(at < end)).collect();
            Inputs::new().tensor("input_ids", integers(&[5])).tensor("attention_mask", integers(&mask))
        };
        let steps: Vec<Inputs> = (1..=CAPACITY).map(step).collect();
        decoder.resize(&steps[0], CAPACITY).expect("a capacity");
        let (warm, counted) = steps.split_at(CAPACITY / 2);
        warm.iter().for_each(|inputs| _ = decoder.run(inputs).expect("runs"));
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        counted.iter().for_each(|inputs| _ = decoder.run(inputs).expect("runs"));
        let made = ALLOCATIONS.load(Ordering::Relaxed) - before;
        // A thread that had no part in the first steps makes its workspace later.
        let most = 3 * counted.len() + 4 * (threads - 1);
        assert!(made <= most, "{made} allocations in all steps: lists of given and replaced inputs, {threads} threads");
    }
}
