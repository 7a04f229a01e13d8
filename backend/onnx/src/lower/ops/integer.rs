//! Products and convolutions of 8-bit integers, with exact 32-bit sums.
//!
//! With zero points, `Σ (a − z) (b − y) = Σ a (b − y) − z Σ (b − y)`: the last sum depends on B alone, which is usually
//! constant.

use super::conv::check_channels;
use super::grid::{range_of, rounded_sums};
use super::integer_volume::over_volume;
use super::quantize::{along, rounded};
use super::window::{Window, as_plane, output_dims, plane};
use super::{Builder, Entry, Fault, Operator, View};
use anabranch_kernels::op::{Domain, IntegerConv, IntegerMatMul, Op, PadMode, ReduceKind};
use anabranch_kernels::{DType, Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[
    ("MatMulInteger", matmul),
    ("ConvInteger", conv),
    ("QLinearMatMul", quantized_matmul),
    ("QLinearConv", quantized_conv),
];

/// An operand and its zero point, unless that is known to be 0.
pub(super) struct Centred {
    pub(super) numbers: View,
    pub(super) zero_point: Option<View>,
}

fn matmul(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    Ok(vec![product_of(operator, builder, [0, 2], [1, 3])?])
}

fn quantized_matmul(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let product = product_of(operator, builder, [0, 2], [3, 5])?;
    let [a_scale, b_scale] = scales_of_product(operator, [0, 1], [3, 4])?;
    Ok(vec![requantized(operator, builder, &product, [&a_scale, &b_scale], [6, 7])?])
}

/// Returns the sum of products, scaled to the output's grid.
fn requantized(
    operator: &Operator<'_>,
    builder: &mut Builder,
    sum: &View,
    scales: [&View; 2],
    [scale, zero_point]: [usize; 2],
) -> Result<View, Fault> {
    let (made, zero) = (single(operator, scale)?, single(operator, zero_point)?);
    let scale = builder.map(Domain::F64, [scales[0], scales[1], &made], DType::F64, |[a, b, made]| a * b / made)?;
    if let Some(rounded) = rounded_sums(builder, sum, (&scale, None), &zero, range_of(zero.dtype())?)? {
        return Ok(rounded);
    }
    // Not all 32-bit sums are exact in `f32`: values next to a half would be rounded to the half, and then again. Whole
    // numbers that the output's type has are exact in both.
    let scaled = builder.map(Domain::F64, [sum, &scale], DType::F64, |[sum, scale]| sum * scale)?;
    rounded(builder, &scaled, Some(&zero), zero.dtype())
}

fn conv(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (x, weights) =
        (centred(operator, builder, [0, 2], Line::Of(1))?, centred(operator, builder, [1, 3], Line::Of(0))?);
    Ok(vec![convolved(operator, builder, &x, &weights, None)?])
}

fn quantized_conv(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let bias = operator.optional(8).map(|_| operator.typed(8, DType::I32)).transpose()?;
    let (x, weights) =
        (centred(operator, builder, [0, 2], Line::Of(1))?, centred(operator, builder, [3, 5], Line::Of(0))?);
    let sum = convolved(operator, builder, &x, &weights, bias)?;
    let x_scale = single(operator, 1)?;
    let given = operator.input(4)?;
    let weight_scale = match given.elements() {
        1 => single(operator, 4)?,
        count if given.rank() == 1 && sum.dims().get(1) == Some(&count) => along(given, 1, sum.rank())?,
        _ => {
            let text =
                format!("input 4 of shape {} is neither one number nor one for each output channel", given.shape());
            return Err(Fault::invalid(text));
        }
    };
    Ok(vec![requantized(operator, builder, &sum, [&x_scale, &weight_scale], [6, 7])?])
}

pub(super) fn eight_bits<'a>(operator: &'a Operator<'_>, index: usize) -> Result<&'a View, Fault> {
    operator.typed(index, DType::U8).or_else(|_| operator.typed(index, DType::I8))
}

/// Returns input `index`, one number.
fn single(operator: &Operator<'_>, index: usize) -> Result<View, Fault> {
    let given = operator.input(index)?;
    match given.elements() {
        1 => Ok(given.reshaped(vec![])?),
        _ => Err(Fault::invalid(format!("input {index} of shape {} is not one number", given.shape()))),
    }
}

/// Returns the scales of the operands of a product, each an input and its scale, so that they broadcast to the product.
pub(super) fn scales_of_product(operator: &Operator<'_>, a: [usize; 2], b: [usize; 2]) -> Result<[View; 2], Fault> {
    let (left, right) = (operator.input(a[0])?, operator.input(b[0])?);
    let (row, column) = (left.rank() == 1, right.rank() == 1);
    // The product lacks the axis of a vector, along which the other operand's scale is the same.
    let without = |scale: View, is_vector: bool, behind: usize| match scale.rank().checked_sub(behind) {
        Some(axis) if is_vector && scale.rank() > 0 => {
            scale.reshaped([&scale.dims()[..axis], &scale.dims()[axis + 1..]].concat())
        }
        _ => Ok(scale),
    };
    let a = parameter(operator, a[1], left, Line::Row)?;
    let b = parameter(operator, b[1], right, Line::Column)?;
    Ok([without(a, column, 1)?, without(b, row, 2)?])
}

/// Part of an operand that has a parameter of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Row,
    Column,
    /// Index of the first axis, or of the second.
    Of(usize),
}

