//! Inputs that go on with what a former run has made, in its memory: caches that are appended to.
//!
//! A caller gives [`continued`] for such an input, and the former output among those that the run may write over. A
//! kernel that finds its input in the output's memory writes what is new alone. If another owner has the former output,
//! or another plan's devices, it is read like any input, and the result lies elsewhere: the bits are the same.

use super::engine::Engine;
use super::{Executor, State, host_inputs};
use anabranch_base::error_kind::ErrorKind;
use anabranch_ir::program::{Program, Value};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use anabranch_plan::{ExecError, HOST, InPlace, Plan};
use std::sync::Arc;

/// Returns the tensor without elements that stands for an input which goes on with a former output.
pub fn continued(dtype: DType) -> Tensor {
    Tensor::zeroed(TensorSpec::new(dtype, Shape::new([0]).expect("no elements")))
}

/// The pairs of a plan, by their numbers among the inputs and outputs of the host, in the order of outputs.
pub(super) fn on_host(plan: &Plan, program: &Program) -> Arc<[InPlace]> {
    let inputs = |most: usize| (0..most).filter(|at| plan.input_device(*at) == HOST).count();
    let outputs = |most: usize| (0..most).filter(|at| plan.output_device(*at) == HOST).count();
    let numbered = |pair: &InPlace| InPlace { input: inputs(pair.input), output: outputs(pair.output) };
    let mut pairs: Vec<InPlace> = InPlace::all(plan, program).iter().map(numbered).collect();
    pairs.sort_unstable_by_key(|pair| pair.output);
    pairs.into()
}

/// Former outputs that are read like any input, by the inputs' numbers.
#[derive(Default)]
pub(super) struct Moved(Vec<(usize, Tensor)>);

impl Moved {
    /// The inputs with these in their places, if there are any.
    pub(super) fn over<'t>(&'t self, inputs: &[&'t Tensor]) -> Option<Vec<&'t Tensor>> {
        let mut replaced = (!self.0.is_empty()).then(|| inputs.to_vec())?;
        self.0.iter().for_each(|(at, tensor)| replaced[*at] = tensor);
        Some(replaced)
    }
}

impl Executor {
    /// The inputs that may lie in the memory of outputs, by their numbers among those of the host.
    pub fn in_place(&self) -> &[InPlace] {
        &self.in_place
    }

    /// The inputs on the host.
    fn host_inputs(&self) -> impl Iterator<Item = &Value> + Clone {
        host_inputs(self.program(), |at| self.plan.input_device(at) == HOST)
    }

    /// The pairs of which this run goes on with the former output.
    fn continuing<'a>(&'a self, inputs: &'a [&Tensor]) -> impl Iterator<Item = &'a InPlace> {
        let values = self.host_inputs();
        let goes_on = move |pair: &&InPlace| {
            let wanted = values.clone().nth(pair.input);
            wanted.is_some_and(|value| is_continued(value, inputs[pair.input].spec()))
        };
        self.in_place.iter().filter(goes_on)
    }

    /// Puts the former outputs that this run goes on with in their places, or among what it reads.
    pub(super) fn go_on(&self, engine: &Engine, state: &mut State, inputs: &[&Tensor]) -> Result<Moved, ExecError> {
        let mut moved = Moved::default();
        for pair in self.continuing(inputs) {
            let value = self.host_inputs().nth(pair.input).ok_or_else(|| ExecError::internal("an input is missing"))?;
            let former = state.spare.get_mut(pair.output).and_then(Option::take);
            let former = former.filter(|buffer| buffer.len() == value.spec.bytes()).ok_or_else(|| {
                let text =
                    format!("input {:?} goes on with a former output, but there is none of its size", value.name);
                ExecError::new(ErrorKind::Input, text)
            })?;
            if let Err(buffer) = engine.go_on_with(pair.output as u32, former) {
                let tensor = Tensor::new(value.spec.clone(), buffer);
                moved.0.push((pair.input, tensor.map_err(|_| ExecError::internal("an input has the wrong size"))?));
            }
        }
        Ok(moved)
    }

    /// Returns the former outputs that a failed run went on with, as the run has left them, in the order of the
    /// outputs.
    pub(super) fn left(&self, engine: &Engine, inputs: &[&Tensor], moved: Moved) -> Vec<Tensor> {
        let mut moved = moved.0;
        let tensor = |pair: &InPlace| {
            if let Some(at) = moved.iter().position(|(input, _)| *input == pair.input) {
                return Some(moved.swap_remove(at).1);
            }
            let value = self.host_inputs().nth(pair.input)?;
            Tensor::new(value.spec.clone(), engine.left(pair.output as u32)?).ok()
        };
        self.continuing(inputs).filter_map(tensor).collect()
    }
}

/// Whether [`continued`] was given for an input.
pub fn is_continued(value: &Value, given: &TensorSpec) -> bool {
    given.shape.elements() == 0 && given.dtype == value.spec.dtype && value.spec.shape.elements() > 0
}
