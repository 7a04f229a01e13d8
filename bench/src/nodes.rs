//! Nodes that the kernels' benches measure, and values for them.

use anabranch_kernels::op::{
    Binary, Conv, ConvTranspose, Coordinates, Domain, Expression, Interpolation, Literal, Map, MatMul, NarrowFormat,
    NarrowMatMul, NearestRounding, NodeSpec, Normalize, Op, Pool, PoolKind, Recurrent, RecurrentKind, Reduce,
    ReduceKind, Register, Resize, Softmax, Step, Transpose, Unary,
};
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// Returns the spec of an `f32` tensor of these dimensions.
pub fn spec(dims: &[usize]) -> TensorSpec {
    TensorSpec::new(DType::F32, Shape::new(dims).expect("a bench's tensors fit"))
}

fn node(op: Op, inputs: &[&[usize]], output: &[usize]) -> NodeSpec {
    NodeSpec { op, inputs: inputs.iter().map(|dims| spec(dims)).collect(), outputs: vec![spec(output)] }
}

/// Returns pseudo-random values, the same in every run: bytes, or numbers in [−1, 1).
///
/// # Panics
/// If the type is another than `u8`, `f16` or `f32`.
pub fn values(spec: &TensorSpec) -> Tensor {
    let number = |i: usize| (i.wrapping_mul(2_654_435_761) >> 7) as u16;
    let mut buffer = Buffer::zeroed(spec.bytes());
    let numbered = buffer.bytes_mut().chunks_exact_mut(spec.dtype.size()).enumerate();
    match spec.dtype {
        DType::U8 => numbered.for_each(|(i, to)| to[0] = number(i) as u8),
        // Exponents of 2⁻⁷ to 1, with any sign and mantissa.
        DType::F16 => numbered.for_each(|(i, to)| to.copy_from_slice(&(number(i) & 0x9FFF | 0x2000).to_ne_bytes())),
        DType::F32 => numbered.for_each(|(i, to)| {
            to.copy_from_slice(&(f32::from(number(i)) / 32768.0 - 1.0).to_ne_bytes());
        }),
        other => panic!("no values of type {other:?}"),
    }
    Tensor::new(spec.clone(), Arc::new(buffer)).expect("a buffer of this size")
}

/// Returns an element-wise node on tensors of `dims`.
pub fn map(expression: Expression, dims: &[usize]) -> NodeSpec {
    let inputs = vec![dims; expression.inputs()];
    node(Op::Map(Map { domain: Domain::F32, expression }), &inputs, dims)
}

/// Returns the product of `[m, k]` and `[k, n]`.
pub fn matmul([m, n, k]: [usize; 3]) -> NodeSpec {
    node(Op::MatMul(MatMul::default()), &[&[m, k], &[k, n]], &[m, n])
}

/// Returns the product of `[m, k]` and weights `[n, k]` of a format, whose left-hand matrix may be rounded to integers.
pub fn narrow([m, n, k]: [usize; 3], format: NarrowFormat, dtype: DType, quantize_a: bool) -> NodeSpec {
    let op = NarrowMatMul { format, transpose_b: true, quantize_a, epilogue: None };
    let line = k * op.bits() / (8 * dtype.size());
    let weights = TensorSpec::new(dtype, Shape::new([n, line]).expect("a bench's tensors fit"));
    let mut inputs = vec![spec(&[m, k]), weights];
    if let NarrowFormat::Grid { block, .. } = format {
        inputs.push(spec(&[n, k.div_ceil(block)]));
    }
    NodeSpec { op: Op::NarrowMatMul(op), inputs, outputs: vec![spec(&[m, n])] }
}

/// Returns `x / 2 · (1 + erf(x / √2))`, as exporters write it.
pub fn gelu() -> Expression {
    let steps = vec![
        Step::Constant(Literal::Float(std::f64::consts::SQRT_2)),
        Step::Binary(Binary::Divide, Register(0), Register(1)),
        Step::Unary(Unary::Erf, Register(2)),
        Step::Constant(Literal::Float(1.0)),
        Step::Binary(Binary::Add, Register(3), Register(4)),
        Step::Binary(Binary::Multiply, Register(0), Register(5)),
        Step::Constant(Literal::Float(0.5)),
        Step::Binary(Binary::Multiply, Register(6), Register(7)),
    ];
    Expression::new(1, steps).expect("each step reads earlier ones")
}

