//! Two-dimensional transposed convolution, with an epilogue.

use super::conv::coordinates;
use super::epilogue::Epilogue;
use super::window::{Images, Window};
use super::{Recipe, Shader};
use crate::error::KernelError;
use crate::op::{ConvTranspose, NodeSpec};

pub(super) fn recipe<'n>(node: &'n NodeSpec, op: &'n ConvTranspose) -> Result<Recipe<'n>, KernelError> {
    let [input, weights, output] =
        [&node.inputs[0], &node.inputs[1], &node.outputs[0]].map(|spec| Images::of(&spec.shape));
    let ConvTranspose { strides, pads, dilations, group, .. } = *op;
    let window = Window { size: [weights.height, weights.width], strides, pads, dilations };
    window.check(node)?;
    let epilogue = Epilogue::new(node, &coordinates())?;
    let count = output.count * output.channels * output.area();
    let recipe = Recipe::new(node, move |recorder| {
        let mut shader = Shader::new("conv_transpose", include_str!("conv_transpose.wgsl"));
        window.declare(&mut shader);
        shader.parameter("count", count).parameter("groups", group);
        shader.parameter("channels", input.channels / group).parameter("out_channels", output.channels / group);
        shader.parameter("height", input.height).parameter("width", input.width);
        shader.parameter("out_height", output.height).parameter("out_width", output.width);
        shader.read("x", "f32", recorder.input(0)?).read("w", "f32", recorder.input(1)?);
        shader.write("y", "f32", recorder.output(0)?);
        epilogue.declare(&mut shader, recorder)?;
        recorder.dispatch_each(&shader, count)
    });
    Ok(Recipe { passes: weights.height * (1 + weights.width * (1 + input.channels / group)), ..recipe })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, inputs, node};
    use super::*;
    use crate::op::{Binary, Expression, Op};

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
