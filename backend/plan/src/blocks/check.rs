//! An independent checker of contracted programs: walks both programs side by side and follows every value.
//!
//! Nothing here is shared with the code that forms and contracts blocks. It needs no search for paths that leave a
//! block and come back: the contracted nodes stand in an order in which each node reads only earlier results.
//!
//! The loop over the chunks of a block on one device cannot deadlock: the thread that made a chunk passes it on. The
//! checker still shows that the block could stream, as its rows promise. The members form a canonical task graph whose
//! volumes are chunks, and its simulation ends with proven channels (De Matteis 2023, sections 4 to 6).

use super::Contraction;
use anabranch_ir::program::{ModelOperator, Node, NodeId, Origin, Program, ValueId};
use anabranch_kernels::op::{Block, Member, Op, Operand};
use anabranch_placement_core::streaming as canonical;
use anabranch_placement_core::streaming::{Blocks, BufferSizes, CanonicalGraphBuilder, StreamingSchedule};
use std::collections::{BTreeMap, BTreeSet};

/// Most chunks of a simulated block: its channels hold a few chunks, so that more chunks only repeat the same states.
const SIMULATED_CHUNKS: u64 = 64;

/// Most events of a simulation.
const SIMULATED_STEPS: u64 = 1 << 24;

/// A fault of a contracted program, with the names of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(String);

/// Returns all faults of `contraction` for `program`. O((nodes + edges) · log), and the simulations.
pub fn check(program: &Program, contraction: &Contraction) -> Vec<Fault> {
    let mut judge = Judge { program, contraction, known: BTreeMap::new(), found: Vec::new() };
    judge.counts();
    if judge.found.is_empty() {
        judge.callers_inputs();
        contraction.program.node_ids().for_each(|id| judge.node(id));
        judge.callers_outputs();
    }
    judge.found
}

struct Judge<'a> {
    program: &'a Program,
    contraction: &'a Contraction,
    /// Value of the program for each value of the contracted program that has been made.
    known: BTreeMap<ValueId, ValueId>,
    found: Vec<Fault>,
}

