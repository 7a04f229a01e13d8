//! Two-dimensional convolution, with an epilogue: as a product of matrices, or directly where groups are narrow.

use super::epilogue::{Coordinate, Epilogue};
use super::kernel::Recorder;
use super::limits::THREADS;
use super::shader::Shader;
use super::tile::{Order, Tile};
use super::window::{Images, Window};
use super::{Recipe, invalid};
use crate::error::KernelError;
use crate::op::{Conv, NodeSpec};

/// With fewer output channels a group than this, most of a tile would be idle.
const NARROW: usize = 8;

pub(crate) struct ConvRecipe {
    window: Window,
    group: usize,
    input: Images,
    output: Images,
    epilogue: Epilogue,
}

impl ConvRecipe {
    pub(crate) fn new(node: &NodeSpec, op: &Conv) -> Result<Self, KernelError> {
        let (input, weights, output) = channels(node)?;
        let window = Window {
            size: [weights.height, weights.width],
            strides: op.strides,
            pads: op.pads,
            dilations: op.dilations,
        };
        window.check(node)?;
        let divides = op.group > 0 && output.channels % op.group == 0;
        if !divides
            || weights.count != output.channels
            || weights.channels.checked_mul(op.group) != Some(input.channels)
        {
            return Err(invalid(node, "weights of [m, c / group, kh, kw] are expected"));
        }
        if !window.reaches(0, input.height, output.height) || !window.reaches(1, input.width, output.width) {
            return Err(invalid(node, "windows that begin within the input are expected"));
        }
        Ok(Self { window, group: op.group, input, output, epilogue: Epilogue::new(node, &coordinates())? })
    }

    fn declare<'a>(&self, shader: &mut Shader<'a>, recorder: &Recorder<'a>) -> Result<(), KernelError> {
        self.window.declare(shader);
        shader.parameter("channels", self.input.channels / self.group);
        shader.parameter("height", self.input.height).parameter("width", self.input.width);
        shader.parameter("out_width", self.output.width);
        shader.read("x", "f32", recorder.input(0)?).read("w", "f32", recorder.input(1)?);
        shader.write("y", "f32", recorder.output(0)?);
        self.epilogue.declare(shader, recorder)
    }

    fn is_narrow(&self) -> bool {
        self.output.channels / self.group < NARROW
    }

    /// Rows and columns of each group's product.
    fn sides(&self) -> [usize; 2] {
        [self.output.channels / self.group, self.output.count * self.output.area()]
    }

    fn tile(&self) -> Tile {
        let [m, n] = self.sides();
        Tile::new(self.group, m, n)
    }

    fn tiled(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let [m, n] = self.sides();
        let k = self.input.channels / self.group * self.window.size[0] * self.window.size[1];
        let mut shader = Shader::new("conv", include_str!("conv.wgsl"));
        self.declare(&mut shader, recorder)?;
        shader.parameter("all_channels", self.input.channels).parameter("all_out_channels", self.output.channels);
        shader.parameter("out_area", self.output.area());
        let groups = self.tile().declare(&mut shader, [self.group, m, n, k], Order::Depth, Order::Side);
        recorder.dispatch(&shader, groups)
    }

    fn direct(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let count = self.output.count * self.output.channels * self.output.area();
        let mut shader = Shader::new("conv_direct", include_str!("conv_direct.wgsl"));
        self.declare(&mut shader, recorder)?;
        shader.parameter("count", count).parameter("groups", self.group);
        shader.parameter("out_channels", self.output.channels / self.group);
        shader.parameter("out_height", self.output.height);
        recorder.dispatch(&shader, count.div_ceil(THREADS as usize))
    }
}

/// The sizes of a convolution's input, weights and output.
pub(crate) fn channels(node: &NodeSpec) -> Result<(Images, Images, Images), KernelError> {
    let ([input, weights, ..], [output]) = (&node.inputs[..], &node.outputs[..]) else {
        return Err(invalid(node, "two inputs and one output are expected"));
    };
    match [input, weights, output].map(|spec| Images::of(&spec.shape)) {
        [Some(input), Some(weights), Some(output)] if input.count == output.count => Ok((input, weights, output)),
        _ => Err(invalid(node, "tensors of four axes, and as many images out as in, are expected")),
    }
}

/// The coordinates that the shaders of both convolutions know of an output.
pub(crate) fn coordinates() -> [Coordinate; 3] {
    [
        Coordinate { name: "image", axes: 0..1 },
        Coordinate { name: "channel", axes: 1..2 },
        Coordinate { name: "pixel", axes: 2..4 },
    ]
}

impl Recipe for ConvRecipe {
    fn bindings(&self) -> usize {
        3 + self.epilogue.bindings()
    }

