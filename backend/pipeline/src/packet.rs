//! A data set on its way, and what a replica does with it.

use super::line::Work;
use super::wiring::{Leaving, Route, Wiring};
use anabranch_execute::{ExecError, RunOptions, RunOutput};
use anabranch_kernels::Tensor;
use std::collections::VecDeque;
use std::time::Instant;

/// The values that are alive of one data set.
pub(super) struct Packet {
    /// By slot.
    values: Vec<Option<Tensor>>,
    /// When the first stage began with it, and the last was done.
    pub(super) begun: Option<Instant>,
    pub(super) done: Option<Instant>,
}

impl Packet {
    /// A data set of these inputs.
    pub(super) fn new(inputs: &[&Tensor], wiring: &Wiring) -> Self {
        let mut values = vec![None; wiring.slots];
        inputs.iter().zip(&wiring.inputs).for_each(|(input, slot)| values[*slot] = Some(Tensor::clone(input)));
        Self { values, begun: None, done: None }
    }

    /// The results of one that has gone through all stages.
    pub(super) fn results(&self, wiring: &Wiring) -> Result<Vec<Tensor>, ExecError> {
        let wrong = || ExecError::internal("a pipeline's result is not what the model declares");
        let result = |output: &Leaving| match output {
            Leaving::Constant(constant) => Ok(constant.clone()),
            Leaving::Slot(slot, shape) => {
                let value = self.values[*slot].as_ref().ok_or_else(wrong)?;
                value.reshaped(shape.clone()).map_err(|_| wrong())
            }
        };
        wiring.outputs.iter().map(result).collect()
    }
}

/// Calls `run` with the values that `route` names. What it made of the last `kept` data sets is looked after: where nobody holds that any
/// more, the next run writes into its memory, so that a pipeline in its stride allocates next to nothing.
pub(super) fn work(
    mut run: impl FnMut(&[&Tensor], &RunOptions, &mut RunOutput) -> Result<(), ExecError> + 'static,
    route: Route,
    kept: usize,
    options: RunOptions,
) -> Work<Packet> {
    let mut former: VecDeque<RunOutput> = VecDeque::new();
    Box::new(move |packet: &mut Packet| {
        packet.begun.get_or_insert_with(Instant::now);
        let missing = || ExecError::internal("a stage was to read a value that is not there");
        let inputs = route.reads.iter().map(|slot| packet.values[*slot].as_ref().ok_or_else(missing));
        let inputs: Vec<&Tensor> = inputs.collect::<Result<_, _>>()?;
        let full = former.len() >= kept;
        let mut output = full.then(|| former.pop_front()).flatten().unwrap_or_default();
        run(&inputs, &options, &mut output)?;
        for (slot, tensor) in route.makes.iter().zip(&output.outputs) {
            packet.values[*slot] = Some(tensor.clone());
        }
        route.drops.iter().for_each(|slot| packet.values[*slot] = None);
        former.push_back(output);
        packet.done = Some(Instant::now());
        Ok(())
    })
}
