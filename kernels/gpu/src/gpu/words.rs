//! Products of few rows with narrow weights whose depth lies side by side, read by whole words.
//!
//! A lane reads a chunk of 16 bytes of a few columns at a time, widens it in registers, and multiplies it with the same
//! elements of all rows. An integer `q` becomes a float without a conversion, which is slow on many devices: its bits,
//! which begin at bit `p` of the word, are put into the mantissa of 2²³. That is 2²³ + q · 2ᵖ, and one multiply-add
//! makes q of it, exactly. A block's products are added first and scaled once.

use super::Shader;
use super::kernel::Recorder;
use super::lanes::{Lanes, tree};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NarrowFormat, NarrowMatMul, NodeSpec};
use std::fmt::Write;

/// Bytes of a column that a lane reads at a time.
const CHUNK: usize = 16;
/// Threads of a workgroup: few, so that the groups of a small product occupy a large device.
const THREADS: usize = 64;
/// Maximum rows, whose sums a lane keeps in registers.
const MOST_ROWS: usize = 8;

/// Product whose weights are read by whole words.
pub(super) struct Words {
    rows: usize,
    columns: usize,
    depth: usize,
    format: NarrowFormat,
    dtype: DType,
    /// Chunks of a line of the weights, including padding.
    line: usize,
    /// Elements of a chunk.
    elements: usize,
    /// Blocks of the depth.
    blocks: usize,
}

impl Words {
    /// Creates the product of a sound node; `None` if its sizes are no whole vectors, chunks and blocks.
    pub(super) fn new(node: &NodeSpec, op: &NarrowMatMul) -> Option<Self> {
        let (&[rows, depth], weights) = (node.inputs[0].shape.dims(), &node.inputs[1]) else { return None };
        let [columns, line] = *weights.shape.dims() else { return None };
        let (bytes, elements) = (line * weights.dtype.size(), CHUNK * 8 / op.bits());
        let block = match op.format {
            NarrowFormat::Grid { block, .. } => block,
            NarrowFormat::Float => depth,
        };
        let in_step = block >= depth || block % 4 == 0 && (block % elements == 0 || elements % block == 0);
        let whole = depth > 0 && depth % 4 == 0 && bytes % CHUNK == 0 && in_step;
        let few = (1..=MOST_ROWS).contains(&rows);
        (op.transpose_b && few && whole).then(|| Self {
            rows,
            columns,
            depth,
            format: op.format,
            dtype: weights.dtype,
            line: bytes / CHUNK,
            elements,
            blocks: depth.div_ceil(block.max(1)),
        })
    }

    /// Returns a key of the order of all sums, which does not depend on the number of rows.
    pub(super) fn summation(&self) -> Vec<usize> {
        vec![self.lanes().width(), 0, 0]
    }

    /// Returns the passes of a lane through its chunks and the trees of all sums.
    pub(super) fn passes(&self) -> usize {
        let tree = self.lanes().passes(0);
        self.lanes().passes(self.chunks()) + tree * (self.rows * self.outputs()).div_ceil(4)
    }

