//! Products and convolutions of numbers that were widened from grids of 8-bit integers. They are computed in integers,
//! and if their result is put on a grid, too, the product rounds its sums itself.

use super::conv::require_bias;
use super::integer::{Centred, convolved, product, unless_zero};
use super::quantize::{along, bounds};
use super::{Builder, Fault, Operator, View, numbers};
use crate::lower::narrow::{Grid, ScaledSums};
use anabranch_ir::program::Origin;
use anabranch_kernels::op::{Domain, Op, Rounding};
use anabranch_kernels::{DType, TensorSpec};

/// Most products of 8-bit integers whose sum fits 32 bits: each has a magnitude of at most 255².
const MOST_TERMS: usize = i32::MAX as usize / (255 * 255);

/// Returns two operands that were widened from 8-bit integers, if a product of integers with exact sums can replace
/// theirs.
///
/// An operand that varies has one grid. A constant operand has one grid, or one for each index along `axis`, that of
/// its lines.
fn on_grids(builder: &mut Builder, [a, b]: [Grid; 2], axis: usize) -> Result<Option<[(Centred, View); 2]>, Fault> {
    let varies = |builder: &Builder, grid: &Grid| !builder.is_constant(&grid.integers);
    let Some(lines) = b.integers.dims().get(axis) else { return Ok(None) };
    let fits = a.is_uniform() && (b.is_uniform() || b.axis == axis);
    let exact = b.integers.elements() <= lines.saturating_mul(MOST_TERMS);
    if !fits || !exact || varies(builder, &b) || !varies(builder, &a) {
        return Ok(None);
    }
    let centred = |builder: &Builder, grid: Grid| {
        let rank = grid.integers.rank();
        let spread = |of: &View| if of.elements() == 1 { of.reshaped(vec![]) } else { along(of, axis, rank) };
        let zero_point = grid.zero_point.as_ref().map(spread).transpose()?;
        let zero_point = zero_point.and_then(|zero_point| unless_zero(builder, zero_point));
        Ok::<_, Fault>((Centred { numbers: grid.integers, zero_point }, grid.scale))
    };
    Ok(Some([centred(builder, a)?, centred(builder, b)?]))
}

/// Returns the product of operands on grids as a product of integers, if both are on grids. The second operand may be
/// stored transposed.
pub(super) fn grid_product(
    builder: &mut Builder,
    a: &View,
    (b, transposed): (&View, bool),
) -> Result<Option<View>, Fault> {
    let columns = b.rank().saturating_sub(1);
    let (Some(a), Some(mut b)) = (builder.grid_of(a), builder.grid_of(b)) else { return Ok(None) };
    if transposed {
        b.integers = builder.transposed(&b.integers, &[1, 0])?;
        b.axis = 1 - b.axis.min(1);
    }
    let Some([(a, a_scale), (b, scale)]) = on_grids(builder, [a, b], columns)? else { return Ok(None) };
    if !have_product(builder, &a_scale, &scale) {
        return Ok(None);
    }
    let sum = product(builder, &a, &b)?;
    let axis = sum.rank() - 1;
    scaled(builder, &sum, [&a_scale, &scale], axis, None).map(Some)
}

/// Whether the products of scales are normal numbers as far as they are known: other products would turn finite sums
/// into NaN or 0.
fn have_product(builder: &Builder, a: &View, b: &View) -> bool {
    let known = |of: &View| builder.tensor(of).and_then(|tensor| numbers(&tensor));
    let (Some(a), Some(b)) = (known(a), known(b)) else { return true };
    a.iter().all(|a| b.iter().all(|b| ((a * b) as f32).is_normal()))
}

/// Returns the convolution of images and filters on grids, plus an optional bias, as a convolution of integers.
pub(super) fn grid_conv(
    operator: &Operator<'_>,
    builder: &mut Builder,
    (x, weights): (&View, &View),
) -> Result<Option<View>, Fault> {
    if !builder.integer_convolutions {
        return Ok(None);
    }
    let (Some(a), Some(b)) = (builder.grid_of(x), builder.grid_of(weights)) else { return Ok(None) };
    let Some([(a, a_scale), (b, scale)]) = on_grids(builder, [a, b], 0)? else { return Ok(None) };
    if !have_product(builder, &a_scale, &scale) {
        return Ok(None);
    }
    let bias = operator.optional(2).map(|_| operator.typed(2, DType::F32)).transpose()?;
    if let Some(bias) = bias {
        require_bias(bias, weights.dims()[0])?;
    }
    let sum = convolved(operator, builder, &a, &b, None)?;
    let bias = bias.map(|bias| along(bias, 1, sum.rank())).transpose()?;
    scaled(builder, &sum, [&a_scale, &scale], 1, bias).map(Some)
}

/// Returns sums of integers times both scales, the second of which may be one for each index along an axis, plus an
/// optional bias.
fn scaled(
    builder: &mut Builder,
    sum: &View,
    [a, b]: [&View; 2],
    axis: usize,
    bias: Option<View>,
) -> Result<View, Fault> {
    let a = a.reshaped(vec![])?;
    let b = if b.elements() == 1 { b.reshaped(vec![])? } else { along(b, axis, sum.rank())? };
    let scale = builder.map(Domain::F32, [&a, &b], DType::F32, |[a, b]| a * b)?;
    let result = match &bias {
        None => builder.map(Domain::F32, [sum, &scale], DType::F32, |[sum, scale]| sum * scale)?,
        Some(bias) => {
            builder.map(Domain::F32, [sum, &scale, bias], DType::F32, |[sum, scale, bias]| sum * scale + bias)?
        }
    };
    let scale = builder.map(Domain::F64, [&a, &b], DType::F64, |[a, b]| a * b)?;
    let bounds = [f64::NEG_INFINITY, f64::INFINITY];
    let sums = ScaledSums { sums: sum.clone(), scale, offset: bias, bounds, operators: Vec::new() };
    builder.remember_sums(&result, sums);
    Ok(result)
}

