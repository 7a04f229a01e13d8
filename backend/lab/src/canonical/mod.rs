//! The canonical task graph of a program (De Matteis et al. 2023, sections 3.2 and 7.3): the graph that streams through
//! a dataflow device.
//!
//! Each node of the program becomes the tasks that the paper gives for its operator: an element-wise task, a
//! downsampler, the subgraphs of figures 3 to 5, or memory alone. Volumes are exact. A task that makes a value's
//! elements in their order streams them. Values that are read again, or in another order, go through memory, which has
//! one node for each volume that is read of it.
//!
//! * Inputs and constants are memory without predecessors, as in the paper's code: they are in global memory before the
//!   first task starts, and take no processing element. The paper's text also has sources that do.
//! * Reshapes do not exist in programs. Transpositions, slices, borders, gathering and concatenation only determine the
//!   order in which memory is read, so they add no task.
//! * A stream could meet a task that waits for memory which the stream itself fills (the residual edge of a network,
//!   the vector of figure 4). Such a stream goes through memory, too. The paper requires that (section 4.2.3), and so
//!   every graph made here has a streaming depth.
//! * Windows that overlap (pooling) are read once, and kept in the task, as the paper maps `MaxPool` to one
//!   downsampler.

mod convolution;
mod elements;
mod product;
mod recurrent;
mod reduction;
mod residual;
mod views;
mod writer;

pub use residual::residual_network;

use anabranch_base::quoted::Line;
use anabranch_ir::program::{NodeId, Program};
use anabranch_kernels::op::Op;
use anabranch_placement_core::streaming::CanonicalGraph;
use writer::GraphWriter;

/// Granularity of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// Most parallel tasks for a product of matrices or a convolution, at least 1. Default: no limit.
    ///
    /// Without a limit there is one task for each column (or row, or output channel), as in the paper. With 1, it is
    /// the inner product of figure 3.
    pub product_tasks: usize,
}

impl Default for Granularity {
    /// Returns the granularity of the paper's graphs.
    fn default() -> Self {
        Self { product_tasks: usize::MAX }
    }
}

/// Reason why a program has no canonical task graph: the node that has none, or a graph that is too large.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Line(.0))]
pub struct ConversionError(String);

/// A program's canonical task graph, with the origins of its nodes.
#[derive(Clone, Debug)]
pub struct CanonicalProgram {
    /// The graph.
    pub graph: CanonicalGraph,
    /// Node of the program from which each task comes. For memory, the first node that reads it in this way.
    pub origins: Vec<NodeId>,
}

impl CanonicalProgram {
    /// Converts a program in time proportional to the size of the graph.
    ///
    /// # Errors
    /// If a tensor has no elements, or the graph is too large.
    pub fn of(program: &Program, granularity: Granularity) -> Result<Self, ConversionError> {
        let mut writer = GraphWriter::new(program, granularity);
        for id in program.node_ids() {
            writer.begin(id);
            let node = program.node(id);
            let refused = |problem: String| ConversionError(format!("node {:?} {problem}", node.name));
            let mut tensors = node.spec.inputs.iter().chain(&node.spec.outputs);
            if tensors.any(|tensor| tensor.shape.elements() == 0) {
                let problem = "has a tensor without elements, which cannot be streamed";
                return Err(refused(format!("{problem}; give inputs of at least one element")));
            }
            let fits = match &node.spec.op {
                Op::Map(_) => elements::map(&mut writer),
                Op::MatMul(op) => product::matmul(&mut writer, op),
                Op::NarrowMatMul(_) | Op::IntegerMatMul(_) => product::narrow(&mut writer),
                Op::Conv(op) => convolution::conv(&mut writer, op.group),
                Op::IntegerConv(op) => convolution::conv(&mut writer, op.group),
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
                Op::TopK(_)
                | Op::Running(_)
                | Op::Fourier(_)
                | Op::Scatter(_)
                | Op::Attention(_)
                | Op::Append(_)
                | Op::Rotary(_)
                | Op::Length(_)
                | Op::Trees(_) => {
                    return Err(refused("has no canonical form".into()));
                }
                Op::Block(_) => {
                    let advice = "convert the program before its nodes are contracted";
                    return Err(refused(format!("is a streaming block; {advice}")));
                }
            };
            fits.ok_or_else(|| refused(format!("is a {} with tensors that do not match it", node.spec.op.name())))?;
        }
        let advice = "use a coarser graph: give matmuls fewer tasks, or give smaller inputs";
        let (graph, origins) = writer.finish().map_err(|error| ConversionError(format!("{error}; {advice}")))?;
        Ok(Self { graph, origins })
    }
}

#[cfg(test)]
mod tests;
