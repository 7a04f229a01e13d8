//! Caches that go on in place: no copy, the bits of a copy, and nothing lost.

use super::{Executor, RunOptions, RunOutput, executor_with, inputs};
use crate::{CancelToken, continued};
use anabranch_ir::program::{Program, floats};
use anabranch_kernels::op::{Append, Op};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use anabranch_plan::test_programs::{PlacedProgram, relu};
use anabranch_plan::{InPlace, Kernels, PlanOptions};
use std::sync::Arc;

const CAPACITY: usize = 8;

/// `present = past with new at start`, and `y = relu(present)`.
fn program() -> Program {
    let mut program = Program::default();
    let (cache, new) = (floats(&[1, 2, CAPACITY, 3]), floats(&[1, 2, 1, 3]));
    let start = TensorSpec::new(DType::I64, Shape::new([1]).expect("small"));
    let past = program.add_input("past", cache.clone());
    let given = [past, program.add_input("new", new), program.add_input("start", start)];
    let present = program.add_node("append", Op::Append(Append { circular: false }), &given, cache.clone());
    let y = program.add_node("y", relu(), &[present], cache);
    program.add_output("y", y);
    program.add_output("present", present);
    program
}

fn executor() -> Executor {
    let placed = PlacedProgram::new(program(), &["cpu"], &[0, 0]);
    let kernels = Arc::new(Kernels::new(Arc::new(placed.program.clone())));
    executor_with(&placed, kernels, &PlanOptions::default(), 2)
}

fn new(step: usize) -> Tensor {
    let elements: Vec<f32> = (0..6).map(|at| (step * 6 + at) as f32 - 7.0).collect();
    Tensor::from_elements(Shape::new([1, 2, 1, 3]).expect("small"), &elements).expect("six")
}

fn at(step: usize) -> Tensor {
    Tensor::from_i64s(&[step as i64])
}

#[test]
fn steps_in_place_have_the_bits_and_the_memory_of_one_cache() {
    let executor = executor();
    assert_eq!(executor.in_place(), [InPlace { input: 0, output: 1 }]);
    let (mut own, mut copied) = (RunOutput::default(), inputs(executor.program()).swap_remove(0));
    executor.run_into(&[&copied, &new(0), &at(0)], &RunOptions::default(), &mut own).expect("sound");
    let place = own.outputs[1].bytes().as_ptr();
    copied = own.outputs[1].reshaped(own.outputs[1].shape().clone()).expect("the same");
    copied = Tensor::from_elements(copied.shape().clone(), copied.elements::<f32>().expect("floats")).expect("a copy");
    for step in 1..CAPACITY {
        let alone = executor.run(&[&copied, &new(step), &at(step)], &RunOptions::default()).expect("sound");
        executor
            .run_into(&[&continued(DType::F32), &new(step), &at(step)], &RunOptions::default(), &mut own)
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
    executor.run_into(&[&continued(DType::F32), &new(1), &at(1)], &RunOptions::default(), &mut own).expect("sound");
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
        executor.run_into(&[&continued(DType::F32), &new(1), &at(start)], options, own)
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
    let error = executor.run(&[&continued(DType::F32), &new(1), &at(1)], &RunOptions::default()).expect_err("nothing");
    assert!(error.to_string().contains("\"past\" goes on with a former output"), "{error}");
}
