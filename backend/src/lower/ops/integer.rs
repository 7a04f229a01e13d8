//! Products and convolutions of 8-bit integers, exactly: products of `f32` over so few terms that every sum is an integer that `f32`
//! holds, added up as 32-bit integers.

use super::matmul::multiplied;
use super::quantize::{along, rounded};
use super::window::{Window, as_plane, output_dims, plane};
use super::{Builder, Entry, Fault, Operator, View};
use anabranch_kernels::DType;
use anabranch_kernels::op::{Domain, PadMode};

pub(super) const TABLE: &[Entry] = &[
    ("MatMulInteger", matmul),
    ("ConvInteger", conv),
    ("QLinearMatMul", quantized_matmul),
    ("QLinearConv", quantized_conv),
];

/// Terms of a sum: 256 products of numbers up to 255 stay below 2²⁴.
const TERMS: usize = 256;

fn matmul(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (a, b) = (eight_bits(operator, 0)?, eight_bits(operator, 1)?);
    let left = centred(operator, builder, a, 2, a.rank().saturating_sub(2))?;
    let right = centred(operator, builder, b, 3, b.rank().saturating_sub(1))?;
    Ok(vec![product(builder, &left, &right)?])
}

fn quantized_matmul(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (a, b) = (eight_bits(operator, 0)?, eight_bits(operator, 3)?);
    let (row, column) = (a.rank().saturating_sub(2), b.rank().saturating_sub(1));
    let left = centred(operator, builder, a, 2, row)?;
    let right = centred(operator, builder, b, 5, column)?;
    let product = product(builder, &left, &right)?;
    let a_scale = parameter(operator, 1, product.rank().saturating_sub(2), product.rank())?;
    let b_scale = parameter(operator, 4, product.rank().saturating_sub(1), product.rank())?;
    Ok(vec![requantized(operator, builder, &product, [&a_scale, &b_scale], [6, 7])?])
}

/// The sum of products, scaled to the output's grid.
fn requantized(
    operator: &Operator<'_>,
    builder: &mut Builder,
    sum: &View,
    scales: [&View; 2],
    [scale, zero_point]: [usize; 2],
) -> Result<View, Fault> {
    let made = parameter(operator, scale, 0, 1)?;
    let zero = parameter(operator, zero_point, 0, 1)?;
    if made.elements() != 1 || zero.elements() != 1 {
        return Err(Fault::unsupported("an output with more than one scale"));
    }
    let (made, zero) = (made.reshaped(vec![])?, zero.reshaped(vec![])?);
    let inputs = [sum, scales[0], scales[1], &made];
    // 32-bit sums are not all exact in `f32`.
    let scaled = builder.map(Domain::F64, inputs, DType::F64, |[sum, a, b, made]| sum * (a * b / made))?;
    rounded(builder, &scaled, Some(&zero), zero.dtype())
}

fn conv(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let weights = eight_bits(operator, 1)?;
    let left = centred(operator, builder, eight_bits(operator, 0)?, 2, 1)?;
    let right = centred(operator, builder, weights, 3, 0)?;
    Ok(vec![convolved(operator, builder, &left, &right)?])
}

fn quantized_conv(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let left = centred(operator, builder, eight_bits(operator, 0)?, 2, 1)?;
    let right = centred(operator, builder, eight_bits(operator, 3)?, 5, 0)?;
    let mut sum = convolved(operator, builder, &left, &right)?;
    if operator.optional(8).is_some() {
        let bias = along(operator.typed(8, DType::I32)?, 1, sum.rank())?;
        sum = builder.map(Domain::I64, [&sum, &bias], DType::I32, |[sum, bias]| sum + bias)?;
    }
    let x_scale = parameter(operator, 1, 1, sum.rank())?;
    let weight_scale = parameter(operator, 4, 1, sum.rank())?;
    Ok(vec![requantized(operator, builder, &sum, [&x_scale, &weight_scale], [6, 7])?])
}

fn eight_bits<'a>(operator: &'a Operator<'_>, index: usize) -> Result<&'a View, Fault> {
    operator.typed(index, DType::U8).or_else(|_| operator.typed(index, DType::I8))
}

/// Input `index`: one number, or one for each index along an axis of `rank`.
fn parameter(operator: &Operator<'_>, index: usize, axis: usize, rank: usize) -> Result<View, Fault> {
    let given = operator.input(index)?;
    match given.rank() {
        _ if given.elements() == 1 => given.reshaped(vec![]),
        1 => along(given, axis, rank),
        _ => Ok(given.clone()),
    }
}

/// `x` less its zero point, which is input `index`, as `f32`.
fn centred(operator: &Operator<'_>, builder: &mut Builder, x: &View, index: usize, axis: usize) -> Result<View, Fault> {
    if operator.optional(index).is_none() {
        return builder.as_f32(x);
    }
    operator.typed(index, x.dtype())?;
    let zero_point = parameter(operator, index, axis, x.rank())?;
    builder.map(Domain::F32, [x, &zero_point], DType::F32, |[x, zero]| x - zero)
}

