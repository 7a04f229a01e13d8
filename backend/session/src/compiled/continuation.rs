//! The rest of a model that runs in phases, in a compiled model: the nodes that wait for computed values, with their
//! inputs.
//!
//! Graphs within nodes are in one list, each after the graphs within it, so that reading a file does not recurse.
//! Floats are stored as bits.

use super::graphs;
use super::program::Gathered;
use anabranch_ir::constant::Constant;
use anabranch_kernels::{Shape, Tensor};
use anabranch_onnx::import::{Attribute, DEEPEST_GRAPHS, Input, Model, Node, Output, Subgraph, ValueIndex};
use anabranch_onnx::lower::Continuation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Nodes of a model that remain after its first program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredContinuation {
    /// Name of each value.
    values: Vec<String>,
    /// Inputs, in the order of the description.
    inputs: Vec<ValueIndex>,
    outputs: Vec<Output>,
    nodes: Vec<StoredNode>,
    graphs: Vec<StoredGraph>,
    /// Positions of the nodes that are computed first, one by one.
    steps: Vec<u32>,
    /// Outputs of the first program.
    made: Vec<ValueIndex>,
    known: Vec<(ValueIndex, StoredTensor)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredNode {
    name: String,
    op_type: String,
    domain: String,
    version: i64,
    inputs: Vec<Option<ValueIndex>>,
    outputs: Vec<Option<ValueIndex>>,
    attributes: BTreeMap<String, StoredAttribute>,
}

#[derive(Debug, Serialize, Deserialize)]
enum StoredAttribute {
    Float(u32),
    Int(i64),
    String(Vec<u8>),
    Tensor(StoredTensor),
    Floats(Vec<u32>),
    Ints(Vec<i64>),
    Strings(Vec<Vec<u8>>),
    /// Graph with this number.
    Graph(u32),
    /// A graph that could not be read, and the reason.
    Unread(String),
    Other,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredGraph {
    inputs: Vec<ValueIndex>,
    outputs: Vec<Output>,
    nodes: Vec<StoredNode>,
    initializers: Vec<(ValueIndex, StoredTensor)>,
    captured: Vec<ValueIndex>,
}

/// Elements of the constant with this number, under this shape.
#[derive(Debug, Serialize, Deserialize)]
struct StoredTensor {
    number: u32,
    shape: Shape,
}

impl StoredContinuation {
    /// Stores the rest of a model with these inputs, and gathers its constants.
    ///
    /// # Errors
    /// If a constant cannot be read.
    pub(super) fn of<'n>(
        rest: &Continuation,
        inputs: impl Iterator<Item = &'n str>,
        gathered: &mut Gathered,
    ) -> Result<Self, String> {
        let (model, positions) = (rest.model(), rest.positions());
        let mut storing = Storing { gathered, graphs: Vec::new() };
        let node = |at: &u32| storing.node(&model.nodes[*at as usize]);
        let nodes = positions.iter().map(node).collect::<Result<_, _>>()?;
        let known = storing.tensors(rest.known())?;
        let place = |at: &u32| positions.range(..at).count() as u32;
        let value = |name| model.inputs.iter().find(|input| input.name == name).map(|input| input.value);
        Ok(Self {
            values: model.values.to_vec(),
            inputs: inputs.filter_map(value).collect(),
            outputs: model.outputs.clone(),
            nodes,
            graphs: storing.graphs,
            steps: rest.host_operators.iter().map(place).collect(),
            made: rest.made.clone(),
            known,
        })
    }

    /// Returns the outputs that the caller receives.
    pub(super) fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Returns the names of constants, with their numbers.
    pub(super) fn names(&self) -> impl Iterator<Item = (u32, &String)> {
        self.known.iter().filter_map(|(value, tensor)| Some((tensor.number, self.values.get(value.index())?)))
    }

    /// Returns the nodes with their inputs, checked; `shell` is the model without them.
    ///
    /// # Errors
    /// If the graph is not sound; the text names the fault.
    pub(super) fn read(self, shell: Model, constants: &[Constant]) -> Result<Continuation, String> {
        let Self { values, inputs, outputs, nodes, graphs, steps, made, known } = self;
        if inputs.len() != shell.inputs.len() {
            return Err("it has other inputs".into());
        }
        if outputs.iter().any(|output| !output.kind.is_tensor()) {
            return Err("an output is not a tensor".into());
        }
        let mut reading = Reading { constants, graphs: Vec::new() };
        for graph in graphs {
            let graph = reading.graph(graph)?;
            reading.graphs.push(Some(graph));
        }
        let nodes = reading.nodes(nodes)?;
        let known = reading.tensors(known)?;
        let inputs = shell.inputs.into_iter().zip(inputs).map(|(input, value)| Input { value, ..input }).collect();
        let model = Model { values: values.into(), inputs, outputs, nodes, ..shell };
        match graphs::fault(&model, &made, &steps, &known) {
            None => Ok(Continuation::of(model, made, steps, known)),
            Some(fault) => Err(fault),
        }
    }
}

/// Converts nodes for storage in a description.
struct Storing<'g> {
    gathered: &'g mut Gathered,
    graphs: Vec<StoredGraph>,
}

