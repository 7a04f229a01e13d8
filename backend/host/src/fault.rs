//! Error of one node, as lowering and host operators report it: the input or attribute, its value, and what is allowed.
//!
//! If lowering a node needs the elements of a value that is unknown before the run, the fault names the value. A later
//! phase may know it.

use anabranch_base::bytes::exact_bytes;
use anabranch_import::AttributeError;
use anabranch_import::error::Name;
use anabranch_ir::program::ValueId;
use anabranch_kernels::shape::ShapeError;
use anabranch_kernels::{DType, KernelError};
use std::fmt;

/// Fault of one node, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    text: String,
    is_unsupported: bool,
    is_memory: bool,
    needs: Option<ValueId>,
}

impl Fault {
    /// Whether the operator is valid, but it, or this use of it, has no lowering.
    pub const fn is_unsupported(&self) -> bool {
        self.is_unsupported
    }

    /// Whether the only cause is a shortage of memory.
    pub const fn is_memory(&self) -> bool {
        self.is_memory
    }

    /// Returns the value whose elements would have to be known.
    pub const fn needs(&self) -> Option<ValueId> {
        self.needs
    }

    /// Creates the fault of shapes, axes or sizes that the operator's definition forbids.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_unsupported: false, is_memory: false, needs: None }
    }

    /// Creates the fault of a valid use without a lowering.
    pub fn unsupported(text: impl Into<String>) -> Self {
        Self { is_unsupported: true, ..Self::invalid(text) }
    }

    /// Creates the fault of a memory shortage.
    pub fn memory(text: impl Into<String>) -> Self {
        Self { is_memory: true, ..Self::invalid(text) }
    }

    /// Creates the fault of 64-bit floats in operators that compute only narrower floats: digits would be lost
    /// silently.
    pub fn narrowed() -> Self {
        Self::unsupported("64-bit floats in this operator; cast its inputs to 32-bit floats")
    }

    #[doc(hidden)]
    pub fn missing(input: usize) -> Self {
        Self::invalid(format!("input {input} is missing"))
    }

    /// Creates the fault of an attribute with a value that the operator forbids.
    pub fn attribute(name: &str, found: impl fmt::Debug, expected: impl fmt::Display) -> Self {
        Self::invalid(format!("attribute `{name}` is {found:?}; it must be {expected}"))
    }

    /// Creates the fault of an input with a wrong element type.
    pub fn of_type(input: usize, found: DType, expected: &str) -> Self {
        Self::invalid(format!("input {input} is {found}; it must be {expected}"))
    }

    /// Creates the fault of an input that is unknown before the program runs, but decides shapes or the lowering of the
    /// operator.
    pub fn run_time(value: ValueId, input: usize, what: &str) -> Self {
        let known = "only constants, shapes, and small inputs of the model can determine shapes here";
        let text = format!("input {input} ({what}) is computed from the model's inputs; {known}");
        Self { needs: Some(value), ..Self::unsupported(text) }
    }

    /// Creates the fault of a constant larger than the limit of constants.
    pub fn budget(bytes: usize, budget: usize) -> Self {
        let [bytes, budget] = [bytes, budget].map(|bytes| exact_bytes(bytes as u64));
        let text = format!("a constant of {bytes} exceeds the remaining {budget} for constants");
        Self::invalid(format!("{text}; raise the limit `folded_bytes` if you trust the model"))
    }
}

/// Converts the error of incompatible or too large shapes.
impl From<ShapeError> for Fault {
    fn from(error: ShapeError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// Converts the error of a kernel while a constant was folded.
impl From<KernelError> for Fault {
    fn from(error: KernelError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// Converts the error of an attribute that cannot be read.
impl From<AttributeError> for Fault {
    fn from(error: AttributeError) -> Self {
        Self::invalid(format!("attribute {} {}", Name(&error.attribute), error.problem))
    }
}
