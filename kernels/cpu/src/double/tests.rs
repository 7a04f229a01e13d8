//! Kernels of `f64` compared with sums of twice their precision, over random shapes and magnitudes.
//!
//! A result may differ by some units in the last place of the sum of its terms' magnitudes. Computing in `f32` on the
//! way would cause an error of half a billion units, or a total loss of numbers beyond its range.

use crate::testing::{node, run_all_ways, shape};
use anabranch_op::DType;
use anabranch_op::op::{
    Conv, ConvTranspose, Coordinates, Interpolation, MatMul, NearestRounding, NodeSpec, Normalize, Op, Pool, PoolKind,
    Recurrent, RecurrentKind, Reduce, ReduceKind, Resize, Softmax, Taps,
};
use anabranch_op::{Tensor, TensorSpec};
use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;

/// Unevaluated sum of two numbers, the second of which is less than half a unit of the first (Dekker 1971).
#[derive(Clone, Copy)]
struct Double(f64, f64);

impl Double {
    const ZERO: Self = Self(0.0, 0.0);

    /// Returns `a + b` exactly (Knuth 1969, theorem 4.2.2 B).
    fn sum(a: f64, b: f64) -> Self {
        let sum = a + b;
        let part = sum - a;
        Self(sum, (a - (sum - part)) + (b - part))
    }

    /// Returns `a · b` exactly, unless it leaves the range.
    fn product(a: f64, b: f64) -> Self {
        let product = a * b;
        Self(product, a.mul_add(b, -product))
    }

    fn plus(self, other: Self) -> Self {
        let Self(high, low) = Self::sum(self.0, other.0);
        Self::sum(high, low + self.1 + other.1)
    }

    fn value(self) -> f64 {
        self.0 + self.1
    }
}

/// Returns `Σ a · b` and the sum of the terms' magnitudes.
fn dot(terms: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let mut sums = (Double::ZERO, 0.0);
    for (a, b) in terms {
        sums = (sums.0.plus(Double::product(a, b)), sums.1 + (a * b).abs());
    }
    (sums.0.value(), sums.1)
}

fn close(found: f64, (want, scale): (f64, f64), units: f64) -> bool {
    (found - want).abs() <= units * f64::EPSILON * scale
}

/// Returns numbers of either sign around `10^exponent`.
fn numbers(u: &mut Unstructured<'_>, count: usize, exponent: i32) -> Result<Vec<f64>> {
    let mut seed = u64::from(u.arbitrary::<u32>()?) << 1 | 1;
    let scale = 10f64.powi(exponent);
    Ok((0..count)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 11) as f64 / (1u64 << 52) as f64 - 1.0) * scale
        })
        .collect())
}

fn tensor(dims: &[usize], elements: &[f64]) -> Tensor {
    Tensor::from_elements(shape(dims), elements).expect("as many")
}

fn computed(op: Op, inputs: &[Tensor], dims: &[usize]) -> Vec<f64> {
    let made = run_all_ways(&node(op, inputs, DType::F64, dims), inputs).remove(0);
    made.elements().expect("f64").to_vec()
}

fn size(u: &mut Unstructured<'_>, most: usize) -> Result<usize> {
    u.int_in_range(1..=most)
}

/// Returns two exponents, such that sums of some hundred products of their numbers stay in the range.
fn exponents(u: &mut Unstructured<'_>) -> Result<[i32; 2]> {
    let one = u.int_in_range(-140..=140)?;
    Ok([one, if u.arbitrary()? { u.int_in_range(-140..=140)? } else { -one }])
}