/// Returns scaled sums of integers on a grid of 8 bits, rounded by their product, if `x` are scaled sums.
pub(super) fn sums_on_grid(
    builder: &mut Builder,
    x: &View,
    (scale, zero): (&View, Option<&View>),
    dtype: DType,
) -> Result<Option<View>, Fault> {
    let Some(scaled) = builder.sums_of(x) else { return Ok(None) };
    let ScaledSums { sums, scale: of_sums, offset, bounds, operators } = scaled;
    let zero = match zero {
        Some(zero) => zero.clone(),
        None => builder.scalar(dtype, 0.0)?,
    };
    let known = |of: &View| match &*numbers(&builder.tensor(of)?)? {
        [number] => Some(*number),
        _ => None,
    };
    let (Some(made), Some(point)) = (known(scale), known(&zero)) else { return Ok(None) };
    let eight_bits = matches!(dtype, DType::U8 | DType::I8) && [x, scale].iter().all(|of| of.dtype() == DType::F32);
    if !eight_bits || !(made as f32).is_normal() || made < 0.0 {
        return Ok(None);
    }
    let (scale, zero) = (scale.reshaped(vec![])?, zero.reshaped(vec![])?);
    let of_sums = builder.map(Domain::F64, [&of_sums, &scale], DType::F64, |[sum, made]| sum / made)?;
    let offset = match offset {
        Some(offset) => Some(builder.map(Domain::F64, [&offset, &scale], DType::F64, |[x, made]| x / made)?),
        None => None,
    };
    // Bounds are rounded as other numbers are.
    let range = range_of(dtype)?.map(f64::from);
    let range = bounds.map(|bound| {
        let quotient = f64::from(bound as f32 / made as f32);
        (quotient.round_ties_even() + point).clamp(range[0], range[1]) as i16
    });
    let Some(rounded) = rounded_sums(builder, &sums, (&of_sums, offset.as_ref()), &zero, range)? else {
        return Ok(None);
    };
    builder.join(&rounded, &operators);
    rounded.reshaped(x.dims()).map(Some)
}

/// Returns the least and the greatest number of a type of 8 bits.
pub(super) fn range_of(dtype: DType) -> Result<[i16; 2], Fault> {
    let (least, greatest) = bounds(dtype)?;
    Ok([least as i16, greatest as i16])
}

/// Returns `round(sum · scale + offset) + zero` within a range of the zero point's type. The sums must be those of a
/// product of integers, and scale and offset the same for each of its channels or columns. The product is computed
/// again; its other result is not needed if nothing else reads it.
pub(super) fn rounded_sums(
    builder: &mut Builder,
    sums: &View,
    (scale, offset): (&View, Option<&View>),
    zero: &View,
    [least, greatest]: [i16; 2],
) -> Result<Option<View>, Fault> {
    let Origin::Node(id) = builder.program().value(sums.value).origin else { return Ok(None) };
    let node = builder.program().node(id).clone();
    let mut op = node.spec.op.clone();
    let (rounding, axis) = match &mut op {
        Op::IntegerMatMul(op) => (&mut op.rounding, sums.rank().saturating_sub(1)),
        Op::IntegerConv(op) => (&mut op.rounding, 1),
        _ => return Ok(None),
    };
    *rounding = Some(Rounding { least, greatest });
    let offset = match offset {
        Some(offset) => builder.cast(offset, DType::F64)?,
        None => builder.scalar(DType::F64, 0.0)?,
    };
    let mut inputs: Vec<_> = node
        .inputs
        .iter()
        .zip(&node.spec.inputs)
        .map(|(value, spec)| View { value: *value, spec: spec.clone() })
        .collect();
    let each = inputs[2].shape().clone();
    // The product with a vector lacks its column, and has its rows last.
    let lacks_column =
        matches!(op, Op::IntegerMatMul(_)) && node.spec.outputs[0].shape.dims().last() != sums.dims().last();
    if lacks_column && [scale, &offset].iter().any(|of| of.elements() != 1) {
        return Ok(None);
    }
    for of in [scale, &offset] {
        let Some(line) = line(of, sums, axis) else { return Ok(None) };
        inputs.push(builder.expanded(&line?, each.clone())?);
    }
    inputs.push(zero.clone());
    let output = TensorSpec::new(zero.dtype(), node.spec.outputs[0].shape.clone());
    let rounded = builder.emit_one(op, &inputs, output)?;
    builder.join(&rounded, &node.operators);
    rounded.reshaped(sums.dims()).map(Some)
}

/// Returns the numbers of a parameter that broadcasts to `sums`: one for all, or a vector along the axis.
fn line(of: &View, sums: &View, axis: usize) -> Option<Result<View, Fault>> {
    let count = of.elements();
    if count == 1 {
        return Some(of.reshaped(vec![]));
    }
    let own = (axis + of.rank()).checked_sub(sums.rank())?;
    let along = of.dims().get(own) == Some(&count) && sums.dims().get(axis) == Some(&count);
    along.then(|| of.reshaped(vec![count]))
}
