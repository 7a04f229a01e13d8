//! Makes a border of zeros around an image part of the convolution that reads it.
//!
//! Class: exact within bounds of constants. Kernels may leave out a border's products, which changes nothing for finite
//! weights. For other weights, and weights that only a run knows, the border stays separate.

use super::graph::Graph;
use super::maps::{both, folded};
use crate::lower::fold::Folding;
use anabranch_ir::program::Node;
use anabranch_kernels::op::{Conv, Op, Pad, PadMode};

pub(super) fn absorb_pads(graph: &mut Graph, folding: &Folding) {
    graph.rewrite(|graph, position| widened(graph, position).filter(|node| has_finite_weights(graph, node, folding)));
}

fn has_finite_weights(graph: &Graph, node: &Node, folding: &Folding) -> bool {
    let weights = graph.constant_input(node, 1).and_then(|weights| folding.loaded(&weights));
    let finite = |weights: &[f32]| weights.iter().fold(true, |all, weight| all & weight.is_finite());
    weights.is_some_and(|weights| weights.elements::<f32>().is_some_and(finite))
}

/// Returns the convolution at `position` with the border before it as its own padding.
fn widened(graph: &Graph, position: usize) -> Option<Node> {
    let node = graph.node(position)?;
    let Op::Conv(conv) = &node.spec.op else { return None };
    let (_, earlier) = graph.sole_maker(node.inputs[0], position)?;
    let Op::Pad(Pad { mode, before }) = &earlier.spec.op else { return None };
    let (inner, outer) = (&earlier.spec.inputs[0], &earlier.spec.outputs[0]);
    let read = &node.spec.inputs[0];
    let rank = inner.shape.rank();
    // The convolution reads three dimensions with an added axis of one row.
    let same = (rank == 4 && read.shape == outer.shape)
        || (rank == 3 && read.shape.dims()[2] == 1 && read.shape.elements() == outer.shape.elements());
    if *mode != PadMode::ZERO || !same || outer.shape.dims()[..2] != inner.shape.dims()[..2] || before[..2] != [0, 0] {
        return None;
    }
    let mut pads = conv.pads;
    let mut read = read.clone();
    let mut dims = read.shape.dims().to_vec();
    for (axis, before) in before.iter().enumerate().skip(2) {
        let place = axis + 2 - rank;
        let place = if rank == 3 { 1 } else { place };
        let first = usize::try_from(*before).ok()?;
        let last = outer.shape.dims()[axis].checked_sub(inner.shape.dims()[axis])?.checked_sub(first)?;
        pads[place] = pads[place].checked_add(first)?;
        pads[place + 2] = pads[place + 2].checked_add(last)?;
        dims[place + 2] = inner.shape.dims()[axis];
    }
    read.shape = anabranch_kernels::Shape::new(dims).ok()?;
    let mut widened = node.clone();
    widened.spec.op = Op::Conv(Conv { pads, ..conv.clone() });
    widened.spec.inputs[0] = read;
    widened.inputs[0] = earlier.inputs[0];
    widened.operators = both(&folded(&earlier.operators), &node.operators);
    Some(widened)
}
