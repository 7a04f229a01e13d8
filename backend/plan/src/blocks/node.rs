//! Combines nodes into a block: the node that computes them all, or the reason that there is none.

use super::BlockError;
use crate::common_divisor;
use anabranch_ir::program::{Node, NodeId, Origin, Program, ValueId};
use anabranch_kernels::TensorSpec;
use anabranch_kernels::op::{Block, Member, NodeSpec, Op, Operand, RowPlan};
use std::collections::BTreeMap;

/// Nodes that are to become one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMembers {
    /// Nodes in the order in which a chunk goes through them.
    pub members: Vec<NodeId>,
    /// Rows that go through at a time.
    pub chunk_rows: usize,
}

/// Readers of all values, collected once per program.
#[derive(Clone, Debug)]
pub struct Readers {
    nodes: Vec<Vec<NodeId>>,
    callers: Vec<bool>,
}

impl Readers {
    /// Collects the readers of all values. O(nodes + edges).
    pub fn of(program: &Program) -> Self {
        let mut callers = vec![false; program.values.len()];
        program.outputs.iter().for_each(|output| callers[output.value.index()] = true);
        Self { nodes: program.consumers(), callers }
    }

    /// Nodes that read a value, ascending.
    pub fn nodes(&self, value: ValueId) -> &[NodeId] {
        &self.nodes[value.index()]
    }

    /// Whether a node outside `members` (ascending) or the caller reads the value, or the value has no reader.
    fn outside(&self, value: ValueId, members: &[NodeId]) -> bool {
        let nodes = self.nodes(value);
        self.callers[value.index()] || nodes.is_empty() || nodes.iter().any(|node| members.binary_search(node).is_err())
    }
}

/// A block as a node: its computation, and its values of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockNode {
    /// Members in the block's order.
    pub members: Vec<NodeId>,
    /// Operation with its types and shapes.
    pub spec: NodeSpec,
    /// Input values.
    pub inputs: Vec<ValueId>,
    /// Output values with readers outside the block.
    pub outputs: Vec<ValueId>,
}

impl BlockNode {
    /// Returns the block's operation.
    pub fn block(&self) -> Option<&Block> {
        match &self.spec.op {
            Op::Block(block) => Some(block),
            _ => None,
        }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.block().map_or(1, |block| block.rows)
    }

    /// Returns the rows that go through at a time.
    pub fn chunk_rows(&self) -> usize {
        self.block().map_or(1, |block| block.chunk_rows)
    }

    /// Sets the rows that go through at a time.
    pub fn set_chunk_rows(&mut self, rows: usize) {
        if let Op::Block(block) = &mut self.spec.op {
            block.chunk_rows = rows;
        }
    }

    /// Returns the bytes of values that pass only between members.
    pub fn kept_bytes(&self, program: &Program) -> u64 {
        let made = self.members.iter().flat_map(|member| &program.node(*member).outputs);
        made.filter(|value| !self.outputs.contains(value)).map(|value| program.value(*value).spec.bytes() as u64).sum()
    }

    /// Returns the bytes that one row touches: its part of all windowed inputs and of all members' outputs by rows.
    pub fn row_bytes(&self) -> u64 {
        let Some(block) = self.block() else { return 0 };
        let plan = block_windows(block, self.spec.inputs.len());
        let read = self.spec.inputs.iter().zip(plan).filter(|(_, windowed)| *windowed).map(|(spec, _)| spec.bytes());
        let divides = |member: &&Member| member.spec.row_plan().is_some();
        let made = block.members.iter().filter(divides).map(|member| member.spec.outputs[0].bytes());
        (read.chain(made).sum::<usize>() as u64).div_ceil(block.rows.max(1) as u64)
    }
}

/// For each input, whether it is read row by row. All readers of an input of a [`BlockNode`] read it in the same
/// manner.
fn block_windows(block: &Block, inputs: usize) -> Vec<bool> {
    let mut windowed = vec![false; inputs];
    for member in &block.members {
        let plan = member.spec.row_plan();
        for (at, operand) in member.inputs.iter().enumerate() {
            if let Operand::Input(input) = operand {
                windowed[*input] = plan.as_ref().is_none_or(|plan| plan.windowed[at]);
            }
        }
    }
    windowed
}

/// Returns the node that computes `members` in chunks of `chunk_rows` rows, if they stream into each other.
///
/// All members divide into rows, except a last one that may reduce over them. The members have a common number of rows
/// ≥ 2, and values between them are read row by row.
///
/// Paths that leave the members and come back are not checked here: [`contract`](super::contract) finds them.
/// O(members + edges · log).
///
/// # Errors
/// Returns the reason that prevents a block.
pub fn block_node(
    program: &Program,
    readers: &Readers,
    members: &[NodeId],
    chunk_rows: usize,
) -> Result<BlockNode, BlockError> {
    let mut sorted = members.to_vec();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(BlockError::twice(&program.node(pair[0]).name));
    }
    if sorted.len() < 2 {
        return Err(BlockError::few());
    }
    if chunk_rows == 0 {
        return Err(BlockError::new("its chunks have no rows; write a chunk_rows of at least 1, or leave it out"));
    }
    let (ordered, plans) = ordered(program, &sorted)?;
    let rows = common_rows(program, &ordered, &plans)?;
    let mut wiring = Wiring::new(program, &ordered);
    let wired = ordered.iter().zip(&plans).map(|(node, plan)| wiring.member(*node, plan.as_ref()));
    let wired = wired.collect::<Result<Vec<_>, _>>()?;
    let wanted = |at: &usize| readers.outside(program.node(ordered[*at]).outputs[0], &sorted);
    let outputs: Vec<usize> = (0..ordered.len()).filter(wanted).collect();
    let values: Vec<ValueId> = outputs.iter().map(|at| program.node(ordered[*at]).outputs[0]).collect();
    let specs = outputs.iter().map(|at| program.node(ordered[*at]).spec.outputs[0].clone()).collect();
    let block = Block { members: wired, outputs, rows, chunk_rows: chunk_rows.min(rows) };
    let spec = NodeSpec { op: Op::Block(block), inputs: wiring.specs, outputs: specs };
    Ok(BlockNode { members: ordered, spec, inputs: wiring.inputs, outputs: values })
}

