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

/// What is wrong with one node.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum Fault {
    /// The operator is sound, but it, or this use of it, has no lowering.
    #[error("{0}")]
    Unsupported(String),
    /// A required input is absent.
    #[error("input {0} is missing")]
    MissingInput(usize),
    /// An attribute that cannot be read.
    #[error("attribute {} {problem}", Name(attribute))]
    Unreadable { attribute: String, problem: String },
    /// An attribute has a value that the operator does not allow.
    #[error("attribute `{name}` is {found}; it must be {expected}")]
    Attribute { name: &'static str, found: String, expected: String },
    /// An input's element type is not one that the operator takes here.
    #[error("input {input} is {found}; it must be {expected}")]
    Type { input: usize, found: DType, expected: String },
    /// An input that decides shapes is not known before the program runs.
    #[error(
        "input {input} ({what}) is computed from the model's inputs; only what is known before the run can decide \
         shapes here"
    )]
    RunTime { input: usize, what: &'static str },
    /// Shapes that do not go together, or are too large.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// An op that a kernel refused while a constant was folded.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Shapes, axes or sizes that the operator's definition does not allow.
    #[error("{0}")]
    Invalid(String),
    /// A constant larger than the budget for constants.
    #[error("a constant of {bytes} bytes is more than the {budget} that constants may still take")]
    Budget { bytes: usize, budget: usize },
}

impl Fault {
    /// A fault in an attribute.
    pub(crate) fn attribute(name: &'static str, found: impl fmt::Debug, expected: impl Into<String>) -> Self {
        Self::Attribute { name, found: format!("{found:?}"), expected: expected.into() }
    }

    /// Shapes or sizes that do not fit.
    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid(reason.into())
    }

    /// A sound use without a lowering.
    pub(crate) fn unsupported(reason: impl Into<String>) -> Self {
        Self::Unsupported(reason.into())
    }
}

impl From<AttributeError> for Fault {
    fn from(error: AttributeError) -> Self {
        Self::Unreadable { attribute: error.attribute, problem: error.problem }
    }
}

fn list(names: &[String]) -> String {
    names.iter().map(|name| Name(name).to_string()).collect::<Vec<_>>().join(", ")
}

fn known_symbols(symbols: &[String]) -> String {
    if symbols.is_empty() { "all its sizes are fixed".into() } else { format!("it has {}", list(symbols)) }
}
