//! Resampling of the two innermost axes, from tables of neighbours and weights.

use super::{Recipe, Shader};
use anabranch_op::op::{Interpolation, NodeSpec, Resize, Taps};

pub(super) fn recipe<'n>(node: &NodeSpec, op: &'n Resize) -> Recipe<'n> {
    let (read, made) = (node.inputs[0].shape.dims(), node.outputs[0].shape.dims());
    let planes: usize = made[..made.len() - 2].iter().product();
    let [input, output] = [read, made].map(|dims| [dims[dims.len() - 2], dims[dims.len() - 1]]);
    let number = match op.interpolation {
        Interpolation::Nearest(_) => 1,
        Interpolation::Linear => 2,
        Interpolation::Cubic { .. } => 4,
    };
    let count = planes * output[0] * output[1];
    // Indices and weights of the taps of each output index of an axis, in the shader's layout.
    let table = move |axis: usize| -> Vec<u32> {
        let (size, length) = (input[axis], output[axis]);
        let all = (0..length).flat_map(|o| {
            let Taps { indices, weights, count } = op.taps::<f32>(axis, o, size, length);
            // A single neighbour fills all taps with equal weights, whose sum is exact: their number is a power of two.
            let share = count as f32 / number as f32;
            (0..number).map(move |tap| (indices[tap % count], weights[tap % count] * share))
        });
        all.flat_map(|(index, weight)| [index as u32, weight.to_bits()]).collect()
    };
    let recipe = Recipe::new(node, move |recorder| {
        let tables = [table(0), table(1)].map(|table| recorder.resident(&table));
        let mut shader = Shader::new("resize", include_str!("resize.wgsl"));
        shader.constant("TAPS", number);
        shader.parameter("count", count);
        shader.parameter("height", input[0]).parameter("width", input[1]);
        shader.parameter("out_height", output[0]).parameter("out_width", output[1]);
        shader.read("x", "f32", recorder.input(0)?);
        shader.read("rows", "vec2<u32>", &tables[0]).read("columns", "vec2<u32>", &tables[1]);
        shader.write("y", "f32", recorder.output(0)?);
        recorder.dispatch_each(&shader, count)
    });
    let resident_bytes = ((output[0] + output[1]) * number * 8) as u64;
    Recipe { bindings: 4, resident_bytes, ..recipe }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, assert_close, inputs, node, tensor};
    use super::*;
    use anabranch_op::Tensor;
    use anabranch_op::op::{Coordinates, NearestRounding, Op};

    fn resize(op: &Resize, dims: &[usize], out: [usize; 2]) -> NodeSpec {
        let output = [&dims[..dims.len() - 2], &out].concat();
        node(Op::Resize(op.clone()), &[dims], &[&output])
    }

    fn expect(node: &NodeSpec, x: &Tensor, want: &[f32]) {
        let got = Run::new(node).outputs(std::slice::from_ref(x)).expect("runs").remove(0);
        assert_close(&got, want, &node.key());
    }

    /// Values from the examples in ONNX's specification of Resize.
    #[test]
    fn the_specifications_examples() {
        let x = tensor(&[1, 1, 4, 4], &(1..=16).map(|i| i as f32).collect::<Vec<_>>());
        let small = tensor(&[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let op = |interpolation, coordinates, scale| Resize { interpolation, coordinates, scales: [scale; 2] };
        let linear = op(Interpolation::Linear, Coordinates::HalfPixel, 2.0);
        let rows = [[1.0, 1.25, 1.75, 2.0], [1.5, 1.75, 2.25, 2.5], [2.5, 2.75, 3.25, 3.5], [3.0, 3.25, 3.75, 4.0]];
        expect(&resize(&linear, &[1, 1, 2, 2], [4, 4]), &small, &rows.concat());
        let corners = op(Interpolation::Linear, Coordinates::AlignCorners, 2.0);
        let row = |start: f32| (0..4).map(move |i| start + i as f32 / 3.0);
        let want = (0..4).flat_map(|i| row(1.0 + 2.0 * i as f32 / 3.0)).collect::<Vec<_>>();
        expect(&resize(&corners, &[1, 1, 2, 2], [4, 4]), &small, &want);
        let nearest = Interpolation::Nearest(NearestRounding::RoundPreferFloor);
        let want = vec![1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0];
        let wide = Resize { interpolation: nearest, coordinates: Coordinates::HalfPixel, scales: [2.0, 3.0] };
        let want = [&want[..6], &want[..6], &want[6..], &want[6..]].concat();
        expect(&resize(&wide, &[1, 1, 2, 2], [4, 6]), &small, &want);
        let cubic = op(Interpolation::Cubic { coefficient: -0.75 }, Coordinates::HalfPixel, 0.8);
        let want = vec![1.471_191_4, 2.781_25, 4.082_519_5, 6.711_426, 8.021_484, 9.322_754, 11.916_504, 13.226_563];
        let want = [want, vec![14.527_832]].concat();
        expect(&resize(&cubic, &[1, 1, 4, 4], [3, 3]), &x, &want);
    }

    #[test]
    fn planes_are_resized_alike() {
        let op = Resize {
            interpolation: Interpolation::Linear,
            coordinates: Coordinates::PytorchHalfPixel,
            scales: [0.6, 1.0 / 7.0],
        };
        let node = resize(&op, &[2, 3, 5, 7], [3, 1]);
        let x = inputs(&node, 91).remove(0);
        let rows = [(0, 1, 1.0 / 3.0), (2, 3, 0.0), (3, 4, 2.0 / 3.0)];
        let planes = x.elements::<f32>().expect("f32").chunks(35);
        let want: Vec<f32> = planes.flat_map(|p| rows.map(|(a, b, t)| p[a * 7] * (1.0 - t) + p[b * 7] * t)).collect();
        expect(&node, &x, &want);
    }
}
