//! A model as the file gives it: operators with their parameters, on named values, checked to be a graph.

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
    /// A name; dimensions of one name are equal, but for names such as `dynamic` and `unk__12`.
    Symbol(String),
    /// Nothing is known.
    Unknown,
}

impl Dim {
    /// The name that this dimension of an input goes by where sizes are given: its symbol, or the input and the axis (`x[1]`). A number has none.
    pub fn open_name(&self, input: &str, axis: usize) -> Option<String> {
        match self {
            Self::Known(_) => None,
            Self::Symbol(name) => Some(name.clone()),
            Self::Unknown => Some(format!("{input}[{axis}]")),
        }
    }
}

impl fmt::Display for Dim {
    /// `224`, `batch` or `?`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(dim) => write!(f, "{dim}"),
            Self::Symbol(name) => f.write_str(name),
            Self::Unknown => f.write_str("?"),
        }
    }
}

/// Whether an input or output is one tensor, several, or perhaps nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    /// Whether it is a sequence of tensors instead of one tensor.
    pub sequence: bool,
    /// Whether it is an optional, which may hold nothing.
    pub optional: bool,
}

impl Kind {
    /// Whether it is a tensor in every run.
    pub fn is_tensor(self) -> bool {
        !self.sequence && !self.optional
    }

    /// Its name: `tensor`, `sequence`, `optional` or `optional sequence`.
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
    /// Writes the words before the element type: `optional sequence of `, or nothing for a tensor.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.optional { "optional " } else { "" })?;
        f.write_str(if self.sequence { "sequence of " } else { "" })
    }
}

/// A value that the caller gives.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// The value.
    pub value: ValueIndex,
    /// Whether it is a tensor, a sequence or an optional.
    pub kind: Kind,
    /// Type of the elements of its tensors.
    pub dtype: DType,
    /// Dimensions of its tensors, outermost first; `None` if not even their number is known.
    pub dims: Option<Vec<Dim>>,
    /// Whether it may be left out, because an initialiser of the same name gives its value.
    pub optional: bool,
}

/// A value that the caller receives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// The value.
    pub value: ValueIndex,
    /// Whether it is declared as a sequence or an optional.
    pub kind: Kind,
    /// Type of the elements of its tensors, if declared.
    pub dtype: Option<DType>,
    /// Dimensions of its tensors, outermost first, as declared; `None` if not even their number is.
    pub dims: Option<Vec<Dim>>,
    /// The meaning of its numbers, if they are labels or columns of maps.
    pub labels: Option<Labels>,
}

/// An operator applied to values. The typed readers of its attributes are in [`super::attribute`].
#[derive(Clone, Debug)]
pub struct Node {
    /// Unique in the model; made from operator and position where the file gives none.
    pub name: String,
    /// The operator.
    pub op_type: String,
    /// The operator's domain: empty for the standard one.
    pub domain: String,
    /// The version of the domain's operators that it is one of.
    pub version: i64,
    /// Values read; `None` where an optional one is left out. The last is not `None`.
    pub inputs: Vec<Option<ValueIndex>>,
    /// Values made; `None` where one is not wanted. The last is not `None`.
    pub outputs: Vec<Option<ValueIndex>>,
    /// Parameters by name.
    pub attributes: BTreeMap<String, Attribute>,
}

/// A graph within a node. Its values are among the model's, under indices that no other graph has.
#[derive(Clone, Debug)]
pub struct Subgraph {
    /// What the node gives it.
    pub inputs: Vec<ValueIndex>,
    /// Outputs for the node; some may be values of the graphs around it. A type that no output of a model can have is left undeclared.
    pub outputs: Vec<Output>,
    /// The operators, in topological order.
    pub nodes: Vec<Node>,
    /// Its constants.
    pub initializers: BTreeMap<ValueIndex, Constant>,
    /// Values of the graphs around it that it reads.
    pub captured: Vec<ValueIndex>,
    /// Graphs within each other that it is, itself among them.
    pub height: usize,
}

impl Subgraph {
    /// Graphs within each other that a graph of these nodes is.
    pub fn height_over(nodes: &[Node]) -> usize {
        1 + nodes.iter().flat_map(Node::graphs).map(|graph| graph.height).max().unwrap_or(0)
    }
}

impl Node {
    /// The values read, those that its subgraphs read of the graphs around them included.
    pub fn all_inputs(&self) -> impl Iterator<Item = ValueIndex> {
        self.inputs.iter().flatten().chain(self.graphs().flat_map(|graph| &graph.captured)).copied()
    }

    /// The graphs within it.
    pub fn graphs(&self) -> impl Iterator<Item = &Subgraph> {
        self.attributes.values().filter_map(|attribute| match attribute {
            Attribute::Graph(Ok(graph)) => Some(&**graph),
            _ => None,
        })
    }

    /// The input at `position`, unless it is left out.
    pub fn input(&self, position: usize) -> Option<ValueIndex> {
        self.inputs.get(position).copied().flatten()
    }

    /// The output at `position`, unless it is not wanted.
    pub fn output(&self, position: usize) -> Option<ValueIndex> {
        self.outputs.get(position).copied().flatten()
    }
}

/// A whole model.
///
/// Nodes are in topological order: each reads only inputs, initialisers and outputs of nodes before it. Each value
/// has one maker, and every value that is read or is an output has one.
#[derive(Clone, Debug)]
pub struct Model {
    /// The graph's name.
    pub name: String,
    /// What wrote the file, with its version.
    pub producer: String,
    /// Version of each domain's operators; the standard domain is the empty text.
    pub opsets: BTreeMap<String, i64>,
    /// Name of each value, all different.
    pub values: Arc<[String]>,
    /// What the caller gives, in the file's order.
    pub inputs: Vec<Input>,
    /// What the caller receives, in the file's order.
    pub outputs: Vec<Output>,
    /// The operators, in topological order.
    pub nodes: Vec<Node>,
    /// Constants, and defaults of optional inputs.
    pub initializers: BTreeMap<ValueIndex, Constant>,
}

impl Model {
    /// The version of the standard operators.
    pub fn opset(&self) -> i64 {
        self.opsets.get("").copied().unwrap_or_default()
    }

    /// Gives an input its value for good: it becomes an initialiser, and the caller gives it no more. Whether there is an input of this
    /// name that such a constant fits.
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

    /// A value's name.
    pub fn value_name(&self, value: ValueIndex) -> &str {
        &self.values[value.index()]
    }
}
