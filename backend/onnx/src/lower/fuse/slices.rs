//! Slices before transpositions instead of after them: less data is moved, and often no transposition is left.
//!
//! Class: exact bits.

use super::graph::Graph;
use super::maps::{both, folded, operands_of, reading};
use super::transposes::{moves_nothing, permutation};
use anabranch_ir::program::Node;
use anabranch_kernels::op::{Op, Slice};
use anabranch_kernels::{Shape, TensorSpec};

/// Makes slices read past transpositions if the remaining slice needs no transposition.
pub(super) fn slice_before_transposes(graph: &mut Graph) {
    graph.rewrite(sliced_first);
}

/// Returns the slice at `position` as a slice of the untransposed tensor.
fn sliced_first(graph: &Graph, position: usize) -> Option<Node> {
    let node = graph.node(position)?;
    let Op::Slice(slice) = &node.spec.op else { return None };
    let earlier = graph.node(graph.maker(node.inputs[0])?)?;
    let permutation = permutation(earlier)?;
    let (read, made) = (&node.spec.inputs[0].shape, &node.spec.outputs[0]);
    let (starts, steps, counts) = in_shape(slice, read, &made.shape, &earlier.spec.outputs[0].shape)?;
    // Position of the slice in the tensor before its transposition.
    let rank = permutation.len();
    let (mut first, mut by, mut dims) = (vec![0; rank], vec![1; rank], vec![0; rank]);
    for (axis, source) in permutation.iter().enumerate() {
        (first[*source], by[*source], dims[*source]) = (starts[axis], steps[axis], counts[axis]);
    }
    let output = Shape::new(dims).ok()?;
    if !moves_nothing(permutation, &output) {
        return None;
    }
    let op = Op::Slice(Slice { starts: first, steps: by });
    let operators = both(&folded(&earlier.operators), &node.operators);
    Some(Node { operators, ..reading(node, op, operands_of(earlier), TensorSpec::new(made.dtype, output)) })
}

/// Returns the slice's starts, steps and counts in a tensor of shape `made` that it reads as `read`; the shapes differ
/// only in axes of one element.
#[allow(clippy::type_complexity, reason = "three lists of one entry an axis")]
fn in_shape(slice: &Slice, read: &Shape, result: &Shape, made: &Shape) -> Option<(Vec<usize>, Vec<isize>, Vec<usize>)> {
    let long = |shape: &Shape| shape.dims().iter().copied().filter(|dim| *dim != 1).collect::<Vec<_>>();
    if long(read) != long(made) {
        return None;
    }
    let mut axes = (0..read.rank()).filter(|axis| read.dims()[*axis] != 1);
    let (mut starts, mut steps, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for dim in made.dims() {
        let axis = if *dim == 1 { None } else { axes.next() };
        starts.push(axis.map_or(0, |axis| slice.starts[axis]));
        steps.push(axis.map_or(1, |axis| slice.steps[axis]));
        counts.push(axis.map_or(1, |axis| result.dims()[axis]));
    }
    Some((starts, steps, counts))
}
