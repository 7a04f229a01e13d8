//! State of a pipeline: outputs of a data set that are inputs of the next one of its sequence.
//!
//! Each state stays in one stage: the one that reads it. The stage that makes it is the same or an earlier one, so that
//! it is there before the next data set of the sequence is. A stage has the states of all sequences, in the host's
//! memory. A kernel that appends to a state in place does not copy it.

use super::mapping::refused;
use super::packet::Packet;
use super::wiring::Route;
use anabranch_execute::{ExecError, Executor, RunOutput, placeholder};
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_kernels::{DType, Tensor};
use anabranch_session::borrowed::owned;
use anabranch_session::{SessionError, StatePair};

/// An output of a program that is an input of the next data set.
#[derive(Clone)]
pub(super) struct Feedback {
    pub(super) input: ValueId,
    /// Its place among the program's outputs.
    pub(super) output: usize,
    /// The state before the first data set.
    first: Tensor,
    readers: Vec<NodeId>,
    maker: Option<NodeId>,
}

impl Feedback {
    /// Returns the feedback of a program. `first` holds its inputs, in its order. O(pairs × values).
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
            let wanted = &program.value(value).spec;
            if source.spec != *wanted {
                let text = format!(
                    "state from {output:?} to {input:?}: the output is {}, but the input {wanted}; a pipeline keeps \
                     states of one size, so give the input its final size, or use a session with state",
                    source.spec
                );
                return Err(refused(text));
            }
            let maker = match program.value(source.value).origin {
                Origin::Node(maker) => Some(maker),
                _ if program.constant(source.value).is_some() => {
                    return Err(refused(format!("state from {output:?} to {input:?}: the output never changes")));
                }
                _ => None,
            };
            let readers = consumers[value.index()].clone();
            // The caller may lend its memory for this call only.
            let first = owned(first[place]);
            found.push(Self { input: value, output: made, first, readers, maker });
        }
        Ok(found)
    }

    /// Returns the least and the greatest position between which no cut may be; `None` if nothing reads the state.
    pub(super) fn span(&self, position: impl Fn(NodeId) -> usize) -> Option<(usize, usize)> {
        let readers = || self.readers.iter().map(|node| position(*node));
        let last = readers().chain(self.maker.map(&position)).max();
        readers().min().zip(last)
    }

    /// Returns the stage that keeps the state.
    pub(super) fn home(&self, stage: impl Fn(NodeId) -> usize) -> usize {
        self.span(&stage).map_or_else(|| self.maker.map_or(0, &stage), |(_, last)| last)
    }

    /// Bytes of the state of one sequence.
    fn bytes(&self) -> u64 {
        self.first.spec().bytes() as u64
    }

    /// Verifies that each state is read and made where it can stay.
    ///
    /// # Errors
    /// The nodes that must be in one stage.
    pub(super) fn verify(all: &[Self], program: &Program, stage: impl Fn(NodeId) -> usize) -> Result<(), SessionError> {
        for state in all {
            let Some((first, last)) = state.span(&stage) else { continue };
            if first != last {
                let nodes = state.readers.iter().chain(&state.maker);
                let nodes: Vec<_> = nodes.map(|node| format!("{:?}", program.node(*node).name)).collect();
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

    /// Bytes of the states of so many sequences, with the memory that the next of each state is written to.
    pub(super) fn total<'a>(all: impl IntoIterator<Item = &'a Self>, sequences: usize) -> u64 {
        let bytes = all.into_iter().map(Self::bytes).fold(0, u64::saturating_add);
        bytes.saturating_mul(sequences as u64 + 1)
    }

    /// Returns an order, and the positions of it at which stages begin, so that no state spans two stages. The given ones
    /// come back if there is no state. O(nodes + edges + positions × states).
    pub(super) fn keeping(
        all: &[Self],
        program: &Program,
        order: Vec<NodeId>,
        mut starts: Vec<usize>,
    ) -> (Vec<NodeId>, Vec<usize>) {
        if all.is_empty() {
            return (order, starts);
        }
        let order = Self::deferring(program, &order);
        let mut position = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, node)| position[node.index()] = at);
        let spans: Vec<_> = all.iter().filter_map(|state| state.span(|node| position[node.index()])).collect();
        starts.retain(|start| spans.iter().all(|(first, last)| start <= first || last < start));
        (order, starts)
    }

    /// Defers nodes that read no other node's output until their first reader. Otherwise such a node may read a state
    /// long before that state is made again, and nothing between could be cut. O(nodes + edges).
    pub(super) fn deferring(program: &Program, order: &[NodeId]) -> Vec<NodeId> {
        let maker = |value: &ValueId| match program.value(*value).origin {
            Origin::Node(maker) => Some(maker),
            _ => None,
        };
        let (mut is_free, mut is_read) = (vec![false; program.nodes.len()], vec![false; program.nodes.len()]);
        for node in order {
            let makers = || program.node(*node).inputs.iter().filter_map(maker);
            is_free[node.index()] = makers().all(|maker| is_free[maker.index()]);
            makers().for_each(|maker| is_read[maker.index()] = true);
        }
        let (mut made, mut is_there) = (Vec::with_capacity(order.len()), vec![false; program.nodes.len()]);
        for node in order.iter().filter(|node| !is_free[node.index()] || !is_read[node.index()]) {
            let mut open = vec![*node];
            while let Some(node) = open.last().copied() {
                let missing = |value| maker(value).filter(|maker| !is_there[maker.index()]);
                match program.node(node).inputs.iter().find_map(missing) {
                    Some(missing) => open.push(missing),
                    None => {
                        open.pop();
                        if !std::mem::replace(&mut is_there[node.index()], true) {
                            made.push(node);
                        }
                    }
                }
            }
        }
        made
    }
}

