//! State of a pipeline: outputs of a data set that are inputs of the next one of its sequence.
//!
//! Each state stays in one stage: the one that reads it. The stage that makes it is the same or an earlier one, so that
//! it is there before the next data set of the sequence is. A stage has the states of all sequences, in the host's
//! memory. A kernel that appends to a state in place does not copy it.

use super::wiring::Route;
use anabranch_base::error_kind::ErrorKind;
use anabranch_execute::{ExecError, Executor, RunOutput, placeholder};
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_kernels::{DType, Tensor};
use anabranch_placement::pipeline::cut::Carried;
use anabranch_placement_core::graph::TaskId;
use anabranch_plan::InPlace;
use anabranch_session::borrowed::owned;
use anabranch_session::{SessionError, StatePair};
use std::iter::successors;

/// An output of a program that is an input of the next data set.
#[derive(Clone)]
pub(super) struct Feedback {
    pub(super) input: ValueId,
    /// Its place among the program's outputs.
    pub(super) output: usize,
    /// The state before the first data set.
    first: Tensor,
    /// Its readers and its maker, by the numbers of their nodes.
    pub(super) carried: Carried,
}

impl Feedback {
    /// Returns the feedback of a program. `first` holds its inputs, in its order. O(pairs × values + pairs³).
    ///
    /// # Errors
    /// If a pair is none of this program, is bound twice, or its output does not have the input's type and shape.
    pub(super) fn all(program: &Program, pairs: &[StatePair], first: &[&Tensor]) -> Result<Vec<Self>, SessionError> {
        let consumers = if pairs.is_empty() { Vec::new() } else { program.consumers() };
        let mut found: Vec<Self> = Vec::with_capacity(pairs.len());
        for StatePair { input, output, .. } in pairs {
            let place = program.inputs.iter().position(|value| program.value(*value).name == *input);
            let made = program.outputs.iter().position(|made| made.name == *output);
            let (Some(place), Some(made)) = (place, made) else {
                return Err(refused(format!("state from {output:?} to {input:?}: the model has no such tensors")));
            };
            let (value, source) = (program.inputs[place], &program.outputs[made]);
            if found.iter().any(|other| other.input == value || other.output == made) {
                return Err(refused(format!("state from {output:?} to {input:?}: one of them is bound twice")));
            }
            if program.fixed.contains_key(input) {
                let text = format!(
                    "state from {output:?} to {input:?}: the elements of the input decide shapes or branches, so that \
                     each step needs a plan of its own; use a session with state, as `anabranch run --steps` does"
                );
                return Err(refused(text));
            }
            let wanted = &program.value(value).spec;
            if source.spec != *wanted {
                let text = format!(
                    "state from {output:?} to {input:?}: the output is {}, but the input {wanted}; a pipeline keeps \
                     states of one size, so give the input its final size if the model writes into it, or use a \
                     session with state, as `anabranch run --steps` does",
                    source.spec
                );
                return Err(refused(text));
            }
            let maker = match program.value(source.value).origin {
                Origin::Node(maker) => Some(TaskId(maker.0)),
                _ if program.constant(source.value).is_some() => {
                    return Err(refused(format!("state from {output:?} to {input:?}: the output is a constant")));
                }
                _ => None,
            };
            let readers = consumers[value.index()].iter().map(|node| TaskId(node.0)).collect();
            // The caller may lend its memory for this call only.
            let first = owned(first[place]);
            found.push(Self { input: value, output: made, first, carried: Carried { readers, maker } });
        }
        // A state that becomes another one comes from the stage that keeps it.
        let source = |state: &Self| found.iter().find(|other| other.input == program.outputs[state.output].value);
        let node = |state: &Self| state.carried.readers.first().copied().or(state.carried.maker);
        let maker = |state| successors(source(state), |state| source(state)).take(found.len()).find_map(node);
        let makers: Vec<_> = found.iter().map(maker).collect();
        found.iter_mut().zip(makers).for_each(|(state, maker)| state.carried.maker = state.carried.maker.or(maker));
        Ok(found)
    }

    /// Returns the stage that keeps the state.
    pub(super) fn home(&self, stage: impl Fn(NodeId) -> usize) -> usize {
        let stage = |task: TaskId| stage(NodeId(task.0));
        self.carried.span(stage).map_or_else(|| self.carried.maker.map_or(0, stage), |(_, last)| last)
    }

    /// Bytes of the state of one sequence.
    fn bytes(&self) -> u64 {
        self.first.spec().bytes() as u64
    }

    /// Verifies that each state is read and made where it can stay.
    ///
    /// # Errors
    /// The nodes that must be in one stage.
    pub(super) fn verify(
        all: &[Self],
        program: &Program,
        order: &[NodeId],
        sizes: &[usize],
    ) -> Result<(), SessionError> {
        let stage_of = stages_of(order, sizes);
        let stage = |node: NodeId| stage_of[node.index()];
        for state in all {
            let Some((first, last)) = state.carried.span(|task| stage(NodeId(task.0))) else { continue };
            if first != last {
                let nodes = state.carried.readers.iter().chain(&state.carried.maker);
                let nodes: Vec<_> = nodes.map(|task| format!("{:?}", program.node(NodeId(task.0)).name)).collect();
                let text = format!(
                    "stages {first} to {last} read or make the state {:?}, which stays in one stage; put {} into one",
                    program.value(state.input).name,
                    nodes.join(", ")
                );
                return Err(refused(text));
            }
        }
        Ok(())
    }

    /// Bytes of the states of so many sequences, with the first of each state, and the memory that the next is written
    /// to.
    pub(super) fn total<'a>(all: impl IntoIterator<Item = &'a Self>, sequences: usize) -> u64 {
        let bytes = all.into_iter().map(Self::bytes).fold(0, u64::saturating_add);
        bytes.saturating_mul((sequences as u64).saturating_add(2))
    }
}

fn refused(text: String) -> SessionError {
    ExecError::new(ErrorKind::Input, text).into()
}

/// Returns the stage of each node, of stages that are so many nodes of an order.
pub(super) fn stages_of(order: &[NodeId], sizes: &[usize]) -> Vec<usize> {
    let mut stage_of = vec![0; order.len()];
    let stages = sizes.iter().enumerate().flat_map(|(stage, size)| std::iter::repeat_n(stage, *size));
    order.iter().zip(stages).for_each(|(node, stage)| stage_of[node.index()] = stage);
    stage_of
}

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
