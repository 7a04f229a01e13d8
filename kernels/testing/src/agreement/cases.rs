//! Makes random nodes of the ops that the reference defines, and tensors for them, for tests of kernels.

use anabranch_op::DType;
use anabranch_op::op::{
    Concat, Conv, ConvTranspose, Coordinates, Fourier, Gather, Interpolation, MatMul, NearestRounding, NodeSpec,
    Running,
};
use anabranch_op::op::{
    Normalize, Op, Pad, PadMode, Pool, PoolKind, Reduce, ReduceKind, Resize, Slice, Softmax, Transpose,
};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::{Tensor, TensorSpec};

/// Numbers that arithmetic treats specially; subnormal numbers first.
pub(super) const SPECIAL: &[f32] = &[
    1e-45,
    -3e-39,
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    -0.0,
    0.0,
    f32::MAX,
    f32::MIN,
    1e38,
    f32::MIN_POSITIVE,
];

/// Generator of pseudo-random numbers (Marsaglia 2003, xorshift).
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn within(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most + 1 - least)
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// Returns a size: sometimes 0, often 1 or a prime, and sometimes more than a tile.
    fn size(&mut self) -> usize {
        self.of(&[0, 1, 1, 2, 3, 5, 7, 13, 16, 17, 31, 33, 64, 67])
    }

    fn dims(&mut self, rank: usize) -> Vec<usize> {
        (0..rank).map(|axis| if axis + 2 < rank { self.within(1, 3) } else { self.size() }).collect()
    }

    fn is_heads(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// Maker of an op's nodes.
pub(super) struct Case {
    pub(super) make: fn(&mut Random) -> NodeSpec,
    /// Whether its inputs may be special values.
    pub(super) is_special: bool,
}

const fn case(make: fn(&mut Random) -> NodeSpec) -> Case {
    Case { make, is_special: true }
}

/// Every op whose results are numbers of its definition.
pub(super) const CASES: [(&str, Case); 17] = [
    ("matmul", case(matmul)),
    ("conv", case(conv)),
    ("conv_transpose", case(conv_transpose)),
    ("pool", case(pool)),
    ("reduce", case(|random| reduce(random, false))),
    // The order of the factors decides whether a product overflows, and to what.
    ("product", Case { make: |random| reduce(random, true), is_special: false }),
    ("softmax", case(softmax)),
    ("normalize", case(normalize)),
    ("resize", case(resize)),
    ("transpose", case(transpose)),
    ("concat", case(concat)),
    ("slice", case(slice)),
    ("pad", case(pad)),
    ("gather", case(gather)),
    ("running", case(running)),
    // An infinite element has a part in every result, or in none if it is multiplied by zero.
    ("fourier", Case { make: fourier, is_special: false }),
    ("layers of one row", case(row)),
];

/// Returns numbers in −1…1, about one in nine of which is replaced by a number of `special`. Integer inputs are indices
/// of the first input.
pub(super) fn inputs(node: &NodeSpec, random: &mut Random, special: &[f32]) -> Vec<Tensor> {
    let size = match &node.op {
        Op::Gather(op) => node.inputs[0].shape.dims()[op.axis] as i64,
        _ => 0,
    };
    // A filter's weight that is not finite may be multiplied by the zeros around an image, or skip them.
    let is_filter = |input: usize| input == 1 && matches!(node.op, Op::Conv(_) | Op::ConvTranspose(_));
    let mut fill = |(input, spec): (usize, &TensorSpec)| {
        let count = spec.shape.elements();
        if spec.dtype == DType::I64 {
            let chosen: Vec<i64> = (0..count).map(|_| random.below(2 * size as usize) as i64 - size).collect();
            return Tensor::from_elements(spec.shape.clone(), &chosen);
        }
        let number = |random: &mut Random| (random.next() % (1 << 24)) as f32 / (1 << 23) as f32 - 1.0;
        let mut value = || match special {
            [] => number(random),
            _ if random.below(9) > 0 || is_filter(input) => number(random),
            _ => random.of(special),
        };
        Tensor::from_elements(spec.shape.clone(), &(0..count).map(|_| value()).collect::<Vec<_>>())
    };
    node.inputs.iter().enumerate().map(|input| fill(input).expect("as many as the shape has")).collect()
}

fn node(op: Op, inputs: &[&[usize]], output: &[usize]) -> NodeSpec {
    let spec = |dims: &[usize]| TensorSpec::new(DType::F32, Shape::new(dims).expect("small"));
    NodeSpec { op, inputs: inputs.iter().map(|dims| spec(dims)).collect(), outputs: vec![spec(output)] }
}

fn matmul(random: &mut Random) -> NodeSpec {
    let (m, k, n) = (random.size(), random.size(), random.size());
    let batch = random.within(1, 3);
    let (transpose_a, transpose_b) = (random.is_heads(), random.is_heads());
    let a = if transpose_a { [k, m] } else { [m, k] };
    let b = if transpose_b { [n, k] } else { [k, n] };
    let broadcast = if random.is_heads() { vec![1] } else { vec![batch] };
    let first = [&[batch][..], &a].concat();
    node(
        Op::MatMul(MatMul { transpose_a, transpose_b, epilogue: None, ..MatMul::default() }),
        &[&first, &[&broadcast[..], &b].concat()],
        &[batch, m, n],
    )
}

/// Returns sizes of windows over an image: window, strides, dilations, pads, image, and the number of positions that
/// fit.
fn windows(random: &mut Random) -> ([[usize; 2]; 3], [usize; 4], [[usize; 2]; 2]) {
    let mut along = || {
        let (window, stride, dilation) = (random.of(&[1, 2, 3, 3, 5]), random.within(1, 3), random.within(1, 2));
        let reach = (window - 1) * dilation + 1;
        let (before, after) = (random.below(window), random.below(window));
        let image = reach + random.below(20);
        [window, stride, dilation, before, after, image, (image + before + after - reach) / stride + 1]
    };
    let [a, b] = [along(), along()];
    ([[a[0], b[0]], [a[1], b[1]], [a[2], b[2]]], [a[3], b[3], a[4], b[4]], [[a[5], b[5]], [a[6], b[6]]])
}

/// Returns [`windows`] of few neighbours, for which pooling has its own loops, over rows of several vectors.
fn small_windows(random: &mut Random) -> ([[usize; 2]; 3], [usize; 4], [[usize; 2]; 2]) {
    let size = random.within(2, 3);
    let strides = [random.within(1, 2), random.within(1, 2)];
    let pads = [(); 4].map(|()| random.below(size));
    let image = [size + random.below(20), size + random.below(90)];
    let out = [0, 1].map(|axis| (image[axis] + pads[axis] + pads[axis + 2] - size) / strides[axis] + 1);
    ([[size; 2], strides, [1; 2]], pads, [image, out])
}

fn conv(random: &mut Random) -> NodeSpec {
    let ([window, strides, dilations], pads, [image, out]) = windows(random);
    let (group, own, maps) = (random.of(&[1, 1, 2, 5]), random.of(&[1, 3, 17]), random.of(&[1, 2, 7]));
    let op = Conv { strides, pads, dilations, group, epilogue: None };
    let filter = [group * maps, own, window[0], window[1]];
    node(Op::Conv(op), &[&[2, group * own, image[0], image[1]], &filter], &[2, group * maps, out[0], out[1]])
}

fn conv_transpose(random: &mut Random) -> NodeSpec {
    let ([window, strides, dilations], _, [image, _]) = windows(random);
    let (group, own, maps) = (random.of(&[1, 2]), random.of(&[1, 3]), random.of(&[1, 2, 7]));
    let pads = [random.below(window[0]), random.below(window[1]), 0, 0];
    let reach = |axis: usize| (image[axis] - 1) * strides[axis] + (window[axis] - 1) * dilations[axis] + 1 - pads[axis];
    let op = ConvTranspose { strides, pads, dilations, group, epilogue: None };
    let filter = [group * own, maps, window[0], window[1]];
    node(
        Op::ConvTranspose(op),
        &[&[2, group * own, image[0], image[1]], &filter],
        &[2, group * maps, reach(0), reach(1)],
    )
}

fn pool(random: &mut Random) -> NodeSpec {
    let small = random.is_heads();
    let ([window, strides, dilations], mut pads, [image, _]) =
        if small { small_windows(random) } else { windows(random) };
    // A window without an element has no greatest element and no mean.
    if dilations != [1, 1] {
        pads = [0; 4];
    }
    let out = |axis: usize| {
        let reach = (window[axis] - 1) * dilations[axis] + 1;
        (image[axis] + pads[axis] + pads[2 + axis] - reach) / strides[axis] + 1
    };
    let kinds = [PoolKind::Max, PoolKind::Average { count_padding: true }, PoolKind::Average { count_padding: false }];
    let output = [2, 3, out(0), out(1)];
    let op = Pool { kind: random.of(&kinds), window, strides, pads, dilations };
    node(Op::Pool(op), &[&[2, 3, image[0], image[1]]], &output)
}

fn reduce(random: &mut Random, product: bool) -> NodeSpec {
    use ReduceKind::{LogSumExp, Max, Mean, Min, Product, Sum, SumOfMagnitudes, SumOfSquares};
    let kind = random.of(&[Sum, Mean, Max, Min, SumOfSquares, SumOfMagnitudes, LogSumExp]);
    let rank = random.within(1, 4);
    let dims = random.dims(rank);
    let axes: Vec<usize> = (0..dims.len()).filter(|_| random.is_heads()).collect();
    let kept: Vec<usize> = (0..dims.len()).filter(|axis| !axes.contains(axis)).map(|axis| dims[axis]).collect();
    node(Op::Reduce(Reduce { kind: if product { Product } else { kind }, axes }), &[&dims], &kept)
}

fn softmax(random: &mut Random) -> NodeSpec {
    let dims = random.dims(3);
    node(Op::Softmax(Softmax { axis: random.below(3), log: random.is_heads() }), &[&dims], &dims)
}

fn normalize(random: &mut Random) -> NodeSpec {
    let dims = random.dims(3);
    let (axis, epsilon, center) = (random.below(3), random.of(&[1e-5, 1e-3]), random.is_heads());
    node(Op::Normalize(Normalize { axis, epsilon, center, epilogue: None }), &[&dims], &dims)
}

fn resize(random: &mut Random) -> NodeSpec {
    use Coordinates::{AlignCorners, Asymmetric, HalfPixel, PytorchHalfPixel};
    let (from, to) = ([1, 2].map(|_| random.within(1, 17)), [1, 2].map(|_| random.within(1, 35)));
    let interpolations = [
        Interpolation::Nearest(NearestRounding::Floor),
        Interpolation::Nearest(NearestRounding::RoundPreferCeil),
        Interpolation::Linear,
        Interpolation::Linear,
        Interpolation::Cubic { coefficient: -0.75 },
    ];
    let op = Resize {
        interpolation: random.of(&interpolations),
        coordinates: random.of(&[HalfPixel, PytorchHalfPixel, AlignCorners, Asymmetric]),
        scales: [0, 1].map(|axis| to[axis] as f64 / from[axis] as f64),
    };
    node(Op::Resize(op), &[&[2, 3, from[0], from[1]]], &[2, 3, to[0], to[1]])
}

fn transpose(random: &mut Random) -> NodeSpec {
    let dims = random.dims(4);
    let mut permutation: Vec<usize> = (0..4).collect();
    (0..4).for_each(|axis| permutation.swap(axis, random.within(axis, 3)));
    let output: Vec<usize> = permutation.iter().map(|axis| dims[*axis]).collect();
    node(Op::Transpose(Transpose { permutation }), &[&dims], &output)
}

fn concat(random: &mut Random) -> NodeSpec {
    let (dims, axis) = (random.dims(3), random.below(3));
    let parts: Vec<Vec<usize>> =
        (0..random.within(1, 4)).map(|_| [&dims[..axis], &[random.size()], &dims[axis + 1..]].concat()).collect();
    let sum = parts.iter().map(|part| part[axis]).sum();
    let inputs: Vec<&[usize]> = parts.iter().map(Vec::as_slice).collect();
    node(Op::Concat(Concat { axis }), &inputs, &[&dims[..axis], &[sum], &dims[axis + 1..]].concat())
}

fn slice(random: &mut Random) -> NodeSpec {
    let dims: Vec<usize> = random.dims(3).iter().map(|dim| (*dim).max(1)).collect();
    let (mut starts, mut steps, mut output) = (Vec::new(), Vec::new(), Vec::new());
    for dim in &dims {
        let (start, step) = (random.below(*dim), random.within(1, 3));
        let is_back = random.is_heads();
        let room = if is_back { start } else { dim - 1 - start };
        output.push(random.within(0, room / step + 1));
        starts.push(start);
        steps.push(if is_back { -(step as isize) } else { step as isize });
    }
    node(Op::Slice(Slice { starts, steps }), &[&dims], &output)
}

fn pad(random: &mut Random) -> NodeSpec {
    let dims: Vec<usize> = random.dims(3).iter().map(|dim| (*dim).max(1)).collect();
    let mode = random.of(&[
        PadMode::Constant(f64::INFINITY.into()),
        PadMode::Constant((-0.5).into()),
        PadMode::Reflect,
        PadMode::Edge,
        PadMode::Wrap,
    ]);
    let most = |dim: usize| if mode == PadMode::Reflect { dim - 1 } else { 4 };
    let before: Vec<isize> = dims.iter().map(|dim| random.below(most(*dim) + 1) as isize).collect();
    let after: Vec<usize> = dims.iter().map(|dim| random.below(most(*dim) + 1)).collect();
    let output: Vec<usize> = (0..3).map(|axis| dims[axis] + before[axis] as usize + after[axis]).collect();
    node(Op::Pad(Pad { mode, before }), &[&dims], &output)
}

fn gather(random: &mut Random) -> NodeSpec {
    let dims: Vec<usize> = random.dims(3).iter().map(|dim| (*dim).max(1)).collect();
    let (axis, chosen) = (random.below(3), vec![random.size(); random.within(0, 2)]);
    let output = [&dims[..axis], &chosen, &dims[axis + 1..]].concat();
    let mut node = node(Op::Gather(Gather { axis, elementwise: false }), &[&dims, &chosen], &output);
    node.inputs[1].dtype = DType::I64;
    node
}

fn running(random: &mut Random) -> NodeSpec {
    // Sometimes more columns than a part has.
    let dims = if random.is_heads() { random.dims(3) } else { vec![2, 130, 161] };
    let (axis, multiply) = (random.below(3), random.below(4) == 0);
    let (reverse, exclusive) = (random.is_heads(), random.is_heads());
    node(Op::Running(Running { axis, multiply, reverse, exclusive }), &[&dims], &dims)
}

fn fourier(random: &mut Random) -> NodeSpec {
    let (length, inverse, parts) = (random.size().max(1), random.is_heads(), random.within(1, 2));
    let real = inverse && random.is_heads();
    let half = length / 2 + 1;
    let read = random.within(0, if real { half } else { length });
    let made = if !inverse && random.is_heads() { half } else { length };
    let count = random.within(1, 3);
    let output = [count, made, if real { 1 } else { 2 }];
    node(Op::Fourier(Fourier { length, inverse }), &[&[count, read, parts]], &output)
}

/// Products of one row or column, which have their own kernels.
fn row(random: &mut Random) -> NodeSpec {
    let (k, n) = (random.size() * random.within(1, 4), random.size());
    let dims: [&[usize]; 3] = if random.is_heads() { [&[1, k], &[k, n], &[1, n]] } else { [&[n, k], &[k, 1], &[n, 1]] };
    node(Op::MatMul(MatMul::default()), &dims[..2], dims[2])
}
