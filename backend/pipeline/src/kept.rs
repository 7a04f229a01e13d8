//! The states that a stage keeps, of all sequences, in the host's memory. A kernel that appends to a state in place
//! does not copy it.

use super::feedback::Feedback;
use super::wiring::Route;
use anabranch_execute::{ExecError, Executor, RunOutput, placeholder};
use anabranch_kernels::{DType, Tensor};
use anabranch_plan::InPlace;
use anabranch_session::borrowed::owned;

/// The states that a stage keeps.
pub(super) struct Kept {
    states: Vec<KeptState>,
    sequences: usize,
}

/// One of them.
struct KeptState {
    /// Number of the feedback.
    number: usize,
    /// Slots of the input and of the output.
    input: usize,
    output: usize,
    /// Place among the stage's outputs, if the stage makes it.
    made: Option<usize>,
    /// Whether the next state may lie in the memory of this one.
    in_place: bool,
    first: Tensor,
    /// By sequence; `None` stands for the first state.
    now: Vec<Option<Tensor>>,
    /// A former state: memory for the next.
    spare: Option<Tensor>,
}

impl Kept {
    /// Returns the first states of `sequences` sequences for a stage that this executor runs.
    pub(super) fn new(route: &Route, states: &[Feedback], sequences: usize, executor: &Executor) -> Self {
        let kept = |(number, input, output): &(usize, usize, usize)| {
            let made = route.makes.iter().position(|slot| slot == output);
            let read = route.reads.iter().position(|slot| slot == input);
            // The input must stay what it is beyond the stage, and if another state becomes it.
            let is_next = route.states.iter().any(|(.., next)| next == input);
            let may = |pair: &InPlace| Some(pair.input) == read && Some(pair.output) == made;
            let in_place = !is_next && route.drops.contains(input) && executor.in_place().iter().any(may);
            let (first, now) = (states[*number].first.clone(), vec![None; sequences]);
            KeptState { number: *number, input: *input, output: *output, made, in_place, first, now, spare: None }
        };
        Self { states: route.states.iter().map(kept).collect(), sequences }
    }

    /// Returns the states of a stage that keeps none.
    pub(super) fn none() -> Self {
        Self { states: Vec::new(), sequences: 1 }
    }

    /// Returns the sequence of a data set.
    pub(super) fn sequence(&self, data_set: u64) -> usize {
        (data_set % self.sequences as u64) as usize
    }

    /// Puts the states of a sequence among the values that the stage reads. A state that a kernel goes on with in place
    /// becomes the former output.
    pub(super) fn load(
        &mut self,
        sequence: usize,
        is_first: bool,
        values: &mut [Option<Tensor>],
        output: &mut RunOutput,
    ) {
        for state in &mut self.states {
            let now = &mut state.now[sequence];
            if is_first {
                *now = None;
            }
            let target = state.made.map(|made| {
                if output.outputs.len() <= made {
                    output.outputs.resize_with(made + 1, || placeholder(DType::U8));
                }
                &mut output.outputs[made]
            });
            let value = match target {
                Some(target) if state.in_place => {
                    *target = now.take().unwrap_or_else(|| state.first.clone());
                    placeholder(state.first.dtype())
                }
                target => {
                    if let Some((target, spare)) = target.zip(state.spare.take()) {
                        *target = spare;
                    }
                    now.get_or_insert_with(|| state.first.clone()).clone()
                }
            };
            values[state.input] = Some(value);
        }
    }

    /// Keeps the next states of a sequence, which are among the values now, and takes them from the run's results.
    pub(super) fn store(
        &mut self,
        sequence: usize,
        values: &[Option<Tensor>],
        output: &mut RunOutput,
    ) -> Result<(), ExecError> {
        for state in &mut self.states {
            let next = values[state.output].clone();
            let next = next.ok_or_else(|| ExecError::internal("a stage keeps a state that does not exist"))?;
            // A value of another stage may be borrowed for this call only. It may have been made in another shape.
            let next = owned(&next).reshaped(state.first.shape().clone());
            let next = next.map_err(|_| ExecError::internal("a state differs from the model's declaration"))?;
            state.spare = state.now[sequence].replace(next);
            if let Some(made) = state.made {
                output.outputs[made] = placeholder(DType::U8);
            }
        }
        Ok(())
    }

    /// Returns the states of all sequences, by the numbers of their feedback.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, Vec<Tensor>)> {
        let now = |state: &KeptState| {
            state.now.iter().map(|now| now.clone().unwrap_or_else(|| state.first.clone())).collect()
        };
        self.states.iter().map(move |state| (state.number, now(state)))
    }

    /// Goes on from these states of all sequences. Returns whether the stage keeps this state.
    pub(super) fn restore(&mut self, number: usize, states: Vec<Tensor>) -> bool {
        let own = self.states.iter_mut().find(|state| state.number == number);
        own.map(|own| own.now = states.into_iter().map(Some).collect()).is_some()
    }
}
