//! The canonical graph while it is made: tasks, memory, and the source of each value of the program.

use super::Granularity;
use anabranch_ir::program::{Node, NodeId, Program, ValueId};
use anabranch_placement_core::streaming::{self, CanonicalError, CanonicalGraph, CanonicalGraphBuilder};
use std::collections::{BTreeMap, BTreeSet};

/// A node of the canonical graph.
pub(super) type Id = streaming::NodeId;

/// Source of a value.
#[derive(Clone, Debug)]
pub(super) enum ValueSource {
    /// Memory that holds it from the start.
    Given,
    /// A task that writes its elements, in their order.
    Stream(Id),
    /// Several tasks or memories that hold its elements. They have to be stored before they can be read in order.
    Parts(Vec<Id>),
}

/// Nodes and edges so far. Edges go from earlier nodes to later ones.
pub(super) struct GraphWriter<'a> {
    pub(super) program: &'a Program,
    pub(super) granularity: Granularity,
    current: NodeId,
    nodes: Vec<streaming::Node>,
    origins: Vec<NodeId>,
    edges: Vec<(Id, Id)>,
    values: Vec<ValueSource>,
    /// Memory that yields a value in this number of elements.
    memories: BTreeMap<(ValueId, u64), Id>,
}

impl<'a> GraphWriter<'a> {
    pub(super) fn new(program: &'a Program, granularity: Granularity) -> Self {
        Self {
            program,
            granularity,
            current: NodeId(0),
            nodes: Vec::new(),
            origins: Vec::new(),
            edges: Vec::new(),
            values: vec![ValueSource::Given; program.values.len()],
            memories: BTreeMap::new(),
        }
    }

    /// Sets the program's node from which all further nodes come.
    pub(super) fn begin(&mut self, node: NodeId) {
        self.current = node;
    }

