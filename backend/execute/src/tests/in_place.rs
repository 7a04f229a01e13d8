//! Caches that go on in place: no copy, the bits of a copy, and nothing lost.

use super::naive::hook;
use super::{Executor, RunOptions, RunOutput, executor_on, executor_with, inputs, pool};
use crate::runner::LONG;
use crate::{CancelToken, Kernels, is_placeholder, placeholder};
use anabranch_base::error_kind::ErrorKind;
use anabranch_ir::program::{Program, floats};
use anabranch_kernels::op::{Append, Op};
use anabranch_kernels::{DType, KernelError, Shape, Tensor, TensorSpec};
use anabranch_plan::test_programs::{PlacedProgram, relu};
use anabranch_plan::{HOST, InPlace, PlanOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

pub(super) const CAPACITY: usize = 8;

/// `present = past with new at start`, and `y = relu(present)`, by this many nodes.
pub(super) fn program(length: usize) -> Program {
    let mut program = Program::default();
    let (cache, new) = (floats(&[1, 2, CAPACITY, 3]), floats(&[1, 2, 1, 3]));
    let start = TensorSpec::new(DType::I64, Shape::new([1]).expect("small"));
    let past = program.add_input("past", cache.clone());
    let given = [past, program.add_input("new", new), program.add_input("start", start)];
    let present = program.add_node("append", Op::Append(Append { circular: false }), &given, cache.clone());
    let relus = (0..length).fold(present, |x, _| program.add_node("y", relu(), &[x], cache.clone()));
    program.add_output("y", relus);
    program.add_output("present", present);
    program
}

fn executor() -> Executor {
    let placed = PlacedProgram::new(program(1), &["cpu"], &[0, 0]);
    let kernels = Arc::new(Kernels::new(Arc::new(placed.program.clone())));
    executor_with(&placed, kernels, &PlanOptions::default(), 2)
}

pub(super) fn new(step: usize) -> Tensor {
    let elements: Vec<f32> = (0..6).map(|at| (step * 6 + at) as f32 - 7.0).collect();
    Tensor::from_elements(Shape::new([1, 2, 1, 3]).expect("small"), &elements).expect("six")
}

pub(super) fn at(step: usize) -> Tensor {
    Tensor::from_i64s(&[step as i64])
}

#[test]
fn steps_in_place_have_the_bits_and_the_memory_of_one_cache() {
    let executor = executor();
    assert_eq!(executor.in_place(), [InPlace { input: 0, output: 1, device: HOST }]);
    let (mut own, mut copied) = (RunOutput::default(), inputs(executor.program()).swap_remove(0));
    executor.run_into(&[&copied, &new(0), &at(0)], &RunOptions::default(), &mut own).expect("sound");
    let place = own.outputs[1].bytes().as_ptr();
    copied = own.outputs[1].reshaped(own.outputs[1].shape().clone()).expect("the same");
    copied = Tensor::from_elements(copied.shape().clone(), copied.elements::<f32>().expect("floats")).expect("a copy");
    for step in 1..CAPACITY {
        let alone = executor.run(&[&copied, &new(step), &at(step)], &RunOptions::default()).expect("sound");
        executor
            .run_into(&[&placeholder(DType::F32), &new(step), &at(step)], &RunOptions::default(), &mut own)
            .expect("sound");
        assert!(alone.outputs.iter().zip(&own.outputs).all(|(a, b)| a.same_bits(b)), "step {step}");
        copied = alone.outputs[1].clone();
        if step > 1 {
            assert_eq!(own.outputs[1].bytes().as_ptr(), place, "step {step}");
        }
    }
}

#[test]
fn what_somebody_else_holds_is_left_as_it_is() {
    let executor = executor();
    let mut own = RunOutput::default();
    let past = inputs(executor.program()).swap_remove(0);
    executor.run_into(&[&past, &new(0), &at(0)], &RunOptions::default(), &mut own).expect("sound");
    let (held, before) = (own.outputs[1].clone(), own.outputs[1].elements::<f32>().expect("floats").to_vec());
    executor.run_into(&[&placeholder(DType::F32), &new(1), &at(1)], &RunOptions::default(), &mut own).expect("sound");
    assert_eq!(held.elements::<f32>().expect("floats"), before);
    let alone = executor.run(&[&held, &new(1), &at(1)], &RunOptions::default()).expect("sound");
    assert!(alone.outputs[1].same_bits(&own.outputs[1]));
}

#[test]
fn a_run_that_fails_gives_the_cache_back() {
    let executor = executor();
    let mut own = RunOutput::default();
    let past = inputs(executor.program()).swap_remove(0);
    executor.run_into(&[&past, &new(0), &at(0)], &RunOptions::default(), &mut own).expect("sound");
    let before = own.outputs[1].elements::<f32>().expect("floats").to_vec();
    let step = |options: &RunOptions, start: usize, own: &mut RunOutput| {
        executor.run_into(&[&placeholder(DType::F32), &new(1), &at(start)], options, own)
    };
    let cancelled = RunOptions { cancel: Some(CancelToken::default()), ..RunOptions::default() };
    cancelled.cancel.as_ref().expect("set").cancel();
    for (options, start) in [(RunOptions::default(), CAPACITY), (cancelled, 1)] {
        let error = step(&options, start, &mut own).expect_err("fails");
        let cache = own.outputs.pop().expect("the cache");
        assert_eq!(cache.elements::<f32>().expect("floats"), before, "{error}");
        // As it stood among the outputs.
        own.outputs = vec![past.clone(), cache];
    }
    step(&RunOptions::default(), 1, &mut own).expect("goes on");
}

#[test]
fn there_must_be_a_former_output() {
    let executor = executor();
    let error =
        executor.run(&[&placeholder(DType::F32), &new(1), &at(1)], &RunOptions::default()).expect_err("nothing");
    assert!(error.to_string().contains("\"past\" continues a former output"), "{error}");
}

#[test]
fn no_other_tensor_without_elements_stands_for_a_former_output() {
    let executor = executor();
    let mut own = RunOutput::default();
    let past = inputs(executor.program()).swap_remove(0);
    executor.run_into(&[&past, &new(0), &at(0)], &RunOptions::default(), &mut own).expect("sound");
    let empty = Tensor::zeroed(floats(&[1, 2, 0, 3]));
    let error = executor.run_into(&[&empty, &new(1), &at(1)], &RunOptions::default(), &mut own).expect_err("another");
    assert!(error.to_string().contains("\"past\" must be f32[1×2×8×3]"), "{error}");
}

/// An executor whose second node fails on demand, on the second CPU device.
fn failing() -> (Executor, Arc<AtomicBool>) {
    let placed = PlacedProgram::new(program(1), &["cpu", "cpu"], &[0, 1]);
    let kernels = Arc::new(Kernels::new(Arc::new(placed.program.clone())));
    let fails = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&fails);
    hook(&kernels, 1, move || match own.load(Ordering::Relaxed) {
        true => Err(KernelError::Value { op: "relu", reason: "it is bad".into() }),
        false => Ok(()),
    });
    (executor_with(&placed, kernels, &PlanOptions::default(), 1), fails)
}

