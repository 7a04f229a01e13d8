//! A part of a program as a program of its own. Values that it reads from earlier parts become its inputs. Values that
//! later parts or the caller need become its outputs. Nothing is lowered or fused again, so that its nodes compute the
//! same as in the whole program.

use super::feedback::{Feedback, stages_of};
use anabranch_ir::program::{Node, NodeId, Origin, Output, Program, Value, ValueId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A program cut into intervals of an order of its nodes.
pub(super) struct Cut {
    /// The parts, in order.
    pub(super) parts: Vec<Part>,
    /// Bytes of the values that are alive before each part, and after the last: first the inputs, then values that
    /// pass, at the end the outputs.
    pub(super) live: Vec<u64>,
    /// Number of values that pass between parts.
    pub(super) slots: usize,
    /// Slots of the program's inputs, in its order.
    pub(super) inputs: Vec<usize>,
    /// Slots of the program's outputs, in its order; `None` for constants.
    pub(super) outputs: Vec<Option<usize>>,
}

/// One interval of the nodes.
pub(super) struct Part {
    pub(super) program: Arc<Program>,
    /// Slots that it reads, in the order of its inputs.
    pub(super) reads: Vec<usize>,
    /// Slots that it fills, in the order of its outputs.
    pub(super) makes: Vec<usize>,
    /// Slots that nothing reads after it.
    pub(super) drops: Vec<usize>,
    /// States that it keeps, as in [`Route::states`](super::wiring::Route::states).
    pub(super) states: Vec<(usize, usize, usize)>,
}

impl Cut {
    /// Cuts a program.
    ///
    /// `order` holds all of its nodes in a topological order, and `sizes` the number of nodes of each part. No state
    /// may span several parts ([`Feedback::verify`]). O(nodes + values × (parts + states)).
    pub(super) fn new(whole: &Program, order: &[NodeId], sizes: &[usize], states: &[Feedback]) -> Self {
        let part_of = stages_of(order, sizes);
        let (mut ranges, mut from) = (Vec::new(), 0);
        for size in sizes {
            (from, _) = (from + size, ranges.push(&order[from..from + size]));
        }
        let spans = Spans::of(whole, &part_of, sizes.len(), states);
        let slots: BTreeMap<ValueId, usize> = spans.carried().zip(0..).collect();
        let part = |(at, nodes): (usize, &&[NodeId])| spans.part(whole, at, nodes, &slots);
        let at_most = |end: usize| spans.live(whole, end);
        let output = |output: &Output| slots.get(&output.value).copied();
        Self {
            parts: ranges.iter().enumerate().map(part).collect(),
            live: (0..=sizes.len()).map(at_most).collect(),
            slots: slots.len(),
            inputs: whole.inputs.iter().map(|input| slots[input]).collect(),
            outputs: whole.outputs.iter().map(output).collect(),
        }
    }
}

/// Range of parts in which each value that passes between parts is alive.
struct Spans {
    /// The part before which it exists, and the last part that reads it. The number of parts stands for the caller.
    of: BTreeMap<ValueId, (usize, usize)>,
    parts: usize,
    /// States by the parts that keep them: their numbers, and the values of their inputs and outputs.
    states: Vec<Vec<(usize, ValueId, ValueId)>>,
    /// Inputs that are states: they do not pass to the part that keeps them.
    kept: BTreeSet<ValueId>,
}

impl Spans {
    fn of(whole: &Program, part_of: &[usize], parts: usize, states: &[Feedback]) -> Self {
        let (mut of, mut kept, mut by_part) = (BTreeMap::new(), BTreeSet::new(), vec![Vec::new(); parts]);
        whole.inputs.iter().for_each(|input| _ = of.insert(*input, (0, 0)));
        for (number, state) in states.iter().enumerate() {
            let (home, output) = (state.home(|node| part_of[node.index()]), whole.outputs[state.output].value);
            by_part[home].push((number, state.input, output));
            kept.insert(state.input);
            of.insert(state.input, (home, home));
        }
        for (at, node) in whole.nodes.iter().enumerate() {
            node.outputs.iter().for_each(|made| _ = of.insert(*made, (part_of[at] + 1, 0)));
        }
        let mut read = |value: ValueId, part: usize| {
            if let Some((_, last)) = of.get_mut(&value) {
                *last = part.max(*last);
            }
        };
        for (at, node) in whole.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|input| read(*input, part_of[at]));
        }
        let leaving = whole.outputs.iter().enumerate().filter(|(at, _)| !Feedback::is_output(states, *at));
        leaving.for_each(|(_, output)| read(output.value, parts));
        for (home, states) in by_part.iter().enumerate() {
            states.iter().for_each(|(.., made)| read(*made, home));
        }
        let named = by_part.iter().flatten().map(|(.., made)| *made).chain(whole.inputs.iter().copied());
        let named: BTreeSet<ValueId> = named.collect();
        // A value that is read only in the part that makes it does not pass between parts.
        of.retain(|value, (there, last)| there <= last || named.contains(value));
        Self { of, parts, states: by_part, kept }
    }

    fn carried(&self) -> impl Iterator<Item = ValueId> {
        self.of.keys().copied()
    }

    /// Returns the bytes alive before a part, or after the last.
    fn live(&self, whole: &Program, part: usize) -> u64 {
        let arrives = |value: &ValueId, there: usize| there < part || there == part && !self.kept.contains(value);
        let alive = self.of.iter().filter(|(value, (there, last))| arrives(value, *there) && part <= *last);
        alive.map(|(value, _)| whole.value(*value).spec.bytes() as u64).sum()
    }

    fn part(&self, whole: &Program, at: usize, nodes: &[NodeId], slots: &BTreeMap<ValueId, usize>) -> Part {
        let mut copy = Copy { whole, program: Program::default(), own: BTreeMap::new() };
        let mut reads = Vec::new();
        for input in nodes.iter().flat_map(|node| &whole.node(*node).inputs) {
            let passes = self.of.get(input).is_some_and(|(there, _)| *there <= at);
            if passes && !copy.own.contains_key(input) {
                let own = copy.value(*input, Origin::Input);
                copy.program.inputs.push(own);
                reads.push(slots[input]);
            }
        }
        nodes.iter().for_each(|node| copy.node(whole.node(*node)));
        let mut makes = Vec::new();
        for made in nodes.iter().flat_map(|node| &whole.node(*node).outputs) {
            if let Some(slot) = slots.get(made) {
                let value = copy.own[made];
                let Value { name, spec, .. } = whole.value(*made).clone();
                copy.program.outputs.push(Output { name, value, spec });
                makes.push(*slot);
            }
        }
        let dies = |(_, (_, last)): &(&ValueId, &(usize, usize))| *last == at && *last < self.parts;
        let drops = self.of.iter().filter(dies).map(|(value, _)| slots[value]).collect();
        let states = self.states[at].iter().map(|(number, input, made)| (*number, slots[input], slots[made])).collect();
        Part { program: Arc::new(copy.program), reads, makes, drops, states }
    }
}

/// A part's program while it is built.
struct Copy<'a> {
    whole: &'a Program,
    program: Program,
    /// Values that were copied, by their id in the whole program.
    own: BTreeMap<ValueId, ValueId>,
}

impl Copy<'_> {
    fn value(&mut self, value: ValueId, origin: Origin) -> ValueId {
        let Value { name, spec, .. } = self.whole.value(value).clone();
        let own = self.program.add_value(name, spec, origin);
        self.own.insert(value, own);
        own
    }

    /// Returns the copy of a value that a node of the part reads. Copies it first if it is a constant that is not there
    /// yet.
    fn read(&mut self, value: ValueId) -> ValueId {
        match self.own.get(&value) {
            Some(own) => *own,
            None => self.value(value, self.whole.value(value).origin.clone()),
        }
    }

    fn node(&mut self, node: &Node) {
        let id = NodeId(self.program.nodes.len() as u32);
        let inputs = node.inputs.iter().map(|input| self.read(*input)).collect();
        let outputs = node.outputs.iter().map(|output| self.value(*output, Origin::Node(id))).collect();
        self.program.nodes.push(Node { inputs, outputs, ..node.clone() });
    }
}