/// The product of matrices of integers of at most 9 bits, in `f32`, as `i32`.
fn product(builder: &mut Builder, a: &View, b: &View) -> Result<View, Fault> {
    let (row, column) = (a.rank() == 1, b.rank() == 1);
    let a = if row { a.reshaped([&[1], a.dims()].concat())? } else { a.clone() };
    let b = if column { b.reshaped([b.dims(), &[1]].concat())? } else { b.clone() };
    let (depth_a, depth_b) = (a.rank().saturating_sub(1), b.rank().saturating_sub(2));
    let depth = a.dims().get(depth_a).copied().unwrap_or(0);
    if a.rank() < 2 || b.rank() < 2 || b.dims()[depth_b] != depth {
        return Err(Fault::invalid(format!("a matrix of shape {} times one of shape {}", a.shape(), b.shape())));
    }
    let mut sum: Option<View> = None;
    for start in (0..depth.max(1)).step_by(TERMS) {
        let count = TERMS.min(depth - start);
        let (left, right) = (builder.part(&a, depth_a, start, count)?, builder.part(&b, depth_b, start, count)?);
        let part = multiplied(builder, &left, &right)?;
        sum = Some(added(builder, sum, &part)?);
    }
    let sum = sum.ok_or_else(|| Fault::invalid("no product at all"))?;
    let mut dims = sum.dims().to_vec();
    if column {
        dims.pop();
    }
    if row {
        dims.remove(dims.len() - if column { 1 } else { 2 });
    }
    sum.reshaped(dims)
}

/// `sum` plus exact integers in `f32`, as `i32`.
fn added(builder: &mut Builder, sum: Option<View>, part: &View) -> Result<View, Fault> {
    let part = builder.cast(part, DType::I32)?;
    match sum {
        None => Ok(part),
        Some(sum) => builder.map(Domain::I64, [&sum, &part], DType::I32, |[sum, part]| sum + part),
    }
}

/// The convolution of images of integers, as a product for each element of the window.
fn convolved(operator: &Operator<'_>, builder: &mut Builder, x: &View, weights: &View) -> Result<View, Fault> {
    let kernel = weights.dims().get(2..).filter(|_| weights.rank() == x.rank());
    let kernel = kernel.ok_or_else(|| Fault::invalid(format!("weights of shape {}", weights.shape())))?;
    let mut window = Window::read(operator, x, Some(kernel))?;
    window.resolve(plane(x)?)?;
    let [rows, columns] = window.output(plane(x)?, false)?;
    let group = operator.size("group", 1, 1)?;
    let (images, channels, filters) = (x.dims()[0], x.dims()[1], weights.dims()[0]);
    let depth = weights.dims()[1];
    if depth.checked_mul(group) != Some(channels) || !filters.is_multiple_of(group) {
        return Err(Fault::invalid(format!("{channels} channels in {group} groups, to {filters} filters")));
    }
    let image = bordered(builder, x, &window)?;
    let weights = as_plane(weights)?;
    let mut sum = None;
    for (tap_row, tap_column) in (0..window.kernel[0]).flat_map(|row| (0..window.kernel[1]).map(move |c| (row, c))) {
        let starts = vec![0, 0, tap_row * window.dilations[0], tap_column * window.dilations[1]];
        let steps = vec![1, 1, window.strides[0] as isize, window.strides[1] as isize];
        let read = builder.sliced(&image, starts, steps, vec![images, channels, rows, columns])?;
        let read = read.reshaped(vec![images, group, depth, rows * columns])?;
        let tap = vec![0, 0, tap_row, tap_column];
        let taken = builder.sliced(&weights, tap, vec![1; 4], vec![filters, depth, 1, 1])?;
        let taken = taken.reshaped(vec![1, group, filters / group, depth])?;
        for start in (0..depth).step_by(TERMS) {
            let count = TERMS.min(depth - start);
            let (left, right) = (builder.part(&taken, 3, start, count)?, builder.part(&read, 2, start, count)?);
            let part = multiplied(builder, &left, &right)?;
            sum = Some(added(builder, sum, &part)?);
        }
    }
    let sum = sum.ok_or_else(|| Fault::invalid("no product at all"))?;
    sum.reshaped(output_dims(&window, images, filters, [rows, columns]))
}

/// The images with the window's border of zeros.
fn bordered(builder: &mut Builder, x: &View, window: &Window) -> Result<View, Fault> {
    let image = as_plane(x)?;
    let [top, left, bottom, right] = window.pads;
    let mut dims = image.dims().to_vec();
    dims[2] = dims[2].saturating_add(top).saturating_add(bottom);
    dims[3] = dims[3].saturating_add(left).saturating_add(right);
    let before = [0, 0, top, left].map(|count| count as isize).to_vec();
    builder.padded(&image, PadMode::Constant(0.0), before, dims)
}