type Ordered = (Vec<NodeId>, Vec<Option<RowPlan>>);

/// Members with the reduction over all rows, if any, at the end, and the row plan of each.
fn ordered(program: &Program, sorted: &[NodeId]) -> Result<Ordered, BlockError> {
    let mut plans: Vec<(NodeId, Option<RowPlan>)> = Vec::new();
    let mut last = None;
    for id in sorted {
        let node = program.node(*id);
        match divides(node) {
            Some(plan) => plans.push((*id, Some(plan))),
            None if node.spec.accumulated_rows().is_some() && last.is_none() => last = Some(*id),
            None => {
                let (name, op) = (&node.name, node.spec.op.name());
                return Err(BlockError::new(format!("node {name:?} ({op}) cannot be divided into rows; leave it out")));
            }
        }
    }
    if let Some(last) = last {
        let made = program.node(last).outputs[0];
        if sorted.iter().any(|node| program.node(*node).inputs.contains(&made)) {
            return Err(BlockError::new(format!(
                "node {:?} reduces over all rows, so no node of the block can follow it; end the block with this node",
                program.node(last).name
            )));
        }
        plans.push((last, None));
    }
    Ok(plans.into_iter().unzip())
}

/// Row plan of a node, if it can be a member: it has one output, and no tensor is empty.
pub(super) fn divides(node: &Node) -> Option<RowPlan> {
    let whole = node.spec.inputs.iter().chain(&node.spec.outputs).all(|spec| spec.shape.elements() > 0);
    let can = whole && node.outputs.len() == 1 && !matches!(node.spec.op, Op::Block(_));
    node.spec.row_plan().filter(|plan| can && plan.rows > 1)
}

/// Greatest number of rows that divides all members' rows, and the elements that the last member reduces.
fn common_rows(program: &Program, members: &[NodeId], plans: &[Option<RowPlan>]) -> Result<usize, BlockError> {
    let mut rows = 0;
    for (id, plan) in members.iter().zip(plans) {
        let node = program.node(*id);
        // A reduction takes rows of any length. Other operations may have no input at all.
        let reduced = || node.spec.inputs[0].shape.elements();
        rows = common_divisor(rows, plan.as_ref().map_or_else(reduced, |plan| plan.rows));
        if rows < 2 {
            let name = &node.name;
            let problem =
                format!("node {name:?} has no number of rows in common with the nodes before it; leave it out");
            return Err(BlockError::new(problem));
        }
    }
    Ok(rows)
}

/// Inputs of the block as they are collected: one for each value, shape and manner of reading.
struct Wiring<'a> {
    program: &'a Program,
    place: BTreeMap<NodeId, usize>,
    inputs: Vec<ValueId>,
    specs: Vec<TensorSpec>,
    windowed: Vec<bool>,
}

impl<'a> Wiring<'a> {
    fn new(program: &'a Program, members: &[NodeId]) -> Self {
        let place = members.iter().enumerate().map(|(at, node)| (*node, at)).collect();
        Self { program, place, inputs: Vec::new(), specs: Vec::new(), windowed: Vec::new() }
    }

    /// Wires a node as a member. `plan` is `None` for a reduction over all rows, which takes its input chunk by chunk.
    fn member(&mut self, id: NodeId, plan: Option<&RowPlan>) -> Result<Member, BlockError> {
        let node = self.program.node(id);
        let mut operands = Vec::with_capacity(node.inputs.len());
        for (at, value) in node.inputs.iter().enumerate() {
            let windowed = plan.is_none_or(|plan| plan.windowed[at]);
            let producer = match self.program.value(*value).origin {
                Origin::Node(producer) => self.place.get(&producer).map(|place| (producer, *place)),
                Origin::Input | Origin::Constant(_) => None,
            };
            operands.push(match producer {
                Some((_, place)) if windowed => Operand::Member(place),
                Some((producer, _)) => {
                    return Err(BlockError::new(format!(
                        "node {:?} reads the whole output of {:?}, not row by row; put them into different blocks",
                        node.name,
                        self.program.node(producer).name
                    )));
                }
                None => Operand::Input(self.input(*value, &node.spec.inputs[at], windowed)),
            });
        }
        Ok(Member { spec: node.spec.clone(), inputs: operands })
    }

    fn input(&mut self, value: ValueId, spec: &TensorSpec, windowed: bool) -> usize {
        let same = |at: &usize| self.inputs[*at] == value && self.specs[*at] == *spec && self.windowed[*at] == windowed;
        (0..self.inputs.len()).find(same).unwrap_or_else(|| {
            self.inputs.push(value);
            self.specs.push(spec.clone());
            self.windowed.push(windowed);
            self.inputs.len() - 1
        })
    }
}
