//! Joins expression nodes: a node whose value only the next node reads becomes part of that node.
//!
//! Class: exact bits. The value between the two is rounded to its type as before. If the type holds fewer numbers than
//! the domain, a step of the joined expression does the rounding; nodes whose value has no such step are not joined.

use super::graph::{Graph, as_map, is_portable};
use super::operands::{Operand, tidied};
use super::reread::reread;
use crate::host_operators::numbers;
use crate::lower::fold::Folding;
use anabranch_ir::constant::Constant;
use anabranch_ir::program::{ModelOperator, Node};
use anabranch_kernels::op::{Domain, Expression, Map, NodeSpec, Op, Unary};
use anabranch_kernels::{DType, Tensor, TensorSpec};
use std::collections::BTreeSet;

/// Most tensors that a fused node reads: with its output they fit the eight storage buffers that any GPU can bind.
pub(super) const MOST_INPUTS: usize = 6;

/// Most steps of a fused expression: the kernels hold a block of elements for each register.
const MOST_STEPS: usize = 64;

/// Tidies all expression nodes: merges equal operands, and turns constants into literals if possible and `f32`
/// otherwise.
pub(super) fn tidy_maps(graph: &mut Graph, folding: &mut Folding) {
    for position in 0..graph.end() {
        tidy(graph, position);
        convert_constants(graph, position, folding);
        drop_identity(graph, position);
    }
}

pub(super) fn fuse_maps(graph: &mut Graph) {
    for position in 0..graph.end() {
        while let Some(node) = joined(graph, position) {
            graph.replace(position, node);
            tidy(graph, position);
        }
        drop_identity(graph, position);
    }
}

/// Merges equal operands and turns constants into literals.
fn tidy(graph: &mut Graph, position: usize) {
    let Some(node) = graph.node(position) else { return };
    let Some(map) = as_map(&node.spec) else { return };
    let operands = operands_of(node);
    if let Some((expression, operands)) = tidied(graph, &map.expression, map.domain, &operands, 0) {
        let node = with_map(node, Map { domain: map.domain, expression }, operands);
        graph.replace(position, node);
    }
}

/// Converts constant operands of an `f32` expression to `f32` ahead of the run: the expression is then `f32`
/// throughout, as epilogues and GPUs require.
fn convert_constants(graph: &mut Graph, position: usize, folding: &mut Folding) {
    let Some(node) = graph.node(position) else { return };
    let Some(map) = as_map(&node.spec).filter(|map| map.domain == Domain::F32).cloned() else { return };
    let mut operands = operands_of(node);
    let mut changed = false;
    for (index, (value, spec)) in operands.iter_mut().enumerate() {
        let other = !matches!(spec.dtype, DType::F32 | DType::I64 | DType::U64);
        let Some(constant) = graph.node(position).and_then(|node| graph.constant_input(node, index)).filter(|_| other)
        else {
            continue;
        };
        let single = TensorSpec::new(DType::F32, constant.shape().clone());
        if !folding.take(single.bytes()) {
            continue;
        }
        let made = Constant::made(single, "as f32".into(), vec![constant], |inputs| as_f32(&inputs[0]));
        let Some(single) = folding.noted(made) else { continue };
        *spec = single.spec().clone();
        *value = graph.add_constant("converted".into(), single);
        changed = true;
    }
    if changed && let Some(node) = graph.node(position) {
        let node = with_map(node, map, operands);
        graph.replace(position, node);
    }
}

fn as_f32(tensor: &Tensor) -> Result<Tensor, String> {
    let numbers = numbers(tensor).ok_or("its elements are not numbers")?;
    let elements: Vec<f32> = numbers.into_iter().map(|element| element as f32).collect();
    Tensor::from_elements(tensor.shape().clone(), &elements).map_err(|error| error.to_string())
}

/// Returns the node at `position` merged with one of the expression nodes before it.
fn joined(graph: &Graph, position: usize) -> Option<Node> {
    let node = graph.node(position)?;
    let map = as_map(&node.spec)?;
    (0..node.inputs.len()).find_map(|input| {
        let broadcast = broadcast_source(graph, node, input);
        let earlier = broadcast.or_else(|| Some(graph.sole_maker(node.inputs[input], position)?.1))?;
        join(earlier, node, map, input)
    })
}

/// Returns the maker of an input if it only repeats elements, even if other nodes read it.
fn broadcast_source<'a>(graph: &'a Graph, node: &Node, input: usize) -> Option<&'a Node> {
    let earlier = graph.node(graph.maker(node.inputs[input])?)?;
    repeats(earlier).then_some(earlier)
}

/// Whether the node is an expression that only repeats the elements of its only input.
fn repeats(node: &Node) -> bool {
    let same = |map: &Map| {
        let (read, made) = (&node.spec.inputs[0], &node.spec.outputs[0]);
        read.dtype == made.dtype && holds(map.domain, made.dtype)
    };
    as_map(&node.spec).is_some_and(|map| map.expression == Expression::identity() && same(map))
}

