//! Narrow weights as a product's shader reads them: words, and for a grid its scales and zero points.

use super::kernel::Recorder;
use super::{Shader, stored, words};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NarrowFormat, NarrowMatMul, NodeSpec};

pub(super) struct Narrow {
    op: NarrowMatMul,
    dtype: DType,
    /// Elements of a line of the weights, including padding.
    pub(super) line: usize,
    /// Blocks of the depth.
    blocks: usize,
}

impl Narrow {
    /// Creates the weights of a sound node.
    ///
    /// # Errors
    /// If the shader cannot read them, because they are not whole words, or have more elements than its indices count.
    pub(super) fn new(node: &NodeSpec, op: &NarrowMatMul) -> Result<Self, KernelError> {
        let weights = &node.inputs[1];
        if !weights.bytes().is_multiple_of(4) {
            return Err(node.unsupported("its weights are not whole words"));
        }
        if (weights.bytes() / 4) as u64 * (32 / op.bits()) as u64 > u64::from(u32::MAX) {
            return Err(node.unsupported("its weights have more elements than 32 bits can count"));
        }
        let line = weights.shape.dims()[1] * weights.dtype.size() * 8 / op.bits();
        let depth = node.inputs[0].shape.dims()[1];
        let blocks = match op.format {
            NarrowFormat::Float => 1,
            NarrowFormat::Grid { block, .. } => depth.div_ceil(block),
        };
        Ok(Self { op: op.clone(), dtype: weights.dtype, line, blocks })
    }

    /// Declares `weight`, which returns the element of B at this index.
    pub(super) fn declare<'a>(&self, recorder: &Recorder<'a>, shader: &mut Shader<'a>) -> Result<(), KernelError> {
        shader.read("b", "u32", recorder.input(1)?);
        let bits = self.op.bits();
        shader.constant("BITS", bits).constant("PER_WORD", 32 / bits).constant("MASK", (1u32 << bits) - 1);
        shader.code(RAW);
        let NarrowFormat::Grid { block, zero_points, .. } = self.op.format else {
            shader.code(if self.dtype == DType::F16 { HALF } else { UPPER_HALF });
            return Ok(());
        };
        shader.parameter("b_line", self.line).parameter("b_blocks", self.blocks).parameter("b_block", block);
        shader.read("scales", "f32", recorder.input(2)?);
        if zero_points {
            shader.read("zero_points", "f32", recorder.input(3)?);
        }
        let (line, within) = ("index / parameters.b_line", "index % parameters.b_line");
        let (column, step) = if self.op.transpose_b { (line, within) } else { (within, line) };
        let zero = if zero_points { "zero_points[at]".to_owned() } else { format!("f32({}u)", 1u32 << (bits - 1)) };
        shader.code(&format!(
            "fn weight(index: u32) -> f32 {{
    let at = {column} * parameters.b_blocks + {step} / parameters.b_block;
    return (f32(raw(index)) - {zero}) * scales[at];
}}
"
        ));
        Ok(())
    }
}

impl Narrow {
    /// Whether four neighbouring columns are widened alike: they are whole words, and each has one block.
    pub(super) fn has_vectors(&self) -> bool {
        match self.op.format {
            NarrowFormat::Float => !self.op.transpose_b,
            NarrowFormat::Grid { bits, .. } => !self.op.transpose_b && bits == 8 && self.blocks == 1,
        }
    }

    /// Declares `grid_of`, the grid of the columns from `line` on, and `widened`, which returns vector `index` of B.
    pub(super) fn declare_vectors<'a>(
        &self,
        recorder: &Recorder<'a>,
        shader: &mut Shader<'a>,
    ) -> Result<(), KernelError> {
        let NarrowFormat::Grid { bits, zero_points, .. } = self.op.format else {
            shader.read("w", "vec2<u32>", recorder.input(1)?).code(HALVES);
            shader.code(&stored::four_values("four", "w", self.dtype));
            return Ok(());
        };
        shader.read("w", "u32", recorder.input(1)?).read("scales", "vec4<f32>", recorder.input(2)?);
        if zero_points {
            shader.read("zero_points", "vec4<f32>", recorder.input(3)?);
        }
        let zeros = if zero_points { "zero_points[line / 4u]" } else { "vec4<f32>(128.0)" };
        shader.code(&words::four(bits, 0)).code(&format!(
            "struct Grid {{ zeros: vec4<f32>, scales: vec4<f32> }}

fn grid_of(line: u32) -> Grid {{
    return Grid({zeros}, scales[line / 4u]);
}}

fn widened(index: u32, grid: Grid) -> vec4<f32> {{
    return (four(w[index]) - grid.zeros) * grid.scales;
}}
"
        ));
        Ok(())
    }
}

