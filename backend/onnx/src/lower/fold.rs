//! Computations while a model is lowered: constants of bounded size, with bounded work.

use anabranch_ir::constant::{Constant, ConstantError, LARGE};
use anabranch_kernels::cpu::{self, Call, Team, prepare_with};
use anabranch_kernels::op::NodeSpec;
use anabranch_kernels::{Buffer, KernelError, Tensor, TensorSpec};
use std::cell::RefCell;
use std::sync::Arc;

/// Limit of the arithmetic operations and bytes of folding over a whole model: a few seconds at most.
const WORK: f64 = 4e9;

/// Remaining limits of folding.
#[derive(Clone, Debug)]
pub(crate) struct Folding {
    bytes: usize,
    work: f64,
    /// First constant that could not be read.
    fault: RefCell<Option<ConstantError>>,
}

impl Folding {
    /// Allows `bytes` bytes of folded constants in total.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes, work: WORK, fault: RefCell::default() }
    }

    /// Returns the bytes that folded constants may still take.
    pub(crate) fn bytes_left(&self) -> usize {
        self.bytes
    }

    /// Reserves `bytes` of the remaining bytes, if they suffice.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(self.bytes);
        left.is_some()
    }

    /// Returns the elements of a constant; `None` if they cannot be read, in which case lowering fails at its end.
    pub(crate) fn loaded(&self, constant: &Constant) -> Option<Tensor> {
        self.noted(constant.load())
    }

    /// Returns the value of a result, and stores its fault.
    pub(crate) fn noted<T>(&self, result: Result<T, ConstantError>) -> Option<T> {
        result.map_err(|fault| *self.fault.borrow_mut() = Some(fault)).ok()
    }

    /// Returns the error of a constant that could not be read, if any.
    pub(crate) fn fault(&self) -> Option<ConstantError> {
        self.fault.borrow().clone()
    }

    /// Returns the node's outputs, if the limits allow computing them and there is a kernel.
    ///
    /// # Errors
    /// If the node does not fit its op's definition, or an element makes it undefined.
    pub(crate) fn fold(
        &mut self,
        spec: &NodeSpec,
        inputs: Vec<Constant>,
    ) -> Result<Option<Vec<Constant>>, KernelError> {
        let cost = spec.work();
        let bytes: usize = spec.outputs.iter().map(|output| output.bytes()).fold(0, usize::saturating_add);
        let work = cost.flops + cost.bytes();
        if work > self.work || bytes > self.bytes {
            return Ok(None);
        }
        let large = bytes >= LARGE && spec.outputs.len() == 1;
        match if large { self.later(spec, inputs) } else { self.now(spec, &inputs) } {
            Ok(Some(constants)) => {
                self.work -= work;
                self.bytes -= bytes;
                Ok(Some(constants))
            }
            Ok(None) | Err(KernelError::Unsupported { .. } | KernelError::Memory { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn now(&self, spec: &NodeSpec, inputs: &[Constant]) -> Result<Option<Vec<Constant>>, KernelError> {
        let inputs: Option<Vec<Tensor>> = inputs.iter().map(|input| self.loaded(input)).collect();
        let Some(inputs) = inputs else { return Ok(None) };
        let tensors = compute(spec, &inputs, &vec![None; inputs.len()])?;
        Ok(Some(tensors.into_iter().map(Constant::from).collect()))
    }

    /// Returns the node's only output as a constant that is computed on demand.
    fn later(&self, spec: &NodeSpec, inputs: Vec<Constant>) -> Result<Option<Vec<Constant>>, KernelError> {
        cpu::prepare(spec, &vec![false; inputs.len()])?;
        let (how, node) = (format!("{spec:?}"), spec.clone());
        let make = move |inputs: &[Tensor]| {
            let tensors = compute(&node, inputs, &vec![None; inputs.len()]).map_err(|error| error.to_string())?;
            tensors.into_iter().next().ok_or_else(|| "it has no output".to_owned())
        };
        Ok(self.noted(Constant::made(spec.outputs[0].clone(), how, inputs, make)).map(|constant| vec![constant]))
    }
}

/// Computes one node's outputs from whole inputs on the calling thread.
///
/// # Errors
/// If there is no kernel for the node, an element makes it undefined, or memory is short.
pub(super) fn compute(
    spec: &NodeSpec,
    inputs: &[Tensor],
    constants: &[Option<Tensor>],
) -> Result<Vec<Tensor>, KernelError> {
    let kernel = prepare_with(spec, constants)?;
    let room = |what, bytes| {
        let short = || KernelError::Memory { op: spec.op.name(), what, bytes };
        Buffer::try_zeroed(bytes).ok_or_else(short)
    };
    let mut buffers =
        spec.outputs.iter().map(|output| room("a constant", output.bytes())).collect::<Result<Vec<_>, _>>()?;
    let mut outputs: Vec<_> = buffers.iter_mut().map(Buffer::bytes_mut).collect();
    let inputs: Vec<_> = inputs.iter().map(Tensor::bytes).collect();
    kernel.run(Call {
        inputs: &inputs,
        outputs: &mut outputs,
        rows: 0..spec.row_plan().map_or(1, |plan| plan.rows),
        scratch: room("scratch memory", kernel.scratch_bytes())?.bytes_mut(),
        team: &Team::solo(),
    })?;
    let tensor = |(spec, buffer): (&TensorSpec, Buffer)| {
        Tensor::new(spec.clone(), Arc::new(buffer)).expect("the buffer was made with the spec's size")
    };
    Ok(spec.outputs.iter().zip(buffers).map(tensor).collect())
}
