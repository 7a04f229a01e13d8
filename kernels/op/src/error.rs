//! Errors of kernels.

use crate::shape::ShapeError;
use crate::tensor::TensorSpec;

/// Reason why a device's kernels cannot compute an op, or failed while they ran.
///
/// The caller adds the node's name and the device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The op's inputs or outputs do not fit its definition.
    #[error("{op}: {reason} (inputs {}, outputs {})", list(inputs), list(outputs))]
    Invalid {
        /// Name of the op.
        op: &'static str,
        /// Condition that does not hold.
        reason: String,
        /// Inputs that the op was given.
        inputs: Vec<TensorSpec>,
        /// Outputs that the op was to make.
        outputs: Vec<TensorSpec>,
    },
    /// The op is sound, but this kind of device has no kernel for it.
    #[error("{op}: {reason}")]
    Unsupported {
        /// Name of the op.
        op: &'static str,
        /// Missing feature.
        reason: String,
    },
    /// Two shapes do not fit together.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// An element's value makes the op undefined: an index out of range, an integer division by zero.
    #[error("{op}: {reason}")]
    Value {
        /// Name of the op.
        op: &'static str,
        /// The value, and the values that are allowed.
        reason: String,
    },
    /// A kernel needs more memory besides its tensors than is available.
    #[error("{op}: {what} takes {bytes} bytes, which exceeds the available memory")]
    Memory {
        /// Name of the op.
        op: &'static str,
        /// Purpose of the memory.
        what: &'static str,
        /// Size of the memory.
        bytes: usize,
    },
    /// A GPU has no memory for a buffer.
    #[error("the GPU has no memory for {what}; lower the device's memory limit, or close other programs that use it")]
    DeviceMemory {
        /// The buffer, with its size if that is known.
        what: String,
    },
    /// A kernel was run before it received a constant that it needs packed.
    #[error("constant input {input} was not packed")]
    Packed {
        /// Index of the input.
        input: usize,
    },
    /// The GPU's driver rejected the work or failed.
    #[error("GPU: {0}")]
    Gpu(String),
}

fn list(specs: &[TensorSpec]) -> String {
    let specs: Vec<_> = specs.iter().map(ToString::to_string).collect();
    format!("[{}]", specs.join(", "))
}
