//! True values of common ops for tests, element by element in `f64`, with error bounds. They are written from
//! [`anabranch_op::op`] and share no code with kernels.

use anabranch_op::op::{
    Conv, ConvTranspose, Fourier, Gather, Interpolation, MatMul, NodeSpec, Normalize, Op, Pad, PadMode, Pool,
};
use anabranch_op::op::{PoolKind, Reduce, ReduceKind, Resize, Running, Softmax, cubic_weights};
use anabranch_op::shape::Shape;
use std::f64::consts::PI;

/// True value of an element, and the unit of its error bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) value: f64,
    /// Sum of the finite terms' magnitudes: the error of a sum is in proportion to it.
    pub(super) scale: f64,
    /// Number of roundings that may add up.
    pub(super) roundings: f64,
}

impl Want {
    /// Returns an element that is only moved or chosen.
    const fn exact(value: f64) -> Self {
        Self { value, scale: 0.0, roundings: 0.0 }
    }

    fn sum(terms: impl Iterator<Item = f64>) -> Self {
        let start = Self { value: 0.0, scale: 0.0, roundings: 2.0 };
        terms.fold(start, |sum, term| Self {
            value: sum.value + term,
            scale: sum.scale + if term.is_finite() { term.abs() } else { 0.0 },
            roundings: sum.roundings + 1.0,
        })
    }

    fn over(self, divisor: f64) -> Self {
        Self { value: self.value / divisor, ..self }
    }
}

/// Returns the coordinates of an element.
fn place(mut index: usize, dims: &[usize]) -> Vec<usize> {
    let mut at = vec![0; dims.len()];
    for axis in (0..dims.len()).rev() {
        (at[axis], index) = (index % dims[axis], index / dims[axis]);
    }
    at
}

fn index(at: &[usize], dims: &[usize]) -> usize {
    at.iter().zip(dims).fold(0, |index, (at, dim)| index * dim + at)
}

fn greatest(values: &[f64]) -> f64 {
    values.iter().fold(f64::NEG_INFINITY, |most, x| if most.is_nan() || *x < most { most } else { *x })
}

/// Returns the elements of a node's only output.
pub(super) fn outputs(node: &NodeSpec, inputs: &[Vec<f64>]) -> Vec<Want> {
    let shape = &node.outputs[0].shape;
    (0..shape.elements()).map(|at| element(node, inputs, &place(at, shape.dims()), at)).collect()
}

fn element(node: &NodeSpec, inputs: &[Vec<f64>], at: &[usize], flat: usize) -> Want {
    let shapes: Vec<&Shape> = node.inputs.iter().map(|input| &input.shape).collect();
    let dims = shapes[0].dims();
    let x = |at: &[usize]| inputs[0][index(at, dims)];
    match &node.op {
        Op::MatMul(op) => product(op, inputs, &shapes, at),
        Op::Conv(op) => convolution(op, inputs, &shapes, at),
        Op::ConvTranspose(op) => spread(op, inputs, &shapes, at),
        Op::Pool(op) => pooled(op, dims, &x, at),
        Op::Reduce(op) => reduced(op, dims, &x, flat),
        Op::Softmax(Softmax { axis, log }) => {
            let row: Vec<f64> = (0..dims[*axis]).map(|i| x(&[&at[..*axis], &[i], &at[axis + 1..]].concat())).collect();
            share(&row, at[*axis], *log)
        }
        Op::Normalize(Normalize { axis, epsilon, center, .. }) => {
            let length: usize = dims[*axis..].iter().product();
            normal(&inputs[0][flat / length * length..][..length], flat % length, f64::from(*epsilon), *center)
        }
        Op::Resize(op) => resampled(op, node, &x, at),
        Op::Transpose(op) => {
            let from = |axis| op.permutation.iter().position(|of| *of == axis).map_or(0, |to| at[to]);
            Want::exact(x(&(0..dims.len()).map(from).collect::<Vec<_>>()))
        }
        Op::Concat(op) => {
            let (mut input, mut along) = (0, at[op.axis]);
            while along >= shapes[input].dims()[op.axis] {
                along -= shapes[input].dims()[op.axis];
                input += 1;
            }
            let from = [&at[..op.axis], &[along], &at[op.axis + 1..]].concat();
            Want::exact(inputs[input][index(&from, shapes[input].dims())])
        }
        Op::Slice(op) => {
            let from = |axis: usize| (op.starts[axis] as isize + at[axis] as isize * op.steps[axis]) as usize;
            Want::exact(x(&(0..dims.len()).map(from).collect::<Vec<_>>()))
        }
        Op::Pad(op) => padded(op, dims, &x, at),
        Op::Gather(Gather { axis, .. }) => {
            let rank = shapes[1].rank();
            let chosen = inputs[1][index(&at[*axis..axis + rank], shapes[1].dims())] as isize;
            let chosen = if chosen < 0 { chosen + dims[*axis] as isize } else { chosen } as usize;
            Want::exact(x(&[&at[..*axis], &[chosen], &at[axis + rank..]].concat()))
        }
        Op::Running(op) => joined(op, dims, &x, at),
        Op::Fourier(op) => transformed(op, node, &x, at),
        op => unreachable!("{} is not in the table", op.name()),
    }
}

