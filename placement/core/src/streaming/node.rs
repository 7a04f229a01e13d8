//! Node of a canonical task graph: the number of elements that it reads from each edge and writes to each edge.

use super::Ratio;
use crate::ids::id;
use serde::{Deserialize, Serialize};

/// Position of a node in its [`CanonicalGraph`](super::CanonicalGraph).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

id!(NodeId, "node");

/// Effect of a node on volumes (paper, section 3.1). All nodes except buffers run on processing elements.
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
    /// Consumes elements and writes none.
    Sink,
    /// Memory: it is filled completely before it is read. A buffer without predecessors is an input of the graph in
    /// memory, a buffer without successors an output.
    Buffer,
}

/// Node with its volumes, in elements on each of its edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    name: String,
    kind: NodeKind,
    input: u64,
    output: u64,
}

impl Node {
    /// Creates a task that reads `input` elements from each predecessor and writes `output` to each successor. A task
    /// without predecessors reads from memory, a task without successors writes to memory.
    pub fn task(name: impl Into<String>, input: u64, output: u64) -> Self {
        let kind = match output.cmp(&input) {
            std::cmp::Ordering::Less => NodeKind::Downsampler,
            std::cmp::Ordering::Equal => NodeKind::Elementwise,
            std::cmp::Ordering::Greater => NodeKind::Upsampler,
        };
        Node { name: name.into(), kind, input, output }
    }

    /// Creates a task that produces `output` elements.
    pub fn source(name: impl Into<String>, output: u64) -> Self {
        Node { name: name.into(), kind: NodeKind::Source, input: 0, output }
    }

    /// Creates a task that consumes `input` elements from each predecessor.
    pub fn sink(name: impl Into<String>, input: u64) -> Self {
        Node { name: name.into(), kind: NodeKind::Sink, input, output: 0 }
    }

    /// Creates memory that takes `input` elements from each predecessor (0 if there are none) and gives `output` to
    /// each successor.
    pub fn buffer(name: impl Into<String>, input: u64, output: u64) -> Self {
        Node { name: name.into(), kind: NodeKind::Buffer, input, output }
    }

    /// Returns the name of the node, which is unique in its graph.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the node's effect on volumes.
    pub fn kind(&self) -> NodeKind {
        self.kind
    }

    /// Returns the number of elements read from each predecessor, `I(v)`; 0 for a source.
    pub fn input(&self) -> u64 {
        self.input
    }

    /// Returns the number of elements written to each successor, `O(v)`; 0 for a sink.
    pub fn output(&self) -> u64 {
        self.output
    }

    /// Returns the exact production rate `R(v) = O(v) / I(v)`; `None` if nothing is read.
    pub fn rate(&self) -> Option<Ratio> {
        Ratio::new(self.output, self.input)
    }

    /// Returns the work `W(v) = max(I(v), O(v))` in units of time (section 4.2); 0 for memory.
    pub fn work(&self) -> u64 {
        if self.is_memory() { 0 } else { self.input.max(self.output) }
    }

    /// Whether the node is a buffer, which takes no processing element and no time.
    pub fn is_memory(&self) -> bool {
        self.kind == NodeKind::Buffer
    }

    /// Returns the elements written per element read, rounded up, and at least 1: the time that a task works on its
    /// last input.
    pub(super) fn last_outputs(&self) -> u64 {
        if self.input == 0 { 1 } else { self.output.div_ceil(self.input).max(1) }
    }
}
