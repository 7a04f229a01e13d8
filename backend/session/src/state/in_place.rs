//! Runs that go on with a state in its memory: a step that appends to a cache does not copy it.

use super::StatePair;
use crate::error::SessionError;
use crate::inputs::{Given, Inputs};
use crate::open::Session;
use crate::outputs::Outputs;
use crate::prepare::Prepared;
use anabranch_execute::{Deadline, DeviceTensor, RunOptions, RunOutput, is_placeholder, placeholder};
use anabranch_ir::program::ValueId;
use anabranch_kernels::{DType, Tensor};
use anabranch_plan::HOST;
use std::sync::Arc;
use std::time::Instant;

/// The states that a plan's runs go on with in place.
#[derive(Default)]
pub(super) struct Moves {
    plan: Option<Arc<Prepared>>,
    all: Vec<Move>,
}

/// A state that may lie among the outputs while a run goes on with it.
struct Move {
    /// Number of the pair.
    pair: usize,
    /// The program's input.
    value: ValueId,
    /// Its place among the outputs on the host, or among those on GPUs.
    place: usize,
    is_on_host: bool,
    /// Whether it lies there in this run.
    is_moved: bool,
}

impl Session {
    /// Runs the model; the state is moved to the outputs wherever the plan goes on with it in place. Returns the plan
    /// that was followed.
    ///
    /// # Errors
    /// As [`Session::run_into`]; `outputs` is then empty, and the state is back among the inputs, but for what was lost
    /// with a thread that failed.
    pub(super) fn run_with_state(
        &self,
        (pairs, moves): (&[StatePair], &mut Moves),
        inputs: &mut Inputs,
        outputs: &mut Outputs,
        options: &RunOptions,
    ) -> Result<Arc<Prepared>, SessionError> {
        let mut result = outputs.take();
        let _active = self.budget.enter();
        let asked = options.asked.unwrap_or_else(Instant::now);
        self.outlasting(|| {
            let prepared = self.find_or_prepare(&self.whole, inputs, None, &Deadline::new(options, asked))?;
            moves.begin(&prepared, pairs, inputs, &mut result);
            match self.run_over(&prepared, inputs, options, &mut result) {
                Ok(made) => *outputs = made,
                Err(error) => {
                    moves.put_back(pairs, inputs, &mut result);
                    return Err(error);
                }
            }
            Ok(prepared)
        })
    }
}

impl Moves {
    /// Moves states from the inputs to the former outputs, where this plan goes on with them in place.
    fn begin(&mut self, prepared: &Arc<Prepared>, pairs: &[StatePair], inputs: &mut Inputs, result: &mut RunOutput) {
        if !self.plan.as_ref().is_some_and(|plan| Arc::ptr_eq(plan, prepared)) {
            self.all = possible(prepared, pairs);
            self.plan = Some(Arc::clone(prepared));
        }
        for own in &mut self.all {
            let value = prepared.program.value(own.value);
            let fits = |given: &Given| *given.spec() == value.spec && matches!(given, Given::Host(_)) == own.is_on_host;
            own.is_moved = inputs.given(&value.name).is_some_and(fits);
            if !own.is_moved {
                continue;
            }
            let stands = match own.is_on_host {
                true => Given::Host(placeholder(value.spec.dtype)),
                false => Given::Device(DeviceTensor::placeholder(value.spec.dtype)),
            };
            match inputs.exchange(&value.name, stands) {
                Some(Given::Host(state)) => put(&mut result.outputs, own.place, state, || placeholder(DType::U8)),
                Some(Given::Device(state)) => {
                    put(&mut result.resident, own.place, state, || DeviceTensor::placeholder(DType::U8));
                }
                None => {}
            }
        }
    }

    /// Puts states back among the inputs after a run that failed; what the run has lost is forgotten.
    fn put_back(&self, pairs: &[StatePair], inputs: &mut Inputs, result: &mut RunOutput) {
        let mut on_host: Vec<Option<Tensor>> = result.outputs.drain(..).map(Some).collect();
        let mut on_gpus: Vec<Option<DeviceTensor>> = result.resident.drain(..).map(Some).collect();
        for own in self.all.iter().filter(|own| own.is_moved) {
            let state = match own.is_on_host {
                true => {
                    let left = on_host.get_mut(own.place).and_then(Option::take);
                    left.filter(|state| !is_placeholder(state)).map(Given::Host)
                }
                false => {
                    let left = on_gpus.get_mut(own.place).and_then(Option::take);
                    left.filter(|state| !state.is_placeholder()).map(Given::Device)
                }
            };
            let input = &pairs[own.pair].input;
            match state {
                Some(state) => drop(inputs.exchange(input, state)),
                None => inputs.forget(|name| name == input),
            }
        }
    }
}

/// The states that a plan can go on with in place; none for a plan in phases.
fn possible(prepared: &Prepared, pairs: &[StatePair]) -> Vec<Move> {
    let (plan, program) = (prepared.plan(), &prepared.program);
    let executor = &prepared.executor;
    let mut all = Vec::new();
    if prepared.rest.is_some() {
        return all;
    }
    for (in_place, is_on_host) in [(executor.in_place(), true), (executor.in_place_on_gpus(), false)] {
        let is_there = |device| (device == HOST) == is_on_host;
        let read: Vec<usize> = (0..program.inputs.len()).filter(|at| is_there(plan.input_device(*at))).collect();
        let made: Vec<usize> = (0..program.outputs.len()).filter(|at| is_there(plan.output_device(*at))).collect();
        for pair in in_place {
            let value = program.inputs[read[pair.input]];
            let (input, output) = (&program.value(value).name, &program.outputs[made[pair.output]].name);
            if let Some(number) = pairs.iter().position(|own| own.input == *input && own.output == *output) {
                all.push(Move { pair: number, value, place: pair.output, is_on_host, is_moved: false });
            }
        }
    }
    all
}

/// Puts a state at its place, behind others.
fn put<T>(outputs: &mut Vec<T>, place: usize, state: T, other: impl FnMut() -> T) {
    if outputs.len() <= place {
        outputs.resize_with(place + 1, other);
    }
    outputs[place] = state;
}
