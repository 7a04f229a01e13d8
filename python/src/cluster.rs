//! Stages of a model that is divided over the machines of a cluster.

use super::failure::{Failure, Result};
use super::pipeline::{State, bound, goal};
use super::tensors::{Copies, Given, Taken, borrowed, take};
use super::work::{CancelToken, released};
use anabranch::pipeline::{DistributedStage, DividedState, DivisionOptions, Machines, StageOutput, divide};
use anabranch::{Inputs, Outputs, RunOptions, Session, Tensor};
use anabranch_report::divided::page;
use pyo3::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the state that stages keep.
pub(crate) fn divided_state(session: &Session, state: &State) -> Result<DividedState> {
    let (pairs, sequences) = bound(session, state)?;
    Ok(DividedState { pairs, sequences })
}

/// Divides a model over machines; all in JSON.
pub(crate) fn divided(
    session: &Session,
    inputs: &Inputs,
    machines: &str,
    state: &DividedState,
    (goal_name, replication, branches): (String, bool, bool),
) -> Result<String> {
    let machines: Machines =
        serde_json::from_str(machines).map_err(|error| Failure::argument(format_args!("the machines: {error}")))?;
    let options = DivisionOptions { goal: goal(&goal_name)?, replication, branches };
    Ok(serde_json::to_string(&divide(session, inputs, &machines, state, options)?)?)
}

/// Returns the page about a pipeline over a cluster, from JSON.
#[pyfunction]
pub(crate) fn divided_page(run: &str) -> PyResult<String> {
    let run = serde_json::from_str(run).map_err(Failure::internal);
    Python::attach(|py| run.map(|run| page(&run)).map_err(|failure| failure.raise(py)))
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
        (stages, at, device): (&[Vec<String>], usize, &str),
        state: &DividedState,
    ) -> Result<Self> {
        let stage = DistributedStage::open(&session, inputs, stages, at, device, state)?;
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

    /// Checks that the inputs of these slots have the types and shapes that the stages were opened for.
    fn verify(&self, py: Python<'_>, given: Vec<Given>, slots: Vec<String>) -> PyResult<()> {
        // SAFETY: the inputs are read in this call only.
        let inputs = unsafe { borrowed(&given) }.map_err(|failure| failure.raise(py))?;
        released(py, || Ok(self.stage.verify(&inputs, |slot| slots.contains(&slot.to_string()))?))
    }

    /// Computes the stage for a sequence, which may begin with the first state. `given` holds arrays by the names of
    /// slots.
    fn run(
        &self,
        py: Python<'_>,
        given: Vec<Given>,
        token: &CancelToken,
        sequence: (usize, bool),
    ) -> PyResult<Vec<Taken>> {
        // SAFETY: the run ends within this call, and its outputs are given memory of their own in it; `given` is
        // dropped after that. The package requires of its users that no array is written while it is an input.
        let inputs = unsafe { borrowed(&given) }.map_err(|failure| failure.raise(py))?;
        released(py, || {
            let value = |slot: &String| {
                inputs.find(slot).ok_or_else(|| Failure::internal(format_args!("slot {slot} is missing")))
            };
            let values: Vec<&Tensor> = self.reads.iter().map(value).collect::<Result<_>>()?;
            let made = self.stage.run(sequence, &values, &RunOptions::default().with_cancel(token.0.clone()))?;
            Ok(take(Outputs::new(Arc::clone(&self.makes), made), &self.copies))
        })
    }

    /// Returns the states of all sequences that the stage keeps, named `sequence/input`.
    fn states(&self, py: Python<'_>) -> PyResult<Vec<Taken>> {
        released(py, || {
            let states = self.stage.states().into_iter();
            let named = states.flat_map(|(input, states)| {
                let name = move |(sequence, state)| (format!("{sequence}/{input}"), state);
                states.into_iter().enumerate().map(name)
            });
            let (names, states): (Vec<String>, Vec<Tensor>) = named.unzip();
            Ok(take(Outputs::new(names.into(), states), &self.copies))
        })
    }

    /// Goes on from states as [`Self::states`] gives them. Those of other stages are left out.
    fn restore(&self, py: Python<'_>, given: Vec<Given>) -> PyResult<()> {
        // SAFETY: the stage copies them in this call.
        let states = unsafe { borrowed(&given) }.map_err(|failure| failure.raise(py))?;
        released(py, || {
            let mut inputs: BTreeMap<String, BTreeMap<usize, Tensor>> = BTreeMap::new();
            for (name, _) in states.specs() {
                let Some((sequence, input)) = name.split_once('/') else { continue };
                if let (Ok(sequence), Some(state)) = (sequence.parse(), states.find(name)) {
                    inputs.entry(input.to_owned()).or_default().insert(sequence, state.clone());
                }
            }
            for (input, states) in inputs {
                self.stage.restore(&input, &states.into_values().collect::<Vec<_>>())?;
            }
            Ok(())
        })
    }
}
