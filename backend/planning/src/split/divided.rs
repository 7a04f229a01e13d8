//! The program that computes the rows of a batch in parts: slices of the inputs, the nodes once for each part, and
//! concatenations of the outputs.

use super::bits::of_rows;
use super::layout::Layout;
use super::rows::Rows;
use anabranch_ir::names::Names;
use anabranch_ir::program::{ModelOperator, Node, NodeId, Origin, Program, Value, ValueId};
use anabranch_kernels::op::{Concat, NodeSpec, Op, Pad, PadMode, Slice};
use anabranch_kernels::{Shape, TensorSpec};
use std::collections::{BTreeMap, BTreeSet};

/// Consecutive rows of a batch, and the name of their device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part<'n> {
    pub(super) name: &'n str,
    pub(super) rows: usize,
    /// Rows that each node of the program computes for the part.
    pub(super) paddings: Vec<Padding>,
}

/// Rows that a node computes for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Padding {
    /// The rows of the part.
    None,
    /// So many rows: those of the part, then zeros.
    To(usize),
    /// As many rows as the batch has, with zeros in place of other parts' rows.
    Batch,
}

/// Reason that a node of the divided program exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It computes the rows of a part.
    Part(usize),
    /// It copies the rows of a part out of an input, or out of a value that is the same for all parts.
    Slice(usize),
    /// It is the same for all rows.
    Shared,
    /// It joins the rows of an output.
    Joined,
}

/// A divided program.
pub(super) struct Divided {
    pub(super) program: Program,
    /// Role of each node.
    pub(super) roles: Vec<Role>,
    /// Number of the node that each node was in the whole program; `None` for nodes that the division adds.
    pub(super) whole: Vec<Option<usize>>,
}

/// Divides a program into parts whose rows are the batch, in order. O(parts × (nodes + edges)).
///
/// Each value that is the same for all rows exists once: parts share constants.
pub(super) fn divided(program: &Program, rows: &Rows, parts: &[Part<'_>]) -> Option<Divided> {
    let mut names = Names::default();
    program.nodes.iter().for_each(|node| drop(names.unique(node.name.clone())));
    let made = Program {
        values: program.values.iter().map(|value| Value { origin: value.origin.clone(), ..value.clone() }).collect(),
        inputs: program.inputs.clone(),
        fixed: program.fixed.clone(),
        ..Program::default()
    };
    let mut division = Division {
        rows,
        parts,
        names,
        kept: vec![BTreeMap::new(); parts.len()],
        padded: BTreeMap::new(),
        made: Divided { program: made, roles: Vec::new(), whole: Vec::new() },
    };
    for (at, (node, reads)) in program.nodes.iter().zip(&rows.nodes).enumerate() {
        match reads {
            None => division.push(node.clone(), Role::Shared, Some(at)),
            Some(reads) => (0..parts.len()).try_for_each(|part| division.part(at, node, reads, part))?,
        }
    }
    division.join(program)?;
    Some(compacted(division.made))
}

struct Division<'a> {
    rows: &'a Rows,
    parts: &'a [Part<'a>],
    names: Names,
    /// For each part, its rows of a value, by value and position of the rows.
    kept: Vec<BTreeMap<(ValueId, Layout), ValueId>>,
    /// Rows with zeros around them, by the rows and the number of all.
    padded: BTreeMap<(ValueId, usize), ValueId>,
    made: Divided,
}

/// Change of the number of rows by a node that copies rows.
enum Copied {
    /// The rows from this one on are kept.
    Cut(usize),
    /// So many rows of zeros are before them; further ones may be after them.
    Pad(usize),
}

