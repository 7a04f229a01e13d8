//! Resampling of the two innermost axes, from tables of neighbours and weights.

use super::kernel::Recorder;
use super::limits::THREADS;
use super::shader::Shader;
use super::{Recipe, invalid};
use crate::error::KernelError;
use crate::op::{Coordinates, Interpolation, NearestRounding, NodeSpec, Resize};

pub(crate) struct ResizeRecipe {
    op: Resize,
    planes: usize,
    input: [usize; 2],
    output: [usize; 2],
}

impl ResizeRecipe {
    pub(crate) fn new(node: &NodeSpec, op: &Resize) -> Result<Self, KernelError> {
        let ([input], [output]) = (&node.inputs[..], &node.outputs[..]) else {
            return Err(invalid(node, "one input and one output are expected"));
        };
        let (Some((outer, input)), Some((same, output))) =
            (input.shape.dims().split_last_chunk::<2>(), output.shape.dims().split_last_chunk::<2>())
        else {
            return Err(invalid(node, "tensors of at least two axes are expected"));
        };
        if outer != same || !op.scales.iter().all(|scale| scale.is_finite() && *scale > 0.0) {
            return Err(invalid(node, "equal outer axes and positive scales are expected"));
        }
        Ok(Self { op: op.clone(), planes: outer.iter().product(), input: *input, output: *output })
    }

    /// The table of one axis: for each output its taps' indices and weights, in the shader's layout.
    fn table(&self, axis: usize) -> Vec<u32> {
        let (size, length) = (self.input[axis], self.output[axis]);
        let coordinate = |o: usize| source(self.op.coordinates, self.op.scales[axis], size, length, o);
        let taps = (0..length).flat_map(|o| taps(self.op.interpolation, coordinate(o)));
        let clamped = |i: f64| i.clamp(0.0, size as f64 - 1.0) as u32;
        taps.flat_map(|(index, weight)| [clamped(index), (weight as f32).to_bits()]).collect()
    }

    fn taps(&self) -> usize {
        match self.op.interpolation {
            Interpolation::Nearest(_) => 1,
            Interpolation::Linear => 2,
            Interpolation::Cubic { .. } => 4,
        }
    }
}

/// The input's coordinate that output `o` stands for.
fn source(coordinates: Coordinates, scale: f64, size: usize, length: usize, o: usize) -> f64 {
    let o = o as f64;
    match coordinates {
        Coordinates::PytorchHalfPixel | Coordinates::AlignCorners if length <= 1 => 0.0,
        Coordinates::HalfPixel | Coordinates::PytorchHalfPixel => (o + 0.5) / scale - 0.5,
        Coordinates::AlignCorners => o * (size as f64 - 1.0) / (length as f64 - 1.0),
        Coordinates::Asymmetric => o / scale,
    }
}

/// The neighbours of a coordinate, which may lie outside the input, and their weights.
fn taps(interpolation: Interpolation, at: f64) -> Vec<(f64, f64)> {
    let first = at.floor();
    let t = at - first;
    match interpolation {
        Interpolation::Nearest(rounding) => {
            let nearest = match rounding {
                NearestRounding::RoundPreferFloor => (at - 0.5).ceil(),
                NearestRounding::RoundPreferCeil => (at + 0.5).floor(),
                NearestRounding::Floor => at.floor(),
                NearestRounding::Ceil => at.ceil(),
            };
            vec![(nearest, 1.0)]
        }
        Interpolation::Linear => vec![(first, 1.0 - t), (first + 1.0, t)],
        Interpolation::Cubic { coefficient } => {
            let a = f64::from(coefficient);
            let near = |t: f64| ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0;
            let far = |t: f64| ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a;
            let weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
            weights.into_iter().enumerate().map(|(i, weight)| (first - 1.0 + i as f64, weight)).collect()
        }
    }
}

impl Recipe for ResizeRecipe {
    fn bindings(&self) -> usize {
        4
    }

