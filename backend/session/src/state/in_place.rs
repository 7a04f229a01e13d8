//! Runs that go on with a state in its memory: a step that appends to a cache does not copy it.

use super::StatePair;
use crate::error::SessionError;
use crate::inputs::{Given, Inputs};
use crate::open::Session;
use crate::outputs::Outputs;
use crate::prepare::Prepared;
use anabranch_execute::{Deadline, RunOptions, RunOutput, is_placeholder, placeholder};
use anabranch_kernels::{DType, Tensor};
use anabranch_plan::HOST;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// A state that lies among the outputs while a run goes on with it.
struct InOutputs<'p> {
    pair: &'p StatePair,
    /// Its place among the outputs on the host.
    place: usize,
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
    let read: Vec<usize> = (0..program.inputs.len()).filter(|at| plan.input_device(*at) == HOST).collect();
    let made: Vec<usize> = (0..program.outputs.len()).filter(|at| plan.output_device(*at) == HOST).collect();
    let bound: BTreeMap<&str, &StatePair> = pairs.iter().map(|pair| (&*pair.input, pair)).collect();
    let mut moved = Vec::new();
    for pair in prepared.executor.in_place() {
        let value = program.value(program.inputs[read[pair.input]]);
        let output = &program.outputs[made[pair.output]].name;
        let bound = bound.get(&*value.name).filter(|bound| bound.output == *output);
        let fits = matches!(inputs.given(&value.name), Some(Given::Host(tensor)) if *tensor.spec() == value.spec);
        let Some(bound) = bound.filter(|_| fits) else { continue };
        if let Some(Given::Host(state)) = inputs.exchange(&value.name, Given::Host(placeholder(value.spec.dtype))) {
            if result.outputs.len() <= pair.output {
                result.outputs.resize_with(pair.output + 1, || placeholder(DType::U8));
            }
            result.outputs[pair.output] = state;
            moved.push(InOutputs { pair: bound, place: pair.output });
        }
    }
    moved
}

/// Puts states back among the inputs after a run that failed; what the run has lost is forgotten.
fn put_back(in_outputs: &[InOutputs<'_>], inputs: &mut Inputs, result: &mut RunOutput) {
    let mut left: Vec<Option<Tensor>> = result.outputs.drain(..).map(Some).collect();
    for InOutputs { pair, place } in in_outputs {
        let state = left.get_mut(*place).and_then(Option::take);
        match state.filter(|state| !is_placeholder(state)) {
            Some(state) => drop(inputs.exchange(&pair.input, Given::Host(state))),
            None => inputs.forget(|name| name == pair.input),
        }
    }
}
