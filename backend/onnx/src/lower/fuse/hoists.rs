//! Computes an expression of one operand before a transposition instead of after it. A product can then read the
//! transposed operand, and the node that makes the operand can absorb the expression. Attention scales queries and keys
//! like this.
//!
//! Class: exact bits. Equal steps are applied to equal elements at other positions.

use super::graph::{Graph, as_map};
use super::maps::{both, reading};
use super::transposes::permutation;
use anabranch_ir::program::Node;
use anabranch_kernels::TensorSpec;
use anabranch_kernels::op::Op;

/// Moves expressions that only products read before the transpositions that only they read.
pub(super) fn hoist_expressions(graph: &mut Graph) {
    for position in 0..graph.end() {
        if let Some((at, map, transpose)) = hoisted(graph, position) {
            graph.replace(at, map);
            graph.replace(position, transpose);
        }
    }
}

/// Returns the position of the transposition before the expression at `position`, the expression in its place, and the
/// transposition in the expression's place.
fn hoisted(graph: &Graph, position: usize) -> Option<(usize, Node, Node)> {
    let node = graph.node(position)?;
    let map = as_map(&node.spec)?;
    let (&[operand], [read], [made]) = (&node.inputs[..], &node.spec.inputs[..], &node.spec.outputs[..]) else {
        return None;
    };
    let (at, earlier) = graph.sole_maker(operand, position)?;
    permutation(earlier)?;
    let is_product = |reader: usize| graph.node(reader).is_some_and(|node| matches!(node.spec.op, Op::MatMul(_)));
    let readers = graph.readers(node.outputs[0]);
    let multiplied = !readers.is_empty() && readers.into_iter().all(is_product) && !graph.is_received(node.outputs[0]);
    if !multiplied || *read != earlier.spec.outputs[0] || read != made {
        return None;
    }
    let (source, whole) = (earlier.inputs[0], earlier.spec.inputs[0].clone());
    let output = TensorSpec::new(made.dtype, whole.shape.clone());
    let first = Node {
        outputs: earlier.outputs.clone(),
        ..reading(node, Op::Map(map.clone()), vec![(source, whole)], output.clone())
    };
    let second = reading(earlier, earlier.spec.op.clone(), vec![(operand, output)], made.clone());
    let operators = both(&earlier.operators, &node.operators);
    Some((at, first, Node { outputs: node.outputs.clone(), operators, ..second }))
}
