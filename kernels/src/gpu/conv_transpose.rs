//! Two-dimensional transposed convolution, with an epilogue.

use super::conv::{channels, coordinates};
use super::epilogue::Epilogue;
use super::kernel::Recorder;
use super::limits::THREADS;
use super::shader::Shader;
use super::window::{Images, Window};
use super::{Recipe, invalid};
use crate::error::KernelError;
use crate::op::{ConvTranspose, NodeSpec};

pub(crate) struct ConvTransposeRecipe {
    window: Window,
    group: usize,
    input: Images,
    output: Images,
    epilogue: Epilogue,
}

impl ConvTransposeRecipe {
    pub(crate) fn new(node: &NodeSpec, op: &ConvTranspose) -> Result<Self, KernelError> {
        let (input, weights, output) = channels(node)?;
        let window = Window {
            size: [weights.height, weights.width],
            strides: op.strides,
            pads: op.pads,
            dilations: op.dilations,
        };
        window.check(node)?;
        let divides = op.group > 0 && input.channels % op.group == 0;
        if !divides
            || weights.count != input.channels
            || weights.channels.checked_mul(op.group) != Some(output.channels)
        {
            return Err(invalid(node, "weights of [c, m / group, kh, kw] are expected"));
        }
        let epilogue = Epilogue::new(node, &coordinates())?;
        Ok(Self { window, group: op.group, input, output, epilogue })
    }
}

impl Recipe for ConvTransposeRecipe {
    fn bindings(&self) -> usize {
        3 + self.epilogue.bindings()
    }

    fn passes(&self) -> usize {
        let [height, width] = self.window.size;
        height * (1 + width * (1 + self.input.channels / self.group))
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let Self { window, group, input, output, epilogue } = self;
        let count = output.count * output.channels * output.area();
        let mut shader = Shader::new("conv_transpose", include_str!("conv_transpose.wgsl"));
        window.declare(&mut shader);
        shader.parameter("count", count).parameter("groups", *group);
        shader.parameter("channels", input.channels / group).parameter("out_channels", output.channels / group);
        shader.parameter("height", input.height).parameter("width", input.width);
        shader.parameter("out_height", output.height).parameter("out_width", output.width);
        shader.read("x", "f32", recorder.input(0)?).read("w", "f32", recorder.input(1)?);
        shader.write("y", "f32", recorder.output(0)?);
        epilogue.declare(&mut shader, recorder)?;
        recorder.dispatch(&shader, count.div_ceil(THREADS as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, inputs, node};
    use super::*;
    use crate::op::{Binary, Expression, Op};

    /// Scatters each input over the outputs that it reaches.
    fn reference(op: &ConvTranspose, dims: [[usize; 4]; 3], x: &[f32], w: &[f32]) -> Vec<f32> {
        let [[n, c, h, wd], [_, m, kh, kw], [_, om, oh, ow]] = dims;
        let mut y = vec![0f64; n * om * oh * ow];
        for (image, channel, iy, ix) in every([n, c, h, wd]) {
            let part = channel / (c / op.group);
            for (_, local, ky, kx) in every([1, m, kh, kw]) {
                let oy = (iy * op.strides[0] + ky * op.dilations[0]).checked_sub(op.pads[0]);
                let ox = (ix * op.strides[1] + kx * op.dilations[1]).checked_sub(op.pads[1]);
                let (Some(oy), Some(ox)) = (oy.filter(|y| *y < oh), ox.filter(|x| *x < ow)) else { continue };
                let value = x[((image * c + channel) * h + iy) * wd + ix];
                let weight = w[((channel * m + local) * kh + ky) * kw + kx];
                y[((image * om + part * m + local) * oh + oy) * ow + ox] += f64::from(value) * f64::from(weight);
            }
        }
        y.into_iter().map(|v| v as f32).collect()
    }

    fn every([a, b, c, d]: [usize; 4]) -> impl Iterator<Item = (usize, usize, usize, usize)> {
        (0..a * b * c * d).map(move |i| (i / (b * c * d), i / (c * d) % b, i / d % c, i % d))
    }

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
            let x = inputs(&plain, 101);
            let want = reference(&op, dims, x[0].elements().expect("f32"), x[1].elements().expect("f32"));
            check(&plain, &x, std::slice::from_ref(&want));
            let op = ConvTranspose { epilogue: Some(Expression::binary(Binary::Add)), ..op };
            let biased = node(Op::ConvTranspose(op), &[&dims[0], &dims[1], &[dims[2][1], 1, 1]], &[&dims[2]]);
            let x = inputs(&biased, 101);
            let bias = x[2].elements::<f32>().expect("f32");
            let area = dims[2][2] * dims[2][3];
            let want = want.iter().enumerate().map(|(i, v)| v + bias[i / area % bias.len()]).collect();
            check(&biased, &x, &[want]);
        }
    }
}
