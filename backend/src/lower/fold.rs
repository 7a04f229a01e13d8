//! What may be computed while a model is lowered: constants of bounded size, for bounded work.

use anabranch_kernels::cpu::{Call, Team, prepare};
use anabranch_kernels::op::NodeSpec;
use anabranch_kernels::{Buffer, KernelError, Tensor, TensorSpec};
use std::sync::Arc;

/// Arithmetic operations and bytes that folding may take over a whole model: a few seconds at most.
const WORK: f64 = 4e9;

/// What is left of the bounds on folding.
#[derive(Clone, Debug)]
pub(crate) struct Folding {
    bytes: usize,
    work: f64,
}

impl Folding {
    /// Allows folded constants of `bytes` bytes in all.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes, work: WORK }
    }

    /// Bytes that folded constants may still take.
    pub(crate) fn bytes_left(&self) -> usize {
        self.bytes
    }

    /// Takes `bytes` from what constants may still take, if there is as much.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(self.bytes);
        left.is_some()
    }

    /// The node's outputs, if there is enough left to compute them and a kernel that can.
    ///
    /// # Errors
    /// If the node does not fit its op's definition, or an element makes it undefined.
    pub(crate) fn fold(&mut self, spec: &NodeSpec, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>, KernelError> {
        let cost = spec.work();
        let bytes: usize = spec.outputs.iter().map(|output| output.bytes()).fold(0, usize::saturating_add);
        let work = cost.flops + cost.bytes();
        if work > self.work || bytes > self.bytes {
            return Ok(None);
        }
        match compute(spec, inputs, &vec![None; inputs.len()]) {
            Ok(tensors) => {
                self.work -= work;
                self.bytes -= bytes;
                Ok(Some(tensors))
            }
            Err(KernelError::Unsupported { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Computes one node's outputs from whole inputs on the calling thread.
///
/// # Errors
/// If there is no kernel for the node, or an element makes it undefined.
pub(super) fn compute(
    spec: &NodeSpec,
    inputs: &[Tensor],
    constants: &[Option<Tensor>],
) -> Result<Vec<Tensor>, KernelError> {
    let kernel = prepare(spec, constants)?;
    let mut buffers: Vec<_> = spec.outputs.iter().map(|output| Buffer::zeroed(output.bytes())).collect();
    let mut outputs: Vec<_> = buffers.iter_mut().map(Buffer::bytes_mut).collect();
    let inputs: Vec<_> = inputs.iter().map(Tensor::bytes).collect();
    kernel.run(Call {
        inputs: &inputs,
        outputs: &mut outputs,
        rows: 0..spec.row_plan().map_or(1, |plan| plan.rows),
        scratch: Buffer::zeroed(kernel.scratch_bytes()).bytes_mut(),
        team: &Team::solo(),
    })?;
    let tensor = |(spec, buffer): (&TensorSpec, Buffer)| {
        Tensor::new(spec.clone(), Arc::new(buffer)).expect("the buffer was made with the spec's size")
    };
    Ok(spec.outputs.iter().zip(buffers).map(tensor).collect())
}
