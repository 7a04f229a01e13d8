//! Runs a model that is scheduled at run time, without a plan: a baseline for plans.

use super::error::{InputError, SessionError};
use super::inputs::Inputs;
use super::open::Session;
use super::outputs::Outputs;
use super::run::ordered;
use anabranch_execute::{DynamicExecutor, RunOptions, RunOutput};
use anabranch_ir::program::Program;
use std::mem;
use std::sync::Arc;

/// A model that is ready for scheduling at run time.
pub struct Dynamic {
    /// Lowered program.
    pub program: Arc<Program>,
    executor: DynamicExecutor,
    output_names: Arc<[String]>,
}

impl Session {
    /// Prepares the model for scheduling at run time, with the present costs.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn dynamic(&self, inputs: &Inputs) -> Result<Dynamic, SessionError> {
        let (lowered, machine) = (self.lowered(&self.whole, inputs)?, self.machine_here()?);
        if lowered.rest.is_some() {
            return Err(InputError::Phases.into());
        }
        let forecast = self.planner(&lowered, &machine).forecast()?;
        let kernels = Arc::new(lowered.kernels(&lowered.program));
        let executor = DynamicExecutor::new(kernels, &self.pool, machine.plan_devices(), forecast)?;
        let output_names = lowered.program.outputs.iter().map(|output| output.name.clone()).collect();
        Ok(Dynamic { program: Arc::clone(&lowered.program), executor, output_names })
    }

    /// Runs a model whose nodes are scheduled at run time.
    ///
    /// # Errors
    /// As [`Self::run_with`].
    pub fn run_dynamic(
        &self,
        dynamic: &Dynamic,
        inputs: &Inputs,
        options: &RunOptions,
    ) -> Result<(Outputs, RunOutput), SessionError> {
        let tensors = ordered(inputs, &dynamic.program, |_| true)?;
        let mut measured = dynamic.executor.run(&tensors, options)?;
        let outputs = Outputs::new(Arc::clone(&dynamic.output_names), mem::take(&mut measured.outputs));
        Ok((outputs, measured))
    }
}
