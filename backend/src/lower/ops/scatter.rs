//! Elements replaced at places that are known ahead of the run: a choice among the old elements and the new ones.

use super::{Builder, Entry, Fault, Operator, View, gather, integers};
use anabranch_kernels::{DType, Tensor};

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
    replaced(builder, x, &flat, updates, x.dims()[..depth].iter().product(), rest)
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
    replaced(builder, x, &flat, updates, x.elements(), Vec::new())
}

/// The data, and the indices if nothing is added to what is there.
fn places<'a>(operator: &'a Operator<'_>) -> Result<(&'a View, &'a View), Fault> {
    if operator.string("reduction", "none")? != "none" {
        return Err(Fault::unsupported("it combines old and new elements"));
    }
    Ok((operator.ranked(0, 1)?, operator.typed(1, DType::I64)?))
}

/// For each element of `indices`, the place in row-major order of `x` that it means.
fn element_places(builder: &mut Builder, x: &View, indices: &View, axis: usize) -> Result<View, Fault> {
    let along = known(builder, indices)?;
    builder.reserve(along.len() * 8)?;
    let (strides, size) = (x.shape().strides(), x.dims()[axis] as i64);
    let own = indices.shape().strides();
    let place = |(element, index): (usize, &i64)| {
        let along = if *index < 0 { index.saturating_add(size) } else { *index };
        if !(0..size).contains(&along) {
            return Err(Fault::invalid(format!("index {index} of {size} along axis {axis}")));
        }
        let coordinate = |other: usize| element / own[other] % indices.dims()[other].max(1);
        let others = (0..x.rank()).filter(|other| *other != axis);
        Ok(others.map(|other| coordinate(other) * strides[other]).sum::<usize>() as i64 + along * strides[axis] as i64)
    };
    let flat = along.iter().enumerate().map(place).collect::<Result<Vec<_>, _>>()?;
    Ok(builder.constant("places", Tensor::from_i64s(&flat)))
}

/// `x`, read as `count` slices of shape `rest`, with the slices at `places` replaced by those of `updates`.
fn replaced(
    builder: &mut Builder,
    x: &View,
    places: &View,
    updates: &View,
    count: usize,
    rest: Vec<usize>,
) -> Result<Vec<View>, Fault> {
    let places = known(builder, places)?;
    if places.is_empty() || x.elements() == 0 {
        return Ok(vec![x.clone()]);
    }
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

fn known(builder: &Builder, places: &View) -> Result<Vec<i64>, Fault> {
    let tensor = builder.tensor(places);
    tensor
        .and_then(|tensor| integers(&tensor))
        .ok_or_else(|| Fault::unsupported("its indices are computed from the model's inputs"))
}
