//! Runs that go on with a state in its memory: a step that appends to a cache does not copy it.

use super::StatePair;
use crate::error::SessionError;
use crate::inputs::{Given, Inputs};
use crate::open::Session;
use crate::outputs::Outputs;
use crate::prepare::Prepared;
use anabranch_execute::{Deadline, RunOptions, RunOutput, continued};
use anabranch_kernels::{DType, Tensor};
use anabranch_plan::HOST;
use std::sync::Arc;
use std::time::Instant;

/// A state that lies among the outputs while a run goes on with it.
struct Moved<'p> {
    pair: &'p StatePair,
    /// Its place among the outputs on the host.
    place: usize,
}

impl Session {
    /// Runs the model; the state is moved to the outputs wherever the plan goes on with it in place. Returns the plan
    /// that was followed.
    ///
    /// # Errors
    /// As [`Session::run_into`]; `outputs` is then empty, and the state is back among the inputs.
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
            let before = result.outputs.len();
            match self.run_over(&prepared, inputs, options, &mut result) {
                Ok(made) => *outputs = made,
                Err(error) => {
                    put_back(&moved, before, inputs, &mut result);
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
) -> Vec<Moved<'p>> {
    let (plan, program) = (prepared.plan(), &prepared.program);
    let read: Vec<usize> = (0..program.inputs.len()).filter(|at| plan.input_device(*at) == HOST).collect();
    let made: Vec<usize> = (0..program.outputs.len()).filter(|at| plan.output_device(*at) == HOST).collect();
    let mut moved = Vec::new();
    for pair in prepared.executor.in_place() {
        let value = program.value(program.inputs[read[pair.input]]);
        let output = &program.outputs[made[pair.output]].name;
        let bound = pairs.iter().find(|bound| bound.input == value.name && bound.output == *output);
        let fits = matches!(inputs.given(&value.name), Some(Given::Host(tensor)) if *tensor.spec() == value.spec);
        let Some(bound) = bound.filter(|_| fits) else { continue };
        if let Some(Given::Host(state)) = inputs.exchange(&value.name, Given::Host(continued(value.spec.dtype))) {
            if result.outputs.len() <= pair.output {
                result.outputs.resize_with(pair.output + 1, || continued(DType::U8));
            }
            result.outputs[pair.output] = state;
            moved.push(Moved { pair: bound, place: pair.output });
        }
    }
    moved
}

/// Puts states back among the inputs after a run that failed: before it began all former outputs are there, later those
/// that it went on with.
fn put_back(moved: &[Moved<'_>], before: usize, inputs: &mut Inputs, result: &mut RunOutput) {
    let mut left: Vec<Option<Tensor>> = result.outputs.drain(..).map(Some).collect();
    let all = left.len() == before;
    for (at, Moved { pair, place }) in moved.iter().enumerate() {
        match left.get_mut(if all { *place } else { at }).and_then(Option::take) {
            Some(state) => drop(inputs.exchange(&pair.input, Given::Host(state))),
            // It was lost with a thread that failed.
            None => inputs.forget(|name| name == pair.input),
        }
    }
}
