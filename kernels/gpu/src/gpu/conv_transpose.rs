//! Two-dimensional transposed convolution, with an epilogue.

use super::Recipe;
use super::conv::Convolution;
use anabranch_op::error::KernelError;
use anabranch_op::op::{ConvTranspose, NodeSpec};

pub(super) fn recipe<'n>(node: &'n NodeSpec, op: &ConvTranspose) -> Result<Recipe<'n>, KernelError> {
    let ConvTranspose { strides, pads, dilations, group, .. } = *op;
    let conv = Convolution::new(node, strides, pads, dilations, group)?;
    let [height, width] = conv.window.size;
    let passes = height * (1 + width * (1 + conv.input.channels / group));
    let body = include_str!("conv_transpose.wgsl");
    let recipe = Recipe::new(node, move |recorder| conv.direct("conv_transpose", body, recorder));
    Ok(Recipe { passes, ..recipe })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, inputs, node};
    use super::*;
    use anabranch_op::op::{Binary, Expression, Op};

    #[test]
    fn inputs_are_spread_over_the_outputs() {
        for (dims, strides, pads, dilations, group) in [
            ([[1usize, 3, 4, 5], [3usize, 2, 2, 2], [1usize, 2, 8, 10]], [2usize, 2], [0usize; 4], [1usize, 1], 1),
            ([[2, 4, 5, 5], [4, 3, 3, 3], [2, 6, 9, 10]], [2, 2], [1, 1, 1, 0], [1, 1], 2),
            ([[1, 2, 3, 3], [2, 1, 3, 2], [1, 2, 7, 5]], [1, 2], [0, 1, 0, 1], [2, 1], 2),
            ([[1, 5, 1, 1], [5, 7, 1, 1], [1, 7, 1, 1]], [1, 1], [0; 4], [1, 1], 1),
        ] {
            let op = ConvTranspose { strides, pads, dilations, group, epilogue: None };
            let plain = node(Op::ConvTranspose(op.clone()), &[&dims[0], &dims[1]], &[&dims[2]]);
            check(&plain, &inputs(&plain, 101));
            let op = ConvTranspose { epilogue: Some(Expression::binary(Binary::Add)), ..op };
            let biased = node(Op::ConvTranspose(op), &[&dims[0], &dims[1], &[dims[2][1], 1, 1]], &[&dims[2]]);
            check(&biased, &inputs(&biased, 101));
        }
    }
}
