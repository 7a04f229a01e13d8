//! Elements replaced or combined at positions. If these are known ahead of the run and nothing is combined, this is a
//! selection among the old elements and the new ones.

use super::{Builder, Entry, Fault, Operator, View, gather, integers};
use anabranch_kernels::op::{Domain, Op, Scatter, ScatterKind};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};

pub(super) const TABLE: &[Entry] =
    &[("ScatterND", scatter_many), ("ScatterElements", scatter_elements), ("Scatter", scatter_elements)];

fn scatter_many(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (x, indices) = places(operator)?;
    let updates = operator.typed(2, x.dtype())?;
    let depth = *indices.dims().last().ok_or_else(|| Fault::invalid("the indices are a scalar"))?;
    let lead = indices.rank() - 1;
    if depth == 0 || depth > x.rank() || *updates.dims() != [&indices.dims()[..lead], &x.dims()[depth..]].concat() {
        let (x, indices, updates) = (x.shape(), indices.shape(), updates.shape());
        return Err(Fault::invalid(format!("updates {updates} do not fit indices {indices} into {x}")));
    }
    let flat = gather::flat_indices(builder, x, indices, 0, depth)?;
    let rest = x.dims()[depth..].to_vec();
    let count = x.dims()[..depth].iter().product();
    combined(operator, builder, x, &flat, updates, count, rest)
}

fn scatter_elements(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (x, indices) = places(operator)?;
    let updates = operator.typed(2, x.dtype())?;
    let axis = operator.axis(0, x.rank())?;
    if updates.shape() != indices.shape() || !gather::fits_elements(x, indices, axis) {
        let (x, indices, updates) = (x.shape(), indices.shape(), updates.shape());
        return Err(Fault::invalid(format!("updates {updates} at indices {indices} do not fit {x}")));
    }
    let flat = element_places(builder, x, indices, axis)?;
    combined(operator, builder, x, &flat, updates, x.elements(), Vec::new())
}

/// Returns the data, and the indices.
fn places<'a>(operator: &'a Operator<'_>) -> Result<(&'a View, &'a View), Fault> {
    let indices = operator.typed(1, DType::I64).or_else(|_| operator.typed(1, DType::I32))?;
    Ok((operator.ranked(0, 1)?, indices))
}

/// Returns for each element of `indices` its position in row-major order of `x`.
fn element_places(builder: &mut Builder, x: &View, indices: &View, axis: usize) -> Result<View, Fault> {
    let (strides, size) = (x.shape().strides(), x.dims()[axis] as f64);
    let stride = strides[axis] as f64;
    // An index outside its axis leads before all elements, for any indices of the other axes.
    let outside = -(x.elements() as f64 / stride);
    let along =
        builder.map(Domain::I64, [indices], DType::I64, |[index]| gather::from_start(index, size, outside) * stride)?;
    let mut flat = along;
    for other in (0..x.rank()).filter(|other| *other != axis && indices.dims()[*other] > 1) {
        let index = builder.indices(DType::I64, indices.dims()[other], other, x.rank())?;
        let stride = strides[other] as f64;
        flat = builder.map(Domain::I64, [&flat, &index], DType::I64, |[flat, index]| flat + index * stride)?;
    }
    builder.expanded(&flat, indices.shape().clone())
}

/// Replaces, or combines, slices of `x`, which is read as `count` slices of shape `rest`.
///
/// The slices at `places` are combined with the slices of `updates`, by the attribute `reduction`.
fn combined(
    operator: &Operator<'_>,
    builder: &mut Builder,
    x: &View,
    places: &View,
    updates: &View,
    count: usize,
    rest: Vec<usize>,
) -> Result<Vec<View>, Fault> {
    let kind = match operator.string("reduction", "none")? {
        "none" => ScatterKind::Replace,
        "add" => ScatterKind::Add,
        "mul" => ScatterKind::Multiply,
        "min" => ScatterKind::Min,
        "max" => ScatterKind::Max,
        other => return Err(Fault::attribute("reduction", other, "none, add, mul, min or max")),
    };
    if places.elements() == 0 || x.elements() == 0 {
        return Ok(vec![x.clone()]);
    }
    if let (ScatterKind::Replace, Some(known)) = (kind, builder.tensor(places)) {
        return replaced(builder, x, &integers(&known).unwrap_or_default(), updates, count, rest);
    }
    let dims = [&[count], &rest[..]].concat();
    let new = updates.reshaped([&[places.elements()], &rest[..]].concat())?;
    let inputs = [x.reshaped(dims.clone())?, places.reshaped(vec![places.elements()])?, new];
    let output = TensorSpec::new(x.dtype(), Shape::new(dims)?);
    let merged = builder.emit_one(Op::Scatter(Scatter { kind }), &inputs, output)?;
    Ok(vec![merged.reshaped(x.dims())?])
}

/// Replaces slices of `x`, which is read as `count` slices of shape `rest`.
///
/// The slices at `places` become the slices of `updates`.
fn replaced(
    builder: &mut Builder,
    x: &View,
    places: &[i64],
    updates: &View,
    count: usize,
    rest: Vec<usize>,
) -> Result<Vec<View>, Fault> {
    builder.reserve(count.saturating_mul(8))?;
    let mut sources: Vec<i64> = (0..count as i64).collect();
    for (update, place) in places.iter().enumerate() {
        let slot = usize::try_from(*place).ok().and_then(|place| sources.get_mut(place));
        let slot = slot.ok_or_else(|| Fault::invalid(format!("index {place} of {count}")))?;
        *slot = (count + update) as i64;
    }
    let old = x.reshaped([&[count], &rest[..]].concat())?;
    let new = updates.reshaped([&[places.len()], &rest[..]].concat())?;
    let both = builder.concatenated(&[old, new], 0)?;
    let sources = builder.constant("sources", Tensor::from_i64s(&sources));
    let merged = gather::chosen(builder, &both, &sources, 0, [&[count], &rest[..]].concat())?;
    Ok(vec![merged.reshaped(x.dims())?])
}