fn product(op: &MatMul, inputs: &[Vec<f64>], shapes: &[&Shape], at: &[usize]) -> Want {
    let (batch, [row, column]) = (&at[..at.len() - 2], [at[at.len() - 2], at[at.len() - 1]]);
    let element = |input: usize, i: usize, k: usize, transposed: bool| {
        let dims = shapes[input].dims();
        let own = &batch[batch.len() + 2 - dims.len()..];
        let mut place: Vec<usize> = own.iter().zip(dims).map(|(at, dim)| if *dim == 1 { 0 } else { *at }).collect();
        place.extend(if transposed { [k, i] } else { [i, k] });
        inputs[input][index(&place, dims)]
    };
    let dims = shapes[0].dims();
    let depth = dims[dims.len() - if op.transpose_a { 2 } else { 1 }];
    Want::sum((0..depth).map(|k| element(0, row, k, op.transpose_a) * element(1, k, column, op.transpose_b)))
}

/// Returns the elements of a window of size `window` that lie inside the image: `reach` finds them in `sizes`.
fn inside(
    window: [usize; 2],
    sizes: [usize; 2],
    reach: impl Fn(usize, usize) -> Option<usize>,
) -> impl Iterator<Item = ([usize; 2], [usize; 2])> {
    let along = [0, 1].map(|axis| {
        let found = |tap: usize| Some((tap, reach(axis, tap).filter(|at| *at < sizes[axis])?));
        (0..window[axis]).filter_map(found).collect::<Vec<_>>()
    });
    let [rows, columns] = along;
    rows.into_iter().flat_map(move |(i, y)| columns.clone().into_iter().map(move |(j, x)| ([i, j], [y, x])))
}

fn convolution(op: &Conv, inputs: &[Vec<f64>], shapes: &[&Shape], at: &[usize]) -> Want {
    let (image, filter) = (shapes[0].dims(), shapes[1].dims());
    let group = at[1] / (filter[0] / op.group);
    let reach = |axis: usize, tap: usize| {
        (at[2 + axis] * op.strides[axis] + tap * op.dilations[axis]).checked_sub(op.pads[axis])
    };
    let places: Vec<_> = inside([filter[2], filter[3]], [image[2], image[3]], reach).collect();
    Want::sum((0..filter[1]).flat_map(|c| places.iter().map(move |place| (c, place))).map(|(c, ([i, j], [y, x]))| {
        let from = inputs[0][index(&[at[0], group * filter[1] + c, *y, *x], image)];
        from * inputs[1][index(&[at[1], c, *i, *j], filter)]
    }))
}

fn spread(op: &ConvTranspose, inputs: &[Vec<f64>], shapes: &[&Shape], at: &[usize]) -> Want {
    let (image, filter) = (shapes[0].dims(), shapes[1].dims());
    let (group, map) = (at[1] / filter[1], at[1] % filter[1]);
    let reach = |axis: usize, tap: usize| {
        let along = (at[2 + axis] + op.pads[axis]).checked_sub(tap * op.dilations[axis])?;
        (along % op.strides[axis] == 0).then_some(along / op.strides[axis])
    };
    let places: Vec<_> = inside([filter[2], filter[3]], [image[2], image[3]], reach).collect();
    let own = image[1] / op.group;
    Want::sum((0..own).flat_map(|c| places.iter().map(move |place| (group * own + c, place))).map(
        |(c, ([i, j], [y, x]))| {
            inputs[0][index(&[at[0], c, *y, *x], image)] * inputs[1][index(&[c, map, *i, *j], filter)]
        },
    ))
}

