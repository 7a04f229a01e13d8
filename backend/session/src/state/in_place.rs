//! Runs that go on with a state in its memory: a step that appends to a cache does not copy it.

use super::StatePair;
use crate::error::SessionError;
use crate::inputs::{Given, Inputs};
use crate::open::Session;
use crate::outputs::Outputs;
use crate::prepare::Prepared;
use anabranch_execute::{Deadline, DeviceTensor, RunOptions, RunOutput, is_placeholder, placeholder};
use anabranch_kernels::{DType, Tensor};
use anabranch_plan::HOST;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// A state that lies among the outputs while a run goes on with it.
struct InOutputs<'p> {
    pair: &'p StatePair,
    /// Its place among the outputs on the host, or among those on GPUs.
    place: usize,
    is_on_host: bool,
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
        pairs: &[StatePair],
        inputs: &mut Inputs,
        outputs: &mut Outputs,
        options: &RunOptions,
    ) -> Result<Arc<Prepared>, SessionError> {
        let mut result = outputs.take();
        let _active = self.budget.enter();
        let asked = options.asked.unwrap_or_else(Instant::now);
        self.outlasting(|| {
            let prepared = self.find_or_prepare(&self.whole, inputs, None, &Deadline::new(options, asked))?;
            let moved = if prepared.rest.is_some() { Vec::new() } else { moved(&prepared, pairs, inputs, &mut result) };
            match self.run_over(&prepared, inputs, options, &mut result) {
                Ok(made) => *outputs = made,
                Err(error) => {
                    put_back(&moved, inputs, &mut result);
                    return Err(error);
                }
            }
            Ok(prepared)
        })
    }
}

/// Moves states from the inputs to the former outputs, where the plan goes on with them in place.
fn moved<'p>(
    prepared: &Prepared,
    pairs: &'p [StatePair],
    inputs: &mut Inputs,
    result: &mut RunOutput,
) -> Vec<InOutputs<'p>> {
    let (plan, program) = (prepared.plan(), &prepared.program);
    let bound: BTreeMap<&str, &StatePair> = pairs.iter().map(|pair| (&*pair.input, pair)).collect();
    let mut moved = Vec::new();
    let executor = &prepared.executor;
    for (in_place, is_on_host) in [(executor.in_place(), true), (executor.in_place_on_gpus(), false)] {
        let is_there = |device| (device == HOST) == is_on_host;
        let read: Vec<usize> = (0..program.inputs.len()).filter(|at| is_there(plan.input_device(*at))).collect();
        let made: Vec<usize> = (0..program.outputs.len()).filter(|at| is_there(plan.output_device(*at))).collect();
        for pair in in_place {
            let value = program.value(program.inputs[read[pair.input]]);
            let output = &program.outputs[made[pair.output]].name;
            let bound = bound.get(&*value.name).filter(|bound| bound.output == *output);
            let fits = |given: &&Given| *given.spec() == value.spec && matches!(given, Given::Host(_)) == is_on_host;
            let (Some(pair_of_state), Some(_)) = (bound, inputs.given(&value.name).filter(fits)) else { continue };
            let dtype = value.spec.dtype;
            let stands = if is_on_host {
                Given::Host(placeholder(dtype))
            } else {
                Given::Device(DeviceTensor::placeholder(dtype))
            };
            match inputs.exchange(&value.name, stands) {
                Some(Given::Host(state)) => put(&mut result.outputs, pair.output, state, || placeholder(DType::U8)),
                Some(Given::Device(state)) => {
                    put(&mut result.resident, pair.output, state, || DeviceTensor::placeholder(DType::U8));
                }
                None => {}
            }
            moved.push(InOutputs { pair: pair_of_state, place: pair.output, is_on_host });
        }
    }
    moved
}

/// Puts a state at its place, behind others.
fn put<T>(outputs: &mut Vec<T>, place: usize, state: T, other: impl FnMut() -> T) {
    if outputs.len() <= place {
        outputs.resize_with(place + 1, other);
    }
    outputs[place] = state;
}

/// Puts states back among the inputs after a run that failed; what the run has lost is forgotten.
fn put_back(in_outputs: &[InOutputs<'_>], inputs: &mut Inputs, result: &mut RunOutput) {
    let mut on_host: Vec<Option<Tensor>> = result.outputs.drain(..).map(Some).collect();
    let mut on_gpus: Vec<Option<DeviceTensor>> = result.resident.drain(..).map(Some).collect();
    for InOutputs { pair, place, is_on_host } in in_outputs {
        let state = match is_on_host {
            true => {
                let left = on_host.get_mut(*place).and_then(Option::take);
                left.filter(|state| !is_placeholder(state)).map(Given::Host)
            }
            false => {
                let left = on_gpus.get_mut(*place).and_then(Option::take);
                left.filter(|state| !state.is_placeholder()).map(Given::Device)
            }
        };
        match state {
            Some(state) => drop(inputs.exchange(&pair.input, state)),
            None => inputs.forget(|name| name == pair.input),
        }
    }
}