impl Division<'_> {
    /// Adds a node, which was node number `whole` of the whole program, and names it as the maker of its outputs.
    fn push(&mut self, node: Node, role: Role, whole: Option<usize>) {
        let id = NodeId(self.made.program.nodes.len() as u32);
        node.outputs.iter().for_each(|value| self.made.program.values[value.index()].origin = Origin::Node(id));
        self.made.program.nodes.push(node);
        self.made.roles.push(role);
        self.made.whole.push(whole);
    }

    /// Adds the node of a part, which is the program's node number `at`.
    fn part(&mut self, at: usize, node: &Node, reads: &[Option<Layout>], part: usize) -> Option<()> {
        let Part { name, rows, paddings } = &self.parts[part];
        let (lead, computed) = match paddings[at] {
            Padding::None => (0, *rows),
            Padding::To(count) => (0, count),
            Padding::Batch => (self.first(part), self.rows.batch),
        };
        let spec = of_rows(node, reads, self.rows, computed)?;
        let is_padded = computed != *rows;
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (value, layout) in node.inputs.iter().zip(reads) {
            inputs.push(match layout {
                None => *value,
                // The whole value exists, and may be a constant in the layout of a kernel.
                Some(_) if paddings[at] == Padding::Batch && self.is_whole(*value) => *value,
                Some(layout) => {
                    let own = self.of_part(*value, *layout, part)?;
                    if is_padded { self.padded(own, *layout, part, [lead, computed])? } else { own }
                }
            });
        }
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for (value, made) in node.outputs.iter().zip(&spec.outputs) {
            let layout = self.rows.values[value.index()]?;
            let own = format!("{}@{name}", self.made.program.value(*value).name);
            let own = self.made.program.add_value(own, made.clone(), Origin::Input);
            if !is_padded {
                self.kept[part].insert((*value, layout), own);
            }
            outputs.push(own);
        }
        let unique = self.names.unique(format!("{}@{name}", node.name));
        let cut: Vec<_> = node.outputs.iter().copied().zip(outputs.clone()).collect();
        let operators = node.operators.clone();
        self.push(Node { name: unique, operators, spec, inputs, outputs }, Role::Part(part), Some(at));
        for (value, own) in cut.into_iter().filter(|_| is_padded) {
            let layout = self.rows.values[value.index()]?;
            let role = Role::Part(part);
            let rows = self.copied(own, layout, [computed, self.parts[part].rows], Copied::Cut(lead), role)?;
            self.kept[part].insert((value, layout), rows);
        }
        Some(())
    }

    /// Whether no part makes rows of a value.
    fn is_whole(&self, value: ValueId) -> bool {
        let is_input = self.made.program.inputs.contains(&value);
        is_input || self.rows.values.get(value.index()).is_some_and(Option::is_none)
    }

    /// Returns the number of the first row of a part.
    fn first(&self, part: usize) -> usize {
        self.parts[..part].iter().map(|part| part.rows).sum()
    }

    /// Returns a part's rows of a value with zeros around them: `computed` rows, of which `lead` are before its own.
    fn padded(&mut self, own: ValueId, layout: Layout, part: usize, [lead, computed]: [usize; 2]) -> Option<ValueId> {
        if let Some(padded) = self.padded.get(&(own, computed)) {
            return Some(*padded);
        }
        let sizes = [self.parts[part].rows, computed];
        let padded = self.copied(own, layout, sizes, Copied::Pad(lead), Role::Part(part))?;
        self.padded.insert((own, computed), padded);
        Some(padded)
    }

    /// Adds a node that copies rows of a value of `from` rows into one of `to` rows.
    fn copied(
        &mut self,
        value: ValueId,
        layout: Layout,
        [from, to]: [usize; 2],
        how: Copied,
        role: Role,
    ) -> Option<ValueId> {
        let (Role::Part(part) | Role::Slice(part)) = role else { return None };
        let Value { name: of, spec: whole, .. } = self.made.program.value(value);
        let spec = |rows: usize| Some(TensorSpec::new(whole.dtype, Shape::new(layout.dims(rows)).ok()?));
        let (read, made) = (spec(from)?, spec(to)?);
        let (kind, op) = match how {
            Copied::Cut(first) => ("Slice", Op::Slice(Slice { starts: vec![0, first, 0], steps: vec![1; 3] })),
            Copied::Pad(lead) => ("Pad", Op::Pad(Pad { mode: PadMode::ZERO, before: vec![0, lead as isize, 0] })),
        };
        let name = format!("{}@{}", of.split('@').next().unwrap_or(of), self.parts[part].name);
        let own = self.made.program.add_value(name.clone(), made.clone(), Origin::Input);
        let name = self.names.unique(format!("{name}/{kind}"));
        let operators = vec![ModelOperator::new(name.clone(), kind)];
        let spec = NodeSpec { op, inputs: vec![read], outputs: vec![made] };
        self.push(Node { name, operators, spec, inputs: vec![value], outputs: vec![own] }, role, None);
        Some(own)
    }

    /// Returns a part's rows of a value; they are copied if no node of the part makes them.
    fn of_part(&mut self, value: ValueId, layout: Layout, part: usize) -> Option<ValueId> {
        if let Some(own) = self.kept[part].get(&(value, layout)) {
            return Some(*own);
        }
        let sizes = [self.rows.batch, self.parts[part].rows];
        let own = self.copied(value, layout, sizes, Copied::Cut(self.first(part)), Role::Slice(part))?;
        self.kept[part].insert((value, layout), own);
        Some(own)
    }

    /// Joins the rows of the outputs.
    fn join(&mut self, program: &Program) -> Option<()> {
        for output in &program.outputs {
            let value = output.value;
            let is_made = matches!(program.value(value).origin, Origin::Node(_));
            let unjoined = self.made.program.outputs.iter().all(|known| known.value != value);
            if let Some(layout) = self.rows.values[value.index()].filter(|_| is_made && unjoined) {
                self.joined(value, layout)?;
            }
            self.made.program.outputs.push(output.clone());
        }
        Some(())
    }

    fn joined(&mut self, value: ValueId, layout: Layout) -> Option<()> {
        let Value { name, spec, .. } = self.made.program.value(value).clone();
        let dims = |rows: usize| Some(TensorSpec::new(spec.dtype, Shape::new(layout.dims(rows)).ok()?));
        let inputs = (0..self.parts.len()).map(|part| self.of_part(value, layout, part)).collect::<Option<Vec<_>>>()?;
        let reads = self.parts.iter().map(|part| dims(part.rows)).collect::<Option<_>>()?;
        let made = dims(self.rows.batch)?;
        self.made.program.values[value.index()].spec = made.clone();
        let name = self.names.unique(format!("{name}@all"));
        let operators = vec![ModelOperator::new(name.clone(), "Concat")];
        let spec = NodeSpec { op: Op::Concat(Concat { axis: 1 }), inputs: reads, outputs: vec![made] };
        self.push(Node { name, operators, spec, inputs, outputs: vec![value] }, Role::Joined, None);
        Some(())
    }
}

/// Removes the values that no node, input or output of the program names.
fn compacted(divided: Divided) -> Divided {
    let Divided { mut program, roles, whole } = divided;
    let named = program.nodes.iter().flat_map(|node| node.inputs.iter().chain(&node.outputs));
    let outputs = program.outputs.iter().map(|output| &output.value);
    let used: BTreeSet<ValueId> = named.chain(&program.inputs).chain(outputs).copied().collect();
    let mut number = vec![ValueId(0); program.values.len()];
    used.iter().enumerate().for_each(|(new, old)| number[old.index()] = ValueId(new as u32));
    let renumber = |value: &mut ValueId| *value = number[value.index()];
    program.nodes.iter_mut().for_each(|node| node.inputs.iter_mut().chain(&mut node.outputs).for_each(renumber));
    program.inputs.iter_mut().for_each(renumber);
    program.outputs.iter_mut().for_each(|output| renumber(&mut output.value));
    let mut at = 0..;
    program.values.retain(|_| at.next().is_some_and(|at: u32| used.contains(&ValueId(at))));
    Divided { program, roles, whole }
}
