//! Two-dimensional convolution, with an epilogue: as a matrix product, or directly if groups are narrow.

use super::epilogue::{Coordinate, Epilogue};
use super::kernel::Recorder;
use super::product::{Extent, Parts, Run, element};
use super::tile::{Access, Order, Tile};
use super::window::{Images, Window};
use super::{Recipe, Shader};
use anabranch_op::error::KernelError;
use anabranch_op::op::{Conv, NodeSpec};

/// Output channels of a group below which most of a tile would be idle.
const NARROW: usize = 8;

/// Bytes of a tap of a window.
const TAP_BYTES: u64 = 16;

/// Convolution, transposed or not.
pub(super) struct Convolution {
    pub(super) window: Window,
    group: usize,
    pub(super) input: Images,
    output: Images,
    epilogue: Epilogue,
}

pub(super) fn recipe<'n>(node: &'n NodeSpec, op: &Conv) -> Result<Recipe<'n>, KernelError> {
    let Conv { strides, pads, dilations, group, .. } = *op;
    let conv = Convolution::new(node, strides, pads, dilations, group)?;
    conv.window.check_reach(node, conv.input, conv.output)?;
    let (channels, [height, width]) = (conv.input.channels / group, conv.window.size);
    let (passes, scratch_bytes, taps) = match conv.is_narrow() {
        true => (channels * (1 + height * (1 + width)), 0, 0),
        false => {
            let (parts, [_, access]) = (conv.parts(), conv.accesses());
            let taps = if access == Access::Windows { Tile::padded(conv.depth()) } else { 0 };
            // A thread finds the bits of four windows.
            let passes = conv.tile().passes(parts.depth()) + 4 * 32;
            (passes, parts.scratch_bytes(conv.extent()), taps)
        }
    };
    let recipe = Recipe::new(node, move |recorder| match conv.is_narrow() {
        true => conv.direct("conv_direct", include_str!("conv_direct.wgsl"), recorder),
        false => conv.tiled(recorder),
    });
    let (bindings, resident_bytes) = (recipe.bindings + usize::from(taps > 0), taps as u64 * TAP_BYTES);
    Ok(Recipe { passes, scratch_bytes, bindings, resident_bytes, ..recipe })
}

/// Returns a key of the order of all sums, see [`super::summation`].
pub(super) fn summation(node: &NodeSpec, op: &Conv) -> Option<Vec<usize>> {
    let Conv { strides, pads, dilations, group, .. } = *op;
    let conv = Convolution::new(node, strides, pads, dilations, group).ok()?;
    Some(if conv.is_narrow() { Vec::new() } else { conv.parts().summation().to_vec() })
}

impl Convolution {
    pub(super) fn new(
        node: &NodeSpec,
        strides: [usize; 2],
        pads: [usize; 4],
        dilations: [usize; 2],
        group: usize,
    ) -> Result<Self, KernelError> {
        let [input, weights, output] =
            [&node.inputs[0], &node.inputs[1], &node.outputs[0]].map(|spec| Images::of(&spec.shape));
        let window = Window { size: [weights.height, weights.width], strides, pads, dilations };
        window.check(node)?;
        let coordinates = [
            Coordinate { name: "image", axes: 0..1 },
            Coordinate { name: "channel", axes: 1..2 },
            Coordinate { name: "pixel", axes: 2..4 },
        ];
        Ok(Self { window, group, input, output, epilogue: Epilogue::new(node, &coordinates)? })
    }

    /// Declares the sizes of windows and images.
    fn declare_sizes(&self, shader: &mut Shader<'_>) {
        self.window.declare(shader);
        shader.parameter("channels", self.input.channels / self.group);
        shader.parameter("height", self.input.height).parameter("width", self.input.width);
        shader.parameter("out_width", self.output.width);
    }

    fn is_narrow(&self) -> bool {
        self.output.channels / self.group < NARROW
    }

