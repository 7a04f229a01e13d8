//! Runs: from named inputs to named outputs.

use super::error::{InputError, SessionError, within_memory};
use super::inputs::{Given, Inputs};
use super::open::Session;
use super::outputs::Outputs;
use super::phases::Later;
use super::prepare::Prepared;
use anabranch_base::lock::lock;
use anabranch_execute::{ComputeDevice, Deadline, DeviceTensor, RunOptions, RunOutput};
use anabranch_ir::program::{Program, ValueId};
use anabranch_kernels::Tensor;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::HOST;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A finished run.
pub struct Run {
    /// Outputs of the model.
    pub outputs: Outputs,
    /// Events and memory of this plan alone. [`Self::took`], [`Self::peaks`] and [`Self::parts`] describe the whole
    /// run.
    pub measured: RunOutput,
    /// Plan of the run.
    pub prepared: Arc<Prepared>,
    /// Later phases, if the plan is for the first of several phases.
    pub later: Option<Box<Later>>,
    /// Whether this was the plan's first run, which touches memory and compiles kernels for the first time.
    pub cold: bool,
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

    /// Runs the model and writes its outputs to `outputs`.
    ///
    /// Memory of `outputs` is reused if it fits and nothing else holds it: repeated runs on CPUs allocate next to
    /// nothing.
    ///
    /// # Errors
    /// As [`Self::run`]; `outputs` is then empty.
    pub fn run_into(&self, inputs: &Inputs, outputs: &mut Outputs) -> Result<(), SessionError> {
        let mut result = outputs.take();
        let _active = self.budget.enter();
        self.outlasting(|| {
            let prepared = self.find_or_prepare(&self.whole, inputs, None, &Deadline::none())?;
            *outputs = self.run_over(&prepared, inputs, &RunOptions::default(), &mut result)?;
            Ok(())
        })
    }

    /// Runs a ready plan as [`Self::run_into`] does, so that the plan need not be looked up. The loss of a GPU is an
    /// error.
    ///
    /// # Errors
    /// As [`Self::run_with`]; `outputs` is then empty.
    pub fn run_prepared_into(
        &self,
        prepared: &Arc<Prepared>,
        inputs: &Inputs,
        outputs: &mut Outputs,
        options: &RunOptions,
    ) -> Result<(), SessionError> {
        let _active = prepared.rest.is_some().then(|| self.budget.enter());
        *outputs = self.run_over(prepared, inputs, options, &mut outputs.take())?;
        Ok(())
    }

    /// The outputs of a plan that is ready, in the memory of `result` where they fit.
    pub(super) fn run_over(
        &self,
        prepared: &Arc<Prepared>,
        inputs: &Inputs,
        options: &RunOptions,
        result: &mut RunOutput,
    ) -> Result<Outputs, SessionError> {
        if prepared.rest.is_some() {
            return Ok(self.run_phases(prepared, inputs, options)?.outputs);
        }
        self.execute(prepared, inputs, options, result)?;
        prepared.warm.store(true, Ordering::Relaxed);
        let mut outputs = Outputs::default();
        outputs.put(prepared.plan(), &prepared.output_names, mem::take(result));
        Ok(outputs)
    }

    /// Runs the model and returns the outputs with measurements, with [`RunOptions::profile`] of every node and
    /// transfer.
    ///
    /// Pass such a run to [`Self::learn`] to add its times to the costs.
    ///
    /// # Errors
    /// As [`Self::run`]; also if the run is cancelled or takes too long.
    pub fn run_with(&self, inputs: &Inputs, options: &RunOptions) -> Result<Run, SessionError> {
        let _active = self.budget.enter();
        let asked = Instant::now();
        let options = RunOptions { asked: Some(asked), ..options.clone() };
        self.outlasting(|| {
            let prepared = self.find_or_prepare(&self.whole, inputs, None, &Deadline::new(&options, asked))?;
            self.run_phases(&prepared, inputs, &options)
        })
    }

    /// Runs a ready plan. If it is for the first of several phases, the later phases follow.
    ///
    /// # Errors
    /// As [`Self::run_with`].
    pub fn run_prepared(
        &self,
        prepared: &Arc<Prepared>,
        inputs: &Inputs,
        options: &RunOptions,
    ) -> Result<Run, SessionError> {
        // Later phases may have to be planned.
        let _active = prepared.rest.is_some().then(|| self.budget.enter());
        self.run_phases(prepared, inputs, options)
    }

