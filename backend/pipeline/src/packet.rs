//! A data set on its way, and the work of a replica on it.

use super::kept::Kept;
use super::line::Work;
use super::wiring::{Leaving, Route, Wiring};
use anabranch_execute::{ExecError, RunOptions, RunOutput};
use anabranch_kernels::Tensor;
use std::collections::VecDeque;
use std::time::Instant;

/// Values of one data set that are alive.
pub(super) struct Packet {
    /// Values by slot.
    pub(super) values: Vec<Option<Tensor>>,
    /// Whether its sequence begins with the first state again.
    pub(super) is_first: bool,
    /// Times at which the first stage began with it and the last stage finished.
    pub(super) begun: Option<Instant>,
    pub(super) done: Option<Instant>,
}

impl Packet {
    /// Returns a data set with these inputs, without states.
    pub(super) fn new(inputs: &[&Tensor], wiring: &Wiring) -> Self {
        let mut values = vec![None; wiring.slots];
        let slots = wiring.inputs.iter().flatten();
        inputs.iter().zip(slots).for_each(|(input, slot)| values[*slot] = Some(Tensor::clone(input)));
        Self { values, is_first: false, begun: None, done: None }
    }

    /// Returns the results, once the data set has gone through all stages.
    pub(super) fn results(&self, wiring: &Wiring) -> Result<Vec<Tensor>, ExecError> {
        let wrong = || ExecError::internal("a pipeline's result differs from the model's declaration");
        let result = |output: &Leaving| match output {
            Leaving::Constant(constant) => Ok(constant.clone()),
            Leaving::Slot(slot, shape) => {
                let value = self.values[*slot].as_ref().ok_or_else(wrong)?;
                value.reshaped(shape.clone()).map_err(|_| wrong())
            }
        };
        wiring.outputs.iter().flatten().map(result).collect()
    }
}

/// Returns work that calls `run` with the values that `route` names, and with the states that the stage keeps.
///
/// It keeps the results of the last `kept` data sets. Once nothing else holds them, the next run writes into their
/// memory, so that a pipeline in steady state allocates almost nothing.
pub(super) fn work(
    mut run: impl FnMut(&[&Tensor], &RunOptions, &mut RunOutput) -> Result<(), ExecError> + 'static,
    route: Route,
    mut states: Kept,
    kept: usize,
    options: RunOptions,
) -> Work<Packet> {
    let mut former: VecDeque<RunOutput> = VecDeque::new();
    Box::new(move |number, packet: &mut Packet| {
        packet.begun.get_or_insert_with(Instant::now);
        let full = former.len() >= kept;
        let mut output = full.then(|| former.pop_front()).flatten().unwrap_or_default();
        let sequence = states.sequence(number);
        states.load(sequence, packet.is_first, &mut packet.values, &mut output);
        let missing = || ExecError::internal("a stage reads a value that does not exist");
        let inputs = route.reads.iter().map(|slot| packet.values[*slot].as_ref().ok_or_else(missing));
        let inputs: Vec<&Tensor> = inputs.collect::<Result<_, _>>()?;
        run(&inputs, &options, &mut output)?;
        for (slot, tensor) in route.makes.iter().zip(&output.outputs) {
            packet.values[*slot] = Some(tensor.clone());
        }
        states.store(sequence, &packet.values, &mut output)?;
        route.drops.iter().for_each(|slot| packet.values[*slot] = None);
        former.push_back(output);
        packet.done = Some(Instant::now());
        Ok(())
    })
}
