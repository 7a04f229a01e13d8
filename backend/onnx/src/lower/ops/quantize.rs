//! Conversions to and from a grid of integers or narrow floats, `x ≈ (q − zero point) · scale`.

use super::cast::element_type;
use super::grid::sums_on_grid;
use super::moved::scale_of;
use super::{Builder, Entry, Fault, Operator, View, axis_of, domain_of};
use crate::lower::narrow::Grid;
use anabranch_kernels::op::{Binary, Domain, ReduceKind, Unary};
use anabranch_kernels::{DType, Shape};

pub(super) const TABLE: &[Entry] =
    &[("QuantizeLinear", quantize), ("DequantizeLinear", dequantize), ("DynamicQuantizeLinear", quantize_to_range)];

pub(super) fn quantize(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (x, scale) = (operator.number(0)?, operator.float_input(1)?);
    let asked = type_attribute(operator, "output_dtype")?;
    let dtype = match operator.optional(2) {
        Some(zero_point) if asked.is_none_or(|asked| asked == zero_point.dtype()) => zero_point.dtype(),
        Some(zero_point) => return Err(Fault::of_type(2, zero_point.dtype(), "of the type `output_dtype`")),
        None => asked.unwrap_or(DType::U8),
    };
    if let Some(rounded) = sums_on_grid(builder, x, (scale, operator.optional(2)), dtype)? {
        return Ok(vec![rounded]);
    }
    if let Some(integers) = same_grid(builder, operator, x, dtype)? {
        let own = builder.operator().clone();
        builder.join(&integers, &[own]);
        return Ok(vec![integers]);
    }
    let is_uniform = [Some(scale), operator.optional(2)].into_iter().flatten().all(|of| of.elements() == 1);
    if let Some((parts, axis)) = builder.parts_of(x).filter(|_| is_uniform) {
        let mut integers = Vec::with_capacity(parts.len());
        for part in parts {
            integers.extend(quantize(&operator.with_first(part), builder)?);
        }
        return Ok(vec![builder.concatenated(&integers, axis)?]);
    }
    let precision = type_attribute(operator, "precision")?.unwrap_or(scale.dtype());
    let doubles = [precision, x.dtype(), scale.dtype()].contains(&DType::F64);
    let work = if doubles { DType::F64 } else { DType::F32 };
    let scale = spread(operator, builder, x, scale)?;
    let (work, precision) = if x.dtype() == DType::I32 { (DType::F64, DType::F64) } else { (work, precision) };
    let quotient = builder.map(domain_of(work), [x, &scale], precision, |[x, scale]| x / scale)?;
    let zero_point = match operator.optional(2) {
        Some(zero_point) => Some(spread(operator, builder, x, zero_point)?),
        None => None,
    };
    let quantized = if dtype.is_float() {
        builder.converted(&quotient, dtype, operator.flag("saturate", true)?)?
    } else {
        rounded(builder, &quotient, zero_point.as_ref(), dtype)?
    };
    Ok(vec![quantized])
}

/// Rounds to the nearest integers, adds the zero point, and clamps to the type.
pub(super) fn rounded(builder: &mut Builder, x: &View, zero_point: Option<&View>, dtype: DType) -> Result<View, Fault> {
    let ((low, high), domain) = (bounds(dtype)?, domain_of(x.dtype()));
    match zero_point {
        None => {
            builder.map(domain, [x], dtype, |[x]| x.apply(Unary::Round).with(Binary::Max, low).with(Binary::Min, high))
        }
        Some(zero) => builder.map(domain, [x, zero], dtype, |[x, zero]| {
            (x.apply(Unary::Round) + zero).with(Binary::Max, low).with(Binary::Min, high)
        }),
    }
}