#[test]
fn a_reader_on_another_device_that_fails_leaves_the_cache() {
    let (executor, fails) = failing();
    let mut own = RunOutput::default();
    let past = inputs(executor.program()).swap_remove(0);
    executor.run_into(&[&past, &new(0), &at(0)], &RunOptions::default(), &mut own).expect("sound");
    let want = executor.run(&[&own.outputs[1], &new(1), &at(1)], &RunOptions::default()).expect("sound");
    fails.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        let step = [&placeholder(DType::F32), &new(1), &at(1)];
        executor.run_into(&step, &RunOptions::default(), &mut own).expect_err("the reader is bad");
        // The failed run has written the new position.
        assert!(own.outputs[1].same_bits(&want.outputs[1]));
    }
    fails.store(false, Ordering::Relaxed);
    let step = [&placeholder(DType::F32), &new(1), &at(1)];
    executor.run_into(&step, &RunOptions::default(), &mut own).expect("goes on");
    assert!(own.outputs.iter().zip(&want.outputs).all(|(own, want)| own.same_bits(want)));
}

#[test]
fn a_queued_run_that_ends_before_it_starts_gives_the_cache_back() {
    let placed = PlacedProgram::new(program(9), &["cpu"], &[0; 10]);
    let pool = pool(&placed, 1);
    let with = |kernels: &Arc<Kernels>| executor_on(&pool, &placed, Arc::clone(kernels), &PlanOptions::default());
    let kernels = || Arc::new(Kernels::new(Arc::new(placed.program.clone())));
    let [entered, released] = [(); 2].map(|()| Arc::new(Barrier::new(2)));
    let (slow_kernels, own) = (kernels(), [Arc::clone(&entered), Arc::clone(&released)]);
    hook(&slow_kernels, 1, move || {
        own.iter().for_each(|barrier| _ = barrier.wait());
        Ok(())
    });
    let (slow, queued) = (with(&slow_kernels), with(&kernels()));
    assert!(queued.plan().predicted().makespan >= LONG);
    let mut own = RunOutput::default();
    let past = inputs(&placed.program).swap_remove(0);
    queued.run_into(&[&past, &new(0), &at(0)], &RunOptions::default(), &mut own).expect("sound");
    let before = own.outputs[1].elements::<f32>().expect("floats").to_vec();
    std::thread::scope(|scope| {
        scope.spawn(|| slow.run(&[&past, &new(0), &at(0)], &RunOptions::default()).expect("sound"));
        entered.wait();
        let late = RunOptions::default().with_timeout(Duration::from_millis(5));
        let ended = queued.run_into(&[&placeholder(DType::F32), &new(1), &at(1)], &late, &mut own);
        assert_eq!(ended.expect_err("it is queued").kind, ErrorKind::Timeout);
        released.wait();
    });
    assert_eq!(own.outputs[1].elements::<f32>().expect("floats"), before);
    let step = [&placeholder(DType::F32), &new(1), &at(1)];
    queued.run_into(&step, &RunOptions::default(), &mut own).expect("goes on");
}

