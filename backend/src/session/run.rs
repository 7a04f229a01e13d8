//! Runs: from named inputs to named outputs.

use super::error::{InputError, SessionError};
use super::inputs::Inputs;
use super::open::Session;
use super::outputs::Outputs;
use super::prepare::Prepared;
use crate::execute::{RunOptions, RunOutput};
use crate::learning::Accuracy;
use crate::program::{Program, ValueId};
use anabranch_kernels::Tensor;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A finished run.
pub struct Run {
    /// What the model made.
    pub outputs: Outputs,
    /// When what happened, and how much memory it took.
    pub measured: RunOutput,
    /// The plan that was followed.
    pub prepared: Arc<Prepared>,
    /// Whether it was the plan's first run, in which memory is touched and kernels are compiled for the first time.
    pub cold: bool,
}

impl Run {
    /// What was predicted of this run beside what was measured; needs the run's profile.
    pub fn accuracy(&self) -> Accuracy {
        Accuracy::of(&self.prepared, &self.measured)
    }
}

impl Session {
    /// Runs the model.
    ///
    /// # Errors
    /// If inputs are missing or do not fit the model, there is no plan for their shapes, or the run fails.
    pub fn run(&self, inputs: &Inputs) -> Result<Outputs, SessionError> {
        let mut outputs = Outputs::default();
        self.run_into(inputs, &mut outputs)?;
        Ok(outputs)
    }

    /// Runs the model and leaves its outputs in `outputs`, whose memory is used again where it fits and nothing else holds it: on CPUs
    /// a run that is repeated like this allocates next to nothing.
    ///
    /// # Errors
    /// As [`Self::run`]; `outputs` is then empty.
    pub fn run_into(&self, inputs: &Inputs, outputs: &mut Outputs) -> Result<(), SessionError> {
        let _active = self.budget.enter();
        let prepared = self.find_or_prepare(inputs)?;
        let mut result = outputs.take();
        prepared.executor.run_into(&ordered(inputs, &prepared.program)?, &RunOptions::default(), &mut result)?;
        prepared.warm.store(true, Ordering::Relaxed);
        outputs.put(&prepared.output_names, result);
        Ok(())
    }

    /// Runs the model and tells when what happened: with [`RunOptions::profile`], of every node and transfer. Give such a run to
    /// [`Self::learn`] to add its times to the costs.
    ///
    /// # Errors
    /// As [`Self::run`]; also if the run is cancelled or takes too long.
    pub fn run_with(&self, inputs: &Inputs, options: &RunOptions) -> Result<Run, SessionError> {
        let _active = self.budget.enter();
        self.run_prepared(&self.find_or_prepare(inputs)?, inputs, options)
    }

    /// Runs a plan that is ready.
    ///
    /// # Errors
    /// As [`Self::run_with`].
    pub fn run_prepared(
        &self,
        prepared: &Arc<Prepared>,
        inputs: &Inputs,
        options: &RunOptions,
    ) -> Result<Run, SessionError> {
        let tensors = ordered(inputs, &prepared.program)?;
        let mut measured = prepared.executor.run(&tensors, options)?;
        let outputs = Outputs::new(Arc::clone(&prepared.output_names), mem::take(&mut measured.outputs));
        let cold = !prepared.warm.swap(true, Ordering::Relaxed);
        Ok(Run { outputs, measured, prepared: Arc::clone(prepared), cold })
    }
}

/// The tensors in the program's order.
pub(super) fn ordered<'i>(inputs: &'i Inputs, program: &Program) -> Result<Vec<&'i Tensor>, SessionError> {
    let tensor = |value: &ValueId| {
        let value = program.value(*value);
        let name = || value.name.clone();
        let expected = || value.spec.to_string();
        match inputs.find(&value.name) {
            None => Err(InputError::Missing { name: name(), expected: expected() }.into()),
            Some(given) if *given.spec() != value.spec => {
                Err(InputError::Spec { name: name(), given: given.spec().clone(), expected: expected() }.into())
            }
            Some(given) => Ok(given),
        }
    };
    program.inputs.iter().map(tensor).collect()
}