fn pooled(op: &Pool, dims: &[usize], x: &dyn Fn(&[usize]) -> f64, at: &[usize]) -> Want {
    let padded = |axis: usize, tap: usize| at[2 + axis] * op.strides[axis] + tap * op.dilations[axis];
    let reach = |axis: usize, tap: usize| padded(axis, tap).checked_sub(op.pads[axis]);
    let values = inside(op.window, [dims[2], dims[3]], reach).map(|(_, [i, j])| x(&[at[0], at[1], i, j]));
    let values: Vec<f64> = values.collect();
    match op.kind {
        PoolKind::Max => Want::exact(greatest(&values)),
        PoolKind::Average { count_padding } => {
            let counted = |axis: usize| {
                let most = dims[2 + axis] + op.pads[axis] + op.pads[2 + axis];
                (0..op.window[axis]).filter(|tap| padded(axis, *tap) < most).count()
            };
            let count = if count_padding { counted(0) * counted(1) } else { values.len() };
            Want::sum(values.into_iter()).over(count as f64)
        }
    }
}

fn reduced(op: &Reduce, dims: &[usize], x: &dyn Fn(&[usize]) -> f64, flat: usize) -> Want {
    let kept: Vec<usize> = (0..dims.len()).filter(|axis| !op.axes.contains(axis)).collect();
    let sizes = |axes: &[usize]| axes.iter().map(|axis| dims[*axis]).collect::<Vec<_>>();
    let (own, over) = (place(flat, &sizes(&kept)), sizes(&op.axes));
    let values: Vec<f64> = (0..over.iter().product())
        .map(|i| {
            let mut at = vec![0; dims.len()];
            kept.iter().zip(&own).for_each(|(axis, i)| at[*axis] = *i);
            op.axes.iter().zip(place(i, &over)).for_each(|(axis, i)| at[*axis] = i);
            x(&at)
        })
        .collect();
    let count = values.len() as f64;
    let negated = |values: &[f64]| values.iter().map(|x| -x).collect::<Vec<_>>();
    match op.kind {
        ReduceKind::Sum => Want::sum(values.into_iter()),
        ReduceKind::Mean => Want::sum(values.into_iter()).over(count),
        ReduceKind::Max => Want::exact(greatest(&values)),
        ReduceKind::Min => Want::exact(-greatest(&negated(&values))),
        ReduceKind::SumOfSquares => Want::sum(values.into_iter().map(|x| x * x)),
        ReduceKind::SumOfMagnitudes => Want::sum(values.into_iter().map(f64::abs)),
        ReduceKind::Product => {
            let value: f64 = values.iter().product();
            Want { value, scale: value.abs(), roundings: count }
        }
        ReduceKind::LogSumExp => {
            let peak = greatest(&values);
            if !peak.is_finite() {
                return Want::exact(peak);
            }
            let rest = values.iter().map(|x| (x - peak).exp()).sum::<f64>().ln();
            Want { value: peak + rest, scale: peak.abs() + rest + 1.0, roundings: count + 4.0 }
        }
    }
}

fn share(row: &[f64], at: usize, log: bool) -> Want {
    let peak = greatest(row);
    let below = row[at] - peak;
    let sum: f64 = row.iter().map(|x| (x - peak).exp()).sum();
    let roundings = row.len() as f64 + 8.0;
    if log {
        return Want { value: below - sum.ln(), scale: below.abs() + sum.ln() + 1.0, roundings };
    }
    let value = below.exp() / sum;
    Want { value, scale: if value > 0.0 { value * (1.0 + below.abs()) } else { 0.0 }, roundings }
}

fn normal(row: &[f64], at: usize, epsilon: f64, center: bool) -> Want {
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / row.len() as f64;
    let middle = if center { mean(&mut row.iter().copied()) } else { 0.0 };
    let deviation = (mean(&mut row.iter().map(|x| (x - middle).powi(2))) + epsilon).sqrt();
    let most = row.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    let value = (row[at] - middle) / deviation;
    // The error of the mean is in proportion to the greatest elements, and the variance inherits it.
    let scale = value.abs() + most / deviation * (1.0 + value.abs() * most / deviation * f64::from(f32::EPSILON));
    let scale = if scale.is_nan() { 0.0 } else { scale };
    Want { value, scale, roundings: row.len() as f64 + 8.0 }
}