/// Returns reductions of a matrix and the nodes built on them, by name.
pub fn reductions(dims: [usize; 2]) -> [(&'static str, NodeSpec); 8] {
    let [rows, columns] = dims;
    let reduce = |kind, axes: Vec<usize>, kept: &[usize]| node(Op::Reduce(Reduce { kind, axes }), &[&dims], kept);
    let sum = |axes, kept: &[usize]| reduce(ReduceKind::Sum, axes, kept);
    let normalize = Normalize { axis: 1, epsilon: 1e-5, center: true, epilogue: None };
    [
        ("sum of rows", sum(vec![1], &[rows])),
        ("sum of columns", sum(vec![0], &[columns])),
        ("sum of all", sum(vec![0, 1], &[])),
        ("greatest of rows", reduce(ReduceKind::Max, vec![1], &[rows])),
        ("least of rows", reduce(ReduceKind::Min, vec![1], &[rows])),
        ("product of rows", reduce(ReduceKind::Product, vec![1], &[rows])),
        ("softmax", node(Op::Softmax(Softmax { axis: 1, log: false }), &[&dims], &dims)),
        ("normalize", node(Op::Normalize(normalize), &[&dims], &dims)),
    ]
}

/// Returns one direction of a recurrent layer. Its weights are input 1.
pub fn recurrent(kind: RecurrentKind, [steps, batch, units]: [usize; 3]) -> NodeSpec {
    let (wide, state) = (kind.gates() * units, [batch, units]);
    let inputs: [&[usize]; 5] = [&[steps, batch, wide], &[wide, units], &[wide], &state, &state];
    let op = Op::Recurrent(Recurrent::new(kind));
    let mut node = node(op, &inputs[..3 + kind.states()], &[steps, batch, units]);
    node.outputs.extend((0..kind.states()).map(|_| spec(&state)));
    node
}

/// Returns a transposed convolution of one square image without padding. Its weights are input 1.
pub fn conv_transpose([channels, maps]: [usize; 2], side: usize, window: usize, stride: usize) -> NodeSpec {
    let op = ConvTranspose { strides: [stride; 2], pads: [0; 4], dilations: [1; 2], group: 1, epilogue: None };
    let out = (side - 1) * stride + window;
    let weights = [channels, maps, window, window];
    node(Op::ConvTranspose(op), &[&[1, channels, side, side], &weights], &[1, maps, out, out])
}

/// Returns nodes that reorder or resize values, by name.
pub fn moves() -> Vec<(&'static str, NodeSpec)> {
    let transpose = |dims: &[usize], permutation: &[usize]| {
        let out: Vec<usize> = permutation.iter().map(|axis| dims[*axis]).collect();
        node(Op::Transpose(Transpose { permutation: permutation.to_vec() }), &[dims], &out)
    };
    let resize = |interpolation, side: usize, out: usize| {
        let scales = [out as f64 / side as f64; 2];
        let op = Op::Resize(Resize { interpolation, coordinates: Coordinates::HalfPixel, scales });
        node(op, &[&[1, 64, side, side]], &[1, 64, out, out])
    };
    let pool = |kind, [channels, side, out]: [usize; 3], window, stride| {
        let op = Pool { kind, window: [window; 2], strides: [stride; 2], pads: [window / 2; 4], dilations: [1; 2] };
        node(Op::Pool(op), &[&[1, channels, side, side]], &[1, channels, out, out])
    };
    let average = PoolKind::Average { count_padding: true };
    vec![
        ("greatest of 3 x 3 / 2, 64 of 112 x 112", pool(PoolKind::Max, [64, 112, 56], 3, 2)),
        ("greatest of 3 x 3, 192 of 28 x 28", pool(PoolKind::Max, [192, 28, 28], 3, 1)),
        ("mean of 3 x 3, 192 of 28 x 28", pool(average, [192, 28, 28], 3, 1)),
        ("copy of heads", transpose(&[1, 128, 12, 64], &[0, 2, 1, 3])),
        ("transpose of heads", transpose(&[1, 128, 12, 64], &[0, 2, 3, 1])),
        ("transpose 1024 x 1024", transpose(&[1024, 1024], &[1, 0])),
        ("channels last, 96 of 56 x 56", transpose(&[1, 96, 56, 56], &[0, 2, 3, 1])),
        ("nearest x 2", resize(Interpolation::Nearest(NearestRounding::RoundPreferFloor), 56, 112)),
        ("linear x 2", resize(Interpolation::Linear, 56, 112)),
        ("linear / 2", resize(Interpolation::Linear, 112, 56)),
        ("linear x 1.5", resize(Interpolation::Linear, 56, 84)),
        ("cubic x 2", resize(Interpolation::Cubic { coefficient: -0.75 }, 56, 112)),
    ]
}

/// Layer of a convolutional network on one image, padded so that a stride of 1 keeps the image's size.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Name of the layer, with its position in a known network.
    pub name: &'static str,
    /// Channels of the input.
    pub channels: usize,
    /// Channels of the output.
    pub filters: usize,
    /// Height and width of the input.
    pub side: usize,
    /// Height and width of the window.
    pub window: usize,
    /// Step of the window.
    pub stride: usize,
    /// Number of independent groups of channels.
    pub group: usize,
}

