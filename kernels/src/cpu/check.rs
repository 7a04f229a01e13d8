//! Checks of a node's tensors against its op's definition, which kernels make when they are prepared.

use crate::dtype::DType;
use crate::error::KernelError;
use crate::op::NodeSpec;

/// The node does not fit its op's definition.
pub(crate) fn invalid(node: &NodeSpec, reason: impl Into<String>) -> KernelError {
    KernelError::Invalid {
        op: node.op.name(),
        reason: reason.into(),
        inputs: node.inputs.clone(),
        outputs: node.outputs.clone(),
    }
}

/// The node is sound, but there is no CPU kernel for it.
pub(crate) fn unsupported(node: &NodeSpec, reason: impl Into<String>) -> KernelError {
    KernelError::Unsupported { op: node.op.name(), reason: reason.into() }
}

/// Refuses the node as invalid unless `holds`.
pub(crate) fn require(holds: bool, node: &NodeSpec, reason: &str) -> Result<(), KernelError> {
    if holds { Ok(()) } else { Err(invalid(node, reason)) }
}

/// Requires as many inputs and outputs.
pub(crate) fn require_tensors(node: &NodeSpec, inputs: usize, outputs: usize) -> Result<(), KernelError> {
    if node.inputs.len() == inputs && node.outputs.len() == outputs {
        return Ok(());
    }
    Err(invalid(node, format!("the op takes {inputs} inputs and makes {outputs} outputs")))
}

/// Requires that all inputs and outputs are `f32`.
pub(crate) fn require_f32(node: &NodeSpec) -> Result<(), KernelError> {
    let all = node.inputs.iter().chain(&node.outputs).all(|spec| spec.dtype == DType::F32);
    require(all, node, "all its tensors are to be f32")
}

/// Requires one input and one output of equal types.
pub(crate) fn require_copy(node: &NodeSpec) -> Result<(), KernelError> {
    require_tensors(node, 1, 1)?;
    require(node.inputs[0].dtype == node.outputs[0].dtype, node, "its output has its input's type")
}

/// An axis's index, if the tensor has it.
pub(crate) fn require_axis(node: &NodeSpec, axis: usize) -> Result<(), KernelError> {
    let rank = node.inputs.first().map_or(0, |spec| spec.shape.rank());
    if axis < rank { Ok(()) } else { Err(invalid(node, format!("axis {axis} is not among the {rank} of its input"))) }
}