/// Returns input `index`: one number, one for each of these lines of an operand, or one for each line of each matrix of
/// a stack.
fn parameter(operator: &Operator<'_>, index: usize, operand: &View, line: Line) -> Result<View, Fault> {
    let given = operator.input(index)?;
    if given.elements() == 1 {
        return given.reshaped(vec![]);
    }
    let rank = operand.rank();
    let (axis, summed) = match line {
        Line::Row => (rank.checked_sub(2), rank.checked_sub(1)),
        Line::Column => (rank.checked_sub(1).filter(|_| rank > 1), rank.checked_sub(2)),
        Line::Of(axis) => (Some(axis), None),
    };
    let dims = operand.dims();
    let in_stack = summed.is_some_and(|summed| given.rank() == rank && given.dims()[summed] == 1)
        && given.shape().broadcast_strides(operand.shape()).is_ok();
    match axis {
        Some(axis) if given.rank() == 1 && dims.get(axis) == Some(&given.elements()) => along(given, axis, rank),
        _ if given.rank() > 1 && in_stack => Ok(given.clone()),
        _ => {
            let (given, whole) = (given.shape(), operand.shape());
            let lines = match line {
                Line::Row => "row",
                Line::Column => "column",
                Line::Of(_) => "channel",
            };
            let text =
                format!("input {index} of shape {given} is neither one number nor one for each {lines} of {whole}");
            Err(Fault::invalid(text))
        }
    }
}

/// Returns input `index` and its zero point: input `zero_point`, one number or one for each index along an axis.
fn centred(
    operator: &Operator<'_>,
    builder: &Builder,
    [index, zero_point]: [usize; 2],
    line: Line,
) -> Result<Centred, Fault> {
    let numbers = eight_bits(operator, index)?.clone();
    if operator.optional(zero_point).is_none() {
        return Ok(Centred { numbers, zero_point: None });
    }
    operator.typed(zero_point, numbers.dtype())?;
    let given = parameter(operator, zero_point, &numbers, line)?;
    Ok(Centred { numbers, zero_point: unless_zero(builder, given) })
}

/// Returns a zero point unless it is known to be 0.
pub(super) fn unless_zero(builder: &Builder, zero_point: View) -> Option<View> {
    let zero = builder.tensor(&zero_point).is_some_and(|tensor| tensor.bytes().iter().all(|byte| *byte == 0));
    (!zero).then_some(zero_point)
}

/// Returns the product of two inputs, each with its zero point.
pub(super) fn product_of(
    operator: &Operator<'_>,
    builder: &mut Builder,
    a: [usize; 2],
    b: [usize; 2],
) -> Result<View, Fault> {
    let (row, column) = (operator.input(a[0])?.rank() == 1, operator.input(b[0])?.rank() == 1);
    let mut left = centred(operator, builder, a, Line::Row)?;
    let mut right = centred(operator, builder, b, Line::Column)?;
    if row {
        left.numbers = left.numbers.reshaped([&[1], left.numbers.dims()].concat())?;
    }
    if column {
        right.numbers = right.numbers.reshaped([right.numbers.dims(), &[1]].concat())?;
    }
    let sum = product(builder, &left, &right)?;
    let mut dims = sum.dims().to_vec();
    if column {
        dims.pop();
    }
    if row {
        dims.remove(dims.len() - if column { 1 } else { 2 });
    }
    sum.reshaped(dims)
}