#[test]
fn products() {
    arbtest(|u| {
        let (batch, m, n) = (size(u, 3)?, size(u, 9)?, size(u, 19)?);
        let k = if u.ratio(1, 8)? { u.int_in_range(250..=600)? } else { size(u, 40)? };
        let [of_a, of_b] = exponents(u)?;
        let (a, b) = (numbers(u, batch * m * k, of_a)?, numbers(u, batch * k * n, of_b)?);
        let [transpose_a, transpose_b]: [bool; 2] = u.arbitrary()?;
        let dims = |rows, columns, turned| if turned { [batch, columns, rows] } else { [batch, rows, columns] };
        let inputs = [tensor(&dims(m, k, transpose_a), &a), tensor(&dims(k, n, transpose_b), &b)];
        let op = Op::MatMul(MatMul { transpose_a, transpose_b, epilogue: None, ..MatMul::default() });
        let made = computed(op, &inputs, &[batch, m, n]);
        for (at, found) in made.into_iter().enumerate() {
            let (matrix, row, column) = (at / (m * n), at / n % m, at % n);
            let want = dot((0..k).map(|p| {
                let a = matrix * m * k + if transpose_a { p * m + row } else { row * k + p };
                let b_at = matrix * k * n + if transpose_b { column * k + p } else { p * n + column };
                (inputs[0].elements::<f64>().expect("f64")[a], b[b_at])
            }));
            assert!(close(found, want, 4.0 + k as f64), "{found} rather than {want:?} of {batch}×{m}×{k}×{n}");
        }
        Ok(())
    })
    .budget_ms(600);
}

#[test]
fn products_of_all_blocks_are_those_of_the_definition() {
    for (m, n, k) in [1, 2, 3, 4, 5, 7, 8, 9, 13, 64, 67]
        .into_iter()
        .flat_map(|m| [1, 7, 8, 9, 15, 16, 17, 33].map(|n| (m, n)))
        .flat_map(|(m, n)| [1, 7, 9, 255, 257].map(|k| (m, n, k)))
        .chain([(3, 259, 20), (130, 3, 513)])
    {
        let number = |i: usize| ((i * 7919 % 2003) as f64 - 1001.0) / 3.0;
        let (a, b): (Vec<_>, Vec<_>) = ((0..m * k).map(number).collect(), (0..k * n).map(number).collect());
        for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let dims = |rows, columns, turned| if turned { [columns, rows] } else { [rows, columns] };
            let inputs = [tensor(&dims(m, k, transpose_a), &a), tensor(&dims(k, n, transpose_b), &b)];
            let op = Op::MatMul(MatMul { transpose_a, transpose_b, epilogue: None, ..MatMul::default() });
            let made = computed(op, &inputs, &[m, n]);
            for (at, found) in made.into_iter().enumerate() {
                let (row, column) = (at / n, at % n);
                let want = dot((0..k).map(|p| {
                    let a_at = if transpose_a { p * m + row } else { row * k + p };
                    (a[a_at], b[if transpose_b { column * k + p } else { p * n + column }])
                }));
                assert!(close(found, want, 4.0 + k as f64), "{found} rather than {want:?} of {m}×{k}×{n}");
            }
        }
    }
}

#[test]
fn numbers_that_are_not_finite_stay_in_their_rows_and_columns() {
    let (m, n, k) = (11, 19, 5);
    let (mut a, mut b) = (vec![1.0; m * k], vec![2.0; k * n]);
    (a[3 * k + 1], b[2 * n + 17]) = (f64::NAN, f64::INFINITY);
    let op = Op::MatMul(MatMul::default());
    let made = computed(op, &[tensor(&[m, k], &a), tensor(&[k, n], &b)], &[m, n]);
    for (at, found) in made.into_iter().enumerate() {
        match (at / n, at % n) {
            (3, _) => assert!(found.is_nan(), "{found}"),
            (_, 17) => assert_eq!(found, f64::INFINITY),
            _ => assert_eq!(found, 10.0),
        }
    }
}

/// Random image, window and parameters of a convolution: sizes of the image and the window, strides, pads, dilations.
type Window = [[usize; 2]; 4];

