//! Contracts each group of nodes to one node.

use super::quotient::Quotient;
use super::{BlockError, BlockMembers, BlockNode, Readers, block_node};
use anabranch_ir::names::{Names, fused};
use anabranch_ir::program::{Node, NodeId, Origin, Output, Program, Value, ValueId};

/// A program whose blocks are nodes.
#[derive(Clone, Debug)]
pub struct Contraction {
    /// Contracted program. It lacks the values that pass only between members.
    pub program: Program,
    /// For each of its nodes, the original nodes that it computes, in order: one node, or a block's members.
    pub members: Vec<Vec<NodeId>>,
    /// Blocks: the node of each, and the block in terms of the original program.
    pub blocks: Vec<(NodeId, BlockNode)>,
}

/// Contracts each of `groups` to one node. Nodes keep their order as far as the blocks allow. O((nodes + edges) · log).
///
/// # Errors
/// Returns the position of the group that is not a block, and the reason.
pub fn contract(program: &Program, groups: &[BlockMembers]) -> Result<Contraction, (usize, BlockError)> {
    let readers = Readers::of(program);
    let mut quotient = Quotient::new(program, &readers);
    let mut blocks: Vec<Option<BlockNode>> = vec![None; program.nodes.len()];
    let mut group_of: Vec<Option<usize>> = vec![None; program.nodes.len()];
    for (at, group) in groups.iter().enumerate() {
        let block = block_node(program, &readers, &group.members, group.chunk_rows).map_err(|error| (at, error))?;
        for node in &block.members {
            if group_of[node.index()].replace(at).is_some() {
                return Err((at, BlockError::twice(&program.node(*node).name)));
            }
        }
        let into = block.members[0].index();
        block.members[1..].iter().for_each(|node| quotient.merge(into, node.index()));
        blocks[into] = Some(block);
    }
    let order = quotient.order().map_err(|stuck| {
        let at = group_of[quotient.nodes(stuck)[0].index()].unwrap_or(0);
        let through = quotient.between(stuck, stuck).map_or("", |node| &program.node(node).name);
        let problem = "it waits for itself: a path leaves the block and comes back through";
        (at, BlockError::new(format!("{problem} {through:?}; add that node to the block, or split the block")))
    })?;
    let mut rebuilt = Rebuilt::new(program);
    for group in order {
        match blocks[group].take() {
            Some(block) => rebuilt.block(block),
            None => quotient.nodes(group).iter().for_each(|node| rebuilt.node(*node)),
        }
    }
    Ok(rebuilt.finish())
}

/// Contracted program under construction.
struct Rebuilt<'a> {
    old: &'a Program,
    new: Program,
    members: Vec<Vec<NodeId>>,
    blocks: Vec<(NodeId, BlockNode)>,
    value_of: Vec<Option<ValueId>>,
    names: Names,
}

impl<'a> Rebuilt<'a> {
    /// Adds the values that no node makes, in their order.
    fn new(old: &'a Program) -> Self {
        let mut names = Names::default();
        old.nodes.iter().for_each(|node| drop(names.unique(node.name.clone())));
        let (new, value_of) = (Program::default(), vec![None; old.values.len()]);
        let mut rebuilt = Self { old, new, members: Vec::new(), blocks: Vec::new(), value_of, names };
        for (at, value) in old.values.iter().enumerate() {
            if !matches!(value.origin, Origin::Node(_)) {
                rebuilt.value(ValueId(at as u32), value.clone());
            }
        }
        rebuilt
    }

    fn value(&mut self, old: ValueId, value: Value) -> ValueId {
        let id = ValueId(self.new.values.len() as u32);
        self.new.values.push(value);
        self.value_of[old.index()] = Some(id);
        id
    }

    /// New ids of values; all exist by now, because nodes come after their inputs.
    fn values(&self, old: &[ValueId]) -> Vec<ValueId> {
        old.iter().filter_map(|value| self.value_of[value.index()]).collect()
    }

    fn node(&mut self, id: NodeId) {
        let node = self.old.node(id).clone();
        let (inputs, outputs) = (self.values(&node.inputs), node.outputs.clone());
        self.push(Node { inputs, ..node }, &outputs, vec![id]);
    }

    fn block(&mut self, block: BlockNode) {
        let members = block.members.iter().map(|member| self.old.node(*member));
        let operators: Vec<_> = members.flat_map(|member| member.operators.iter().cloned()).collect();
        let node = Node {
            name: self.names.unique(fused(&operators)),
            operators,
            spec: block.spec.clone(),
            inputs: self.values(&block.inputs),
            outputs: Vec::new(),
        };
        let id = NodeId(self.new.nodes.len() as u32);
        self.push(node, &block.outputs, block.members.clone());
        self.blocks.push((id, block));
    }

    fn push(&mut self, node: Node, outputs: &[ValueId], members: Vec<NodeId>) {
        let id = NodeId(self.new.nodes.len() as u32);
        let made = |value: &ValueId| Value { origin: Origin::Node(id), ..self.old.value(*value).clone() };
        let made: Vec<Value> = outputs.iter().map(made).collect();
        let outputs = outputs.iter().zip(made).map(|(old, value)| self.value(*old, value)).collect();
        self.new.nodes.push(Node { outputs, ..node });
        self.members.push(members);
    }

    fn finish(mut self) -> Contraction {
        self.new.inputs = self.values(&self.old.inputs);
        self.new.fixed = self.old.fixed.clone();
        let output =
            |output: &Output| self.value_of[output.value.index()].map(|value| Output { value, ..output.clone() });
        self.new.outputs = self.old.outputs.iter().filter_map(output).collect();
        Contraction { program: self.new, members: self.members, blocks: self.blocks }
    }
}