#[test]
fn what_a_panic_has_lost_is_told_from_what_is_kept() {
    let mut program = Program::default();
    let cache = floats(&[1, 2, CAPACITY, 3]);
    let mut given = |name: &str| program.add_input(name, cache.clone());
    let pasts = [given("keys"), given("values")];
    let new = program.add_input("new", floats(&[1, 2, 1, 3]));
    let start = program.add_input("start", TensorSpec::new(DType::I64, Shape::new([1]).expect("small")));
    for past in pasts {
        let append = Op::Append(Append { circular: false });
        let made = program.add_node("append", append, &[past, new, start], cache.clone());
        program.add_output("made", made);
    }
    let placed = PlacedProgram::new(program, &["cpu"], &[0, 0]);
    let kernels = Arc::new(Kernels::new(Arc::new(placed.program.clone())));
    hook(&kernels, 0, || std::panic::resume_unwind(Box::new("a bad kernel")));
    let executor = executor_with(&placed, kernels, &PlanOptions::default(), 1);
    assert_eq!(executor.in_place().len(), 2);
    let caches: Vec<Tensor> = inputs(&placed.program).drain(..2).collect();
    let mut own = RunOutput { outputs: inputs(&placed.program).drain(..2).collect(), ..RunOutput::default() };
    let step = [&placeholder(DType::F32), &placeholder(DType::F32), &self::new(1), &at(1)];
    executor.run_into(&step, &RunOptions::default(), &mut own).expect_err("the first is bad");
    assert!(is_placeholder(&own.outputs[0]));
    // The values may have their new position.
    let first = |cache: &Tensor| cache.elements::<f32>().expect("floats")[..3].to_vec();
    assert_eq!(first(&own.outputs[1]), first(&caches[1]));
}