/// Returns the least and the greatest integer of a type for quantisation.
pub(super) fn bounds(dtype: DType) -> Result<(f64, f64), Fault> {
    Ok(match dtype {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::U16 => (0.0, 65535.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::U4 => (0.0, 15.0),
        DType::I4 => (-8.0, 7.0),
        DType::U2 => (0.0, 3.0),
        DType::I2 => (-2.0, 1.0),
        other => return Err(Fault::unsupported(format!("quantisation to {other}"))),
    })
}

pub(super) fn dequantize(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (x, scale) = (operator.number(0)?, operator.float_input(1)?);
    let dtype = type_attribute(operator, "output_dtype")?.unwrap_or(scale.dtype());
    let double = dtype == DType::F64 || scale.dtype() == DType::F64 || x.dtype() == DType::I32;
    let domain = if double { Domain::F64 } else { Domain::F32 };
    let (scale, given) = (spread(operator, builder, x, scale)?, scale);
    let zero_point = match operator.optional(2) {
        Some(_) => Some(spread(operator, builder, x, operator.typed(2, x.dtype())?)?),
        None => None,
    };
    let result = scaled(builder, x, (&scale, zero_point.as_ref()), (domain, dtype))?;
    if let Ok(axis) = axis_of(operator.int("axis", 1)?, x.rank()) {
        builder.remember_grid(x, (given, operator.optional(2)), axis, &result);
    }
    Ok(vec![result])
}

/// Returns `(x − zero point) · scale`.
fn scaled(
    builder: &mut Builder,
    x: &View,
    (scale, zero_point): (&View, Option<&View>),
    (domain, dtype): (Domain, DType),
) -> Result<View, Fault> {
    match zero_point {
        Some(zero) => builder.map(domain, [x, zero, scale], dtype, |[x, zero, scale]| (x - zero) * scale),
        None => builder.map(domain, [x, scale], dtype, |[x, scale]| x * scale),
    }
}

/// Returns 8-bit integers of one grid as `f32` numbers.
pub(super) fn widened(
    builder: &mut Builder,
    integers: &View,
    (scale, zero_point): (&View, Option<&View>),
) -> Result<View, Fault> {
    let single = |of: &View| of.reshaped(vec![]);
    let (scale, zero_point) = (single(scale)?, zero_point.map(single).transpose()?);
    let parameters = (&scale, zero_point.as_ref());
    let wide = scaled(builder, integers, parameters, (Domain::F32, DType::F32))?;
    builder.remember_grid(integers, parameters, 0, &wide);
    Ok(wide)
}

/// Returns the integers of a grid that are put on the same grid again, which they do not change.
///
/// With a normal scale `s`, `(q − z) · s / s` is `q − z` to within two roundings of 24 bits, far from a half.
fn same_grid(builder: &mut Builder, operator: &Operator<'_>, x: &View, dtype: DType) -> Result<Option<View>, Fault> {
    let Some(Grid { integers, scale, zero_point, .. }) = builder.grid_of(x).filter(Grid::is_uniform) else {
        return Ok(None);
    };
    let (made, precision) = (operator.float_input(1)?, type_attribute(operator, "precision")?);
    let floats = [made.dtype(), scale.dtype(), precision.unwrap_or(DType::F32)] == [DType::F32; 3];
    let known = |of: &View| scale_of(builder, of);
    let point = |of: Option<&View>| of.map_or(Some(0.0), known);
    let scales = known(&scale).filter(|scale| scale.is_normal() && (scale * 255.0).is_finite());
    let same = scales.is_some_and(|scale| Some(scale) == known(made))
        && point(zero_point.as_ref()).is_some_and(|zero| Some(zero) == point(operator.optional(2)));
    Ok((floats && same && integers.dtype() == dtype).then_some(integers))
}

/// Quantises to 8 bits, with scale and zero point from the least and the greatest element.
fn quantize_to_range(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    Ok(ranged(builder, operator.typed(0, DType::F32)?)?.into())
}

/// Rounds `f32` numbers to the 8-bit grid of their own range.
pub(super) fn on_own_grid(builder: &mut Builder, x: &View) -> Result<View, Fault> {
    let [numbers, scale, zero] = ranged(builder, x)?;
    builder.map(Domain::F32, [&numbers, &zero, &scale], DType::F32, |[x, zero, scale]| (x - zero) * scale)
}

/// Returns 8-bit numbers, their scale and their zero point.
fn ranged(builder: &mut Builder, x: &View) -> Result<[View; 3], Fault> {
    let axes: Vec<_> = (0..x.rank()).collect();
    let least = builder.reduced(x, ReduceKind::Min, &axes)?.reshaped(vec![])?;
    let greatest = builder.reduced(x, ReduceKind::Max, &axes)?.reshaped(vec![])?;
    let scale = builder.map(Domain::F32, [&least, &greatest], DType::F32, |[low, high]| {
        let width = high.with(Binary::Max, 0.0) - low.with(Binary::Min, 0.0);
        width.with(Binary::Equal, 0.0).select(1.0, width) / 255.0
    })?;
    let zero_point = builder.map(Domain::F32, [&least, &scale], DType::U8, |[low, scale]| {
        let exact = low.with(Binary::Min, 0.0).apply(Unary::Negate) / scale;
        exact.with(Binary::Max, 0.0).with(Binary::Min, 255.0).apply(Unary::Round)
    })?;
    let quotient = builder.map(Domain::F32, [x, &scale], DType::F32, |[x, scale]| x / scale)?;
    let quantized = rounded(builder, &quotient, Some(&zero_point), DType::U8)?;
    Ok([quantized, scale, zero_point])
}

fn type_attribute(operator: &Operator<'_>, name: &str) -> Result<Option<DType>, Fault> {
    operator.node.int(name)?.filter(|code| *code != 0).map(element_type).transpose()
}

/// Returns a parameter of `x` so that it broadcasts over it: one for all, one for each index along the axis, or one for
/// each block of indices.
fn spread(operator: &Operator<'_>, builder: &mut Builder, x: &View, parameter: &View) -> Result<View, Fault> {
    if parameter.elements() == 1 {
        return parameter.reshaped(vec![]);
    }
    let axis = axis_of(operator.int("axis", 1)?, x.rank())?;
    if *parameter.dims() == [x.dims()[axis]] {
        return along(parameter, axis, x.rank());
    }
    let block = operator.size("block_size", 0, 0)?;
    let count = parameter.dims().get(axis).copied().unwrap_or(0);
    let same = |other: usize| other == axis || parameter.dims()[other] == x.dims()[other];
    let fits = parameter.rank() == x.rank() && (0..x.rank()).all(same);
    if !fits || block == 0 || x.dims()[axis].div_ceil(block) != count {
        let (parameter, x) = (parameter.shape(), x.shape());
        return Err(Fault::invalid(format!("parameters of shape {parameter} do not fit {x} in blocks of {block}")));
    }
    // Each block's parameter is repeated along an axis of its own, which is then read as part of the axis.
    let (outer, inner) = (&x.dims()[..axis], &x.dims()[axis + 1..]);
    let single = parameter.reshaped([outer, &[count, 1], inner].concat())?;
    let repeated = builder.expanded(&single, Shape::new([outer, &[count, block], inner].concat())?)?;
    let whole = repeated.reshaped([outer, &[count.saturating_mul(block)], inner].concat())?;
    builder.part(&whole, axis, 0, x.dims()[axis])
}

/// Returns a vector along one axis of `rank` dimensions.
pub(super) fn along(vector: &View, axis: usize, rank: usize) -> Result<View, Fault> {
    let mut dims = vec![1; rank];
    let along = dims.get_mut(axis);
    *along.ok_or_else(|| Fault::invalid(format!("parameters along axis {axis} of {rank}")))? = vector.elements();
    vector.reshaped(dims)
}