    /// Returns the outputs of the products of all groups.
    fn extent(&self) -> Extent {
        let (m, n) = (self.output.channels / self.group, self.output.count * self.output.area());
        Extent { first: 0, batches: self.group, m, n }
    }

    /// Returns the inner dimension of each group's product.
    fn depth(&self) -> usize {
        self.input.channels / self.group * self.window.size[0] * self.window.size[1]
    }

    fn tile(&self) -> Tile {
        Tile::new(self.extent(), self.depth())
    }

    fn parts(&self) -> Parts {
        self.tile().parts(self.extent(), self.depth())
    }

    /// Whether all elements of all windows are in the input, and none in the padding.
    fn is_inside(&self) -> bool {
        let Window { size, strides, pads, dilations } = self.window;
        let reach = |axis: usize, output: usize| {
            output.saturating_sub(1) * strides[axis] + size[axis].saturating_sub(1) * dilations[axis]
        };
        let fits = |axis: usize, input: usize, output: usize| reach(axis, output) < input;
        let [input, output] = [self.input, self.output];
        pads == [0; 4] && fits(0, input.height, output.height) && fits(1, input.width, output.width)
    }

    /// Returns the access to the weights and to the windows. Windows of one element each are a matrix.
    fn accesses(&self) -> [Access; 2] {
        let weights = Access::Dense { order: Order::Depth, vectors: self.depth().is_multiple_of(4) };
        let same = [self.input.height, self.input.width] == [self.output.height, self.output.width];
        let vectors = same && self.window.strides == [1; 2] && self.input.area().is_multiple_of(4);
        match self.window.size == [1; 2] && self.is_inside() {
            true => [weights, Access::Dense { order: Order::Side, vectors }],
            false => [weights, Access::Windows],
        }
    }

    /// Whether each row and each column of a window can have a bit of a word.
    fn has_bits(&self) -> bool {
        self.window.size.iter().sum::<usize>() <= 32
    }

    /// Returns the taps of a window: for each element of the inner dimension its offset in the input, its row, its
    /// column, and the bits of both if there are as many.
    fn taps(&self) -> Vec<u32> {
        let Window { size: [height, width], dilations: [down, right], .. } = self.window;
        let tap = |k: usize| {
            let (channel, place) = (k / (height * width), k % (height * width));
            let (row, column) = (place / width * down, place % width * right);
            let offset = channel * self.input.area() + row * self.input.width + column;
            let bits = if self.has_bits() { 1 << (place / width) | 1 << (height + place % width) } else { 0 };
            [offset as u32, row as u32, column as u32, bits]
        };
        let mut taps: Vec<u32> = (0..self.depth()).flat_map(tap).collect();
        taps.resize(Tile::padded(self.depth()) * (TAP_BYTES / 4) as usize, 0);
        taps
    }

    fn tiled(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let (extent, accesses) = (self.extent(), self.accesses());
        let taps = (accesses[1] == Access::Windows).then(|| recorder.resident(&self.taps()));
        let vectors = self.output.area().is_multiple_of(4);
        self.parts().record(
            recorder,
            &Run {
                name: "conv",
                extent,
                vectors,
                operands: &|recorder, shader| {
                    self.declare_sizes(shader);
                    shader.parameter("all_channels", self.input.channels).parameter("out_area", self.output.area());
                    let [w, x] = accesses.map(|access| element(access.is_in_vectors()));
                    shader.read("x", x, recorder.input(0)?).read("w", w, recorder.input(1)?);
                    shader.code(&format!("fn a_at(place: u32) -> {w} {{\n    return w[place];\n}}\n"));
                    match &taps {
                        Some(taps) => {
                            shader.read("b_taps", "vec4<u32>", taps);
                            shader.constant("IS_INSIDE", usize::from(self.is_inside()));
                            shader.constant("HAS_BITS", usize::from(self.has_bits()));
                            shader.code(include_str!("conv_windows.wgsl"));
                        }
                        None => {
                            shader.parameter("b_depth", self.input.area());
                            shader.code(&format!("fn b_at(place: u32) -> {x} {{\n    return x[place];\n}}\n"));
                        }
                    }
                    Ok(())
                },
                store: &|recorder, shader, vectors| {
                    shader.write("y", element(vectors), recorder.output(0)?);
                    self.epilogue.declare(shader, recorder)?;
                    shader.parameter("all_out_channels", self.output.channels);
                    shader.parameter("out_area", self.output.area());
                    shader.code(if vectors { STORE_VECTOR } else { STORE });
                    Ok(())
                },
                body: &|shader| {
                    shader.code(include_str!("conv.wgsl"));
                    self.tile().declare(shader, extent, self.depth(), accesses, vectors)
                },
            },
        )
    }