impl Storing<'_> {
    fn tensor(&mut self, constant: &Constant) -> Result<StoredTensor, String> {
        Ok(StoredTensor { number: self.gathered.number(constant)?, shape: constant.shape().clone() })
    }

    fn tensors(
        &mut self,
        constants: &BTreeMap<ValueIndex, Constant>,
    ) -> Result<Vec<(ValueIndex, StoredTensor)>, String> {
        constants.iter().map(|(value, constant)| Ok((*value, self.tensor(constant)?))).collect()
    }

    fn nodes(&mut self, nodes: &[Node]) -> Result<Vec<StoredNode>, String> {
        nodes.iter().map(|node| self.node(node)).collect()
    }

    fn node(&mut self, node: &Node) -> Result<StoredNode, String> {
        let Node { name, op_type, domain, version, inputs, outputs, attributes } = node.clone();
        let mut stored = BTreeMap::new();
        for (name, attribute) in attributes {
            stored.insert(name, self.attribute(attribute)?);
        }
        Ok(StoredNode { name, op_type, domain, version, inputs, outputs, attributes: stored })
    }

    fn attribute(&mut self, attribute: Attribute) -> Result<StoredAttribute, String> {
        Ok(match attribute {
            Attribute::Float(value) => StoredAttribute::Float(value.to_bits()),
            Attribute::Int(value) => StoredAttribute::Int(value),
            Attribute::String(text) => StoredAttribute::String(text),
            Attribute::Tensor(tensor) => StoredAttribute::Tensor(self.tensor(&Constant::from(tensor))?),
            Attribute::Floats(values) => StoredAttribute::Floats(values.into_iter().map(f32::to_bits).collect()),
            Attribute::Ints(values) => StoredAttribute::Ints(values),
            Attribute::Strings(texts) => StoredAttribute::Strings(texts),
            Attribute::Graph(Ok(graph)) => StoredAttribute::Graph(self.graph(*graph)?),
            Attribute::Graph(Err(why)) => StoredAttribute::Unread(why),
            Attribute::Other(_) => StoredAttribute::Other,
        })
    }

    fn graph(&mut self, graph: Subgraph) -> Result<u32, String> {
        let Subgraph { inputs, outputs, nodes, initializers, captured, .. } = graph;
        let (nodes, initializers) = (self.nodes(&nodes)?, self.tensors(&initializers)?);
        self.graphs.push(StoredGraph { inputs, outputs, nodes, initializers, captured });
        Ok(self.graphs.len() as u32 - 1)
    }
}

/// Reads nodes from a description.
struct Reading<'c> {
    constants: &'c [Constant],
    /// Graphs that have been read and belong to no node yet.
    graphs: Vec<Option<Subgraph>>,
}

impl Reading<'_> {
    fn tensor(&self, stored: StoredTensor) -> Result<Constant, String> {
        let constant = self.constants.get(stored.number as usize);
        let constant = constant.ok_or_else(|| format!("there is no constant {}", stored.number))?;
        constant.reshaped(stored.shape).map_err(|error| error.to_string())
    }

    fn tensors(&self, stored: Vec<(ValueIndex, StoredTensor)>) -> Result<BTreeMap<ValueIndex, Constant>, String> {
        stored.into_iter().map(|(value, tensor)| Ok((value, self.tensor(tensor)?))).collect()
    }

    fn loaded(&self, stored: StoredTensor) -> Result<Tensor, String> {
        self.tensor(stored)?.load().map_err(|error| error.to_string())
    }

    fn nodes(&mut self, nodes: Vec<StoredNode>) -> Result<Vec<Node>, String> {
        nodes.into_iter().map(|node| self.node(node)).collect()
    }

    fn node(&mut self, node: StoredNode) -> Result<Node, String> {
        let StoredNode { name, op_type, domain, version, inputs, outputs, attributes } = node;
        let mut read = BTreeMap::new();
        for (name, attribute) in attributes {
            read.insert(name, self.attribute(attribute)?);
        }
        Ok(Node { name, op_type, domain, version, inputs, outputs, attributes: read })
    }

    fn attribute(&mut self, attribute: StoredAttribute) -> Result<Attribute, String> {
        Ok(match attribute {
            StoredAttribute::Float(bits) => Attribute::Float(f32::from_bits(bits)),
            StoredAttribute::Int(value) => Attribute::Int(value),
            StoredAttribute::String(text) => Attribute::String(text),
            StoredAttribute::Tensor(tensor) => Attribute::Tensor(self.loaded(tensor)?),
            StoredAttribute::Floats(bits) => Attribute::Floats(bits.into_iter().map(f32::from_bits).collect()),
            StoredAttribute::Ints(values) => Attribute::Ints(values),
            StoredAttribute::Strings(texts) => Attribute::Strings(texts),
            StoredAttribute::Graph(number) => {
                let graph = self.graphs.get_mut(number as usize).and_then(Option::take);
                let graph = graph.ok_or_else(|| format!("graph {number} does not exist, or is used twice"))?;
                Attribute::Graph(Ok(Box::new(graph)))
            }
            StoredAttribute::Unread(why) => Attribute::Graph(Err(why)),
            StoredAttribute::Other => Attribute::Other("of another kind"),
        })
    }

    fn graph(&mut self, graph: StoredGraph) -> Result<Subgraph, String> {
        let StoredGraph { inputs, outputs, nodes, initializers, captured } = graph;
        let (nodes, initializers) = (self.nodes(nodes)?, self.tensors(initializers)?);
        let height = Subgraph::height_over(&nodes);
        // Lowering recurses, so that the depth is limited.
        if height > DEEPEST_GRAPHS {
            return Err(format!("graphs are nested more than {DEEPEST_GRAPHS} deep"));
        }
        Ok(Subgraph { inputs, outputs, nodes, initializers, captured, height })
    }
}
