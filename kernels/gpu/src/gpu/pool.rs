//! Two-dimensional pooling.

use super::window::{Images, Window};
use super::{Recipe, Shader};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Pool, PoolKind};

pub(super) fn recipe<'n>(node: &'n NodeSpec, op: &'n Pool) -> Result<Recipe<'n>, KernelError> {
    let (input, output) = (Images::of(&node.inputs[0].shape), Images::of(&node.outputs[0].shape));
    let window = Window { size: op.window, strides: op.strides, pads: op.pads, dilations: op.dilations };
    window.check(node)?;
    window.check_reach(node, input, output)?;
    let count = output.count * output.channels * output.area();
    let recipe = Recipe::new(node, move |recorder| {
        let mut shader = Shader::new("pool", include_str!("pool.wgsl"));
        window.declare(&mut shader);
        shader.constant("MAX", usize::from(op.kind == PoolKind::Max));
        shader.constant("COUNT_PADDING", usize::from(op.kind == PoolKind::Average { count_padding: true }));
        shader.parameter("count", count);
        shader.parameter("height", input.height).parameter("width", input.width);
        shader.parameter("out_height", output.height).parameter("out_width", output.width);
        shader.parameter("padded_height", window.pads[0] + input.height + window.pads[2]);
        shader.parameter("padded_width", window.pads[1] + input.width + window.pads[3]);
        shader.read("x", "f32", recorder.input(0)?).write("y", "f32", recorder.output(0)?);
        recorder.dispatch_each(&shader, count)
    });
    Ok(Recipe { passes: op.window[0] * (1 + op.window[1]), ..recipe })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, check, inputs, node, tensor};
    use super::*;
    use anabranch_op::op::Op;

    #[test]
    fn windows_slide_with_strides_padding_and_dilation() {
        let kinds =
            [PoolKind::Max, PoolKind::Average { count_padding: true }, PoolKind::Average { count_padding: false }];
        for (input, window, strides, pads, dilations, out) in [
            ([1usize, 2, 6, 7], [2usize, 2], [2usize, 2], [0usize; 4], [1usize, 1], [3usize, 3]),
            ([2, 3, 7, 7], [3, 3], [2, 2], [1, 1, 1, 1], [1, 1], [4, 4]),
            ([1, 1, 5, 9], [2, 3], [1, 2], [1, 0, 0, 2], [2, 1], [4, 5]),
            // Windows that reach beyond the padding.
            ([1, 2, 6, 6], [3, 3], [2, 2], [0, 0, 0, 0], [1, 1], [3, 3]),
            ([1, 5, 4, 4], [4, 4], [1, 1], [0, 0, 0, 0], [1, 1], [1, 1]),
        ] {
            for kind in kinds {
                let op = Pool { kind, window, strides, pads, dilations };
                let node = node(Op::Pool(op), &[&input], &[&[input[0], input[1], out[0], out[1]]]);
                check(&node, &inputs(&node, 81));
            }
        }
    }

    #[test]
    fn nan_is_the_greatest() {
        let op = Pool { kind: PoolKind::Max, window: [1, 2], strides: [1, 2], pads: [0; 4], dilations: [1, 1] };
        let node = node(Op::Pool(op), &[&[1, 1, 1, 4]], &[&[1, 1, 1, 2]]);
        let x = tensor(&[1, 1, 1, 4], &[f32::NAN, 1.0, 2.0, f32::NEG_INFINITY]);
        let got = Run::new(&node).outputs(&[x]).expect("runs").remove(0);
        assert!(got[0].is_nan() && got[1] == 2.0, "{got:?}");
    }
}