/// WGSL functions that return vector `index` of 16-bit floats, which have no grid.
const HALVES: &str = "fn grid_of(line: u32) -> u32 {
    return 0u;
}

fn widened(index: u32, grid: u32) -> vec4<f32> {
    return four(index);
}
";

/// WGSL function that returns the bits of an element, the lowest first in each word.
const RAW: &str = "fn raw(index: u32) -> u32 {
    return (b[index / PER_WORD] >> (index % PER_WORD * BITS)) & MASK;
}
";

const HALF: &str = "fn weight(index: u32) -> f32 {
    return unpack2x16float(raw(index)).x;
}
";

const UPPER_HALF: &str = "fn weight(index: u32) -> f32 {
    return bitcast<f32>(raw(index) << 16u);
}
";

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, check, noise, shape, spec, tensor};
    use super::Narrow;
    use anabranch_kernel_testing as testing;
    use anabranch_op::dtype::DType;
    use anabranch_op::op::{NarrowFormat, NarrowMatMul, NodeSpec, Op};
    use anabranch_op::tensor::{Tensor, TensorSpec};

    fn check_weights(format: NarrowFormat, dtype: DType, transpose_b: bool, [m, n, k]: [usize; 3]) {
        let op = NarrowMatMul { format, transpose_b, quantize_a: false, epilogue: None };
        let line = (k * op.bits()).div_ceil(8 * dtype.size());
        let dims = if transpose_b { [n, line] } else { [k, n] };
        let values = noise(7, dims[0] * dims[1]);
        let weights = match dtype {
            DType::U8 => {
                let bytes: Vec<u8> = values.iter().map(|x| (x * 127.0 + 128.0) as u8).collect();
                Tensor::from_elements(shape(&dims), &bytes).expect("as many")
            }
            _ => testing::tensor(dtype, &dims, |i| f64::from(values[i])),
        };
        let mut inputs = vec![tensor(&[m, k], &noise(1, m * k)), weights];
        if let NarrowFormat::Grid { block, .. } = format {
            let blocks = [n, k.div_ceil(block)];
            inputs.extend((2..op.operands()).map(|at| tensor(&blocks, &noise(at as u64, blocks[0] * blocks[1]))));
        }
        let specs = inputs.iter().map(|input| input.spec().clone()).collect();
        let node = NodeSpec { op: Op::NarrowMatMul(op), inputs: specs, outputs: vec![spec(&[m, n])] };
        match inputs[1].bytes().len() % 4 {
            0 => check(&node, &inputs),
            _ => assert!(Run::new(&node).outputs(&inputs).is_err(), "weights that are no whole words"),
        }
    }

    #[test]
    fn weights_of_more_elements_than_indices_are_refused() {
        for (lines, sound) in [((1 << 17) - 1, true), (1 << 17, false)] {
            let format = NarrowFormat::Grid { bits: 4, block: 1 << 15, zero_points: false };
            let op = NarrowMatMul { format, transpose_b: true, quantize_a: false, epilogue: None };
            let weights = TensorSpec::new(DType::U8, shape(&[lines, 1 << 14]));
            let inputs = vec![spec(&[1, 1 << 15]), weights, spec(&[lines, 1])];
            let node = NodeSpec { op: Op::NarrowMatMul(op.clone()), inputs, outputs: vec![spec(&[1, lines])] };
            assert_eq!(Narrow::new(&node, &op).is_ok(), sound, "{lines}");
        }
    }

    #[test]
    fn weights_are_widened_where_they_are_read() {
        for sizes in [[1, 5, 32], [3, 33, 40], [40, 37, 70], [1, 12, 2048], [2, 5, 33]] {
            for (bits, block, zero_points) in [(2, 16, false), (4, 32, true), (4, 16, false), (8, 64, true)] {
                check_weights(NarrowFormat::Grid { bits, block, zero_points }, DType::U8, true, sizes);
            }
            let [_, _, k] = sizes;
            check_weights(NarrowFormat::Grid { bits: 8, block: k, zero_points: true }, DType::U8, false, sizes);
            for (dtype, transpose_b) in [(DType::F16, false), (DType::F16, true), (DType::BF16, false)] {
                check_weights(NarrowFormat::Float, dtype, transpose_b, sizes);
            }
        }
    }
}