/// The states that a stage keeps.
#[derive(Default)]
pub(super) struct Kept(Vec<KeptState>);

/// One of them.
struct KeptState {
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

impl KeptState {
    fn sequence(&self, number: u64) -> usize {
        (number % self.now.len() as u64) as usize
    }
}

impl Kept {
    /// Returns the first states of `sequences` sequences for a stage that this executor runs.
    pub(super) fn new(route: &Route, states: &[Feedback], sequences: usize, executor: &Executor) -> Self {
        let kept = |(state, input, output): &(usize, usize, usize)| {
            let made = route.makes.iter().position(|slot| slot == output);
            let read = route.reads.iter().position(|slot| slot == input);
            // Beyond the stage, the input must stay what it is.
            let may = |pair: &anabranch_plan::InPlace| Some(pair.input) == read && Some(pair.output) == made;
            let in_place = route.drops.contains(input) && executor.in_place().iter().any(may);
            let first = states[*state].first.clone();
            let now = vec![None; sequences];
            KeptState { input: *input, output: *output, made, in_place, first, now, spare: None }
        };
        Self(route.states.iter().map(kept).collect())
    }

    /// Puts the states among the values that the stage reads. A state that a kernel goes on with in place becomes the
    /// former output.
    pub(super) fn load(&mut self, number: u64, packet: &mut Packet, output: &mut RunOutput) {
        for state in &mut self.0 {
            let sequence = state.sequence(number);
            let now = &mut state.now[sequence];
            if packet.is_first {
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
            packet.values[state.input] = Some(value);
        }
    }

    /// Keeps the next states, which are among the values now.
    pub(super) fn store(&mut self, number: u64, packet: &Packet) -> Result<(), ExecError> {
        for state in &mut self.0 {
            let next = packet.values[state.output].clone();
            let next = next.ok_or_else(|| ExecError::internal("a stage keeps a state that does not exist"))?;
            let sequence = state.sequence(number);
            state.spare = state.now[sequence].replace(next);
        }
        Ok(())
    }

    /// Removes the states from a run's results, whose memory the next run may write over.
    pub(super) fn leave(&self, output: &mut RunOutput) {
        for made in self.0.iter().filter_map(|state| state.made) {
            output.outputs[made] = placeholder(DType::U8);
        }
    }
}
