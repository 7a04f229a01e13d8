//! Why a model cannot be lowered: which input, node or attribute, what was found there and what to do about it.

use super::view::View;
use crate::constant::ConstantError;
use crate::error_kind::ErrorKind;
use crate::import::AttributeError;
use crate::import::error::Name;
use crate::program::ValueId;
use anabranch_kernels::shape::ShapeError;
use anabranch_kernels::{DType, KernelError};
use std::collections::BTreeMap;
use std::fmt;

/// A model that cannot become a program under the options given: what it comes from and is about, told in its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct LowerError {
    pub(crate) kind: ErrorKind,
    pub(crate) node: Option<String>,
    pub(crate) input: Option<String>,
    pub(crate) symbol: Option<String>,
    /// Inputs, by name, whose elements would have to be known.
    pub(crate) wanted: Box<[String]>,
    pub(super) text: String,
}

impl LowerError {
    pub(super) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, node: None, input: None, symbol: None, wanted: Box::default(), text: text.into() }
    }

    /// A fault of an input, whose name the text begins with.
    pub(super) fn of_input(kind: ErrorKind, input: &str, text: impl fmt::Display) -> Self {
        Self { input: Some(input.into()), ..Self::new(kind, format!("input {}: {text}", Name(input))) }
    }

    /// A fault of a node, whose name and operator the text begins with.
    pub(super) fn of_node(kind: ErrorKind, node: &str, operator: &str, text: impl fmt::Display) -> Self {
        let text = format!("node {} ({}){text}", Name(node), Name(operator));
        Self { node: Some(node.into()), ..Self::new(kind, text) }
    }
}

/// A constant that cannot be read.
impl From<ConstantError> for LowerError {
    fn from(error: ConstantError) -> Self {
        let memory = matches!(error, ConstantError::OutOfMemory { .. });
        Self::new(if memory { ErrorKind::Memory } else { ErrorKind::Model }, error.to_string())
    }
}

/// All uses of operators in a model that there is no lowering for: the first, and how many there are of each.
#[derive(Clone, Debug)]
pub(super) struct Unsupported {
    pub(super) node: String,
    pub(super) operator: String,
    pub(super) reason: String,
    pub(super) counts: BTreeMap<String, usize>,
}

impl From<&Unsupported> for LowerError {
    fn from(unsupported: &Unsupported) -> Self {
        let Unsupported { node, operator, reason, counts } = unsupported;
        let mut text = format!(" is not supported: {reason}");
        let others = counts.values().sum::<usize>().saturating_sub(1);
        if others > 0 {
            let counts: Vec<_> = counts.iter().map(|(name, count)| format!("{} × {count}", Name(name))).collect();
            let plural = if others == 1 { "one other node is" } else { &format!("{others} other nodes are") };
            text += &format!("; {plural} not supported either (in all: {})", counts.join(", "));
        }
        Self::of_node(ErrorKind::Unsupported, node, operator, text)
    }
}

/// What is wrong with one node, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Fault {
    text: String,
    /// The operator is sound, but it, or this use of it, has no lowering.
    pub(crate) is_unsupported: bool,
    /// A value whose elements would have to be known.
    pub(super) needs: Option<ValueId>,
}

impl Fault {
    /// Shapes, axes or sizes that the operator's definition does not allow.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_unsupported: false, needs: None }
    }

    /// A sound use without a lowering.
    pub(crate) fn unsupported(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_unsupported: true, needs: None }
    }

    pub(crate) fn missing(input: usize) -> Self {
        Self::invalid(format!("input {input} is missing"))
    }

    /// An attribute has a value that the operator does not allow.
    pub(crate) fn attribute(name: &str, found: impl fmt::Debug, expected: impl fmt::Display) -> Self {
        Self::invalid(format!("attribute `{name}` is {found:?}; it must be {expected}"))
    }

    /// An input's element type is not one that the operator takes here.
    pub(crate) fn of_type(input: usize, found: DType, expected: &str) -> Self {
        Self::invalid(format!("input {input} is {found}; it must be {expected}"))
    }

    /// An input of an operator is not known before the program runs, but decides shapes or how the operator is lowered.
    pub(crate) fn run_time(view: &View, input: usize, what: &str) -> Self {
        let known = "only constants, shapes, and small inputs of the model can decide shapes here";
        let text = format!("input {input} ({what}) is computed from the model's inputs; {known}");
        Self { needs: Some(view.value), ..Self::unsupported(text) }
    }

    /// A constant larger than the budget for constants.
    pub(crate) fn budget(bytes: usize, budget: usize) -> Self {
        Self::invalid(format!("a constant of {bytes} bytes is more than the {budget} that constants may still take"))
    }
}

/// Shapes that do not go together, or are too large.
impl From<ShapeError> for Fault {
    fn from(error: ShapeError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// An op that a kernel refused while a constant was folded.
impl From<KernelError> for Fault {
    fn from(error: KernelError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// An attribute that cannot be read.
impl From<AttributeError> for Fault {
    fn from(error: AttributeError) -> Self {
        Self::invalid(format!("attribute {} {}", Name(&error.attribute), error.problem))
    }
}

pub(super) fn list(names: &[String]) -> String {
    names.iter().map(|name| Name(name).to_string()).collect::<Vec<_>>().join(", ")
}