/// Returns the product of matrices, as `i32`.
pub(super) fn product(builder: &mut Builder, a: &Centred, b: &Centred) -> Result<View, Fault> {
    let matrix = |view: &View| match view.dims() {
        [batch @ .., rows, columns] => Ok((Shape::new(batch)?, *rows, *columns)),
        _ => Err(Fault::invalid(format!("{} is not a matrix", view.shape()))),
    };
    let ((left, m, k), (right, depth, n)) = (matrix(&a.numbers)?, matrix(&b.numbers)?);
    if depth != k {
        let (a, b) = (a.numbers.shape(), b.numbers.shape());
        return Err(Fault::invalid(format!("a matrix of shape {a} times one of shape {b}")));
    }
    let each = Shape::new([right.dims(), &[1, n]].concat())?;
    let mut summand = builder.scalar(DType::I32, 0.0)?;
    let single = |view: &View| view.elements() == 1;
    let sums = match &a.zero_point {
        Some(_) => Some(sums(builder, &b.numbers, b.numbers.rank() - 2, b.zero_point.as_ref())?),
        None => None,
    };
    if let (Some(zero), Some(sums)) = (&a.zero_point, &sums)
        && single(zero)
    {
        let zero = zero.reshaped(vec![])?;
        summand = builder.map(Domain::I64, [&summand, &zero, sums], DType::I32, |[s, zero, sums]| s - zero * sums)?;
    }
    let mut inputs = vec![a.numbers.clone(), b.numbers.clone(), builder.expanded(&summand, each.clone())?];
    if let Some(zero) = &b.zero_point {
        let zero = builder.cast(zero, DType::I32)?;
        inputs.push(builder.expanded(&zero, each)?);
    }
    let batch = left.broadcast(&right)?;
    let output = TensorSpec::new(DType::I32, Shape::new([batch.dims(), &[m, n]].concat())?);
    let op = Op::IntegerMatMul(IntegerMatMul { zero_points: b.zero_point.is_some(), rounding: None });
    let product = builder.emit_one(op, &inputs, output)?;
    match (&a.zero_point, &sums) {
        (Some(zero), Some(sums)) if !single(zero) => {
            builder.map(Domain::I64, [&product, zero, sums], DType::I32, |[sum, zero, sums]| sum - zero * sums)
        }
        _ => Ok(product),
    }
}

/// Returns for each line along an axis the sum of its elements less their zero point.
fn sums(builder: &mut Builder, lines: &View, axis: usize, zero: Option<&View>) -> Result<View, Fault> {
    let wide = builder.cast(lines, DType::I32)?;
    let sums = builder.reduced(&wide, ReduceKind::Sum, &[axis])?;
    let (Some(zero), depth) = (zero, lines.dims()[axis]) else { return Ok(sums) };
    builder.map(Domain::I64, [&sums, zero], DType::I32, |[sum, zero]| sum - zero * depth as f64)
}

/// Returns the convolution of images or volumes, plus a number for each filter.
pub(super) fn convolved(
    operator: &Operator<'_>,
    builder: &mut Builder,
    x: &Centred,
    weights: &Centred,
    bias: Option<&View>,
) -> Result<View, Fault> {
    let kernel = weights.numbers.dims().get(2..).filter(|_| weights.numbers.rank() == x.numbers.rank());
    let kernel = kernel.ok_or_else(|| Fault::invalid(format!("weights of shape {}", weights.numbers.shape())))?;
    if x.zero_point.as_ref().is_some_and(|zero| zero.elements() != 1) {
        return Err(Fault::unsupported("images with more than one zero point"));
    }
    if x.numbers.rank() == 5 {
        return over_volume(operator, builder, x, weights, bias);
    }
    let mut window = Window::read(operator, &x.numbers, Some(kernel))?;
    window.resolve(plane(&x.numbers)?)?;
    let sums = of_planes(builder, [x, weights], &window, operator.size("group", 1, 1)?, bias)?;
    let [images, count, rows, columns] = std::array::from_fn(|axis| sums.dims()[axis]);
    sums.reshaped(output_dims(&window, images, count, [rows, columns]))
}

