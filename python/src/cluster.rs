//! Stages of a model that is divided over the machines of a cluster.

use super::failure::{Failure, Result};
use super::pipeline::goal;
use super::tensors::{Copies, Given, Taken, borrowed, take};
use super::work::{CancelToken, released};
use anabranch::pipeline::{DistributedStage, DivisionOptions, Machines, StageOutput, divide};
use anabranch::{Inputs, Outputs, RunOptions, Session, Tensor};
use pyo3::prelude::*;
use serde_json::json;
use std::sync::Arc;

/// Divides a model over machines; all in JSON.
pub(crate) fn divided(
    session: &Session,
    inputs: &Inputs,
    machines: &str,
    goal_name: &str,
    replication: bool,
) -> Result<String> {
    let machines: Machines =
        serde_json::from_str(machines).map_err(|error| Failure::argument(format_args!("the machines: {error}")))?;
    let options = DivisionOptions { goal: goal(goal_name)?, replication };
    Ok(serde_json::to_string(&divide(session, inputs, &machines, options)?)?)
}

/// One stage of a model, opened on a device of this machine.
#[pyclass(frozen)]
pub(crate) struct Stage {
    stage: DistributedStage,
    /// Names of the slots that it fills.
    makes: Arc<[String]>,
    /// Names of the slots that it reads.
    reads: Vec<String>,
    /// Session whose devices it uses.
    _session: Arc<Session>,
    copies: Copies,
}

impl Stage {
    pub(crate) fn open(
        session: Arc<Session>,
        inputs: &Inputs,
        stages: &[Vec<String>],
        at: usize,
        device: &str,
    ) -> Result<Self> {
        let stage = DistributedStage::open(&session, inputs, stages, at, device)?;
        let names = |slots: &[usize]| slots.iter().map(usize::to_string).collect::<Vec<_>>();
        let (makes, reads) = (names(stage.makes()).into(), names(stage.reads()));
        Ok(Self { stage, makes, reads, _session: session, copies: Copies::default() })
    }
}

#[pymethods]
impl Stage {
    /// Returns the slots, as JSON: of the model's inputs and outputs, and those that the stage reads, fills and drops.
    fn data(&self) -> String {
        let inputs: Vec<_> = self.stage.inputs().map(|(name, slot)| json!([name, slot.to_string()])).collect();
        let output = |(name, source): (&str, StageOutput)| match source {
            StageOutput::Slot(slot, shape) => json!({ "name": name, "slot": slot.to_string(), "shape": shape }),
            StageOutput::Constant(_) => json!({ "name": name }),
        };
        let outputs: Vec<_> = self.stage.outputs().map(output).collect();
        let drops: Vec<String> = self.stage.drops().iter().map(usize::to_string).collect();
        json!({ "inputs": inputs, "outputs": outputs, "reads": self.reads, "makes": &self.makes[..], "drops": drops })
            .to_string()
    }

    /// Returns the outputs that are constants.
    fn constants(&self) -> Vec<Taken> {
        let constant = |(name, source): (&str, StageOutput)| match source {
            StageOutput::Constant(constant) => Some((name.to_owned(), constant)),
            StageOutput::Slot(..) => None,
        };
        let (names, tensors): (Vec<String>, Vec<Tensor>) = self.stage.outputs().filter_map(constant).unzip();
        take(Outputs::new(names.into(), tensors), &self.copies)
    }

    /// Checks that inputs have the types and shapes that the stages were opened for.
    fn verify(&self, py: Python<'_>, given: Vec<Given>) -> PyResult<()> {
        // SAFETY: the inputs are read in this call only.
        let inputs = unsafe { borrowed(&given) }.map_err(|failure| failure.raise(py))?;
        released(py, || Ok(self.stage.verify(&inputs)?))
    }

    /// Computes the stage. `given` holds arrays by the names of slots.
    fn run(&self, py: Python<'_>, given: Vec<Given>, token: &CancelToken) -> PyResult<Vec<Taken>> {
        // SAFETY: the run ends within this call, and its outputs are given memory of their own in it; `given` is
        // dropped after that. The package requires of its users that no array is written while it is an input.
        let inputs = unsafe { borrowed(&given) }.map_err(|failure| failure.raise(py))?;
        released(py, || {
            let value = |slot: &String| {
                inputs.find(slot).ok_or_else(|| Failure::internal(format_args!("slot {slot} is missing")))
            };
            let values: Vec<&Tensor> = self.reads.iter().map(value).collect::<Result<_>>()?;
            let made = self.stage.run(&values, &RunOptions::default().with_cancel(token.0.clone()))?;
            Ok(take(Outputs::new(Arc::clone(&self.makes), made), &self.copies))
        })
    }
}
