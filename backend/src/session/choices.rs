//! Several plans of one model side by side, and the dynamic scheduler that they are compared with.

use super::error::SessionError;
use super::inputs::{Inputs, Outputs};
use super::opened::{Run, Session};
use super::options::PlanChoice;
use super::placing::{Wish, WishedBlocks};
use super::prepared::{Planned, Prepared, plan, plan_devices, wish};
use crate::execute::{DynamicExecutor, RunOptions, RunOutput};
use crate::plan::PlanOptions;
use crate::program::Program;
use anabranch_placement::order::Pct;
use anabranch_placement::place::Fixed;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A model that is ready to be scheduled at run time.
pub struct Dynamic {
    /// The lowered program.
    pub program: Arc<Program>,
    executor: DynamicExecutor,
}

impl Session {
    /// How the session's own plans are made.
    pub fn choice(&self) -> PlanChoice {
        self.options.choice()
    }

    /// Places and plans the model for inputs of these shapes as `choice` says, with the costs known by now. Readies nothing:
    /// see [`Self::ready`].
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn plan_with(&self, inputs: &Inputs, choice: &PlanChoice) -> Result<Arc<Planned>, SessionError> {
        let (lowered, machine) = (self.lowered(inputs)?, self.present()?);
        let wish = wish(&lowered, &machine, choice)?;
        Ok(Arc::new(plan(&lowered, (&machine, &self.options.wishes), (&wish, &choice.plan))?))
    }

    /// The makespan of a plan as it is predicted with the costs known by now, in seconds: same devices, same order.
    ///
    /// # Errors
    /// If the plan does not fit the devices any more.
    pub fn predict(&self, inputs: &Inputs, planned: &Planned, options: &PlanOptions) -> Result<f64, SessionError> {
        let placer = Box::new(Fixed::new(planned.device_of.clone()));
        let order = planned.placed.schedule.order.clone();
        let (order, blocks) = match &planned.groups[..] {
            [] => (Some(order), WishedBlocks::Given(Vec::new(), Vec::new())),
            groups => (None, WishedBlocks::Given(groups.to_vec(), order)),
        };
        let wish = Wish { placer, rule: Box::new(Pct), order, blocks };
        let machine = (&self.present()?, &self.options.wishes);
        let again = plan(&*self.lowered(inputs)?, machine, (&wish, options))?;
        Ok(again.plan().predicted().makespan)
    }

    /// Takes the memory and starts the threads that a plan needs. Plans of the same model share opened GPUs, constants on
    /// CPUs and packed weights.
    ///
    /// # Errors
    /// If a device or a kernel cannot be readied.
    pub fn ready(&self, planned: &Arc<Planned>) -> Result<Arc<Prepared>, SessionError> {
        Ok(Arc::new(planned.ready(&self.pool)?))
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
        let tensors = Self::ordered(inputs, &prepared.program)?;
        let mut measured = prepared.executor.run(&tensors, options)?;
        let outputs = named(&prepared.program, &mut measured);
        let cold = !prepared.warm.swap(true, Ordering::Relaxed);
        Ok(Run { outputs, measured, prepared: Arc::clone(prepared), cold })
    }

    /// Readies the model to be scheduled at run time, with the costs known by now.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn dynamic(&self, inputs: &Inputs) -> Result<Dynamic, SessionError> {
        let lowered = self.lowered(inputs)?;
        let forecast = lowered.placing(&self.present()?, &self.options.wishes)?.forecast();
        let devices = plan_devices(&self.targets);
        let executor = DynamicExecutor::new(Arc::clone(&lowered.kernels), &self.pool, devices, forecast)?;
        Ok(Dynamic { program: Arc::clone(lowered.program()), executor })
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
        let tensors = Self::ordered(inputs, &dynamic.program)?;
        let mut measured = dynamic.executor.run(&tensors, options)?;
        let outputs = named(&dynamic.program, &mut measured);
        Ok((outputs, measured))
    }
}

/// Takes the outputs of a run and puts the model's names to them.
fn named(program: &Program, measured: &mut RunOutput) -> Outputs {
    let names = program.outputs.iter().map(|output| output.name.clone());
    Outputs::new(names.zip(std::mem::take(&mut measured.outputs)).collect())
}