    /// Returns a recipe with one thread for each element of the output.
    pub(super) fn direct(
        &self,
        name: &'static str,
        body: &str,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), KernelError> {
        let count = self.output.count * self.output.channels * self.output.area();
        let mut shader = Shader::new(name, body);
        self.declare_sizes(&mut shader);
        shader.read("x", "f32", recorder.input(0)?).read("w", "f32", recorder.input(1)?);
        shader.write("y", "f32", recorder.output(0)?);
        self.epilogue.declare(&mut shader, recorder)?;
        shader.parameter("count", count).parameter("groups", self.group);
        shader.parameter("out_channels", self.output.channels / self.group);
        shader.parameter("out_height", self.output.height);
        recorder.dispatch_each(&shader, count)
    }
}

/// WGSL function that finishes an output, the product's `row` and `column` of group `batch`, and writes it.
const STORE: &str = "fn store(batch: u32, row: u32, column: u32, value: f32) {
    let image = column / parameters.out_area;
    let pixel = column % parameters.out_area;
    let channel = batch * parameters.m + row;
    let index = (image * parameters.all_out_channels + channel) * parameters.out_area + pixel;
    y[index] = finish(value, index, image, channel, pixel);
}
";

/// WGSL function that finishes four outputs of one image, which begin at a multiple of four, and writes them.
const STORE_VECTOR: &str = "fn store(batch: u32, row: u32, column: u32, values: vec4<f32>) {
    let image = column / parameters.out_area;
    let pixel = column % parameters.out_area;
    let channel = batch * parameters.m + row;
    let index = (image * parameters.all_out_channels + channel) * parameters.out_area + pixel;
    y[index / 4u] = vec4<f32>(
        finish(values.x, index, image, channel, pixel),
        finish(values.y, index + 1u, image, channel, pixel + 1u),
        finish(values.z, index + 2u, image, channel, pixel + 2u),
        finish(values.w, index + 3u, image, channel, pixel + 3u),
    );
}
";

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, check, check_run, inputs, narrow, node};
    use super::super::tile::forced;
    use super::*;
    use anabranch_op::op::{Binary, Expression, Op, Unary};

    struct Case {
        input: [usize; 4],
        weights: [usize; 4],
        out: [usize; 4],
        op: Conv,
    }

    fn case(input: [usize; 4], weights: [usize; 4], strides: [usize; 2], pads: [usize; 4], group: usize) -> Case {
        dilated(input, weights, (strides, [1, 1]), pads, group)
    }

    fn dilated(
        input: [usize; 4],
        weights: [usize; 4],
        (strides, dilations): ([usize; 2], [usize; 2]),
        pads: [usize; 4],
        group: usize,
    ) -> Case {
        let op = Conv { strides, pads, dilations, group, epilogue: None };
        let size = |axis: usize| {
            let extent = (weights[2 + axis] - 1) * dilations[axis] + 1;
            (input[2 + axis] + pads[axis] + pads[axis + 2] - extent) / strides[axis] + 1
        };
        Case { input, weights, out: [input[0], weights[0], size(0), size(1)], op }
    }

    impl Case {
        fn node(&self, extras: &[&[usize]]) -> NodeSpec {
            node(Op::Conv(self.op.clone()), &[&[&self.input[..], &self.weights], extras].concat(), &[&self.out])
        }
    }

    #[test]
    fn windows_of_all_kinds_with_bias_residual_and_activation_or_without() {
        let sum = Expression::binary(Binary::Add).then(&Expression::binary(Binary::Add), 0).expect("fits");
        let epilogue = sum.then(&Expression::unary(Unary::Relu), 0).expect("fits");
        for mut case in [
            case([1, 3, 8, 8], [8, 3, 3, 3], [1, 1], [1, 1, 1, 1], 1),
            case([2, 5, 7, 9], [33, 5, 3, 3], [2, 2], [1, 1, 1, 1], 1),
            case([3, 17, 5, 5], [40, 17, 1, 1], [1, 1], [0; 4], 1),
            case([1, 1, 1, 30], [9, 1, 1, 7], [1, 2], [0, 3, 0, 3], 1),
            case([1, 8, 6, 6], [24, 4, 3, 3], [1, 1], [1, 1, 1, 1], 2),
            // Cut along the inner dimension.
            case([2, 40, 5, 7], [20, 40, 3, 3], [1, 1], [1, 1, 1, 1], 1),
            case([1, 64, 4, 4], [40, 32, 2, 3], [2, 1], [0, 1, 0, 1], 2),
            // Narrow groups, computed directly.
            case([2, 6, 7, 7], [6, 1, 3, 3], [1, 1], [1, 1, 1, 1], 6),
            case([2, 6, 9, 7], [12, 1, 5, 3], [2, 3], [2, 0, 1, 1], 6),
            case([1, 8, 5, 5], [8, 4, 3, 3], [1, 1], [1, 1, 1, 1], 2),
            case([2, 9, 4, 4], [1, 9, 1, 1], [1, 1], [0; 4], 1),
            dilated([2, 3, 9, 8], [16, 3, 3, 2], ([2, 1], [2, 3]), [2, 1, 2, 0], 1),
        ] {
            let plain = case.node(&[]);
            check(&plain, &inputs(&plain, 131));
            case.op.epilogue = Some(epilogue.clone());
            let whole = case.node(&[&[case.out[1], 1, 1], &case.out]);
            check(&whole, &inputs(&whole, 132));
        }
    }

    #[test]
    fn windows_in_each_tile() {
        forced::each(|[m, n]| {
            for case in [
                // One row of outputs, a column more and a channel less than a tile has.
                case([1, 5, 3, n + 3], [m - 1, 5, 3, 3], [1, 1], [0; 4], 1),
                case([1, 3, 5, n / 4], [m + 1, 3, 3, 3], [1, 1], [1; 4], 1),
                // More rows and columns than a word has bits.
                dilated([1, 2, 3, 70], [9, 2, 2, 31], ([1, 1], [1, 2]), [1, 30, 0, 31], 1),
                dilated([2, 6, 9, 8], [20, 3, 3, 2], ([2, 1], [2, 3]), [2, 1, 2, 0], 2),
                // Two parts.
                case([1, 36, 5, 5], [9, 36, 4, 4], [1, 1], [0, 1, 2, 3], 1),
                // Windows of one element: read in vectors, one by one, and in padding.
                case([3, 8, 6, 6], [24, 4, 1, 1], [1, 1], [0; 4], 2),
                case([2, 7, 7, 9], [12, 7, 1, 1], [2, 3], [0; 4], 1),
                case([1, 8, 4, 5], [8, 8, 1, 1], [1, 1], [0, 1, 1, 0], 1),
            ] {
                let node = case.node(&[]);
                check(&node, &inputs(&node, 134));
            }
        });
    }

    #[test]
    fn more_tiles_than_one_dimension_of_groups_holds() {
        let node = case([2, 2, 40, 45], [17, 2, 3, 3], [1, 1], [1, 1, 1, 1], 1).node(&[]);
        check_run(Run { gpu: narrow(), ..Run::new(&node) }, &inputs(&node, 133));
    }
}
