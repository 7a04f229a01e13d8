//! Makes expression nodes part of the product, convolution or normalisation whose result they read.
//!
//! Class: order of sums. A summand of the expression may be the first of the product's terms instead of the last. A
//! quotient by a constant before a smooth function, or behind bounds, may become a product with the reciprocal: one
//! more rounding. All other steps keep their bits.

use super::graph::{Graph, as_map};
use super::maps::{MOST_INPUTS, both, distinct, operands_of, reading};
use super::operands::{Operand, tidied};
use super::reread::reread;
use anabranch_ir::program::Node;
use anabranch_kernels::op::{Domain, Expression, Op};
use anabranch_kernels::{DType, Shape, TensorSpec};

/// Merges each expression node into the producer of one of its inputs, if nothing else reads that input. The merged
/// node takes the expression's position, so that all its other operands exist.
pub(super) fn fuse_epilogues(graph: &mut Graph) {
    for position in 0..graph.end() {
        tidy(graph, position);
        if let Some(node) = absorbed(graph, position) {
            graph.replace(position, node);
            tidy(graph, position);
        }
    }
}

/// Merges equal operands of an epilogue and turns constants into literals.
fn tidy(graph: &mut Graph, position: usize) {
    let Some(node) = graph.node(position) else { return };
    let Some(epilogue) = node.spec.op.epilogue() else { return };
    let start = node.spec.op.epilogue_inputs_start();
    let operands = operands_of(node);
    // Register 0 is the result, not an operand: the first of the node's own inputs stands in for it.
    let registers = [&operands[..1], &operands[start..]].concat();
    if let Some((expression, registers)) = tidied(graph, epilogue, Domain::F32, &registers, 1) {
        let operands = [&operands[..start], &registers[1..]].concat();
        let node = with_epilogue(node, expression, operands, node.spec.outputs[0].clone());
        graph.replace(position, node);
    }
}

/// Returns the expression node at `position` merged with the producer of one of its inputs: the producer with most
/// work, and among equals the last.
fn absorbed(graph: &Graph, position: usize) -> Option<Node> {
    let node = graph.node(position)?;
    let map = as_map(&node.spec)?;
    let single = |spec: &TensorSpec| spec.dtype == DType::F32;
    let sound = map.domain == Domain::F32 && node.spec.inputs.iter().chain(&node.spec.outputs).all(single);
    if !sound {
        return None;
    }
    let weight = |node: &Node| !matches!(node.spec.op, Op::Normalize(_));
    let producer = |input: usize| {
        let (at, producer) = graph.sole_maker(node.inputs[input], position)?;
        Some((weight(producer), at, input, absorb(producer, node, &map.expression, input)?))
    };
    let best = (0..node.inputs.len()).filter_map(producer).max_by_key(|(weight, at, input, _)| (*weight, *at, *input));
    best.map(|(_, _, _, node)| node)
}

/// Returns `producer`, which makes input `at` of `node`, with `node`'s expression after its own epilogue.
fn absorb(producer: &Node, node: &Node, expression: &Expression, at: usize) -> Option<Node> {
    producer.spec.op.clone().epilogue_mut()?;
    let made = &producer.spec.outputs[0];
    let output = &node.spec.outputs[0];
    let once = node.inputs.iter().filter(|value| **value == node.inputs[at]).count() == 1;
    if !once || made.shape.elements() != output.shape.elements() {
        return None;
    }
    let (target, operands) =
        joined_operands(producer, node, at, &made.shape).map(|operands| (&made.shape, operands)).or_else(|| {
            // The result of a normalisation may have any shape.
            let free = matches!(producer.spec.op, Op::Normalize(_));
            Some((&output.shape, joined_operands(producer, node, at, &output.shape).filter(|_| free)?))
        })?;
    let start = producer.spec.op.epilogue_inputs_start();
    if start + distinct(&operands[start..]) > MOST_INPUTS {
        return None;
    }
    let own = producer.spec.op.epilogue().cloned().unwrap_or_else(Expression::identity);
    let whole = own.then(expression, at).ok()?;
    let mut joined = with_epilogue(producer, whole, operands, TensorSpec::new(DType::F32, target.clone()));
    joined.name = node.name.clone();
    joined.operators = both(&producer.operators, &node.operators);
    joined.outputs = node.outputs.clone();
    Some(joined)
}

/// Operands of the producer and of the node after it, all read so that they broadcast to `target`.
fn joined_operands(producer: &Node, node: &Node, at: usize, target: &Shape) -> Option<Vec<Operand>> {
    let start = producer.spec.op.epilogue_inputs_start();
    let mut operands = operands_of(producer);
    let (made, output) = (&producer.spec.outputs[0].shape, &node.spec.outputs[0].shape);
    for (_, spec) in &mut operands[start..] {
        spec.shape = reread(&spec.shape, made, target)?;
    }
    for (index, (value, mut spec)) in operands_of(node).into_iter().enumerate() {
        if index != at {
            spec.shape = reread(&spec.shape, output, target)?;
            operands.push((value, spec));
        }
    }
    Some(operands)
}

fn with_epilogue(node: &Node, expression: Expression, operands: Vec<Operand>, output: TensorSpec) -> Node {
    let mut op = node.spec.op.clone();
    if let Some(place) = op.epilogue_mut() {
        *place = Some(expression).filter(|expression| *expression != Expression::identity());
    }
    reading(node, op, operands, output)
}
