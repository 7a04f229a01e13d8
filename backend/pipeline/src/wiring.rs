//! Slots of a data set's values on its way: those that each stage reads, fills and frees, and those that hold the
//! results.

use super::feedback::Feedback;
use super::interval::{Cut, Part};
use anabranch_execute::ExecError;
use anabranch_ir::program::{Output, Program, ValueId};
use anabranch_kernels::{Shape, Tensor};
use anabranch_session::SessionError;

/// Routes of all values through a pipeline.
pub(super) struct Wiring {
    /// Number of slots of a data set.
    pub(super) slots: usize,
    /// Slots of the inputs, in the program's order; `None` for states.
    pub(super) inputs: Vec<Option<usize>>,
    /// Outputs, in the program's order; `None` for states.
    pub(super) outputs: Vec<Option<Leaving>>,
    pub(super) routes: Vec<Route>,
    /// Bytes of the values that are alive before each stage, and after the last.
    pub(super) live: Vec<u64>,
    /// Bytes of the values that each stage makes and does not keep as states.
    pub(super) made: Vec<u64>,
}

/// Source of an output.
pub(super) enum Leaving {
    /// A slot, and the shape that the model declares.
    Slot(usize, Shape),
    /// A constant, which is equal for every data set.
    Constant(Tensor),
}

/// Slots that a stage uses of a data set.
#[derive(Clone, Default)]
pub(super) struct Route {
    /// Slots that it reads, in the order of its program's inputs.
    pub(super) reads: Vec<usize>,
    /// Slots that it fills, in the order of its program's outputs.
    pub(super) makes: Vec<usize>,
    /// Slots that no later stage needs.
    pub(super) drops: Vec<usize>,
    /// States that the stage keeps: the number of the [`Feedback`], and the slots of its input and output.
    pub(super) states: Vec<(usize, usize, usize)>,
}

impl Wiring {
    /// Returns the wiring of one stage that is the whole program.
    pub(super) fn whole(program: &Program, states: &[Feedback]) -> Self {
        let (inputs, outputs) = (program.inputs.len(), program.outputs.len());
        let bytes = |value| program.value(value).spec.bytes() as u64;
        let is_kept = |at: usize| Feedback::is_output(states, at);
        let given = |input: &ValueId| !Feedback::is_input(states, *input);
        let bytes_in = program.inputs.iter().filter(|input| given(input)).map(|input| bytes(*input)).sum();
        let leaves = |(at, _): &(usize, &Output)| !is_kept(*at);
        let results = program.outputs.iter().enumerate().filter(leaves);
        let made = results.map(|(_, output)| output.spec.bytes() as u64).sum();
        let leaving =
            |all: (usize, &Output)| leaves(&all).then(|| Leaving::Slot(inputs + all.0, all.1.spec.shape.clone()));
        let slot = |(at, input): (usize, &ValueId)| given(input).then_some(at);
        let place = |input: ValueId| program.inputs.iter().position(|other| *other == input);
        let state = |(at, state): (usize, &Feedback)| Some((at, place(state.input)?, inputs + state.output));
        let route = Route {
            reads: (0..inputs).collect(),
            makes: (inputs..inputs + outputs).collect(),
            drops: (0..inputs).chain((0..outputs).filter(|at| is_kept(*at)).map(|at| inputs + at)).collect(),
            states: states.iter().enumerate().filter_map(state).collect(),
        };
        Self {
            slots: inputs + outputs,
            inputs: program.inputs.iter().enumerate().map(slot).collect(),
            outputs: program.outputs.iter().enumerate().map(leaving).collect(),
            routes: vec![route],
            live: vec![bytes_in, made],
            made: vec![made],
        }
    }

    /// Returns the wiring of a program in parts. Reads the constants among its outputs.
    pub(super) fn of(cut: &Cut, program: &Program, states: &[Feedback]) -> Result<Self, SessionError> {
        let leaving = |(at, (output, slot)): (usize, (&Output, &Option<usize>))| {
            if Feedback::is_output(states, at) {
                return Ok(None);
            }
            let shape = output.spec.shape.clone();
            let leaving = match (slot, program.constant(output.value)) {
                (None, Some(constant)) => {
                    let constant = constant.reshaped(shape).unwrap_or_else(|_| constant.clone());
                    Leaving::Constant(constant.load()?)
                }
                (Some(slot), _) => Leaving::Slot(*slot, shape),
                (None, None) => {
                    return Err(ExecError::internal("an output of the model is not a value of the pipeline"));
                }
            };
            Ok(Some(leaving))
        };
        let outputs = program.outputs.iter().zip(&cut.outputs).enumerate().map(leaving);
        let route = |part: &Part| Route {
            reads: part.reads.clone(),
            makes: part.makes.clone(),
            drops: part.drops.clone(),
            states: part.states.clone(),
        };
        let made = |part: &Part| {
            let leaving = part.program.outputs.iter().zip(&part.makes).filter(|(_, slot)| !part.drops.contains(slot));
            leaving.map(|(output, _)| output.spec.bytes() as u64).sum()
        };
        let given = |(input, slot): (&ValueId, &usize)| (!Feedback::is_input(states, *input)).then_some(*slot);
        Ok(Self {
            slots: cut.slots,
            inputs: program.inputs.iter().zip(&cut.inputs).map(given).collect(),
            outputs: outputs.collect::<Result<_, ExecError>>()?,
            routes: cut.parts.iter().map(route).collect(),
            live: cut.live.clone(),
            made: cut.parts.iter().map(made).collect(),
        })
    }
}
