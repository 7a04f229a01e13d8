//! Why a model cannot be lowered: which input, node or attribute, what was found there and what to do about it.

use crate::constant::ConstantError;
use crate::import::error::Name;
use crate::import::{AttributeError, OPSETS};
use anabranch_kernels::shape::ShapeError;
use anabranch_kernels::{DType, KernelError, Shape};
use std::collections::BTreeMap;
use std::fmt;

/// A model that cannot become a program under the options given.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum LowerError {
    /// The model asks for a version of the operator set whose meaning is not known.
    #[error(
        "the model uses version {version} of the ONNX operators; versions {} to {} are supported", OPSETS.start(), OPSETS.end()
    )]
    Opset { version: i64 },
    /// A constant that cannot be read.
    #[error(transparent)]
    Constant(#[from] ConstantError),
    /// A symbolic dimension without a size.
    #[error(
        "input {}: dimension {axis} is the symbol {}, which has no size; give the input itself, or the symbol's size",
        Name(input),
        Name(symbol)
    )]
    Unbound { input: String, axis: usize, symbol: String },
    /// An input of which the model does not say the shape.
    #[error("input {}: the model does not say {missing}; give the input itself or its shape", Name(input))]
    Unknown {
        input: String,
        /// What is not known: the element type, the rank, or a dimension.
        missing: String,
    },
    /// Two sizes for one symbol.
    #[error(
        "symbol {} is {first} {first_from} but {second} in dimension {axis} of input {}; make them agree, or correct \
         the size given for the symbol",
        Name(symbol),
        Name(input)
    )]
    Conflict { symbol: String, first: usize, first_from: String, input: String, axis: usize, second: usize },
    /// A given input that does not fit the declared one.
    #[error("input {}: the model declares {declared}, but the given shape is {given}", Name(input))]
    InputShape { input: String, declared: String, given: Shape },
    /// A shape was given for an input that the model does not have.
    #[error("the model has no input {}; its inputs are {}", Name(input), list(inputs))]
    NoSuchInput { input: String, inputs: Vec<String> },
    /// A dimension's size was given for a symbol that the model does not have.
    #[error("the model has no symbolic dimension {}; {}", Name(symbol), known_symbols(symbols))]
    NoSuchSymbol { symbol: String, symbols: Vec<String> },
    /// A shape that does not fit the address space.
    #[error("input {}: {source}", Name(input))]
    InputTooLarge { input: String, source: ShapeError },
    /// Operators, or uses of operators, that there is no lowering for.
    #[error("{0}")]
    Unsupported(Box<Unsupported>),
    /// The model declares an output that nothing makes.
    #[error("the model's output {} is made by no node", Name(.0))]
    NoOutput(String),
    /// A node that is not what its operator's definition allows.
    #[error("node {} ({}): {fault}", Name(node), Name(operator))]
    Node { node: String, operator: String, fault: Box<Fault> },
}

/// All uses of operators in a model that there is no lowering for.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsupported {
    /// The name of the first such node in the model's order.
    pub node: String,
    /// Its operator.
    pub operator: String,
    /// What of it is not supported.
    pub reason: String,
    /// How many nodes there are for each operator, the first included.
    pub counts: BTreeMap<String, usize>,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} ({}) is not supported: {}", Name(&self.node), Name(&self.operator), self.reason)?;
        let others = self.counts.values().sum::<usize>().saturating_sub(1);
        if others > 0 {
            let counts: Vec<_> = self.counts.iter().map(|(name, count)| format!("{} × {count}", Name(name))).collect();
            let plural = if others == 1 { "one other node is" } else { "other nodes are" };
            let number = if others == 1 { String::new() } else { format!("{others} ") };
            write!(f, "; {number}{plural} not supported either (in all: {})", counts.join(", "))?;
        }
        Ok(())
    }
}

/// What is wrong with one node, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    text: String,
    /// The operator is sound, but it, or this use of it, has no lowering.
    pub(crate) is_unsupported: bool,
}

impl Fault {
    /// Shapes, axes or sizes that the operator's definition does not allow.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_unsupported: false }
    }

    /// A sound use without a lowering.
    pub(crate) fn unsupported(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_unsupported: true }
    }

    /// A required input is absent.
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

    /// An input that decides shapes is not known before the program runs.
    pub(crate) fn run_time(input: usize, what: &str) -> Self {
        let known = "only what is known before the run can decide shapes here";
        Self::invalid(format!("input {input} ({what}) is computed from the model's inputs; {known}"))
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

fn list(names: &[String]) -> String {
    names.iter().map(|name| Name(name).to_string()).collect::<Vec<_>>().join(", ")
}

fn known_symbols(symbols: &[String]) -> String {
    if symbols.is_empty() { "all its sizes are fixed".into() } else { format!("it has {}", list(symbols)) }
}
