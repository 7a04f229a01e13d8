//! A program under rewriting: nodes at fixed positions, and the readers of each value.

use anabranch_ir::constant::Constant;
use anabranch_ir::program::{Node, Origin, Output, Program, Value, ValueId};
use anabranch_kernels::op::{Domain, Map, NodeSpec, Op};
use anabranch_kernels::{DType, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// A program whose nodes can be replaced and removed.
///
/// Positions stay, and are in topological order: a node that a rewrite puts at a position reads only inputs, constants
/// and values made at earlier positions.
pub(super) struct Graph {
    values: Vec<Value>,
    nodes: Vec<Option<Node>>,
    inputs: Vec<ValueId>,
    outputs: Vec<Output>,
    fixed: BTreeMap<String, Tensor>,
    /// Positions of the nodes that read each value.
    readers: Vec<BTreeSet<usize>>,
    /// Whether the caller receives each value.
    received: Vec<bool>,
}

impl Graph {
    pub(super) fn new(program: Program) -> Self {
        let mut readers = vec![BTreeSet::new(); program.values.len()];
        for (position, node) in program.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|input| {
                readers[input.index()].insert(position);
            });
        }
        let mut received = vec![false; program.values.len()];
        program.outputs.iter().for_each(|output| received[output.value.index()] = true);
        let Program { values, nodes, inputs, outputs, fixed } = program;
        Self { values, nodes: nodes.into_iter().map(Some).collect(), inputs, outputs, fixed, readers, received }
    }

    /// Returns the present program. The caller must compact it, which removes values without a maker and updates the
    /// origins of the others.
    pub(super) fn into_program(self) -> Program {
        let nodes = self.nodes.into_iter().flatten().collect();
        Program { values: self.values, nodes, inputs: self.inputs, outputs: self.outputs, fixed: self.fixed }
    }

    /// Replaces the node at each position by the result of `rewritten`, in order.
    pub(super) fn rewrite(&mut self, rewritten: impl Fn(&Self, usize) -> Option<Node>) {
        for position in 0..self.end() {
            if let Some(node) = rewritten(self, position) {
                self.replace(position, node);
            }
        }
    }

    /// Returns one past the last position.
    pub(super) fn end(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn node(&self, position: usize) -> Option<&Node> {
        self.nodes[position].as_ref()
    }

    /// Returns the position of the node that makes the value.
    pub(super) fn maker(&self, value: ValueId) -> Option<usize> {
        match self.values[value.index()].origin {
            Origin::Node(id) => Some(id.index()).filter(|position| self.nodes[*position].is_some()),
            Origin::Input | Origin::Constant(_) => None,
        }
    }

    /// Returns the position and node that make the value, if only the node at `reader` reads it.
    pub(super) fn sole_maker(&self, value: ValueId, reader: usize) -> Option<(usize, &Node)> {
        let alone = !self.received[value.index()] && self.readers[value.index()].iter().eq(&[reader]);
        let position = self.maker(value).filter(|_| alone)?;
        let node = self.nodes[position].as_ref()?;
        (node.outputs.len() == 1).then_some((position, node))
    }

    /// Returns the positions of the nodes that read the value, ascending.
    pub(super) fn readers(&self, value: ValueId) -> Vec<usize> {
        self.readers[value.index()].iter().copied().collect()
    }

    pub(super) fn is_received(&self, value: ValueId) -> bool {
        self.received[value.index()]
    }

    fn is_read(&self, value: ValueId) -> bool {
        self.received[value.index()] || !self.readers[value.index()].is_empty()
    }

    pub(super) fn constant(&self, value: ValueId) -> Option<&Constant> {
        match &self.values[value.index()].origin {
            Origin::Constant(constant) => Some(constant),
            Origin::Input | Origin::Node(_) => None,
        }
    }

    /// Returns input `index` of `node`, under the shape in which the node reads it, if it is constant.
    pub(super) fn constant_input(&self, node: &Node, index: usize) -> Option<Constant> {
        let constant = self.constant(*node.inputs.get(index)?)?;
        constant.reshaped(node.spec.inputs[index].shape.clone()).ok()
    }

    pub(super) fn add_constant(&mut self, name: String, constant: impl Into<Constant>) -> ValueId {
        let (id, constant) = (ValueId(self.values.len() as u32), constant.into());
        self.values.push(Value { name, spec: constant.spec().clone(), origin: Origin::Constant(constant) });
        self.readers.push(BTreeSet::new());
        self.received.push(false);
        id
    }

    /// Replaces the node at `position` by `node`, which makes its outputs under its spec's shapes. Nodes without
    /// readers are then removed.
    pub(super) fn replace(&mut self, position: usize, node: Node) {
        let old = self.take(position);
        for input in &node.inputs {
            self.readers[input.index()].insert(position);
        }
        for (output, spec) in node.outputs.iter().zip(&node.spec.outputs) {
            self.values[output.index()].spec = spec.clone();
            self.values[output.index()].origin = Origin::Node(anabranch_ir::program::NodeId(position as u32));
        }
        self.nodes[position] = Some(node);
        self.sweep(old.into_iter().flat_map(|node| node.inputs).collect());
    }

    /// Makes all readers of `old` read `new` instead, under the same shapes, and removes the node at `position`, which
    /// made `old`.
    pub(super) fn bypass(&mut self, position: usize, old: ValueId, new: ValueId) {
        for reader in std::mem::take(&mut self.readers[old.index()]) {
            if let Some(node) = &mut self.nodes[reader] {
                node.inputs.iter_mut().filter(|input| **input == old).for_each(|input| *input = new);
                self.readers[new.index()].insert(reader);
            }
        }
        for output in self.outputs.iter_mut().filter(|output| output.value == old) {
            output.value = new;
            self.received[new.index()] = true;
        }
        self.received[old.index()] = false;
        if let Some(node) = self.take(position) {
            self.sweep(node.inputs);
        }
    }

    /// Removes the makers of the given values if nothing reads these any more, and then nodes before them likewise.
    fn sweep(&mut self, mut values: Vec<ValueId>) {
        while let Some(value) = values.pop() {
            let Some(position) = self.maker(value) else { continue };
            let unread = |node: &Node| node.outputs.iter().all(|output| !self.is_read(*output));
            if self.nodes[position].as_ref().is_some_and(unread)
                && let Some(node) = self.take(position)
            {
                values.extend(node.inputs);
            }
        }
    }

    /// Removes the node at a position from the graph and from its inputs' readers.
    fn take(&mut self, position: usize) -> Option<Node> {
        let node = self.nodes[position].take()?;
        for input in &node.inputs {
            self.readers[input.index()].remove(&position);
        }
        Some(node)
    }
}

/// Returns the expression node's parameters, if the node is one.
pub(super) fn as_map(spec: &NodeSpec) -> Option<&Map> {
    match &spec.op {
        Op::Map(map) => Some(map),
        _ => None,
    }
}

/// Whether a GPU could compute the expression node, which must not use 64-bit types.
pub(super) fn is_portable(spec: &NodeSpec) -> bool {
    let wide = |dtype: DType| matches!(dtype, DType::F64 | DType::I64 | DType::U64);
    let tensors = spec.inputs.iter().chain(&spec.outputs);
    as_map(spec).is_none_or(|map| map.domain == Domain::F32) && tensors.into_iter().all(|tensor| !wide(tensor.dtype))
}