fn window(u: &mut Unstructured<'_>) -> Result<(Window, [usize; 4])> {
    let two = |u: &mut Unstructured<'_>, least: usize, most: usize| -> Result<[usize; 2]> {
        Ok([u.int_in_range(least..=most)?, u.int_in_range(least..=most)?])
    };
    let (kernel, strides, dilations) = (two(u, 1, 3)?, two(u, 1, 3)?, two(u, 1, 2)?);
    let mut pads = [0; 4];
    for pad in &mut pads {
        *pad = u.int_in_range(0..=2)?;
    }
    let mut input = two(u, 1, 8)?;
    for axis in 0..2 {
        input[axis] = input[axis].max((kernel[axis] - 1) * dilations[axis] + 1);
    }
    Ok(([input, kernel, strides, dilations], pads))
}

#[test]
fn convolutions() {
    arbtest(|u| {
        let ([input, kernel, strides, dilations], pads) = window(u)?;
        let (images, group, in_each, out_each) = (size(u, 2)?, size(u, 2)?, size(u, 3)?, size(u, 3)?);
        let (channels, maps) = (group * in_each, group * out_each);
        let [of_x, of_w] = exponents(u)?;
        let x = numbers(u, images * channels * input[0] * input[1], of_x)?;
        let w = numbers(u, maps * in_each * kernel[0] * kernel[1], of_w)?;
        let output = [0, 1].map(|axis| {
            (input[axis] + pads[axis] + pads[axis + 2] - (kernel[axis] - 1) * dilations[axis] - 1) / strides[axis] + 1
        });
        let op = Op::Conv(Conv { strides, pads, dilations, group, epilogue: None });
        let inputs =
            [tensor(&[images, channels, input[0], input[1]], &x), tensor(&[maps, in_each, kernel[0], kernel[1]], &w)];
        let made = computed(op, &inputs, &[images, maps, output[0], output[1]]);
        for (at, found) in made.into_iter().enumerate() {
            let (image, map) = (at / (maps * output[0] * output[1]), at / (output[0] * output[1]) % maps);
            let place = [at / output[1] % output[0], at % output[1]];
            let mut terms = Vec::new();
            for (channel, ky, kx) in triples([in_each, kernel[0], kernel[1]]) {
                let [y, x_at] = [(0, ky), (1, kx)].map(|(axis, element)| {
                    (place[axis] * strides[axis] + element * dilations[axis]).checked_sub(pads[axis])
                });
                let (Some(y), Some(x_at)) = (y.filter(|y| *y < input[0]), x_at.filter(|x| *x < input[1])) else {
                    continue;
                };
                let of = (image * channels + map / out_each * in_each + channel) * input[0] + y;
                let weight = w[((map * in_each + channel) * kernel[0] + ky) * kernel[1] + kx];
                terms.push((x[of * input[1] + x_at], weight));
            }
            let want = dot(terms.into_iter());
            assert!(close(found, want, 40.0), "{found} rather than {want:?} at {at}");
        }
        Ok(())
    })
    .budget_ms(400);
}

fn triples([a, b, c]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a * b * c).map(move |at| (at / (b * c), at / c % b, at % c))
}

