//! Two-dimensional pooling.

use super::kernel::Recorder;
use super::limits::THREADS;
use super::shader::Shader;
use super::window::{Images, Window};
use super::{Recipe, invalid};
use crate::error::KernelError;
use crate::op::{NodeSpec, Pool, PoolKind};

pub(crate) struct PoolRecipe {
    kind: PoolKind,
    window: Window,
    input: Images,
    output: Images,
}

impl PoolRecipe {
    pub(crate) fn new(node: &NodeSpec, op: &Pool) -> Result<Self, KernelError> {
        let ([input], [output]) = (&node.inputs[..], &node.outputs[..]) else {
            return Err(invalid(node, "one input and one output are expected"));
        };
        let (Some(input), Some(output)) = (Images::of(&input.shape), Images::of(&output.shape)) else {
            return Err(invalid(node, "tensors of four axes are expected"));
        };
        let window = Window { size: op.window, strides: op.strides, pads: op.pads, dilations: op.dilations };
        window.check(node)?;
        let reaches = window.reaches(0, input.height, output.height) && window.reaches(1, input.width, output.width);
        if (input.count, input.channels) != (output.count, output.channels) || !reaches {
            return Err(invalid(node, "as many channels, and windows that begin within the input, are expected"));
        }
        Ok(Self { kind: op.kind, window, input, output })
    }
}

impl Recipe for PoolRecipe {
    fn bindings(&self) -> usize {
        2
    }

    fn passes(&self) -> usize {
        let [height, width] = self.window.size;
        height * (1 + width)
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let Self { kind, window, input, output } = self;
        let count = output.count * output.channels * output.area();
        let mut shader = Shader::new("pool", include_str!("pool.wgsl"));
        window.declare(&mut shader);
        shader.constant("MAX", usize::from(*kind == PoolKind::Max));
        shader.constant("COUNT_PADDING", usize::from(*kind == PoolKind::Average { count_padding: true }));
        shader.parameter("count", count);
        shader.parameter("height", input.height).parameter("width", input.width);
        shader.parameter("out_height", output.height).parameter("out_width", output.width);
        shader.parameter("padded_height", window.pads[0] + input.height + window.pads[2]);
        shader.parameter("padded_width", window.pads[1] + input.width + window.pads[3]);
        shader.read("x", "f32", recorder.input(0)?).write("y", "f32", recorder.output(0)?);
        recorder.dispatch(&shader, count.div_ceil(THREADS as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, inputs, node, tensor};
    use super::*;
    use crate::op::Op;

    fn reference(op: &Pool, input: [usize; 4], output: [usize; 4], x: &[f32]) -> Vec<f32> {
        let [n, c, h, w] = input.map(|d| d as isize);
        let [.., oh, ow] = output.map(|d| d as isize);
        let [sy, sx] = op.strides.map(|d| d as isize);
        let [top, left, below, right] = op.pads.map(|d| d as isize);
        let mut y = Vec::new();
        for plane in 0..n * c {
            for (oy, ox) in (0..oh).flat_map(|oy| (0..ow).map(move |ox| (oy, ox))) {
                let (mut greatest, mut sum, mut inside, mut padded) = (f32::NEG_INFINITY, 0.0, 0, 0);
                for ky in 0..op.window[0] {
                    for kx in 0..op.window[1] {
                        let iy = oy * sy - top + (ky * op.dilations[0]) as isize;
                        let ix = ox * sx - left + (kx * op.dilations[1]) as isize;
                        padded += isize::from(iy < h + below && ix < w + right);
                        if (0..h).contains(&iy) && (0..w).contains(&ix) {
                            let value = x[((plane * h + iy) * w + ix) as usize];
                            greatest = if value > greatest || value.is_nan() { value } else { greatest };
                            sum += value;
                            inside += 1;
                        }
                    }
                }
                y.push(match op.kind {
                    PoolKind::Max => greatest,
                    PoolKind::Average { count_padding: true } => sum / padded as f32,
                    PoolKind::Average { count_padding: false } => sum / inside as f32,
                });
            }
        }
        y
    }

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
                let output = [input[0], input[1], out[0], out[1]];
                let node = node(Op::Pool(op.clone()), &[&input], &[&output]);
                let x = inputs(&node, 81);
                check(&node, &x, &[reference(&op, input, output, x[0].elements::<f32>().expect("f32"))]);
            }
        }
    }

    #[test]
    fn nan_is_the_greatest() {
        let op = Pool { kind: PoolKind::Max, window: [1, 2], strides: [1, 2], pads: [0; 4], dilations: [1, 1] };
        let node = node(Op::Pool(op), &[&[1, 1, 1, 4]], &[&[1, 1, 1, 2]]);
        let x = tensor(&[1, 1, 1, 4], &[f32::NAN, 1.0, 2.0, f32::NEG_INFINITY]);
        check(&node, &[x], &[vec![f32::NAN, 2.0]]);
    }
}
