//! The canonical task graph of a program (De Matteis et al. 2023, sections 3.2 and 7.3): what streams through a dataflow device.
//!
//! Each node of the program becomes the tasks that the paper gives for its operator: an element-wise task, a downsampler, the
//! subgraphs of figures 3 to 5, or memory alone. Volumes are exact. A task that makes a value's elements in their order streams
//! them; whatever is read again, or in another order, goes through memory, which has one node for each volume that is read of it.
//!
//! * Inputs and constants are memory without predecessors, as in the paper's code: they are in global memory before the first task
//!   starts, and take no processing element. The paper's text also has sources that do.
//! * Reshapes do not exist in programs. Transpositions, slices, borders, gathering and concatenation only say in which order memory
//!   is read, so they add no task.
//! * Where a stream would meet a task that waits for memory which the stream itself fills (the residual edge of a network, the
//!   vector of figure 4), the stream goes through memory too: the paper asks for that (section 4.2.3), and so every graph from here
//!   has a streaming depth.
//! * Windows that overlap (pooling) are read once, and kept where they are read, as the paper maps `MaxPool` to one downsampler.

mod convolution;
mod elements;
mod product;
mod recurrent;
mod reduction;
mod residual;
mod views;
mod writer;

pub use product::{ProductKind, product_kind};
pub use residual::residual_network;

use crate::program::{NodeId, Program};
use anabranch_kernels::op::Op;
use anabranch_placement::streaming::{self, CanonicalError, CanonicalGraph};
use writer::GraphWriter;

/// How fine the graph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// Most parallel tasks that a product of matrices or a convolution becomes, at least 1. Without a limit they are one for each
    /// column (or row, or output channel), as in the paper; with 1 they are the inner product of figure 3.
    pub product_tasks: usize,
}

impl Default for Granularity {
    /// As fine as the paper's graphs.
    fn default() -> Self {
        Self { product_tasks: usize::MAX }
    }
}

/// Why a program has no canonical task graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum ConversionError {
    /// A tensor without elements.
    #[error(
        "node {node:?} has a tensor without elements, of which nothing can stream; give inputs of at least one element"
    )]
    Empty { node: String },
    /// Tensors whose shapes do not fit the op.
    #[error("node {node:?} is a {op} of tensors that do not fit it")]
    Shapes { node: String, op: &'static str },
    /// Nodes that were contracted to one.
    #[error("node {node:?} is a streaming block; convert the program as it was before its nodes were contracted")]
    Block { node: String },
    /// More than a canonical task graph can hold.
    #[error("{0}; a coarser graph may fit: give products fewer tasks, or give smaller inputs")]
    Canonical(#[from] CanonicalError),
}

/// A program's canonical task graph, and where its nodes come from.
#[derive(Clone, Debug)]
pub struct CanonicalProgram {
    graph: CanonicalGraph,
    origins: Vec<NodeId>,
}

impl CanonicalProgram {
    /// Converts a program in time proportional to what it becomes.
    ///
    /// # Errors
    /// A tensor without elements, or a graph too large.
    pub fn of(program: &Program, granularity: Granularity) -> Result<Self, ConversionError> {
        let mut writer = GraphWriter::new(program, granularity);
        for id in program.node_ids() {
            writer.begin(id);
            let node = program.node(id);
            let tensors = node.spec.inputs.iter().chain(&node.spec.outputs);
            if tensors.clone().any(|tensor| tensor.shape.elements() == 0) {
                return Err(ConversionError::Empty { node: node.name.clone() });
            }
            let fits = match &node.spec.op {
                Op::Map(_) => elements::map(&mut writer),
                Op::MatMul(op) => product::matmul(&mut writer, op),
                Op::Conv(op) => convolution::conv(&mut writer, op),
                Op::ConvTranspose(op) => convolution::conv_transpose(&mut writer, op),
                Op::Pool(_) => convolution::pool(&mut writer),
                Op::Resize(op) => convolution::resize(&mut writer, op),
                Op::Reduce(op) => reduction::reduce(&mut writer, &op.axes),
                Op::ArgReduce(op) => reduction::reduce(&mut writer, &[op.axis]),
                Op::Softmax(op) => reduction::softmax(&mut writer, op),
                Op::Normalize(op) => reduction::normalize(&mut writer, op),
                Op::Recurrent(op) => recurrent::recurrent(&mut writer, op),
                Op::Transpose(_) | Op::Slice(_) | Op::Pad(_) | Op::Gather(_) | Op::Concat(_) => {
                    views::view(&mut writer)
                }
                Op::Block(_) => return Err(ConversionError::Block { node: node.name.clone() }),
            };
            fits.ok_or_else(|| ConversionError::Shapes { node: node.name.clone(), op: node.spec.op.name() })?;
        }
        let (graph, origins) = writer.finish()?;
        Ok(Self { graph, origins })
    }

    /// The graph.
    pub fn graph(&self) -> &CanonicalGraph {
        &self.graph
    }

    /// The graph alone.
    pub fn into_graph(self) -> CanonicalGraph {
        self.graph
    }

    /// The program's node from which a task comes; of memory, the node that was the first to read it so.
    pub fn origin(&self, node: streaming::NodeId) -> NodeId {
        self.origins[node.index()]
    }
}

#[cfg(test)]
mod tests;
