//! Removes transpositions: two successive ones become one, and a product reads its matrices transposed.
//!
//! Class: exact bits if transpositions join. Order of sums if a product absorbs one: the kernel for the other layout
//! may add the terms in another order.

use super::graph::Graph;
use super::maps::{both, folded, reading};
use anabranch_ir::program::Node;
use anabranch_kernels::op::{MatMul, Op, Transpose};
use anabranch_kernels::{Shape, TensorSpec};

/// Joins transpositions with those before them, then merges them into products.
pub(super) fn absorb_transposes(graph: &mut Graph) {
    for position in 0..graph.end() {
        merge(graph, position);
    }
    for position in 0..graph.end() {
        for side in 0..2 {
            absorb(graph, position, side);
        }
    }
}

/// Returns the node's permutation, if it is a transposition.
pub(super) fn permutation(node: &Node) -> Option<&[usize]> {
    match &node.spec.op {
        Op::Transpose(op) => Some(&op.permutation),
        _ => None,
    }
}

/// Joins the transposition at `position` with the transposition that it reads, if it reads it in the shape in which it
/// was made.
fn merge(graph: &mut Graph, position: usize) {
    let Some(node) = graph.node(position) else { return };
    let Some(second) = permutation(node) else { return };
    let Some(earlier) = graph.maker(node.inputs[0]).and_then(|at| graph.node(at)) else { return };
    let Some(first) = permutation(earlier) else { return };
    if node.spec.inputs[0] != earlier.spec.outputs[0] {
        return;
    }
    let whole: Vec<usize> = second.iter().map(|axis| first[*axis]).collect();
    let (source, read) = (earlier.inputs[0], earlier.spec.inputs[0].clone());
    if moves_nothing(&whole, &read.shape) {
        let output = node.outputs[0];
        graph.bypass(position, output, source);
        return;
    }
    let op = Op::Transpose(Transpose { permutation: whole });
    let operators = both(&earlier.operators, &node.operators);
    let node = Node { operators, ..reading(node, op, vec![(source, read)], node.spec.outputs[0].clone()) };
    graph.replace(position, node);
}

/// Whether only axes of one element change places with others.
pub(super) fn moves_nothing(permutation: &[usize], shape: &Shape) -> bool {
    permutation.iter().filter(|axis| shape.dims()[**axis] != 1).is_sorted()
}

/// Makes the product at `position` read an operand before it is transposed, or (if only the product reads it) after a
/// transposition that leaves rows together.
fn absorb(graph: &mut Graph, position: usize, side: usize) {
    let Some(node) = graph.node(position) else { return };
    let Op::MatMul(op) = &node.spec.op else { return };
    let value = node.inputs[side];
    let Some(at) = graph.maker(value) else { return };
    let Some(earlier) = graph.node(at) else { return };
    let Some(swapped) = permutation(earlier).and_then(swapped) else { return };
    let (made, read) = (&earlier.spec.outputs[0], &node.spec.inputs[side]);
    let Some(read) = with_swapped_matrix(made, read) else { return };

    let flipped = match side {
        0 => MatMul { transpose_a: !op.transpose_a, ..op.clone() },
        _ => MatMul { transpose_b: !op.transpose_b, ..op.clone() },
    };
    let mut product = node.clone();
    product.operators = both(&folded(&earlier.operators), &node.operators);
    product.spec.op = Op::MatMul(flipped);
    product.spec.inputs[side] = read;
    if moves_nothing(&swapped, &earlier.spec.inputs[0].shape) {
        product.inputs[side] = earlier.inputs[0];
        graph.replace(position, product);
        return;
    }
    let rank = swapped.len();
    let both_sides = node.inputs.iter().filter(|input| **input == value).count() > 1;
    if swapped[rank - 1] != rank - 1 || both_sides || graph.sole_maker(value, position).is_none() {
        return;
    }
    let mut dims = made.shape.dims().to_vec();
    dims.swap(rank - 2, rank - 1);
    let Ok(shape) = Shape::new(dims) else { return };
    let mut transpose = earlier.clone();
    transpose.spec.op = Op::Transpose(Transpose { permutation: swapped });
    transpose.spec.outputs[0] = TensorSpec::new(made.dtype, shape);
    graph.replace(at, transpose);
    graph.replace(position, product);
}

/// Returns the permutation with its last two axes exchanged, if that puts the innermost axis last again.
fn swapped(permutation: &[usize]) -> Option<Vec<usize>> {
    let rank = permutation.len();
    if rank < 2 || permutation[rank - 2] != rank - 1 {
        return None;
    }
    let mut swapped = permutation.to_vec();
    swapped.swap(rank - 2, rank - 1);
    Some(swapped)
}

/// Returns the spec under which the product reads the matrices after an exchange of rows and columns.
///
/// `None` if it does not read the matrices as they were made (their batches may be read as other batches).
fn with_swapped_matrix(made: &TensorSpec, read: &TensorSpec) -> Option<TensorSpec> {
    let (_, matrix): (_, &[usize; 2]) = made.shape.dims().split_last_chunk()?;
    let (_, read_matrix) = read.shape.dims().split_last_chunk()?;
    if matrix != read_matrix {
        return None;
    }
    let mut dims = read.shape.dims().to_vec();
    let rank = dims.len();
    dims.swap(rank - 2, rank - 1);
    Some(TensorSpec::new(read.dtype, Shape::new(dims).ok()?))
}
