//! The lowered program: nodes that kernels compute, on values of known types and shapes.

use crate::constant::Constant;
use anabranch_kernels::op::{Domain, Expression, Map, NodeSpec, Op};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Index of a value of a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub u32);

/// Index of a node of a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u32);

impl ValueId {
    /// The index as `usize`.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    /// The index as `usize`.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// Origin of a value.
#[derive(Clone, Debug)]
pub enum Origin {
    /// Given by the caller at each run.
    Input,
    /// Constant in every run.
    Constant(Constant),
    /// An output of a node.
    Node(NodeId),
}

/// A tensor of the program. Every value has one origin; nodes may read it under other shapes of equal size.
#[derive(Clone, Debug)]
pub struct Value {
    /// The model's name for the value, or a generated name.
    pub name: String,
    /// Type and shape in which the value is made.
    pub spec: TensorSpec,
    /// Origin of the value.
    pub origin: Origin,
}

impl Value {
    /// Returns the constant, if the value is constant.
    pub(crate) fn constant(&self) -> Option<&Constant> {
        match &self.origin {
            Origin::Constant(constant) => Some(constant),
            Origin::Input | Origin::Node(_) => None,
        }
    }
}

/// One of the model's operators, as part of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelOperator {
    /// The model's name for the operator, or a generated name.
    pub name: String,
    /// Kind of the operator, such as `Conv`.
    pub kind: String,
    /// Whether the operator leaves nothing to compute: its work is in constants, or in how the node reads its inputs.
    pub folded: bool,
}

impl ModelOperator {
    /// Creates an operator that is computed.
    pub fn new(name: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { name: name.into(), kind: kind.into(), folded: false }
    }
}

/// One op applied to values.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Unique name in plan files and reports: the operator's name, or a name for several operators
    /// (`/conv1/Conv+Relu`).
    pub name: String,
    /// The model's operators in this node, in order: more than one after fusion.
    pub operators: Vec<ModelOperator>,
    /// Operation, with the type and shape under which each input is read.
    pub spec: NodeSpec,
    /// Input values; `spec.inputs` gives their shapes.
    pub inputs: Vec<ValueId>,
    /// Output values.
    pub outputs: Vec<ValueId>,
}

impl Node {
    /// Returns the name for errors: the model's own, if the node is one step of several of one operator.
    pub fn model_name(&self) -> &str {
        if let [operator] = &self.operators[..] { &operator.name } else { &self.name }
    }
}

/// An output of the program: a value under the shape that the model declares.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Output {
    /// The model's name for the output.
    pub name: String,
    /// The value.
    pub value: ValueId,
    /// Type and shape in which the caller receives it.
    pub spec: TensorSpec,
}

/// A whole lowered program. Nodes are in topological order: each reads only inputs, constants and outputs of earlier
/// nodes.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// All values.
    pub values: Vec<Value>,
    /// All nodes, in topological order.
    pub nodes: Vec<Node>,
    /// Values that the caller provides, in the model's order.
    pub inputs: Vec<ValueId>,
    /// Outputs that the caller receives, in the model's order.
    pub outputs: Vec<Output>,
    /// Inputs, by name, that must have these elements: the program was lowered for them and does not read them.
    pub fixed: BTreeMap<String, Tensor>,
}

impl Program {
    /// Adds a value.
    pub fn add_value(&mut self, name: impl Into<String>, spec: TensorSpec, origin: Origin) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(Value { name: name.into(), spec, origin });
        id
    }

    /// Adds an input.
    pub fn add_input(&mut self, name: impl Into<String>, spec: TensorSpec) -> ValueId {
        let id = self.add_value(name, spec, Origin::Input);
        self.inputs.push(id);
        id
    }

    /// Adds a node of one operator that reads `inputs` in their own shapes. Returns its output, a value with the node's
    /// name.
    pub fn add_node(&mut self, name: impl Into<String>, op: Op, inputs: &[ValueId], made: TensorSpec) -> ValueId {
        let name = name.into();
        let specs = inputs.iter().map(|input| self.value(*input).spec.clone()).collect();
        let output = self.add_value(name.clone(), made.clone(), Origin::Node(NodeId(self.nodes.len() as u32)));
        self.nodes.push(Node {
            operators: vec![ModelOperator::new(name.clone(), op.name())],
            name,
            spec: NodeSpec { op, inputs: specs, outputs: vec![made] },
            inputs: inputs.to_vec(),
            outputs: vec![output],
        });
        output
    }

    /// Returns a value to the caller, in the shape in which it is made.
    pub fn add_output(&mut self, name: impl Into<String>, value: ValueId) {
        let spec = self.value(value).spec.clone();
        self.outputs.push(Output { name: name.into(), value, spec });
    }

    /// A value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// All node ids, in topological order.
    pub fn node_ids(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The value if it is a constant.
    pub fn constant(&self, id: ValueId) -> Option<&Constant> {
        self.value(id).constant()
    }

    /// For each value, the nodes that read it, ascending and without repeats. O(nodes + edges).
    pub fn consumers(&self) -> Vec<Vec<NodeId>> {
        let mut consumers = vec![Vec::new(); self.values.len()];
        for id in self.node_ids() {
            for input in &self.node(id).inputs {
                let list: &mut Vec<NodeId> = &mut consumers[input.index()];
                if list.last() != Some(&id) {
                    list.push(id);
                }
            }
        }
        consumers
    }
}

/// Spec of `f32` elements, for small literal shapes.
pub fn floats(dims: &[usize]) -> TensorSpec {
    TensorSpec::new(DType::F32, Shape::new(dims).expect("the dimensions are small"))
}

/// An element-wise node of `f32` elements.
pub fn map(expression: Expression) -> Op {
    Op::Map(Map { domain: Domain::F32, expression })
}