    fn resident_bytes(&self) -> u64 {
        (self.output[0] + self.output[1]) as u64 * self.taps() as u64 * 8
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let count = self.planes * self.output[0] * self.output[1];
        let tables = [self.table(0), self.table(1)].map(|table| recorder.resident(&table));
        let mut shader = Shader::new("resize", include_str!("resize.wgsl"));
        shader.constant("TAPS", self.taps());
        shader.parameter("count", count);
        shader.parameter("height", self.input[0]).parameter("width", self.input[1]);
        shader.parameter("out_height", self.output[0]).parameter("out_width", self.output[1]);
        shader.read("x", "f32", recorder.input(0)?);
        shader.read("rows", "vec2<u32>", &tables[0]).read("columns", "vec2<u32>", &tables[1]);
        shader.write("y", "f32", recorder.output(0)?);
        recorder.dispatch(&shader, count.div_ceil(THREADS as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, inputs, node, tensor};
    use super::*;
    use crate::op::Op;

    fn resize(op: &Resize, dims: &[usize], out: [usize; 2]) -> NodeSpec {
        let output = [&dims[..dims.len() - 2], &out].concat();
        node(Op::Resize(op.clone()), &[dims], &[&output])
    }

    /// Values from the examples in ONNX's specification of Resize.
    #[test]
    fn the_specifications_examples() {
        let x = tensor(&[1, 1, 4, 4], &(1..=16).map(|i| i as f32).collect::<Vec<_>>());
        let small = tensor(&[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let op = |interpolation, coordinates, scale| Resize { interpolation, coordinates, scales: [scale; 2] };
        let linear = op(Interpolation::Linear, Coordinates::HalfPixel, 2.0);
        let rows = [[1.0, 1.25, 1.75, 2.0], [1.5, 1.75, 2.25, 2.5], [2.5, 2.75, 3.25, 3.5], [3.0, 3.25, 3.75, 4.0]];
        check(&resize(&linear, &[1, 1, 2, 2], [4, 4]), std::slice::from_ref(&small), &[rows.concat()]);
        let corners = op(Interpolation::Linear, Coordinates::AlignCorners, 2.0);
        let row = |start: f32| (0..4).map(move |i| start + i as f32 / 3.0);
        let want = (0..4).flat_map(|i| row(1.0 + 2.0 * i as f32 / 3.0)).collect();
        check(&resize(&corners, &[1, 1, 2, 2], [4, 4]), std::slice::from_ref(&small), &[want]);
        let nearest = Interpolation::Nearest(NearestRounding::RoundPreferFloor);
        let want = vec![1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0];
        let wide = Resize { interpolation: nearest, coordinates: Coordinates::HalfPixel, scales: [2.0, 3.0] };
        let want = [&want[..6], &want[..6], &want[6..], &want[6..]].concat();
        check(&resize(&wide, &[1, 1, 2, 2], [4, 6]), &[small], &[want]);
        let cubic = op(Interpolation::Cubic { coefficient: -0.75 }, Coordinates::HalfPixel, 0.8);
        let want = vec![1.471_191_4, 2.781_25, 4.082_519_5, 6.711_426, 8.021_484, 9.322_754, 11.916_504, 13.226_563];
        let want = [want, vec![14.527_832]].concat();
        check(&resize(&cubic, &[1, 1, 4, 4], [3, 3]), &[x], &[want]);
    }

    #[test]
    fn planes_are_resized_alike() {
        let op = Resize {
            interpolation: Interpolation::Linear,
            coordinates: Coordinates::PytorchHalfPixel,
            scales: [0.6, 1.0 / 7.0],
        };
        let node = resize(&op, &[2, 3, 5, 7], [3, 1]);
        let x = inputs(&node, 91);
        let values = x[0].elements::<f32>().expect("f32");
        let rows = [(0, 1, 1.0 / 3.0), (2, 3, 0.0), (3, 4, 2.0 / 3.0)];
        let want = values.chunks(35).flat_map(|p| rows.map(|(a, b, t)| p[a * 7] * (1.0 - t) + p[b * 7] * t));
        check(&node, &x, &[want.collect()]);
    }
}
