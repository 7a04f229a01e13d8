//! A model as its file describes it: operators with their parameters, on named values, checked to be a graph.

use super::attribute::Attribute;
use super::labels::Labels;
use anabranch_ir::constant::Constant;
use anabranch_kernels::DType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Index of a value of a [`Model`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueIndex(pub u32);

impl ValueIndex {
    /// The index as `usize`.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A dimension of an input or output.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Dim {
    /// A number.
    Known(usize),
    /// A name; dimensions of one name are equal, except for names such as `dynamic` and `unk__12`.
    Symbol(String),
    /// An unknown dimension.
    Unknown,
}

impl Dim {
    /// Returns the name by which callers give this dimension a size: its symbol, or the input and the axis (`x[1]`).
    /// `None` for a number.
    pub fn open_name(&self, input: &str, axis: usize) -> Option<String> {
        match self {
            Self::Known(_) => None,
            Self::Symbol(name) => Some(name.clone()),
            Self::Unknown => Some(format!("{input}[{axis}]")),
        }
    }
}

impl fmt::Display for Dim {
    /// Formats as `224`, `batch` or `?`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(dim) => write!(f, "{dim}"),
            Self::Symbol(name) => f.write_str(name),
            Self::Unknown => f.write_str("?"),
        }
    }
}

/// Kind of an input or output: one tensor, several, or perhaps nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    /// Whether it is a sequence of tensors instead of one tensor.
    pub sequence: bool,
    /// Whether it is an optional, which may be empty.
    pub optional: bool,
}

impl Kind {
    /// Whether it is a tensor in every run.
    pub fn is_tensor(self) -> bool {
        !self.sequence && !self.optional
    }

    /// Returns the kind's name: `tensor`, `sequence`, `optional` or `optional sequence`.
    pub fn name(self) -> &'static str {
        match (self.optional, self.sequence) {
            (false, false) => "tensor",
            (false, true) => "sequence",
            (true, false) => "optional",
            (true, true) => "optional sequence",
        }
    }
}

impl fmt::Display for Kind {
    /// Formats the words before the element type: `optional sequence of `, or nothing for a tensor.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.optional { "optional " } else { "" })?;
        f.write_str(if self.sequence { "sequence of " } else { "" })
    }
}

/// A value that the caller gives.
#[derive(Clone, Debug)]
pub struct Input {
    /// Name of the input.
    pub name: String,
    /// Value of the input.
    pub value: ValueIndex,
    /// Kind of the input: a tensor, a sequence or an optional.
    pub kind: Kind,
    /// Type of the elements of its tensors.
    pub dtype: DType,
    /// Dimensions of its tensors, outermost first; `None` if even their number is unknown.
    pub dims: Option<Vec<Dim>>,
    /// Whether it may be left out, because an initialiser of the same name gives its value.
    pub optional: bool,
}

/// A value that the caller receives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Output {
    /// Name of the output.
    pub name: String,
    /// Value of the output.
    pub value: ValueIndex,
    /// Declared kind of the output.
    pub kind: Kind,
    /// Type of the elements of its tensors, if declared.
    pub dtype: Option<DType>,
    /// Declared dimensions of its tensors, outermost first; `None` if even their number is undeclared.
    pub dims: Option<Vec<Dim>>,
    /// Meaning of its numbers, if they are labels or columns of maps.
    pub labels: Option<Labels>,
}

/// An operator applied to values. The typed readers of its attributes are in [`super::attribute`].
#[derive(Clone, Debug)]
pub struct Node {
    /// Unique name in the model; made from operator and position if the file gives none.
    pub name: String,
    /// Operator of the node.
    pub op_type: String,
    /// Domain of the operator: empty for the standard domain.
    pub domain: String,
    /// Version of the domain's operators.
    pub version: i64,
    /// Input values; `None` for an optional input that is left out. The last is not `None`.
    pub inputs: Vec<Option<ValueIndex>>,
    /// Output values; `None` for an unused output. The last is not `None`.
    pub outputs: Vec<Option<ValueIndex>>,
    /// Parameters by name.
    pub attributes: BTreeMap<String, Attribute>,
}

