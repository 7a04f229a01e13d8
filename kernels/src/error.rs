//! What a kernel can refuse.

use crate::shape::ShapeError;
use crate::tensor::TensorSpec;

/// Why an op cannot be computed by a family of kernels, or failed while it ran.
///
/// The caller adds the node's name and the device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The op's inputs or outputs do not fit its definition.
    #[error("{op}: {reason} (inputs {}, outputs {})", list(inputs), list(outputs))]
    Invalid {
        /// The op's name.
        op: &'static str,
        /// What does not fit.
        reason: String,
        /// The inputs it was given.
        inputs: Vec<TensorSpec>,
        /// The outputs it was to make.
        outputs: Vec<TensorSpec>,
    },
    /// The op is sound, but this family of devices has no kernel for it.
    #[error("{op}: {reason}")]
    Unsupported {
        /// The op's name.
        op: &'static str,
        /// What is missing.
        reason: String,
    },
    /// Two shapes do not go together.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// An element's value makes the op undefined: an index out of range, an integer division by zero.
    #[error("{op}: {reason}")]
    Value {
        /// The op's name.
        op: &'static str,
        /// Which value, and what is allowed.
        reason: String,
    },
    /// There is not enough memory for what a kernel needs beside its tensors.
    #[error("{op}: {what} takes {bytes} bytes, more memory than there is for it")]
    Memory {
        /// The op's name.
        op: &'static str,
        /// What it is for.
        what: &'static str,
        /// Its size.
        bytes: usize,
    },
    /// A kernel was run before it was given a constant that it wants packed.
    #[error("constant input {input} was not packed")]
    Packed {
        /// The input.
        input: usize,
    },
    /// The GPU's driver refused or failed.
    #[error("GPU: {0}")]
    Gpu(String),
}

fn list(specs: &[TensorSpec]) -> String {
    let specs: Vec<_> = specs.iter().map(ToString::to_string).collect();
    format!("[{}]", specs.join(", "))
}
