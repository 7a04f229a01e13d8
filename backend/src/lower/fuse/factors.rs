//! Moves a constant factor of a product's operand behind the product: fewer elements are multiplied, and the operand is
//! free for other rewrites. Attention writes its scale so.

use super::graph::{Graph, as_map};
use super::maps::both;
use crate::program::Node;
use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, Expression, Literal, MatMul, Op, Register, Step};

/// Moves factors of operands that only the product reads.
pub(super) fn move_factors(graph: &mut Graph) {
    for side in 0..2 {
        graph.rewrite(|graph, position| scaled_after(graph, position, side));
    }
}

/// The product at `position` on the unscaled operand, with the factor in its epilogue.
fn scaled_after(graph: &Graph, position: usize, side: usize) -> Option<Node> {
    let node = graph.node(position)?;
    let Op::MatMul(op) = &node.spec.op else { return None };
    let twice = node.inputs.iter().filter(|input| **input == node.inputs[side]).count() > 1;
    let (_, earlier) = graph.sole_maker(node.inputs[side], position).filter(|_| !twice)?;
    let map = as_map(&earlier.spec)?;
    let factor = factor_of(&map.expression)?;
    let (read, made) = (&earlier.spec.inputs[0], &earlier.spec.outputs[0]);
    if [read.dtype, made.dtype] != [DType::F32; 2] || read.shape.elements() != made.shape.elements() {
        return None;
    }
    let scale = Expression::new(
        1,
        vec![Step::Constant(Literal::Float(factor)), Step::Binary(Binary::Multiply, Register(0), Register(1))],
    )
    .ok()?;
    let epilogue = match &op.epilogue {
        Some(next) => scale.then(next, 0).ok()?,
        None => scale,
    };
    let mut product = node.clone();
    product.spec.op = Op::MatMul(MatMul { epilogue: Some(epilogue), ..op.clone() });
    product.inputs[side] = earlier.inputs[0];
    product.operators = both(&earlier.operators, &node.operators);
    Some(product)
}

/// `f` where the expression is `x · f` or `x / (1/f)`.
fn factor_of(expression: &Expression) -> Option<f64> {
    let &[Step::Constant(Literal::Float(value)), Step::Binary(function, a, b)] = expression.steps() else {
        return None;
    };
    let (x, literal) = (Register(0), Register(1));
    let factor = match function {
        Binary::Multiply if (a, b) == (x, literal) || (a, b) == (literal, x) => value,
        Binary::Divide if (a, b) == (x, literal) => 1.0 / value,
        _ => return None,
    };
    (expression.inputs() == 1 && factor.is_finite()).then_some(factor)
}
