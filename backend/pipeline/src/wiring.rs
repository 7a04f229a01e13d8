//! Slots of a data set's values on its way: those that each stage reads, fills and frees, and those that hold the
//! results.

use super::interval::{Cut, Part};
use anabranch_execute::ExecError;
use anabranch_ir::program::{Output, Program};
use anabranch_kernels::{Shape, Tensor};
use anabranch_session::SessionError;

/// Routes of all values through a pipeline.
pub(super) struct Wiring {
    /// Number of slots of a data set.
    pub(super) slots: usize,
    /// Slots of the inputs, in the program's order.
    pub(super) inputs: Vec<usize>,
    /// Outputs, in the program's order.
    pub(super) outputs: Vec<Leaving>,
    pub(super) routes: Vec<Route>,
    /// Bytes of the values that are alive before each stage, and after the last.
    pub(super) live: Vec<u64>,
    /// Bytes of the values that each stage makes.
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
}

impl Wiring {
    /// Returns the wiring of one stage that is the whole program.
    pub(super) fn whole(program: &Program) -> Self {
        let (inputs, outputs) = (program.inputs.len(), program.outputs.len());
        let bytes = |value| program.value(value).spec.bytes() as u64;
        let given = program.inputs.iter().map(|input| bytes(*input)).sum();
        let made = program.outputs.iter().map(|output| output.spec.bytes() as u64).sum();
        let leaving = |(at, output): (usize, &Output)| Leaving::Slot(inputs + at, output.spec.shape.clone());
        let route = Route {
            reads: (0..inputs).collect(),
            makes: (inputs..inputs + outputs).collect(),
            drops: (0..inputs).collect(),
        };
        Self {
            slots: inputs + outputs,
            inputs: (0..inputs).collect(),
            outputs: program.outputs.iter().enumerate().map(leaving).collect(),
            routes: vec![route],
            live: vec![given, made],
            made: vec![made],
        }
    }

    /// Returns the wiring of a program in parts. Reads the constants among its outputs.
    pub(super) fn of(cut: &Cut, program: &Program) -> Result<Self, SessionError> {
        let leaving = |(output, slot): (&Output, &Option<usize>)| {
            let shape = output.spec.shape.clone();
            match (slot, program.constant(output.value)) {
                (None, Some(constant)) => {
                    let constant = constant.reshaped(shape).unwrap_or_else(|_| constant.clone());
                    Ok(Leaving::Constant(constant.load()?))
                }
                (Some(slot), _) => Ok(Leaving::Slot(*slot, shape)),
                (None, None) => Err(ExecError::internal("an output of the model is not a value of the pipeline")),
            }
        };
        let outputs = program.outputs.iter().zip(&cut.outputs).map(leaving);
        let route =
            |part: &Part| Route { reads: part.reads.clone(), makes: part.makes.clone(), drops: part.drops.clone() };
        let made = |part: &Part| part.program.outputs.iter().map(|output| output.spec.bytes() as u64).sum();
        Ok(Self {
            slots: cut.slots,
            inputs: cut.inputs.clone(),
            outputs: outputs.collect::<Result<_, ExecError>>()?,
            routes: cut.parts.iter().map(route).collect(),
            live: cut.live.clone(),
            made: cut.parts.iter().map(made).collect(),
        })
    }
}
