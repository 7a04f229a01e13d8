//! State of a pipeline: outputs of a data set that are inputs of the next one of its sequence.
//!
//! Each state stays in one stage: the one that reads it. The stage that makes it is the same or an earlier one, so that
//! it is there before the next data set of the sequence is.

use anabranch_base::error_kind::ErrorKind;
use anabranch_execute::ExecError;
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_kernels::Tensor;
use anabranch_placement::pipeline::cut::Carried;
use anabranch_placement_core::graph::TaskId;
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
    pub(super) first: Tensor,
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

    /// Whether an input of the program is a state.
    pub(super) fn is_input(all: &[Self], input: ValueId) -> bool {
        all.iter().any(|state| state.input == input)
    }

    /// Whether the output of the program at this place becomes a state.
    pub(super) fn is_output(all: &[Self], place: usize) -> bool {
        all.iter().any(|state| state.output == place)
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