    /// Declares operands and parameters.
    pub(super) fn declare<'a>(&self, recorder: &Recorder<'a>, shader: &mut Shader<'a>) -> Result<(), KernelError> {
        shader.read("a", "vec4<f32>", recorder.input(0)?).read("b", "vec4<u32>", recorder.input(1)?);
        shader.parameter("a_line", self.depth / 4).parameter("b_line", self.line).parameter("chunks", self.chunks());
        let is_padded = !self.depth.is_multiple_of(self.elements);
        let inside = |index: &str, end: &str, value: &str, other: &str| match is_padded {
            true => {
                format!("    if {index} < parameters.{end} {{\n        return {value};\n    }}\n    return {other};\n")
            }
            false => format!("    return {value};\n"),
        };
        let body = inside("quad", "a_line", "a[row * parameters.a_line + quad]", "vec4<f32>()");
        shader.code(&format!("fn a_at(row: u32, quad: u32) -> vec4<f32> {{\n{body}}}\n"));
        let NarrowFormat::Grid { bits, zero_points, .. } = self.format else { return Ok(()) };
        shader.parameter("b_blocks", self.blocks).read("scales", "f32", recorder.input(2)?);
        shader.code(&four(bits, if zero_points { 0 } else { 1 << (bits - 1) }));
        let mut of_block = |name: &str, array: &str| {
            let body = inside("block", "b_blocks", &format!("{array}[line + block]"), "0.0");
            shader.code(&format!("fn {name}(line: u32, block: u32) -> f32 {{\n{body}}}\n"));
        };
        of_block("scale_at", "scales");
        if zero_points {
            of_block("zero_at", "zero_points");
            shader.read("zero_points", "f32", recorder.input(3)?);
        }
        Ok(())
    }

    /// Declares the loop, and returns the number of workgroups.
    pub(super) fn body(&self, shader: &mut Shader<'_>) -> usize {
        self.lanes().declare(shader);
        shader.constant("OUTPUTS", self.outputs());
        shader.code(&tree("total", "vec4<f32>", "sum_of_vectors")).code(include_str!("words.wgsl"));
        shader.fill("starts", &self.starts()).fill("chunk", &self.chunk()).fill("ends", &self.ends());
        self.lanes().groups(self.columns.div_ceil(self.outputs()))
    }

    fn chunks(&self) -> usize {
        self.depth.div_ceil(self.elements)
    }

    fn lanes(&self) -> Lanes {
        Lanes::of(THREADS, self.chunks().next_power_of_two().clamp(4, THREADS))
    }

    /// Returns the columns of a lane: loads in flight, and uses of each element of A. More rows leave registers for
    /// fewer columns.
    fn outputs(&self) -> usize {
        match self.rows {
            1 => 4,
            2..=6 => 2,
            _ => 1,
        }
    }

    fn is_grid(&self) -> bool {
        matches!(self.format, NarrowFormat::Grid { .. })
    }

    /// Returns all pairs of a row and a column of the lane.
    fn sums(&self) -> impl Iterator<Item = (usize, usize)> {
        let outputs = self.outputs();
        (0..self.rows).flat_map(move |row| (0..outputs).map(move |column| (row, column)))
    }

    /// Returns the statements before the loop: where columns begin, and sums of 0.
    fn starts(&self) -> String {
        let mut text = String::new();
        for c in 0..self.outputs() {
            let _ = writeln!(text, "    let column{c} = min(first + {c}u, parameters.n - 1u);");
            let _ = writeln!(text, "    let line{c} = column{c} * parameters.b_line;");
            if self.is_grid() {
                let _ = writeln!(text, "    let blocks{c} = column{c} * parameters.b_blocks;");
            }
        }
        let zero = if self.is_grid() { "0.0" } else { "vec4<f32>()" };
        self.sums().for_each(|(r, c)| _ = writeln!(text, "    var sum{r}_{c} = {zero};"));
        text
    }

    /// Returns the statements that multiply and add a chunk of each column. Each step takes four elements.
    fn chunk(&self) -> String {
        let mut text = String::new();
        for c in 0..self.outputs() {
            let _ = writeln!(text, "        let w{c} = b[line{c} + chunk];");
        }
        let quads = self.elements / 4;
        for quad in 0..quads {
            for r in 0..self.rows {
                let _ = writeln!(text, "        let a{r}_{quad} = a_at({r}u, chunk * {quads}u + {quad}u);");
            }
            for c in 0..self.outputs() {
                match self.format {
                    NarrowFormat::Float => self.float_step(&mut text, quad, c),
                    NarrowFormat::Grid { bits, block, zero_points } => {
                        self.grid_step(&mut text, quad, c, (bits, block, zero_points));
                    }
                }
            }
        }
        text
    }

    fn float_step(&self, text: &mut String, quad: usize, c: usize) {
        let [low, high] = [["x", "y"], ["z", "w"]][quad];
        let value = match self.dtype {
            DType::F16 => format!("vec4<f32>(unpack2x16float(w{c}.{low}), unpack2x16float(w{c}.{high}))"),
            _ => {
                let halves = format!("w{c}.{low}{low}{high}{high} << vec4<u32>(16u, 0u, 16u, 0u)");
                format!("bitcast<vec4<f32>>(({halves}) & vec4<u32>(0xffff0000u))")
            }
        };
        let _ = writeln!(text, "        let q{quad}_{c} = {value};");
        for r in 0..self.rows {
            let _ = writeln!(text, "        sum{r}_{c} = fma(q{quad}_{c}, a{r}_{quad}, sum{r}_{c});");
        }
    }

    fn grid_step(&self, text: &mut String, quad: usize, c: usize, (bits, block, zeros): (usize, usize, bool)) {
        // The quads of a chunk that belong to one block.
        let quads = self.elements / 4;
        let share = if self.blocks == 1 { quads } else { quads.min(block / 4) };
        let (part, begins, ends) = (quad / share, quad.is_multiple_of(share), (quad + 1).is_multiple_of(share));
        let at = match self.blocks {
            1 => "0u".to_owned(),
            _ if share == quads => format!("chunk / {}u", block / self.elements),
            _ => format!("chunk * {}u + {part}u", quads / share),
        };
        if begins && zeros {
            let _ = writeln!(text, "        let zero{part}_{c} = zero_at(blocks{c}, {at});");
        }
        let per_word = 8 / bits;
        let (word, shift) = (&"xyzw"[quad / per_word..][..1], 4 * bits * (quad % per_word));
        let minus = if zeros { format!(" - zero{part}_{c}") } else { String::new() };
        let _ = writeln!(text, "        let q{quad}_{c} = four(w{c}.{word} >> {shift}u){minus};");
        for r in 0..self.rows {
            let (weights, a, sum) = (format!("q{quad}_{c}"), format!("a{r}_{quad}"), format!("part{r}_{c}_{part}"));
            let _ = match begins {
                true => writeln!(text, "        var {sum} = {weights} * {a};"),
                false => writeln!(text, "        {sum} = fma({weights}, {a}, {sum});"),
            };
        }
        if ends {
            let _ = writeln!(text, "        let scale{part}_{c} = scale_at(blocks{c}, {at});");
            for r in 0..self.rows {
                let added = format!("sum_of_elements(part{r}_{c}_{part})");
                let _ = writeln!(text, "        sum{r}_{c} = fma({added}, scale{part}_{c}, sum{r}_{c});");
            }
        }
    }

    /// Returns the statements after the loop, which add up the lanes' sums and store them, four at a time.
    fn ends(&self) -> String {
        let mut text = String::new();
        let value = |(r, c): (usize, usize)| match self.is_grid() {
            true => format!("sum{r}_{c}"),
            false => format!("sum_of_elements(sum{r}_{c})"),
        };
        let values: Vec<_> = self.sums().map(value).collect();
        for (at, four) in values.chunks(4).enumerate() {
            let four: Vec<_> = four.iter().map(String::as_str).chain(["0.0"; 3]).take(4).collect();
            let row = at * 4 / self.outputs();
            let _ = writeln!(text, "    keep({row}u, first, total(vec4<f32>({}), at), at.y);", four.join(", "));
        }
        text
    }
}