#[test]
fn transposed_convolutions() {
    arbtest(|u| {
        let ([input, kernel, strides, dilations], _) = window(u)?;
        let (images, group, in_each, out_each) = (size(u, 2)?, size(u, 2)?, size(u, 3)?, size(u, 3)?);
        let (channels, maps) = (group * in_each, group * out_each);
        let pads: [usize; 4] = [0, 1, 0, 1].map(|axis: usize| usize::from(kernel[axis] > 1));
        let full = [0, 1].map(|axis| (input[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1);
        let output = [0, 1].map(|axis| (full[axis] - pads[axis] - pads[axis + 2]).max(1));
        let [of_x, of_w] = exponents(u)?;
        let x = numbers(u, images * channels * input[0] * input[1], of_x)?;
        let w = numbers(u, channels * out_each * kernel[0] * kernel[1], of_w)?;
        let op = Op::ConvTranspose(ConvTranspose { strides, pads, dilations, group, epilogue: None });
        let inputs = [
            tensor(&[images, channels, input[0], input[1]], &x),
            tensor(&[channels, out_each, kernel[0], kernel[1]], &w),
        ];
        let made = computed(op, &inputs, &[images, maps, output[0], output[1]]);
        let mut terms = vec![Vec::new(); made.len()];
        for (of, element) in x.iter().enumerate() {
            let (image, channel) = (of / (channels * input[0] * input[1]), of / (input[0] * input[1]) % channels);
            let place = [of / input[1] % input[0], of % input[1]];
            for (map, ky, kx) in triples([out_each, kernel[0], kernel[1]]) {
                let to = [(0, ky), (1, kx)]
                    .map(|(axis, tap)| (place[axis] * strides[axis] + tap * dilations[axis]).checked_sub(pads[axis]));
                let [Some(y), Some(x_at)] = to else { continue };
                if y < output[0] && x_at < output[1] {
                    let plane = image * maps + channel / in_each * out_each + map;
                    let weight = w[((channel * out_each + map) * kernel[0] + ky) * kernel[1] + kx];
                    terms[(plane * output[0] + y) * output[1] + x_at].push((*element, weight));
                }
            }
        }
        for (found, terms) in made.into_iter().zip(terms) {
            let want = dot(terms.into_iter());
            assert!(close(found, want, 40.0), "{found} rather than {want:?}");
        }
        Ok(())
    })
    .budget_ms(400);
}

#[test]
fn pools() {
    arbtest(|u| {
        let ([input, kernel, strides, dilations], mut pads) = window(u)?;
        for (at, pad) in pads.iter_mut().enumerate() {
            *pad = (*pad).min(kernel[at % 2] - 1);
        }
        let planes = size(u, 3)?;
        let exponent = u.int_in_range(-300..=300)?;
        let x = numbers(u, planes * input[0] * input[1], exponent)?;
        let output = [0, 1].map(|axis| {
            (input[axis] + pads[axis] + pads[axis + 2] - (kernel[axis] - 1) * dilations[axis] - 1) / strides[axis] + 1
        });
        let count_padding = u.arbitrary()?;
        for kind in [PoolKind::Max, PoolKind::Average { count_padding }] {
            let op = Op::Pool(Pool { kind, window: kernel, strides, pads, dilations });
            let input_tensor = tensor(&[1, planes, input[0], input[1]], &x);
            let made = computed(op, &[input_tensor], &[1, planes, output[0], output[1]]);
            for (at, found) in made.into_iter().enumerate() {
                let plane = at / (output[0] * output[1]);
                let place = [at / output[1] % output[0], at % output[1]];
                let mut inside = Vec::new();
                for (_, ky, kx) in triples([1, kernel[0], kernel[1]]) {
                    let [y, x_at] = [(0, ky), (1, kx)].map(|(axis, element)| {
                        (place[axis] * strides[axis] + element * dilations[axis]).wrapping_sub(pads[axis])
                    });
                    if y < input[0] && x_at < input[1] {
                        inside.push(x[(plane * input[0] + y) * input[1] + x_at]);
                    }
                }
                if kind == PoolKind::Max {
                    assert_eq!(found, inside.iter().copied().fold(f64::NEG_INFINITY, f64::max));
                    continue;
                }
                let count = if count_padding { kernel[0] * kernel[1] } else { inside.len() } as f64;
                let (sum, scale) = dot(inside.iter().map(|x| (*x, 1.0)));
                let want = if inside.is_empty() && !count_padding { (f64::NAN, 0.0) } else { (sum / count, scale) };
                assert!(want.0.is_nan() && found.is_nan() || close(found, want, 20.0), "{found} rather than {want:?}");
            }
        }
        Ok(())
    })
    .budget_ms(400);
}

#[test]
fn distributions() {
    arbtest(|u| {
        let (outer, count, inner) = (size(u, 3)?, size(u, 40)?, size(u, 4)?);
        let exponent = u.int_in_range(-3..=300)?;
        let offset = if u.arbitrary()? { 1e6 } else { -1e300 };
        let spread = if u.arbitrary()? {
            numbers(u, outer * count * inner, 2)?
        } else {
            numbers(u, outer * count * inner, exponent)?
        };
        let x: Vec<f64> = spread.iter().map(|x| if exponent < 100 { x + offset } else { *x }).collect();
        for log in [false, true] {
            let dims = [outer, count, inner];
            let made = computed(Op::Softmax(Softmax { axis: 1, log }), &[tensor(&dims, &x)], &dims);
            for (at, found) in made.iter().enumerate() {
                let first = at / (count * inner) * count * inner + at % inner;
                let row: Vec<f64> = (0..count).map(|k| x[first + k * inner]).collect();
                let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let (total, _) = dot(row.iter().map(|x| ((x - most).exp(), 1.0)));
                let want = if log { (x[at] - most) - total.ln() } else { (x[at] - most).exp() / total };
                let scale = if log { want.abs().max(1.0) } else { want.max(f64::MIN_POSITIVE) };
                assert!(close(*found, (want, scale), 8.0), "{found} rather than {want}, log {log}");
            }
        }
        Ok(())
    })
    .budget_ms(400);
}

#[test]
fn rows_with_nan_or_infinity() {
    let row = |values: &[f64]| {
        computed(
            Op::Softmax(Softmax { axis: 1, log: false }),
            &[tensor(&[1, values.len()], values)],
            &[1, values.len()],
        )
    };
    assert!(row(&[1.0, f64::NAN, 2.0]).iter().all(|x| x.is_nan()));
    assert_eq!(row(&[1e308, f64::NEG_INFINITY, -1e308]), [1.0, 0.0, 0.0]);
}

#[test]
fn normalised_rows() {
    arbtest(|u| {
        let (rows, columns) = (size(u, 3)?, size(u, 70)?);
        let exponent = u.int_in_range(-300..=300)?;
        let center: bool = u.arbitrary()?;
        let epsilon = if exponent < -100 && u.arbitrary()? { 0.0 } else { 1e-5f32 };
        let x = numbers(u, rows * columns, exponent)?;
        let op = Op::Normalize(Normalize { axis: 1, epsilon, center, epilogue: None });
        let made = computed(op, &[tensor(&[rows, columns], &x)], &[rows, columns]);
        for (found, x) in made.chunks(columns).zip(x.chunks(columns)) {
            // Numbers near 1 have squares that are exact in twice the precision.
            let scale = 10f64.powi(-exponent);
            let x: Vec<f64> = x.iter().map(|x| x * scale).collect();
            let mean = if center { dot(x.iter().map(|x| (*x, 1.0))).0 / columns as f64 } else { 0.0 };
            let variance = dot(x.iter().map(|x| (x - mean, x - mean))).0 / columns as f64;
            let deviation = (variance + f64::from(epsilon) * scale * scale).sqrt();
            for (found, x) in found.iter().zip(&x) {
                let want = (x - mean) / deviation;
                let same = want.is_nan() && found.is_nan() || (found - want).abs() <= 1e-12 * want.abs().max(1.0);
                // One element is its own mean.
                assert!(same || center && columns == 1, "{found} rather than {want} of {columns} around 1e{exponent}");
            }
        }
        Ok(())
    })
    .budget_ms(400);
}

#[test]
fn reductions() {
    use ReduceKind::{LogSumExp, Max, Mean, Min, Sum, SumOfMagnitudes, SumOfSquares};
    arbtest(|u| {
        let (outer, count, inner) = (size(u, 4)?, size(u, 300)?, size(u, 4)?);
        let kind = *u.choose(&[Sum, Mean, Max, Min, SumOfSquares, SumOfMagnitudes, LogSumExp])?;
        let most = if kind == SumOfSquares { 150 } else { 300 };
        let x = {
            let exponent = u.int_in_range(-most..=most)?;
            numbers(u, outer * count * inner, exponent)?
        };
        let op = Op::Reduce(Reduce { kind, axes: vec![1] });
        let made = computed(op, &[tensor(&[outer, count, inner], &x)], &[outer, inner]);
        for (at, found) in made.into_iter().enumerate() {
            let first = at / inner * count * inner + at % inner;
            let values: Vec<f64> = (0..count).map(|k| x[first + k * inner]).collect();
            let sum = |f: fn(f64) -> (f64, f64)| dot(values.iter().map(|x| f(*x)));
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let want = match kind {
                Sum => sum(|x| (x, 1.0)),
                Mean => {
                    let (sum, scale) = sum(|x| (x, 1.0));
                    (sum / count as f64, scale / count as f64)
                }
                Max => (most, 0.0),
                Min => (values.iter().copied().fold(f64::INFINITY, f64::min), 0.0),
                SumOfSquares => sum(|x| (x, x)),
                SumOfMagnitudes => sum(|x| (x.abs(), 1.0)),
                _ => {
                    let total = dot(values.iter().map(|x| ((x - most).exp(), 1.0))).0;
                    let want = most + total.ln();
                    (want, want.abs().max(1.0).max(most.abs()))
                }
            };
            assert!(close(found, want, 100.0), "{kind:?}: {found} rather than {want:?} of {count}");
        }
        Ok(())
    })
    .budget_ms(400);
}

#[test]
fn resized_planes() {
    arbtest(|u| {
        let (input, output) = ([size(u, 9)?, size(u, 9)?], [size(u, 19)?, size(u, 19)?]);
        let interpolation = *u.choose(&[
            Interpolation::Nearest(NearestRounding::Floor),
            Interpolation::Linear,
            Interpolation::Cubic { coefficient: -0.75 },
        ])?;
        let coordinates = *u.choose(&[Coordinates::HalfPixel, Coordinates::Asymmetric, Coordinates::AlignCorners])?;
        let scales = [0, 1].map(|axis| output[axis] as f64 / input[axis] as f64);
        let op = Resize { interpolation, coordinates, scales };
        let exponent = u.int_in_range(-300..=300)?;
        let x = numbers(u, 2 * input[0] * input[1], exponent)?;
        let dims = [2, output[0], output[1]];
        let made = computed(Op::Resize(op.clone()), &[tensor(&[2, input[0], input[1]], &x)], &dims);
        for (at, found) in made.into_iter().enumerate() {
            let place = [at / output[1] % output[0], at % output[1]];
            let taps: [Taps<f64>; 2] = [0, 1].map(|axis| op.taps(axis, place[axis], input[axis], output[axis]));
            let plane = &x[at / (output[0] * output[1]) * input[0] * input[1]..];
            let pairs = triples([1, taps[0].count, taps[1].count]).map(|(_, row, column)| {
                let element = plane[taps[0].indices[row] * input[1] + taps[1].indices[column]];
                (element, taps[0].weights[row] * taps[1].weights[column])
            });
            let want = dot(pairs);
            assert!(close(found, want, 20.0), "{found} rather than {want:?} by {op:?}");
        }
        Ok(())
    })
    .budget_ms(400);
}

fn squash(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

#[test]
fn layers() {
    arbtest(|u| {
        let (steps, batch, units) = (size(u, 4)?, size(u, 3)?, size(u, 11)?);
        let kind = *u.choose(&[
            RecurrentKind::Rnn,
            RecurrentKind::Lstm,
            RecurrentKind::Gru { linear_before_reset: true },
            RecurrentKind::Gru { linear_before_reset: false },
        ])?;
        let (gates, states, reverse): (usize, usize, bool) = (kind.gates(), kind.states(), u.arbitrary()?);
        // Computing in `f32` would show in states that are this small.
        let exponent = u.int_in_range(-200..=0)?;
        let mut parts = vec![numbers(u, steps * batch * gates * units, exponent)?];
        parts.push(numbers(u, gates * units * units, 0)?);
        parts.push(numbers(u, gates * units, exponent)?);
        for _ in 0..states {
            parts.push(numbers(u, batch * units, exponent)?);
        }
        let dims: Vec<Vec<usize>> =
            [vec![steps, batch, gates * units], vec![gates * units, units], vec![gates * units]]
                .into_iter()
                .chain((0..states).map(|_| vec![batch, units]))
                .collect();
        let inputs: Vec<Tensor> = dims.iter().zip(&parts).map(|(dims, part)| tensor(dims, part)).collect();
        let spec = |dims: &[usize]| TensorSpec::new(DType::F64, shape(dims));
        let mut outputs = vec![spec(&[steps, batch, units])];
        outputs.extend((0..states).map(|_| spec(&[batch, units])));
        let coupled = kind == RecurrentKind::Lstm && u.arbitrary()?;
        let clip = if u.arbitrary()? { Some(0.4) } else { None };
        let bound = clip.map_or(f64::INFINITY, f64::from);
        let squash = |x: f64| squash(x.clamp(-bound, bound));
        let tanh = |x: f64| x.clamp(-bound, bound).tanh();
        let op = Op::Recurrent(Recurrent { kind, reverse, clip, coupled });
        let node = NodeSpec { op, inputs: inputs.iter().map(|input| input.spec().clone()).collect(), outputs };
        let made = run_all_ways(&node, &inputs);
        let all = made[0].elements::<f64>().expect("f64");
        for entry in 0..batch {
            let mut h = parts[3][entry * units..][..units].to_vec();
            let mut c = if states == 2 { parts[4][entry * units..][..units].to_vec() } else { Vec::new() };
            for step in 0..steps {
                let time = if reverse { steps - 1 - step } else { step };
                let input =
                    |gate: usize, unit: usize| parts[0][(time * batch + entry) * gates * units + gate * units + unit];
                let hidden = |gate: usize, unit: usize, state: &[f64]| {
                    let row = gate * units + unit;
                    parts[2][row] + dot((0..units).map(|k| (parts[1][row * units + k], state[k]))).0
                };
                let before = h.clone();
                for unit in 0..units {
                    let gate = |gate: usize| input(gate, unit) + hidden(gate, unit, &before);
                    h[unit] = match kind {
                        RecurrentKind::Rnn => tanh(gate(0)),
                        RecurrentKind::Lstm => {
                            let forget = if coupled { 1.0 - squash(gate(0)) } else { squash(gate(2)) };
                            c[unit] = forget * c[unit] + squash(gate(0)) * tanh(gate(3));
                            squash(gate(1)) * tanh(c[unit])
                        }
                        RecurrentKind::Gru { linear_before_reset } => {
                            let reset = |k: usize| squash(input(1, k) + hidden(1, k, &before));
                            let candidate = if linear_before_reset {
                                reset(unit) * hidden(2, unit, &before)
                            } else {
                                let passed: Vec<f64> = (0..units).map(|k| reset(k) * before[k]).collect();
                                hidden(2, unit, &passed)
                            };
                            let kept = squash(gate(0));
                            (1.0 - kept) * tanh(input(2, unit) + candidate) + kept * before[unit]
                        }
                    };
                }
                let found = &all[(time * batch + entry) * units..][..units];
                let scale = 10f64.powi(exponent);
                let near = |(found, want): (&f64, &f64)| (found - want).abs() <= 1e-12 * scale;
                assert!(found.iter().zip(&h).all(near), "{kind:?} at {time}: {found:?} rather than {h:?}");
            }
            let last = made.iter().skip(1).zip([&h, &c]);
            for (made, want) in last {
                let found = &made.elements::<f64>().expect("f64")[entry * units..][..units];
                let scale = 10f64.powi(exponent);
                assert!(found.iter().zip(want).all(|(found, want)| (found - want).abs() <= 1e-12 * scale));
            }
        }
        Ok(())
    })
    .budget_ms(400);
}