impl Judge<'_> {
    fn fault(&mut self, problem: String) {
        self.found.push(Fault(problem));
    }

    fn not_computed(&mut self, new: &Node) {
        self.fault(format!("node {:?} computes something else than its original nodes", new.name));
    }

    fn other_operand(&mut self, new: &Node, at: usize) {
        self.fault(format!("node {:?} reads something else at its input {at}, or reads it too early", new.name));
    }

    fn other_output(&mut self, new: &Node, at: usize) {
        self.fault(format!("node {:?} produces something else at its output {at}", new.name));
    }

    fn counts(&mut self) {
        let mut times = vec![0; self.program.nodes.len()];
        for node in self.contraction.members.iter().flatten() {
            if let Some(times) = times.get_mut(node.index()) {
                *times += 1;
            }
        }
        let wrong = times.iter().enumerate().filter(|(_, times)| **times != 1);
        let count = |(at, times): (usize, &usize)| {
            Fault(format!("node {:?} is computed {times} times", self.program.nodes[at].name))
        };
        self.found.extend(wrong.map(count));
        let (nodes, lists) = (&self.contraction.program.nodes, &self.contraction.members);
        if nodes.len() != lists.len() || lists.iter().any(Vec::is_empty) {
            self.fault(format!("its {} nodes represent {} lists of nodes, or empty lists", nodes.len(), lists.len()));
        }
    }

    fn callers_inputs(&mut self) {
        let (old, new) = (&self.program.inputs, &self.contraction.program.inputs);
        for at in 0..old.len().max(new.len()) {
            match (old.get(at), new.get(at)) {
                (Some(old), Some(new)) if self.same(*old, *new) => _ = self.known.insert(*new, *old),
                _ => self.fault(format!("the program's input {at} is another value")),
            }
        }
    }

    fn callers_outputs(&mut self) {
        let (old, new) = (&self.program.outputs, &self.contraction.program.outputs);
        for at in 0..old.len().max(new.len()) {
            let right = matches!((old.get(at), new.get(at)), (Some(old), Some(new))
                if old.name == new.name && old.spec == new.spec && self.is(new.value, old.value));
            if !right {
                self.fault(format!("the program's output {at} is another value"));
            }
        }
    }

    /// Whether a value of the contracted program is this value of the program, and has been made.
    fn is(&self, new: ValueId, old: ValueId) -> bool {
        match (self.program.constant(old), self.contraction.program.constant(new)) {
            (Some(a), Some(b)) => a.is_same(b),
            (None, None) => self.known.get(&new) == Some(&old),
            _ => false,
        }
    }

    fn same(&self, old: ValueId, new: ValueId) -> bool {
        let (old, new) = (self.program.value(old), self.contraction.program.value(new));
        old.name == new.name && old.spec == new.spec
    }

    fn node(&mut self, id: NodeId) {
        let contraction = self.contraction;
        let (new, members) = (contraction.program.node(id), &contraction.members[id.index()]);
        let old: Vec<&Node> = members.iter().map(|member| self.program.node(*member)).collect();
        let operators: Vec<&ModelOperator> = old.iter().flat_map(|node| &node.operators).collect();
        let made: Vec<ValueId> = match (&new.spec.op, &old[..]) {
            (Op::Block(block), _) if new.operators.iter().eq(operators) => {
                self.block(new, block, &old);
                let of = |member: &usize| old.get(*member).and_then(|node| node.outputs.first().copied());
                block.outputs.iter().filter_map(of).collect()
            }
            (_, [node]) if node.spec == new.spec && node.name == new.name && node.operators == new.operators => {
                self.operands(new, &node.inputs);
                node.outputs.clone()
            }
            _ => return self.not_computed(new),
        };
        for at in 0..made.len().max(new.outputs.len()) {
            let pair = made.get(at).zip(new.outputs.get(at)).filter(|(old, new)| self.same(**old, **new));
            let own =
                |new: &ValueId| matches!(contraction.program.value(*new).origin, Origin::Node(node) if node == id);
            match pair {
                Some((old, new)) if own(new) => _ = self.known.insert(*new, *old),
                _ => self.other_output(new, at),
            }
        }
    }

    fn operands(&mut self, new: &Node, old: &[ValueId]) {
        for at in 0..old.len().max(new.inputs.len()) {
            let right = old.get(at).zip(new.inputs.get(at)).is_some_and(|(old, new)| self.is(*new, *old));
            if !right {
                self.other_operand(new, at);
            }
        }
    }

    fn block(&mut self, new: &Node, block: &Block, old: &[&Node]) {
        let shape = block.members.len() == old.len() && old.len() > 1 && block.outputs.is_sorted_by(|a, b| a < b);
        let same = block.members.iter().zip(old).all(|(member, node)| member.spec == node.spec);
        let specs = new.spec.inputs.len() == new.inputs.len() && new.spec.outputs.len() == block.outputs.len();
        if !shape || !same || !specs || block.rows < 2 || block.chunk_rows == 0 {
            return self.not_computed(new);
        }
        let mut made: BTreeMap<ValueId, usize> = BTreeMap::new();
        for (at, (member, node)) in block.members.iter().zip(old).enumerate() {
            for (input, value) in node.inputs.iter().enumerate() {
                let right = match member.inputs.get(input) {
                    Some(Operand::Member(from)) => made.get(value) == Some(from),
                    Some(Operand::Input(from)) => {
                        let spec = new.spec.inputs.get(*from) == node.spec.inputs.get(input);
                        spec && new.inputs.get(*from).is_some_and(|new| self.is(*new, *value))
                    }
                    None => false,
                };
                if !right {
                    self.other_operand(new, input);
                }
            }
            if !self.streams(block, at) {
                self.fault(format!("block {:?} does not stream at its member {at}", new.name));
            }
            made.extend(node.outputs.first().map(|value| (*value, at)));
        }
        for (at, member) in block.outputs.iter().enumerate() {
            if old.get(*member).is_none_or(|node| node.spec.outputs.first() != new.spec.outputs.get(at)) {
                self.other_output(new, at);
            }
        }
        if let Err(reason) = simulate(block) {
            self.fault(format!("block {:?} deadlocks: {reason}", new.name));
        }
    }

    /// Whether a member divides into the block's rows and reads only rows of other members, or ends the block.
    fn streams(&self, block: &Block, at: usize) -> bool {
        let member = &block.members[at];
        let by_rows = |input: usize| matches!(member.inputs[input], Operand::Input(_));
        match member.spec.row_plan() {
            Some(plan) => {
                let read =
                    (0..member.inputs.len()).all(|input| by_rows(input) || plan.windowed.get(input) == Some(&true));
                plan.rows % block.rows == 0 && read && member.spec.outputs.len() == 1
            }
            None => at + 1 == block.members.len() && reduces_rows(member, block.rows),
        }
    }
}

/// Whether a member reduces all rows to one result: it reduces an input, which the rows divide, over its leading axes.
fn reduces_rows(member: &Member, rows: usize) -> bool {
    let (Op::Reduce(op), [input]) = (&member.spec.op, &member.spec.inputs[..]) else { return false };
    let dims = input.shape.dims();
    let first = dims.iter().position(|size| *size > 1);
    first.is_some_and(|axis| op.axes.contains(&axis)) && input.shape.elements().is_multiple_of(rows)
}

/// Simulates a block's members, which pass chunks on through channels of bounded size.
fn simulate(block: &Block) -> Result<(), String> {
    let chunks = (block.rows.div_ceil(block.chunk_rows) as u64).clamp(1, SIMULATED_CHUNKS);
    let mut builder = CanonicalGraphBuilder::new();
    let mut tasks = Vec::new();
    for (at, member) in block.members.iter().enumerate() {
        let written = if member.spec.row_plan().is_some() { chunks } else { 1 };
        tasks.push(builder.node(canonical::Node::task(format!("member {at}"), chunks, written)));
        let from: BTreeSet<usize> = member
            .inputs
            .iter()
            .filter_map(|operand| match operand {
                Operand::Member(from) => Some(*from),
                Operand::Input(_) => None,
            })
            .collect();
        for from in from.into_iter().filter(|from| *from < at) {
            builder.edge(tasks[from], tasks[at]);
        }
    }
    let graph = builder.build().map_err(|error| error.to_string())?;
    let together = Blocks::new(&graph, vec![tasks], block.members.len()).map_err(|error| error.to_string())?;
    let schedule = StreamingSchedule::new(&graph, together);
    BufferSizes::proven(&graph, &schedule, SIMULATED_STEPS).map(|_| ()).map_err(|error| error.to_string())
}
