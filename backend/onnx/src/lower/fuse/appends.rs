//! Rounds new positions of a cache of 16-bit floats where they are written, instead of in an expression before that. A
//! GPU, which computes only `f32`, can then keep such a cache.
//!
//! Class: exact bits. Both round to the nearest number, with ties to even.

use super::graph::{Graph, as_map};
use super::maps::reading;
use anabranch_ir::program::Node;
use anabranch_kernels::op::{Domain, Expression, NodeSpec, Op};
use anabranch_kernels::{DType, TensorSpec};

/// Lets each append read the `f32` of an expression that only it reads.
pub(super) fn round_in_appends(graph: &mut Graph) {
    for position in 0..graph.end() {
        if let Some((at, map, append)) = rounding(graph, position) {
            if let Some(map) = map {
                graph.replace(at, map);
            }
            graph.replace(position, append);
        }
    }
}

/// Returns the position of the expression before the append at `position`, the expression without its rounding unless
/// it does nothing else, and the append that rounds.
fn rounding(graph: &Graph, position: usize) -> Option<(usize, Option<Node>, Node)> {
    // A value that is appended to itself is a cache, too, and keeps its type.
    let is_append = |node: &&Node| matches!(node.spec.op, Op::Append(_)) && node.inputs[0] != node.inputs[1];
    let append = graph.node(position).filter(is_append)?;
    let (at, earlier) = graph.sole_maker(append.inputs[1], position)?;
    let map = as_map(&earlier.spec)?;
    let is_narrow = matches!(append.spec.inputs[1].dtype, DType::F16 | DType::BF16);
    if !is_narrow || map.domain != Domain::F32 {
        return None;
    }
    let wide = |spec: &TensorSpec| TensorSpec::new(DType::F32, spec.shape.clone());
    let is_only_rounding = map.expression == Expression::identity()
        && matches!(&earlier.spec.inputs[..], [read] if *read == wide(&earlier.spec.outputs[0]));
    let operands = || append.inputs.iter().copied().zip(append.spec.inputs.iter().cloned());
    let mut operands: Vec<_> = operands().collect();
    operands[1] = (if is_only_rounding { earlier.inputs[0] } else { operands[1].0 }, wide(&operands[1].1));
    let append = reading(append, append.spec.op.clone(), operands, append.spec.outputs[0].clone());
    let spec = NodeSpec { outputs: vec![wide(&earlier.spec.outputs[0])], ..earlier.spec.clone() };
    Some((at, (!is_only_rounding).then(|| Node { spec, ..earlier.clone() }), append))
}
