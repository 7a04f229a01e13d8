//! One node of a canonical task graph: how many elements it reads from each edge and writes to each edge.

use super::Ratio;
use crate::ids::id;
use serde::{Deserialize, Serialize};

/// A node, by its position in the [`CanonicalGraph`](super::CanonicalGraph).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

id!(NodeId, "node");

/// What a node does with volumes (paper, section 3.1). All but buffers run on processing elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// Writes as much as it reads.
    Elementwise,
    /// Writes less than it reads.
    Downsampler,
    /// Writes more than it reads.
    Upsampler,
    /// Produces elements and reads none.
    Source,
    /// Takes elements and writes none.
    Sink,
    /// Memory: holds all that comes before it gives any. One without predecessors is a graph's input that lies in memory, one
    /// without successors its output.
    Buffer,
}

/// A node and its volumes, in elements on each of its edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    name: String,
    kind: NodeKind,
    input: u64,
    output: u64,
}

impl Node {
    /// A task that reads `input` elements from each predecessor and writes `output` to each successor. One without predecessors
    /// reads from memory, one without successors writes to memory.
    pub fn task(name: impl Into<String>, input: u64, output: u64) -> Self {
        let kind = match output.cmp(&input) {
            std::cmp::Ordering::Less => NodeKind::Downsampler,
            std::cmp::Ordering::Equal => NodeKind::Elementwise,
            std::cmp::Ordering::Greater => NodeKind::Upsampler,
        };
        Node { name: name.into(), kind, input, output }
    }

    /// A task that produces `output` elements.
    pub fn source(name: impl Into<String>, output: u64) -> Self {
        Node { name: name.into(), kind: NodeKind::Source, input: 0, output }
    }

    /// A task that takes `input` elements from each predecessor.
    pub fn sink(name: impl Into<String>, input: u64) -> Self {
        Node { name: name.into(), kind: NodeKind::Sink, input, output: 0 }
    }

    /// Memory that takes `input` elements from each predecessor, 0 where it has none, and gives `output` to each successor.
    pub fn buffer(name: impl Into<String>, input: u64, output: u64) -> Self {
        Node { name: name.into(), kind: NodeKind::Buffer, input, output }
    }

    /// What people call it; unique in its graph.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it does with volumes.
    pub fn kind(&self) -> NodeKind {
        self.kind
    }

    /// Elements that it reads from each predecessor, `I(v)`; 0 for a source.
    pub fn input(&self) -> u64 {
        self.input
    }

    /// Elements that it writes to each successor, `O(v)`; 0 for a sink.
    pub fn output(&self) -> u64 {
        self.output
    }

    /// The production rate `R(v) = O(v) / I(v)`, exactly; `None` where nothing is read.
    pub fn rate(&self) -> Option<Ratio> {
        Ratio::new(self.output, self.input)
    }

    /// The work `W(v) = max(I(v), O(v))` in units of time (section 4.2); 0 for memory.
    pub fn work(&self) -> u64 {
        if self.is_memory() { 0 } else { self.input.max(self.output) }
    }

    /// Whether it is a buffer, which takes no processing element and no time.
    pub fn is_memory(&self) -> bool {
        self.kind == NodeKind::Buffer
    }

    /// Elements written for one that is read, rounded up, and at least 1: how long a task works on its last input.
    pub(super) fn last_outputs(&self) -> u64 {
        if self.input == 0 { 1 } else { self.output.div_ceil(self.input).max(1) }
    }
}