/// Returns the WGSL function `four(word)`: the four lowest integers of a word, less `less`.
pub(super) fn four(bits: usize, less: u32) -> String {
    // Bits from the 24th on do not fit a mantissa: a word's upper half is moved down.
    let (words, positions) = match bits {
        8 => ("vec4<u32>(word, word, word >> 16u, word >> 16u)", [0, 8, 0, 8]),
        _ => ("vec4<u32>(word)", [0, bits, 2 * bits, 3 * bits]),
    };
    let vector = |element: &dyn Fn(usize) -> String| positions.map(element).join(", ");
    let masks = vector(&|at| format!("{}u", ((1u32 << bits) - 1) << at));
    let factors = vector(&|at| format!("{:?}", 1.0 / f64::from(1u32 << at)));
    let offsets = vector(&|at| format!("{:?}", -f64::from((1u32 << (23 - at)) + less)));
    format!(
        "fn four(word: u32) -> vec4<f32> {{
    let bits = ({words} & vec4<u32>({masks})) | vec4<u32>(0x4b000000u);
    return fma(bitcast<vec4<f32>>(bits), vec4<f32>({factors}), vec4<f32>({offsets}));
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, noise, shape, spec, tensor};
    use super::{CHUNK, MOST_ROWS, THREADS, Words};
    use anabranch_kernel_testing as testing;
    use anabranch_op::dtype::DType;
    use anabranch_op::op::{NarrowFormat, NarrowMatMul, NodeSpec, Op};
    use anabranch_op::tensor::{Tensor, TensorSpec};

    fn product(format: NarrowFormat, dtype: DType, [m, n, k]: [usize; 3]) -> (NodeSpec, NarrowMatMul) {
        let op = NarrowMatMul { format, transpose_b: true, quantize_a: false, epilogue: None };
        let bytes = match format {
            NarrowFormat::Float => 2 * k,
            NarrowFormat::Grid { bits, block, .. } => (k.next_multiple_of(block) * bits / 8).next_multiple_of(CHUNK),
        };
        let mut inputs = vec![spec(&[m, k]), TensorSpec::new(dtype, shape(&[n, bytes / dtype.size()]))];
        if let NarrowFormat::Grid { block, .. } = format {
            inputs.extend((2..op.operands()).map(|_| spec(&[n, k.div_ceil(block)])));
        }
        (NodeSpec { op: Op::NarrowMatMul(op.clone()), inputs, outputs: vec![spec(&[m, n])] }, op)
    }

    /// Returns values whose products hardly cancel, so that no output is small beside its terms.
    fn values((at, spec): (usize, &TensorSpec)) -> Tensor {
        let values: Vec<f32> = noise(at as u64 + 40, spec.shape.elements()).iter().map(|x| x * 0.5 + 1.0).collect();
        match spec.dtype {
            DType::U8 => {
                let bytes: Vec<u8> = values.iter().map(|x| (x * 128.0 + 60.0) as u8).collect();
                Tensor::from_elements(spec.shape.clone(), &bytes).expect("as many")
            }
            DType::F32 => tensor(spec.shape.dims(), &values),
            dtype => testing::tensor(dtype, spec.shape.dims(), |i| f64::from(values[i])),
        }
    }

    #[track_caller]
    fn check_words(format: NarrowFormat, dtype: DType, sizes: [usize; 3]) {
        let (node, op) = product(format, dtype, sizes);
        assert!(Words::new(&node, &op).is_some(), "{format:?}, {sizes:?}");
        check(&node, &node.inputs.iter().enumerate().map(values).collect::<Vec<_>>());
    }

    #[test]
    fn depths_around_chunks_and_lanes() {
        for bits in [2, 4, 8] {
            let elements = CHUNK * 8 / bits;
            let lanes = THREADS * elements;
            for depth in [4, elements - 4, elements, elements + 4, 5 * elements + 8, lanes - 4, lanes, lanes + 4] {
                let whole = depth.next_multiple_of(8);
                for (block, zero_points) in [(4, true), (8, true), (16, false), (128, true), (whole, false)] {
                    let format = NarrowFormat::Grid { bits, block, zero_points };
                    check_words(format, DType::U8, [1, 5, depth]);
                }
            }
        }
    }

    #[test]
    fn rows_and_columns_around_those_of_a_lane() {
        for rows in 1..=MOST_ROWS {
            for columns in [1, 2, 3, 4, 7, 8, 9, 65] {
                for bits in [4, 8] {
                    let format = NarrowFormat::Grid { bits, block: 32, zero_points: rows % 2 == 0 };
                    check_words(format, DType::U8, [rows, columns, 96]);
                }
                for dtype in [DType::F16, DType::BF16] {
                    check_words(NarrowFormat::Float, dtype, [rows, columns, 72]);
                }
            }
        }
    }

    #[test]
    fn sizes_without_whole_chunks_are_left_to_other_kernels() {
        let grid = |bits, block| NarrowFormat::Grid { bits, block, zero_points: false };
        for (format, dtype, sizes) in [
            (grid(4, 32), DType::U8, [MOST_ROWS + 1, 5, 64]),
            (grid(4, 32), DType::U8, [1, 5, 63]),
            (grid(4, 24), DType::U8, [1, 5, 64]),
            (grid(8, 6), DType::U8, [1, 5, 48]),
            (NarrowFormat::Float, DType::F16, [1, 5, 68]),
        ] {
            let (node, op) = product(format, dtype, sizes);
            assert!(Words::new(&node, &op).is_none(), "{format:?}, {sizes:?}");
            check(&node, &node.inputs.iter().enumerate().map(values).collect::<Vec<_>>());
        }
    }
}