    /// Returns the current node.
    pub(super) fn node(&self) -> &'a Node {
        self.program.node(self.current)
    }

    /// Number of elements of the node's first output.
    pub(super) fn written(&self) -> Option<u64> {
        self.node().spec.outputs.first().map(|tensor| tensor.shape.elements() as u64)
    }

    /// Number of elements of the node's input `place`, as the node reads it.
    pub(super) fn read(&self, place: usize) -> Option<u64> {
        self.node().spec.inputs.get(place).map(|tensor| tensor.shape.elements() as u64)
    }

    /// Returns the value of the node's input `place`.
    pub(super) fn input(&self, place: usize) -> Option<ValueId> {
        self.node().inputs.get(place).copied()
    }

    /// Returns the source of a value.
    pub(super) fn held(&self, value: ValueId) -> &ValueSource {
        &self.values[value.index()]
    }

    /// Number of elements of a value.
    pub(super) fn elements(&self, value: ValueId) -> u64 {
        self.program.value(value).spec.shape.elements() as u64
    }

    /// Sets the source of the node's output `place`.
    pub(super) fn hold(&mut self, place: usize, held: ValueSource) {
        if let Some(value) = self.node().outputs.get(place) {
            self.values[value.index()] = held;
        }
    }

    /// Adds a task that reads `input` elements from each of `from` and writes `output`. A task that reads nothing is a
    /// source.
    ///
    /// Its name is the node's name with `role`, which is unique in the node.
    pub(super) fn task(&mut self, role: &str, from: &[Id], input: u64, output: u64) -> Id {
        let name = self.name(role);
        let node = match from.is_empty() {
            true => streaming::Node::source(name, output),
            false => streaming::Node::task(name, input, output),
        };
        self.add(node, from)
    }

    /// Adds memory that takes `input` elements from each of `from` and yields `output`. See [`task`](Self::task) for
    /// its name.
    pub(super) fn store(&mut self, role: &str, from: &[Id], input: u64, output: u64) -> Id {
        self.add(streaming::Node::buffer(self.name(role), input, output), from)
    }

    /// Returns memory that yields a value in `output` elements, in any order.
    pub(super) fn memory(&mut self, value: ValueId, output: u64) -> Id {
        if let Some(&known) = self.memories.get(&(value, output)) {
            return known;
        }
        let from = self.givers(value);
        let input = from.first().map_or(0, |&id| self.output(id));
        let memory = self.store(&format!("{value} as {output}"), &from, input, output);
        self.memories.insert((value, output), memory);
        memory
    }

    /// Returns the nodes that hold a value's elements; empty if they are in memory from the start.
    pub(super) fn givers(&self, value: ValueId) -> Vec<Id> {
        match self.held(value) {
            ValueSource::Given => Vec::new(),
            ValueSource::Stream(task) => vec![*task],
            ValueSource::Parts(parts) => parts.clone(),
        }
    }

    /// Returns the source that yields a value's elements once and in their order: the task that makes them, or memory.
    pub(super) fn stream(&mut self, value: ValueId) -> Id {
        match self.held(value) {
            ValueSource::Stream(task) => *task,
            _ => self.memory(value, self.elements(value)),
        }
    }

    /// Returns the source of `total` elements within a node: a task, or memory under the name `role`.
    pub(super) fn whole(&mut self, role: &str, held: &ValueSource, total: u64) -> Id {
        match held {
            ValueSource::Stream(task) => *task,
            ValueSource::Given => self.store(role, &[], 0, total),
            ValueSource::Parts(parts) => {
                let input = parts.first().map_or(0, |&part| self.output(part));
                self.store(role, parts, input, total)
            }
        }
    }

    /// Joins nodes whose outputs together are the `total` elements of a value.
    ///
    /// A node of a canonical graph takes the same volume from all predecessors. Parts of different volumes are
    /// therefore copied into the whole one by one, each by memory that yields the whole.
    pub(super) fn join(&mut self, parts: Vec<Id>, total: u64) -> ValueSource {
        let mut classes: BTreeMap<u64, BTreeSet<Id>> = BTreeMap::new();
        for part in parts {
            classes.entry(self.output(part)).or_default().insert(part);
        }
        let mut classes: Vec<(u64, Vec<Id>)> =
            classes.into_iter().map(|(volume, class)| (volume, class.into_iter().collect())).collect();
        if let [(_, parts)] = &mut classes[..] {
            return ValueSource::Parts(std::mem::take(parts));
        }
        let laid = |(volume, class): (u64, Vec<Id>)| self.store(&format!("parts of {volume}"), &class, volume, total);
        ValueSource::Parts(classes.into_iter().map(laid).collect())
    }

    /// Number of elements that a node of the canonical graph yields.
    pub(super) fn output(&self, id: Id) -> u64 {
        self.nodes[id.index()].output()
    }

    fn name(&self, role: &str) -> String {
        // The number makes the name unique, even if the model's names are not.
        format!("{} {}: {role}", self.current.0, self.node().name)
    }

    fn add(&mut self, node: streaming::Node, from: &[Id]) -> Id {
        // Beyond 32 bits the builder, which counts nodes, rejects the graph.
        let id = streaming::NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        self.origins.push(self.current);
        self.edges.extend(from.iter().map(|&before| (before, id)));
        id
    }

    /// Returns the graph, and the program's node of each of its nodes.
    pub(super) fn finish(mut self) -> Result<(CanonicalGraph, Vec<NodeId>), CanonicalError> {
        self.part_late_streams();
        let mut builder = CanonicalGraphBuilder::new();
        self.nodes.into_iter().for_each(|node| _ = builder.node(node));
        self.edges.sort_unstable();
        self.edges.dedup();
        self.edges.into_iter().for_each(|(from, to)| builder.edge(from, to));
        Ok((builder.build()?, self.origins))
    }

    /// Puts memory into streams that end in a later stage than their own. Memory that a stage fills is read in later
    /// stages only. Once all streams stay within their stage, no component waits for itself.
    fn part_late_streams(&mut self) {
        let mut stage = vec![0u32; self.nodes.len()];
        // Sorted by their ends, edges come after all edges into their starts.
        self.edges.sort_unstable_by_key(|&(from, to)| (to, from));
        for &(from, to) in &self.edges {
            let fills = self.nodes[to.index()].is_memory() && !self.nodes[from.index()].is_memory();
            stage[to.index()] = stage[to.index()].max(stage[from.index()] + u32::from(fills));
        }
        let mut kept: BTreeMap<Id, Id> = BTreeMap::new();
        for place in 0..self.edges.len() {
            let (from, to) = self.edges[place];
            let streams = !self.nodes[from.index()].is_memory() && !self.nodes[to.index()].is_memory();
            if !streams || stage[from.index()] == stage[to.index()] {
                continue;
            }
            let memory = match kept.get(&from) {
                Some(&memory) => memory,
                None => {
                    let volume = self.nodes[from.index()].output();
                    let name = format!("{}, kept", self.nodes[from.index()].name());
                    let memory = streaming::NodeId(self.nodes.len() as u32);
                    self.nodes.push(streaming::Node::buffer(name, volume, volume));
                    self.origins.push(self.origins[from.index()]);
                    self.edges.push((from, memory));
                    kept.insert(from, memory);
                    memory
                }
            };
            self.edges[place] = (memory, to);
        }
    }
}