fn resampled(op: &Resize, node: &NodeSpec, x: &dyn Fn(&[usize]) -> f64, at: &[usize]) -> Want {
    let (from, to) = (node.inputs[0].shape.dims(), node.outputs[0].shape.dims());
    let outer = at.len() - 2;
    let taps = [0, 1].map(|axis| {
        let size = from[outer + axis];
        let along = op.coordinate(axis, at[outer + axis], size, to[outer + axis]);
        let last = size as f64 - 1.0;
        let taps: Vec<(f64, f64)> = match op.interpolation {
            Interpolation::Nearest(rounding) => vec![(rounding.rounded(along), 1.0)],
            Interpolation::Linear => {
                let along = along.clamp(0.0, last);
                vec![(along.floor(), 1.0 - along.fract()), (along.floor() + 1.0, along.fract())]
            }
            Interpolation::Cubic { coefficient } => {
                let weights = cubic_weights(f64::from(coefficient), along - along.floor());
                (0..4).map(|i| (along.floor() - 1.0 + f64::from(i), weights[i as usize])).collect()
            }
        };
        let counts = taps.into_iter().filter(|(_, weight)| *weight as f32 != 0.0);
        counts.map(|(at, weight)| (at.clamp(0.0, last) as usize, weight)).collect::<Vec<_>>()
    });
    let [rows, columns] = &taps;
    let pairs = || rows.iter().flat_map(|row| columns.iter().map(move |column| (row, column)));
    let elements = pairs().map(|((i, _), (j, _))| 4.0 * x(&[&at[..outer], &[*i, *j]].concat()));
    let terms = pairs().map(|((i, a), (j, b))| a * b * x(&[&at[..outer], &[*i, *j]].concat()));
    match op.interpolation {
        Interpolation::Nearest(_) => Want::exact(terms.sum()),
        // Weights have an absolute error, so the bound depends on the elements' magnitudes and not on their weighted
        // shares.
        _ => Want { value: Want::sum(terms).value, ..Want::sum(elements) },
    }
}

fn padded(op: &Pad, dims: &[usize], x: &dyn Fn(&[usize]) -> f64, at: &[usize]) -> Want {
    let mut from = Vec::new();
    for axis in 0..dims.len() {
        let (along, last) = (at[axis] as isize - op.before[axis], dims[axis] as isize - 1);
        from.push(match op.mode {
            PadMode::Constant(value) if along < 0 || along > last => return Want::exact(value.as_f32().into()),
            PadMode::Constant(_) => along,
            PadMode::Edge => along.clamp(0, last),
            PadMode::Wrap => along.rem_euclid(last + 1),
            PadMode::Reflect if along < 0 => -along,
            PadMode::Reflect if along > last => 2 * last - along,
            PadMode::Reflect => along,
        } as usize);
    }
    Want::exact(x(&from))
}

fn joined(op: &Running, dims: &[usize], x: &dyn Fn(&[usize]) -> f64, at: &[usize]) -> Want {
    let own = at[op.axis];
    let before = if op.reverse { own + 1..dims[op.axis] } else { 0..own };
    let mut places: Vec<usize> = if op.reverse { before.rev().collect() } else { before.collect() };
    places.extend((!op.exclusive).then_some(own));
    let values = places.into_iter().map(|place| x(&[&at[..op.axis], &[place], &at[op.axis + 1..]].concat()));
    if op.multiply {
        let value: f64 = values.product();
        return Want { value, scale: value.abs(), roundings: 2.0 };
    }
    // Kernels join the elements in `f64`.
    Want { roundings: 2.0, ..Want::sum(values) }
}

fn transformed(op: &Fourier, node: &NodeSpec, x: &dyn Fn(&[usize]) -> f64, at: &[usize]) -> Want {
    let (read, made) = (node.inputs[0].shape.dims(), node.outputs[0].shape.dims());
    let number = |place: usize| {
        let part = |part: usize| if part < read[2] { x(&[at[0], place, part]) } else { 0.0 };
        (place, [part(0), part(1)])
    };
    // A real result comes from half a spectrum; the other half is its mirror image.
    let mirrored = if made[2] == 1 { op.length / 2 + 1..op.length } else { 0..0 };
    let mirrored = mirrored.filter(|place| op.length - place < read[1]).map(|place| {
        let (_, [re, im]) = number(op.length - place);
        (place, [re, -im])
    });
    let (sign, share) = if op.inverse { (1.0, 1.0 / op.length as f64) } else { (-1.0, 1.0) };
    let (mut value, mut scale) = (0.0, 0.0);
    for (place, [re, im]) in (0..read[1]).map(number).chain(mirrored) {
        let (sin, cos) = (sign * 2.0 * PI * (place * at[1] % op.length) as f64 / op.length as f64).sin_cos();
        value += share * if at[2] == 0 { re * cos - im * sin } else { re * sin + im * cos };
        scale += share * (re.abs() + im.abs());
    }
    // Kernels sum in `f64`.
    Want { value, scale, roundings: 2.0 }
}
