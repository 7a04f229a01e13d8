//! Inputs that go on with what a former run has made, in its memory: caches that are appended to.
//!
//! A caller gives a [`placeholder`] for such an input, and the former output among those that the run may write over. A
//! kernel that finds its input in the output's memory writes only what is new. If something else holds the former
//! output, or its memory is a caller's, it is read like any input, and the result lies elsewhere: the bits are the
//! same.

use super::engine::Engine;
use super::{Executor, State};
use anabranch_base::error_kind::ErrorKind;
use anabranch_ir::program::{Program, Value, ValueId};
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::{ExecError, HOST, InPlace, Plan};
use std::sync::{Arc, LazyLock, OnceLock};

/// The memory of all placeholders, by which they are known.
fn nothing() -> &'static Arc<Buffer> {
    static NOTHING: OnceLock<Arc<Buffer>> = OnceLock::new();
    NOTHING.get_or_init(|| Arc::new(Buffer::zeroed(0)))
}

/// Returns the tensor without elements that stands for an input which goes on with a former output.
pub fn placeholder(dtype: DType) -> Tensor {
    static NONE: LazyLock<Shape> = LazyLock::new(|| Shape::new([0]).expect("no elements"));
    Tensor::new(TensorSpec::new(dtype, NONE.clone()), Arc::clone(nothing())).expect("no bytes")
}

/// Whether a tensor is a [`placeholder`]: no other tensor without elements is.
pub fn is_placeholder(tensor: &Tensor) -> bool {
    Arc::ptr_eq(tensor.buffer(), nothing())
}

/// Whether a tensor is a [`placeholder`] that may be given for this input.
pub fn stands_for(tensor: &Tensor, value: &Value) -> bool {
    is_placeholder(tensor) && tensor.dtype() == value.spec.dtype && value.spec.shape.elements() > 0
}

/// An input on the host.
pub(super) struct HostInput {
    pub(super) value: ValueId,
    /// Whether it may lie in the memory of an output.
    pub(super) in_place: bool,
}

/// The inputs on the host, in the program's order.
pub(super) fn inputs_on_host(plan: &Plan, program: &Program, in_place: &[InPlace]) -> Arc<[HostInput]> {
    let on_host = program.inputs.iter().enumerate().filter(|(at, _)| plan.input_device(*at) == HOST);
    let mut inputs: Vec<_> = on_host.map(|(_, value)| HostInput { value: *value, in_place: false }).collect();
    in_place.iter().for_each(|pair| inputs[pair.input].in_place = true);
    inputs.into()
}

/// The pairs of a plan on some devices, by their numbers among the inputs and outputs there, in the order of outputs.
pub(super) fn numbered(plan: &Plan, program: &Program, is_there: impl Fn(DeviceId) -> bool) -> Arc<[InPlace]> {
    let inputs = |most: usize| (0..most).filter(|at| is_there(plan.input_device(*at))).count();
    let outputs = |most: usize| (0..most).filter(|at| is_there(plan.output_device(*at))).count();
    let numbered = |pair: &InPlace| InPlace { input: inputs(pair.input), output: outputs(pair.output), ..*pair };
    let pairs = InPlace::all(plan, program);
    let mut pairs: Vec<InPlace> = pairs.iter().filter(|pair| is_there(pair.device)).map(numbered).collect();
    pairs.sort_unstable_by_key(|pair| pair.output);
    pairs.into()
}

/// Former outputs that are read like any input, by the inputs' numbers.
#[derive(Default)]
pub(super) struct ReadAsInputs(Vec<(usize, Tensor)>);

impl ReadAsInputs {
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

    /// The inputs that may lie in the memory of outputs, by their numbers among those of GPUs.
    pub fn in_place_on_gpus(&self) -> &[InPlace] {
        &self.in_place_on_gpus
    }

    /// An input on the host, by its number.
    pub(super) fn host_input(&self, number: usize) -> &Value {
        self.program().value(self.host_inputs[number].value)
    }

    /// The pairs of which this run goes on with the former output.
    fn continuing<'a>(&'a self, inputs: &'a [&Tensor]) -> impl Iterator<Item = &'a InPlace> {
        self.in_place.iter().filter(|pair| stands_for(inputs[pair.input], self.host_input(pair.input)))
    }

    /// Puts the former outputs that this run goes on with in their places, or among what it reads.
    ///
    /// # Errors
    /// If one is not there; all are then where they were.
    pub(super) fn go_on(
        &self,
        engine: &Engine,
        state: &mut State,
        inputs: &[&Tensor],
    ) -> Result<ReadAsInputs, ExecError> {
        let mut read = ReadAsInputs::default();
        for pair in self.continuing(inputs) {
            let value = self.host_input(pair.input);
            let former = state.spare.get(pair.output).and_then(Option::as_ref);
            if former.is_none_or(|buffer| buffer.len() != value.spec.bytes()) {
                let text =
                    format!("input {:?} continues a former output, but no former output has its size", value.name);
                return Err(ExecError::new(ErrorKind::Input, text));
            }
        }
        for pair in self.continuing(inputs) {
            let value = self.host_input(pair.input);
            let Some(former) = state.spare.get_mut(pair.output).and_then(Option::take) else { continue };
            if let Err(buffer) = engine.go_on_with(pair.output as u32, former) {
                let tensor = Tensor::new(value.spec.clone(), buffer);
                read.0.push((pair.input, tensor.map_err(|_| ExecError::internal("an input has the wrong size"))?));
            }
        }
        Ok(read)
    }

    /// Puts the former outputs that a failed run went on with back in their places, as the run has left them. A
    /// [`placeholder`] stands for what was lost with a thread that failed, and for other outputs.
    pub(super) fn leave(&self, engine: &Engine, inputs: &[&Tensor], read: ReadAsInputs, outputs: &mut Vec<Tensor>) {
        let mut read = read.0.into_iter().peekable();
        // Both are in the order of the outputs.
        for pair in self.continuing(inputs) {
            let tensor = match read.next_if(|(input, _)| *input == pair.input) {
                Some((_, tensor)) => Some(tensor),
                None => engine
                    .left(pair.output as u32)
                    .and_then(|buffer| Tensor::new(self.host_input(pair.input).spec.clone(), buffer).ok()),
            };
            outputs.resize_with(pair.output, || placeholder(DType::U8));
            outputs.push(tensor.unwrap_or_else(|| placeholder(DType::U8)));
        }
    }
}