    fn passes(&self) -> usize {
        let [height, width] = self.window.size;
        let channels = self.input.channels / self.group;
        match self.is_narrow() {
            true => channels * (1 + height * (1 + width)),
            false => self.tile().passes(channels * height * width),
        }
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        if self.is_narrow() { self.direct(recorder) } else { self.tiled(recorder) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, assert_close, check, inputs, narrow, node};
    use super::*;
    use crate::op::{Binary, Expression, Op, Unary};

    struct Case {
        input: [usize; 4],
        weights: [usize; 4],
        out: [usize; 2],
        op: Conv,
    }

    fn case(input: [usize; 4], weights: [usize; 4], strides: [usize; 2], pads: [usize; 4], group: usize) -> Case {
        let op = Conv { strides, pads, dilations: [1, 1], group, epilogue: None };
        let size =
            |axis: usize| (input[2 + axis] + pads[axis] + pads[axis + 2] - weights[2 + axis]) / strides[axis] + 1;
        Case { input, weights, out: [size(0), size(1)], op }
    }

    impl Case {
        fn node(&self, extras: &[&[usize]]) -> NodeSpec {
            let out = [self.input[0], self.weights[0], self.out[0], self.out[1]];
            node(Op::Conv(self.op.clone()), &[&[&self.input[..], &self.weights], extras].concat(), &[&out])
        }

        fn reference(&self, x: &[f32], w: &[f32]) -> Vec<f32> {
            let [n, c, h, width] = self.input;
            let [m, cg, kh, kw] = self.weights;
            let [oh, ow] = self.out;
            let mut y = Vec::new();
            for index in 0..n * m * oh * ow {
                let (ox, oy, channel, image) = (index % ow, index / ow % oh, index / ow / oh % m, index / ow / oh / m);
                let first = channel / (m / self.op.group) * cg;
                let mut sum = 0f64;
                for tap in 0..cg * kh * kw {
                    let (kx, ky, local) = (tap % kw, tap / kw % kh, tap / kw / kh);
                    let iy = (oy * self.op.strides[0] + ky * self.op.dilations[0]).checked_sub(self.op.pads[0]);
                    let ix = (ox * self.op.strides[1] + kx * self.op.dilations[1]).checked_sub(self.op.pads[1]);
                    if let (Some(iy), Some(ix)) = (iy.filter(|y| *y < h), ix.filter(|x| *x < width)) {
                        let value = x[((image * c + first + local) * h + iy) * width + ix];
                        sum += f64::from(value) * f64::from(w[channel * cg * kh * kw + tap]);
                    }
                }
                y.push(sum as f32);
            }
            y
        }
    }

    fn cases() -> Vec<Case> {
        let mut dilated = case([2, 3, 9, 8], [16, 3, 3, 2], [2, 1], [2, 1, 2, 0], 1);
        dilated.op.dilations = [2, 3];
        dilated.out = [5, 6];
        vec![
            case([1, 3, 8, 8], [8, 3, 3, 3], [1, 1], [1, 1, 1, 1], 1),
            case([2, 5, 7, 9], [33, 5, 3, 3], [2, 2], [1, 1, 1, 1], 1),
            case([3, 17, 5, 5], [40, 17, 1, 1], [1, 1], [0; 4], 1),
            case([1, 1, 1, 30], [9, 1, 1, 7], [1, 2], [0, 3, 0, 3], 1),
            case([1, 8, 6, 6], [24, 4, 3, 3], [1, 1], [1, 1, 1, 1], 2),
            // Narrow groups, computed directly.
            case([2, 6, 7, 7], [6, 1, 3, 3], [1, 1], [1, 1, 1, 1], 6),
            case([2, 6, 9, 7], [12, 1, 5, 3], [2, 3], [2, 0, 1, 1], 6),
            case([1, 8, 5, 5], [8, 4, 3, 3], [1, 1], [1, 1, 1, 1], 2),
            case([2, 9, 4, 4], [1, 9, 1, 1], [1, 1], [0; 4], 1),
            dilated,
        ]
    }

    #[test]
    fn windows_of_all_kinds() {
        for case in cases() {
            let node = case.node(&[]);
            let x = inputs(&node, 131);
            let values = |i: usize| x[i].elements::<f32>().expect("f32");
            check(&node, &x, &[case.reference(values(0), values(1))]);
        }
    }

    #[test]
    fn bias_residual_and_activation_are_applied_on_the_way_out() {
        for mut case in cases() {
            let sum = Expression::binary(Binary::Add).then(&Expression::binary(Binary::Add), 0).expect("fits");
            case.op.epilogue = Some(sum.then(&Expression::unary(Unary::Relu), 0).expect("fits"));
            let out = [case.input[0], case.weights[0], case.out[0], case.out[1]];
            let node = case.node(&[&[out[1], 1, 1], &out]);
            let x = inputs(&node, 132);
            let values = |i: usize| x[i].elements::<f32>().expect("f32");
            let mut want = case.reference(values(0), values(1));
            let area = out[2] * out[3];
            for (index, value) in want.iter_mut().enumerate() {
                *value = (*value + values(2)[index / area % out[1]] + values(3)[index]).max(0.0);
            }
            check(&node, &x, &[want]);
        }
    }

    #[test]
    fn more_tiles_than_one_dimension_of_groups_holds() {
        let case = case([2, 2, 40, 45], [17, 2, 3, 3], [1, 1], [1, 1, 1, 1], 1);
        let node = case.node(&[]);
        let x = inputs(&node, 133);
        let got = Run { gpu: narrow(), ..Run::new(&node) }.outputs(&x).expect("runs").remove(0);
        let values = |i: usize| x[i].elements::<f32>().expect("f32");
        assert_close(&got, &case.reference(values(0), values(1)), "a convolution");
    }
}