    /// Runs a plan as [`Self::run_prepared`] does, for a caller that is counted as active.
    fn run_phases(&self, prepared: &Arc<Prepared>, inputs: &Inputs, options: &RunOptions) -> Result<Run, SessionError> {
        let Some(rest) = &prepared.rest else { return self.run_plan(prepared, inputs, options) };
        let begun = Instant::now();
        let options = RunOptions { asked: options.asked.or(Some(begun)), ..options.clone() };
        let mut run = self.run_plan(prepared, inputs, &options)?;
        let mut later = Later::default();
        let outputs = within_memory(|| self.go_on(rest, inputs, &run, &options, &mut later, begun))?;
        let (names, tensors): (Vec<_>, Vec<_>) = outputs.into_iter().unzip();
        run.outputs = Outputs::new(names.into(), tensors);
        later.took = begun.elapsed();
        later.host_before = lock(&prepared.on_host).replace(later.on_host(&run));
        run.later = Some(Box::new(later));
        Ok(run)
    }

    /// Runs a ready plan, without later phases.
    pub(super) fn run_plan(
        &self,
        prepared: &Arc<Prepared>,
        inputs: &Inputs,
        options: &RunOptions,
    ) -> Result<Run, SessionError> {
        let mut measured = RunOutput::default();
        self.execute(prepared, inputs, options, &mut measured)?;
        let (tensors, resident) = (mem::take(&mut measured.outputs), mem::take(&mut measured.resident));
        let mut outputs = Outputs::default();
        let made = RunOutput { outputs: tensors, resident, ..RunOutput::default() };
        outputs.put(prepared.plan(), &prepared.output_names, made);
        let cold = !prepared.warm.swap(true, Ordering::Relaxed);
        Ok(Run { outputs, measured, prepared: Arc::clone(prepared), later: None, cold })
    }

    /// Copies a tensor to a device, for runs that read an input there ([`SessionConfig::with_resident`]).
    ///
    /// # Errors
    /// If there is no such device, or it cannot be used.
    ///
    /// [`SessionConfig::with_resident`]: super::SessionConfig::with_resident
    pub fn upload(&self, device: &str, tensor: &Tensor) -> Result<DeviceTensor, SessionError> {
        let names = || self.pool.devices().iter().map(ComputeDevice::name);
        match names().position(|name| name == device) {
            Some(at) => Ok(self.pool.upload(DeviceId(at as u32), tensor)?),
            None => {
                let known = names().collect::<Vec<_>>().join(", ");
                Err(InputError::NoDevice { device: device.to_owned(), known }.into())
            }
        }
    }

    /// Runs a plan with each input on the device on which the plan reads it.
    fn execute(
        &self,
        prepared: &Prepared,
        inputs: &Inputs,
        options: &RunOptions,
        result: &mut RunOutput,
    ) -> Result<(), SessionError> {
        let plan = prepared.plan();
        let host = ordered(inputs, &prepared.program, |at| plan.input_device(at) == HOST)?;
        let mut resident = Vec::new();
        for (at, value) in prepared.program.inputs.iter().enumerate() {
            match plan.input_device(at) {
                HOST => {}
                device => resident.push(match given(inputs, &prepared.program, *value)? {
                    Given::Device(tensor) => tensor.clone(),
                    Given::Host(tensor) => self.pool.upload(device, tensor)?,
                }),
            }
        }
        Ok(prepared.executor.run_resident(&host, &resident, options, result)?)
    }
}

/// Returns the tensors of the inputs on the host, in the program's order.
pub fn ordered<'i>(
    inputs: &'i Inputs,
    program: &Program,
    on_host: impl Fn(usize) -> bool,
) -> Result<Vec<&'i Tensor>, SessionError> {
    let tensor = |value: &ValueId| match given(inputs, program, *value)? {
        Given::Host(tensor) => Ok(tensor),
        Given::Device(tensor) => {
            let (name, device) = (program.value(*value).name.clone(), tensor.device().to_owned());
            Err(InputError::Away { name, device }.into())
        }
    };
    let wanted = program.inputs.iter().enumerate().filter(|(at, _)| on_host(*at));
    wanted.map(|(_, value)| tensor(value)).collect()
}

/// Returns the tensor given for an input, if it fits.
fn given<'i>(inputs: &'i Inputs, program: &Program, value: ValueId) -> Result<&'i Given, InputError> {
    let value = program.value(value);
    let name = || value.name.clone();
    let expected = || value.spec.to_string();
    match inputs.given(&value.name) {
        None => Err(InputError::Missing { name: name(), expected: expected() }),
        Some(given) if *given.spec() != value.spec && !given.stands_for(value) => {
            Err(InputError::Spec { name: name(), given: given.spec().clone(), expected: expected() })
        }
        Some(given) => match (program.fixed.get(&value.name), given) {
            (None, _) => Ok(given),
            (Some(fixed), Given::Host(tensor)) if tensor.same_bits(fixed) => Ok(given),
            _ => Err(InputError::Fixed { name: name() }),
        },
    }
}
