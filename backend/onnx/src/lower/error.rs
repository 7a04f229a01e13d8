//! Errors of lowering: the input, node or attribute, the value found there, and the next step.

use crate::host_operators::Fault;
use crate::import::error::Name;
use anabranch_base::error_kind::ErrorKind;
use anabranch_ir::constant::ConstantError;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Reason that a model cannot become a program under the given options; the text describes its cause and object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct LowerError {
    #[doc(hidden)]
    pub kind: ErrorKind,
    #[doc(hidden)]
    pub node: Option<String>,
    #[doc(hidden)]
    pub input: Option<String>,
    #[doc(hidden)]
    pub symbol: Option<String>,
    /// Whether that symbol has no size, and a caller may give a size.
    pub is_open: bool,
    /// Nodes that prevent the lowering, if nodes are the cause.
    pub(super) refusal: Option<Box<Refusal>>,
    pub(super) text: String,
}

/// A node that prevents the lowering of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Name of the node.
    pub node: String,
    /// Operator of the node.
    pub operator: String,
    /// Fault of the node, in a sentence.
    pub reason: String,
    /// Whether the node is valid, but it, or this use of its operator, has no lowering.
    pub is_unsupported: bool,
    /// Whether it may be lowered in a later phase of a run, when the values that it needs are known, or be a host
    /// operator.
    pub is_late: bool,
    /// Inputs of the model, by name, whose elements would have to be known.
    pub wanted: Vec<String>,
}

/// Most obstacles of one model that are reported; further nodes are only counted.
const MOST_OBSTACLES: usize = 1000;

/// All obstacles of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// First obstacles, in the model's order.
    pub(crate) obstacles: Vec<Obstacle>,
    /// Inputs, by name, whose elements would have to be known, for each node.
    pub(super) wanted: Vec<Vec<String>>,
    /// Number of nodes without a lowering, by operator.
    pub(super) unsupported: BTreeMap<String, usize>,
}

impl Refusal {
    /// Whether there are no obstacles.
    pub(super) fn is_empty(&self) -> bool {
        self.obstacles.is_empty()
    }

    /// Records one more node.
    pub(super) fn add(&mut self, obstacle: Obstacle) {
        if obstacle.is_unsupported {
            *self.unsupported.entry(obstacle.operator.clone()).or_default() += 1;
        }
        if self.obstacles.len() < MOST_OBSTACLES {
            self.obstacles.push(obstacle);
        }
    }
}

impl LowerError {
    /// Returns the node that the error concerns.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// Returns the inputs whose elements decide shapes, so that they have to be known
    /// ([`LowerOptions::fixed`](super::LowerOptions::fixed)).
    pub fn deciding_inputs(&self) -> BTreeSet<&str> {
        self.wanted().iter().flatten().map(String::as_str).collect()
    }

    /// Returns the inputs, by name, whose elements would have to be known, for each node.
    pub fn wanted(&self) -> &[Vec<String>] {
        self.refusal.as_ref().map_or(&[], |refusal| &refusal.wanted)
    }

    /// Returns the first nodes that prevent the lowering, in the model's order; none if there is another cause.
    pub fn obstacles(&self) -> &[Obstacle] {
        self.refusal.as_ref().map_or(&[], |refusal| &refusal.obstacles)
    }

    pub(super) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, node: None, input: None, symbol: None, is_open: false, refusal: None, text: text.into() }
    }

    /// The caller wants no program any more ([`anabranch_base::interruption`]).
    pub fn interrupted() -> Self {
        Self::new(ErrorKind::Cancelled, "lowering was interrupted")
    }

    /// A fault of an input, whose name the text begins with.
    pub(super) fn of_input(kind: ErrorKind, input: &str, text: impl fmt::Display) -> Self {
        Self { input: Some(input.into()), ..Self::new(kind, format!("input {}: {text}", Name(input))) }
    }

    /// Creates the error of a node; its name and operator start the text.
    pub(super) fn of_node(kind: ErrorKind, node: &str, operator: &str, text: impl fmt::Display) -> Self {
        let text = format!("node {} ({}){text}", Name(node), Name(operator));
        Self { node: Some(node.into()), ..Self::new(kind, text) }
    }

    /// Creates the error of a node that was computed between programs.
    pub fn of_host_operator(node: &str, operator: &str, fault: &Fault) -> Self {
        let kind = if fault.is_memory() {
            ErrorKind::Memory
        } else if fault.is_unsupported() {
            ErrorKind::Unsupported
        } else {
            ErrorKind::Model
        };
        Self::of_node(kind, node, operator, format!(": {fault}"))
    }
}

/// Converts the error of a constant that cannot be read.
impl From<ConstantError> for LowerError {
    fn from(error: ConstantError) -> Self {
        let memory = matches!(error, ConstantError::OutOfMemory { .. });
        Self::new(if memory { ErrorKind::Memory } else { ErrorKind::Model }, error.to_string())
    }
}

/// Converts obstacles to an error: the first obstacle and, for nodes without a lowering, their number by operator.
/// There is at least one obstacle.
impl From<Refusal> for LowerError {
    fn from(refusal: Refusal) -> Self {
        let Some(Obstacle { node, operator, reason, is_unsupported, .. }) = refusal.obstacles.first() else {
            return Self::new(ErrorKind::Internal, "a model was rejected without a reason");
        };
        let error = if *is_unsupported {
            let mut text = format!(" is not supported: {reason}");
            let counts = &refusal.unsupported;
            let others = counts.values().sum::<usize>().saturating_sub(1);
            if others > 0 {
                let counts: Vec<_> = counts.iter().map(|(name, count)| format!("{} × {count}", Name(name))).collect();
                let plural = if others == 1 { "one other node is" } else { &format!("{others} other nodes are") };
                text += &format!("; {plural} not supported either (in all: {})", counts.join(", "));
            }
            Self::of_node(ErrorKind::Unsupported, node, operator, text)
        } else {
            Self::of_node(ErrorKind::Model, node, operator, format!(": {reason}"))
        };
        Self { refusal: Some(Box::new(refusal)), ..error }
    }
}

pub(super) fn list(names: &[String]) -> String {
    names.iter().map(|name| Name(name).to_string()).collect::<Vec<_>>().join(", ")
}