/// Returns the convolution of images, plus a number for each filter, with rows and columns as separate axes.
pub(super) fn of_planes(
    builder: &mut Builder,
    [x, weights]: [&Centred; 2],
    window: &Window,
    group: usize,
    bias: Option<&View>,
) -> Result<View, Fault> {
    let (image, filters) = (as_plane(&x.numbers)?, as_plane(&weights.numbers)?);
    let [rows, columns] = window.output(plane(&x.numbers)?, false)?;
    let &[count, depth, high, wide] = filters.dims() else { return Err(Fault::missing(1)) };
    let (images, channels) = (image.dims()[0], image.dims()[1]);
    check_channels(channels, depth, count, group)?;
    let each = Shape::new([count])?;
    let of_filters = |builder: &mut Builder, view: &View| {
        let view = view.reshaped(if view.elements() == 1 { vec![] } else { vec![count] })?;
        let wide = builder.cast(&view, DType::I32)?;
        builder.expanded(&wide, each.clone())
    };
    let zeros = match &weights.zero_point {
        Some(zeros) => Some(of_filters(builder, zeros)?),
        None => None,
    };
    let mut summands = match bias {
        Some(bias) => of_filters(builder, bias)?,
        None => builder.filled(TensorSpec::new(DType::I32, each.clone()), 0.0)?,
    };
    if let Some(zero) = &x.zero_point {
        let zero = zero.reshaped(vec![])?;
        let lines = filters.reshaped(vec![count, depth * high * wide])?;
        let zeros = zeros.as_ref().map(|zeros| zeros.reshaped(vec![count, 1])).transpose()?;
        let sums = sums(builder, &lines, 1, zeros.as_ref())?.reshaped(vec![count])?;
        summands =
            builder.map(Domain::I64, [&summands, &zero, &sums], DType::I32, |[s, zero, sums]| s - zero * sums)?;
    }
    let (image, pads, border) = match &x.zero_point {
        None => (image, window.pads, 0),
        Some(zero) => match known_byte(builder, zero) {
            Some(border) => (image, window.pads, border),
            None => (
                bordered(
                    builder,
                    &image,
                    zero,
                    &[(2, 0), (3, 1)].map(|(axis, at)| (axis, window.pads[at], window.pads[at + 2])),
                )?,
                [0; 4],
                0,
            ),
        },
    };
    let Window { strides, dilations, .. } = *window;
    let op = IntegerConv { strides, pads, dilations, group, border, zero_points: zeros.is_some(), rounding: None };
    let mut inputs = vec![image, filters, summands];
    inputs.extend(zeros);
    let output = TensorSpec::new(DType::I32, Shape::new([images, count, rows, columns])?);
    builder.emit_one(Op::IntegerConv(op), &inputs, output)
}

/// Returns an 8-bit number, if it is known.
fn known_byte(builder: &Builder, number: &View) -> Option<i16> {
    let tensor = builder.tensor(number)?;
    match tensor.elements::<u8>() {
        Some(bytes) => bytes.first().copied().map(i16::from),
        None => tensor.elements::<i8>()?.first().copied().map(i16::from),
    }
}

/// Returns the images with borders, filled with a zero point that may be known to a run alone. A border is an axis and
/// the elements before and after it.
pub(super) fn bordered(
    builder: &mut Builder,
    image: &View,
    zero: &View,
    borders: &[(usize, usize, usize)],
) -> Result<View, Fault> {
    let (mut dims, mut before) = (image.dims().to_vec(), vec![0; image.rank()]);
    for (axis, first, last) in borders.iter().copied() {
        dims[axis] = dims[axis].saturating_add(first).saturating_add(last);
        before[axis] = first as isize;
    }
    let wide = builder.padded(image, PadMode::ZERO, before.clone(), dims.clone())?;
    if dims == image.dims() {
        return Ok(wide);
    }
    // The border is where ones padded with zeros are zeros.
    let along = |dims: &[usize]| {
        let mut along = vec![1; dims.len()];
        borders.iter().for_each(|(axis, ..)| along[*axis] = dims[*axis]);
        along
    };
    let ones = builder.filled(TensorSpec::new(DType::U8, Shape::new(along(image.dims()))?), 1.0)?;
    let inside = builder.padded(&ones, PadMode::ZERO, before, along(&dims))?;
    let zero = zero.reshaped(vec![])?;
    builder.map(Domain::I64, [&inside, &wide, &zero], image.dtype(), |[inside, x, zero]| inside.select(x, zero))
}

#[cfg(test)]
mod tests {
    use super::super::testing::lowered;
    use crate::import::proto::{NodeProto, TensorProto, data_type};

    #[test]
    fn sums_are_rounded_once() {
        let byte = |name, value| TensorProto::raw(name, data_type::UINT8, &[1, 1], vec![value]);
        let scale = |name, value| TensorProto::f32s(name, &[], &[value]);
        let zero = |name| TensorProto::raw(name, data_type::UINT8, &[], vec![0]);
        let names = ["a", "as", "az", "b", "bs", "bz", "ys", "yz"];
        let product = |a_scale: f32| {
            let (a, b, made) = (byte("a", 7), byte("b", 1), scale("ys", 1.0));
            let (a_scale, b_scale) = (scale("as", a_scale), scale("bs", 1.0 + f32::EPSILON));
            let constants = vec![a, a_scale, zero("az"), b, b_scale, zero("bz"), made, zero("yz")];
            let program =
                lowered(NodeProto::of("QLinearMatMul", &names, &["y"]), Vec::new(), constants).expect("folds");
            program.constant(program.outputs[0].value).expect("folded").load().expect("in memory").bytes()[0]
        };
        // 3.5 · (1 − ε/2) · (1 + ε) and 3.5 · (1 − ε) · (1 + ε): the latter is below 3.5, but is 3.5 as an `f32`.
        assert_eq!([0.5 - f32::EPSILON / 4.0, 0.5 - f32::EPSILON / 2.0].map(product), [4, 3]);
    }
}