impl Layer {
    /// Returns the height and width of the output.
    pub fn out_side(&self) -> usize {
        self.side.div_ceil(self.stride)
    }

    /// Returns the layer as a node.
    pub fn node(&self) -> NodeSpec {
        self.followed(None)
    }

    /// Returns the layer with a bias, an addend of the output's size, and a Relu: the last layer of a residual block.
    pub fn residual(&self) -> NodeSpec {
        let add = |a, b| Step::Binary(Binary::Add, Register(a), Register(b));
        self.followed(Some((3, vec![add(0, 1), add(3, 2), Step::Unary(Unary::Relu, Register(4))])))
    }

    /// Returns the layer with a bias and `x · sigmoid(x)`.
    pub fn silu(&self) -> NodeSpec {
        let binary = |kind, a, b| Step::Binary(kind, Register(a), Register(b));
        let sigmoid = Step::Unary(Unary::Sigmoid, Register(2));
        self.followed(Some((2, vec![binary(Binary::Add, 0, 1), sigmoid, binary(Binary::Multiply, 2, 3)])))
    }

    /// Returns the layer, followed by these steps of `inputs` inputs: its result, a bias, an addend.
    fn followed(&self, steps: Option<(usize, Vec<Step>)>) -> NodeSpec {
        let (pads, out) = ([self.window / 2; 4], self.out_side());
        let operands = steps.as_ref().map_or(0, |(inputs, _)| inputs - 1);
        let epilogue =
            steps.map(|(inputs, steps)| Expression::new(inputs, steps).expect("each step reads earlier ones"));
        let op = Conv { strides: [self.stride; 2], pads, dilations: [1; 2], group: self.group, epilogue };
        let image = [1, self.channels, self.side, self.side];
        let weights = [self.filters, self.channels / self.group, self.window, self.window];
        let (bias, made) = ([self.filters, 1, 1], [1, self.filters, out, out]);
        let inputs: [&[usize]; 4] = [&image, &weights, &bias, &made];
        node(Op::Conv(op), &inputs[..2 + operands], &made)
    }

    /// Returns m, n and k of the layer's matrix product, if it has one group.
    pub fn product(&self) -> [usize; 3] {
        [self.filters, self.out_side().pow(2), self.channels * self.window * self.window]
    }

    /// Returns the number of multiply-adds.
    pub fn multiply_adds(&self) -> u64 {
        let [m, n, k] = self.product();
        (m * n * (k / self.group)) as u64
    }
}

/// Layers of ResNet-18, MobileNetV2 and ConvNeXt at 224 × 224.
pub const LAYERS: [Layer; 9] = [
    Layer { name: "7x7/2 3-64 of 224", channels: 3, filters: 64, side: 224, window: 7, stride: 2, group: 1 },
    Layer { name: "3x3 64-64 of 56", channels: 64, filters: 64, side: 56, window: 3, stride: 1, group: 1 },
    Layer { name: "3x3/2 64-128 of 56", channels: 64, filters: 128, side: 56, window: 3, stride: 2, group: 1 },
    Layer { name: "3x3 512-512 of 7", channels: 512, filters: 512, side: 7, window: 3, stride: 1, group: 1 },
    Layer { name: "1x1 24-144 of 56", channels: 24, filters: 144, side: 56, window: 1, stride: 1, group: 1 },
    Layer { name: "3x3 depthwise 144 of 56", channels: 144, filters: 144, side: 56, window: 3, stride: 1, group: 144 },
    Layer {
        name: "3x3/2 depthwise 576 of 14",
        channels: 576,
        filters: 576,
        side: 14,
        window: 3,
        stride: 2,
        group: 576,
    },
    Layer { name: "7x7 depthwise 96 of 56", channels: 96, filters: 96, side: 56, window: 7, stride: 1, group: 96 },
    Layer { name: "7x7 depthwise 768 of 7", channels: 768, filters: 768, side: 7, window: 7, stride: 1, group: 768 },
];