/// Whether the domain holds all elements of the type: storing them in between is then only a copy.
fn holds(domain: Domain, dtype: DType) -> bool {
    let bits = if dtype == DType::Bool { 1 } else { dtype.bits() };
    match domain {
        Domain::F32 if dtype.is_float() => bits <= 32,
        Domain::F32 => bits <= 16,
        Domain::F64 if dtype.is_float() => true,
        Domain::F64 => bits <= 32,
        Domain::I64 | Domain::U64 => !dtype.is_float(),
    }
}

/// Merges `earlier`, which makes input `at` of `node`, and `node`.
fn join(earlier: &Node, node: &Node, map: &Map, at: usize) -> Option<Node> {
    let own = as_map(&earlier.spec)?;
    let made = &earlier.spec.outputs[0];
    let read = &node.spec.inputs[at].shape;
    let output = &node.spec.outputs[0].shape;
    let repeats = repeats(earlier);
    let once = node.inputs.iter().filter(|value| **value == node.inputs[at]).count() == 1;
    let sound = once
        && is_portable(&earlier.spec) == is_portable(&node.spec)
        && (repeats || (own.domain == map.domain && made.shape.elements() == output.elements()));
    let own = if repeats { Some(Expression::identity()) } else { stored(&own.expression, made.dtype, map.domain) };
    let own = own.filter(|own| sound && own.steps().len() + map.expression.steps().len() <= MOST_STEPS)?;
    let mut operands = Vec::with_capacity(earlier.inputs.len() + node.inputs.len() - 1);
    for (value, spec) in operands_of(earlier) {
        let shape = reread(&spec.shape, &made.shape, read)?;
        operands.push((value, TensorSpec::new(spec.dtype, shape)));
    }
    let others = operands_of(node).into_iter().enumerate().filter(|(index, _)| *index != at);
    operands.extend(others.map(|(_, operand)| operand));
    if distinct(&operands) > MOST_INPUTS {
        return None;
    }
    let expression = own.then(&map.expression, at).ok()?;
    let mut joined = with_map(node, Map { domain: map.domain, expression }, operands);
    joined.operators = both(&earlier.operators, &node.operators);
    Some(joined)
}

/// Returns the expression with its value rounded as an element of this type; `None` if there is no step for that.
fn stored(expression: &Expression, dtype: DType, domain: Domain) -> Option<Expression> {
    let not = || Expression::unary(Unary::Not);
    match (domain, dtype) {
        (Domain::F32, DType::F32) | (Domain::F64, DType::F64) => Some(expression.clone()),
        (Domain::I64, DType::I64) | (Domain::U64, DType::U64) => Some(expression.clone()),
        (_, DType::Bool) if expression.is_truth() => Some(expression.clone()),
        (_, DType::Bool) => expression.then(&not().then(&not(), 0).ok()?, 0).ok(),
        (Domain::F32, dtype) if dtype.is_float() && dtype != DType::F64 => {
            expression.then(&Expression::unary(Unary::Narrowed(dtype)), 0).ok()
        }
        _ => None,
    }
}

/// Removes a node that neither changes nor repeats elements.
fn drop_identity(graph: &mut Graph, position: usize) {
    let Some(node) = graph.node(position) else { return };
    let (&[input], &[output]) = (&node.inputs[..], &node.outputs[..]) else { return };
    if repeats(node) && node.spec.inputs[0].shape.elements() == node.spec.outputs[0].shape.elements() {
        graph.bypass(position, output, input);
    }
}

/// Returns the node's inputs with the shapes under which it reads them.
pub(super) fn operands_of(node: &Node) -> Vec<Operand> {
    node.inputs.iter().copied().zip(node.spec.inputs.iter().cloned()).collect()
}

/// Number of distinct operands.
pub(super) fn distinct(operands: &[Operand]) -> usize {
    operands.iter().collect::<BTreeSet<_>>().len()
}

/// Operators of two nodes in order, each once.
pub(in crate::lower) fn both(first: &[ModelOperator], second: &[ModelOperator]) -> Vec<ModelOperator> {
    let mut all = first.to_vec();
    for operator in second {
        match all.iter_mut().find(|known| known.name == operator.name) {
            Some(known) => known.folded &= operator.folded,
            None => all.push(operator.clone()),
        }
    }
    all
}

/// Operators of a node that leaves nothing to compute.
pub(super) fn folded(operators: &[ModelOperator]) -> Vec<ModelOperator> {
    operators.iter().map(|operator| ModelOperator { folded: true, ..operator.clone() }).collect()
}

pub(super) fn with_map(node: &Node, map: Map, operands: Vec<Operand>) -> Node {
    reading(node, Op::Map(map), operands, node.spec.outputs[0].clone())
}

/// Returns the node with another op, on these operands, with one output.
pub(super) fn reading(node: &Node, op: Op, operands: Vec<Operand>, output: TensorSpec) -> Node {
    let (inputs, specs) = operands.into_iter().unzip();
    Node { inputs, spec: NodeSpec { op, inputs: specs, outputs: vec![output] }, ..node.clone() }
}