/// A graph within a node. Its values are among the model's, under indices that no other graph has.
#[derive(Clone, Debug)]
pub struct Subgraph {
    /// Values that the node gives to the graph.
    pub inputs: Vec<ValueIndex>,
    /// Outputs for the node; some may be values of the surrounding graphs. A type that no output of a model can have
    /// stays undeclared.
    pub outputs: Vec<Output>,
    /// Operators, in topological order.
    pub nodes: Vec<Node>,
    /// Constants of the graph.
    pub initializers: BTreeMap<ValueIndex, Constant>,
    /// Values of the surrounding graphs that it reads.
    pub captured: Vec<ValueIndex>,
    /// Number of nested graphs, including itself.
    pub height: usize,
}

impl Subgraph {
    /// Returns the number of nested graphs of a graph of these nodes.
    pub fn height_over(nodes: &[Node]) -> usize {
        1 + nodes.iter().flat_map(Node::graphs).map(|graph| graph.height).max().unwrap_or(0)
    }
}

impl Node {
    /// Iterates over the input values, including those that its subgraphs read from the surrounding graphs.
    pub fn all_inputs(&self) -> impl Iterator<Item = ValueIndex> {
        self.inputs.iter().flatten().chain(self.graphs().flat_map(|graph| &graph.captured)).copied()
    }

    /// Iterates over the graphs within it.
    pub fn graphs(&self) -> impl Iterator<Item = &Subgraph> {
        self.attributes.values().filter_map(|attribute| match attribute {
            Attribute::Graph(Ok(graph)) => Some(&**graph),
            _ => None,
        })
    }

    /// Returns the input at `position`, unless it is left out.
    pub fn input(&self, position: usize) -> Option<ValueIndex> {
        self.inputs.get(position).copied().flatten()
    }

    /// Returns the output at `position`, unless it is unused.
    pub fn output(&self, position: usize) -> Option<ValueIndex> {
        self.outputs.get(position).copied().flatten()
    }
}

/// A whole model.
///
/// Nodes are in topological order: each reads only inputs, initialisers and outputs of earlier nodes. Each value has
/// one maker, and every value that is read or is an output has one.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name of the graph.
    pub name: String,
    /// Program that wrote the file, with its version.
    pub producer: String,
    /// Version of each domain's operators; the standard domain is the empty string.
    pub opsets: BTreeMap<String, i64>,
    /// Name of each value; all names are unique.
    pub values: Arc<[String]>,
    /// Inputs that the caller gives, in the file's order.
    pub inputs: Vec<Input>,
    /// Outputs that the caller receives, in the file's order.
    pub outputs: Vec<Output>,
    /// Operators, in topological order.
    pub nodes: Vec<Node>,
    /// Constants, and defaults of optional inputs.
    pub initializers: BTreeMap<ValueIndex, Constant>,
}

impl Model {
    /// Returns the version of the standard operators.
    pub fn opset(&self) -> i64 {
        self.opsets.get("").copied().unwrap_or_default()
    }

    /// Fixes an input's value: the input becomes an initialiser, and the caller no longer gives it. Returns whether
    /// there is an input of this name that the constant fits.
    pub fn fix_input(&mut self, name: &str, constant: Constant) -> bool {
        let Some(at) = self.inputs.iter().position(|input| input.name == name) else { return false };
        let Input { value, kind, dtype, dims, .. } = &self.inputs[at];
        let known = |dim: &Dim, size: &usize| if let Dim::Known(known) = dim { known == size } else { true };
        let sizes = constant.shape().dims();
        let fits =
            |dims: &Vec<Dim>| dims.len() == sizes.len() && dims.iter().zip(sizes).all(|(dim, size)| known(dim, size));
        if !kind.is_tensor() || constant.dtype() != *dtype || !dims.as_ref().is_none_or(fits) {
            return false;
        }
        self.initializers.insert(*value, constant);
        self.inputs.remove(at);
        true
    }

    /// Returns a value's name.
    pub fn value_name(&self, value: ValueIndex) -> &str {
        &self.values[value.index()]
    }
}
