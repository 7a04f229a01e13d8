//! The nodes that the kernels' benches measure, and values for them.

use anabranch_kernels::op::{
    Conv, Domain, Expression, Map, MatMul, NodeSpec, Normalize, Op, Reduce, ReduceKind, Softmax,
};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};

/// A tensor's type: `f32` of these dimensions.
pub fn spec(dims: &[usize]) -> TensorSpec {
    TensorSpec::new(DType::F32, Shape::new(dims).expect("a bench's tensors fit"))
}

fn node(op: Op, inputs: &[&[usize]], output: &[usize]) -> NodeSpec {
    NodeSpec { op, inputs: inputs.iter().map(|dims| spec(dims)).collect(), outputs: vec![spec(output)] }
}

/// Values that look random, in [−1, 1), the same in every run.
pub fn values(spec: &TensorSpec) -> Tensor {
    let value = |i: usize| (i.wrapping_mul(2_654_435_761) >> 7) as u16 as f32 / 32768.0 - 1.0;
    let values: Vec<f32> = (0..spec.shape.elements()).map(value).collect();
    Tensor::from_elements(spec.shape.clone(), &values).expect("as many values as elements")
}

/// An element-wise node on tensors of `dims`.
pub fn map(expression: Expression, dims: &[usize]) -> NodeSpec {
    let inputs = vec![dims; expression.inputs()];
    node(Op::Map(Map { domain: Domain::F32, expression }), &inputs, dims)
}

/// The product of `[m, k]` and `[k, n]`.
pub fn matmul([m, n, k]: [usize; 3]) -> NodeSpec {
    node(Op::MatMul(MatMul::default()), &[&[m, k], &[k, n]], &[m, n])
}

/// Reductions of a matrix and the nodes built on them, by name.
pub fn reductions(dims: [usize; 2]) -> [(&'static str, NodeSpec); 5] {
    let [rows, columns] = dims;
    let sum =
        |axes: Vec<usize>, kept: &[usize]| node(Op::Reduce(Reduce { kind: ReduceKind::Sum, axes }), &[&dims], kept);
    let normalize = Normalize { axis: 1, epsilon: 1e-5, center: true, epilogue: None };
    [
        ("sum of rows", sum(vec![1], &[rows])),
        ("sum of columns", sum(vec![0], &[columns])),
        ("sum of all", sum(vec![0, 1], &[])),
        ("softmax", node(Op::Softmax(Softmax { axis: 1, log: false }), &[&dims], &dims)),
        ("normalize", node(Op::Normalize(normalize), &[&dims], &dims)),
    ]
}

/// A layer of a convolutional network on one image, padded so that a stride of 1 keeps the image's size.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// What it is, with its place in a known network.
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
    /// Groups of channels that see nothing of each other.
    pub group: usize,
}

impl Layer {
    /// Height and width of the output.
    pub fn out_side(&self) -> usize {
        self.side.div_ceil(self.stride)
    }

    /// The layer as a node.
    pub fn node(&self) -> NodeSpec {
        let pad = self.window / 2;
        let op =
            Conv { strides: [self.stride; 2], pads: [pad; 4], dilations: [1; 2], group: self.group, epilogue: None };
        let out = self.out_side();
        let weights = [self.filters, self.channels / self.group, self.window, self.window];
        node(Op::Conv(op), &[&[1, self.channels, self.side, self.side], &weights], &[1, self.filters, out, out])
    }

    /// m, n and k of the product that the layer is, if it has one group.
    pub fn product(&self) -> [usize; 3] {
        [self.filters, self.out_side().pow(2), self.channels * self.window * self.window]
    }

    /// Multiply-adds.
    pub fn multiply_adds(&self) -> u64 {
        let [m, n, k] = self.product();
        (m * n * (k / self.group)) as u64
    }
}

/// Layers of ResNet-18 and MobileNetV2 at 224 × 224.
pub const LAYERS: [Layer; 7] = [
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
];
