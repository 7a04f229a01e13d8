//! Sequences of tensors. Their tensors share elements with their origins.

use super::{Call, TENSOR, side_by_side, slices};
use crate::{Fault, axis_of, integers};
use anabranch_import::Item;
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// Passes on its input, which may be a sequence or an optional.
pub(super) fn same(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    Ok(vec![call.optional(0).cloned().ok_or_else(|| Fault::missing(0))?])
}

/// Returns an optional that holds the input, or is empty without an input.
pub(super) fn optional(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    match call.optional(0) {
        Some(Item::Absent) => Err(Fault::invalid("an optional within an optional")),
        Some(item) => Ok(vec![item.clone()]),
        None => Ok(vec![Item::Absent]),
    }
}

/// Returns the value in an optional.
pub(super) fn element(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    match call.optional(0) {
        None | Some(Item::Absent) => Err(Fault::invalid("its input is an empty optional")),
        Some(item) => Ok(vec![item.clone()]),
    }
}

/// Whether the input is there and holds a value.
pub(super) fn has_element(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let there = !matches!(call.optional(0), None | Some(Item::Absent));
    let there = Buffer::copied(&[u8::from(there)]);
    let spec = TensorSpec::new(DType::Bool, Shape::scalar());
    Ok(vec![Item::Tensor(Tensor::new(spec, Arc::new(there)).expect("one element is a scalar"))])
}

pub(super) fn empty(_: &Call<'_>) -> Result<Vec<Item>, Fault> {
    sequence(Vec::new())
}

pub(super) fn construct(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let mut tensors = call.work.list(call.inputs.len())?;
    for index in 0..call.inputs.len() {
        tensors.push(call.tensor(index)?.clone());
    }
    sequence(tensors)
}

pub(super) fn insert(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let (before, tensor) = (call.sequence(0)?, call.tensor(1)?);
    let at = match call.optional(2) {
        Some(_) => place(call, 2, before.len() + 1, before.len())?,
        None => before.len(),
    };
    let mut tensors = call.work.list(before.len() + 1)?;
    tensors.extend_from_slice(&before[..at]);
    tensors.push(tensor.clone());
    tensors.extend_from_slice(&before[at..]);
    sequence(tensors)
}

pub(super) fn erase(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let before = call.sequence(0)?;
    let count = before.len();
    let at = match call.optional(1) {
        Some(_) => place(call, 1, count, count)?,
        None => count.checked_sub(1).ok_or_else(|| Fault::invalid("the sequence is empty"))?,
    };
    let mut tensors = call.work.list(count - 1)?;
    tensors.extend_from_slice(&before[..at]);
    tensors.extend_from_slice(&before[at + 1..]);
    sequence(tensors)
}

pub(super) fn at(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let tensors = call.sequence(0)?;
    Ok(vec![Item::Tensor(tensors[place(call, 1, tensors.len(), tensors.len())?].clone())])
}

pub(super) fn length(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let count = Tensor::from_i64s(&[call.sequence(0)?.len() as i64]);
    Ok(vec![Item::Tensor(count.reshaped(Shape::scalar()).expect("one element is a scalar"))])
}

/// Splits a tensor into parts of one size, the last of which may be smaller, or of these sizes.
///
/// If no size is given, parts have one slice each, perhaps without the axis.
pub(super) fn split(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let x = call.tensor(0)?;
    let axis = axis_of(call.node.int("axis")?.unwrap_or(0), x.shape().rank())?;
    let sizes = sizes(call, x.shape().dims()[axis])?;
    let keep = call.optional(1).is_some() || call.node.int("keepdims")?.unwrap_or(1) != 0;
    let mut start = 0;
    let mut tensors = call.work.list(sizes.len())?;
    call.work.charge(sizes.len().saturating_mul(TENSOR))?;
    for part in sizes {
        let slice = slices(call.work, x, axis, part, |at| start + at)?;
        start += part;
        let mut dims = slice.shape().dims().to_vec();
        if !keep {
            dims.remove(axis);
        }
        tensors.push(slice.reshaped(Shape::new(dims)?).expect("an axis of one slice says nothing"));
    }
    sequence(tensors)
}

/// Returns the sizes of the parts of an axis of `size`.
fn sizes(call: &Call<'_>, size: usize) -> Result<Vec<usize>, Fault> {
    if call.optional(1).is_none() {
        return call.work.filled(1, size);
    }
    let tensor = call.tensor(1)?;
    // Two lists of the sizes are made below.
    call.work.charge(tensor.shape().elements().saturating_mul(size_of::<[usize; 2]>()))?;
    let given = integers(tensor).ok_or_else(|| Fault::of_type(1, tensor.dtype(), "an integer type"))?;
    let given: Option<Vec<usize>> = given.iter().map(|size| usize::try_from(*size).ok()).collect();
    match (given, tensor.shape().rank()) {
        (Some(part), 0) if part[0] > 0 => {
            let mut sizes = call.work.filled(part[0], size.div_ceil(part[0]))?;
            if let Some(last) = sizes.last_mut() {
                *last = size - (size - 1) / part[0] * part[0];
            }
            Ok(sizes)
        }
        (Some(parts), 1) if parts.iter().fold(0usize, |sum, part| sum.saturating_add(*part)) == size => Ok(parts),
        _ => Err(Fault::invalid(format!("an axis of {size} cannot be split into these parts"))),
    }
}

/// Concatenates all tensors along an axis, which may be a new axis.
pub(super) fn concatenate(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let tensors = call.sequence(0)?;
    let new = call.node.int("new_axis")?.unwrap_or(0) != 0;
    let axis = call.node.int("axis")?.ok_or_else(|| Fault::invalid("attribute `axis` is missing"))?;
    let rank = tensors.first().map_or(0, |first| first.shape().rank());
    let axis = axis_of(axis, rank + usize::from(new))?;
    Ok(vec![Item::Tensor(side_by_side(call.work, tensors, axis, new)?)])
}

fn sequence(tensors: Vec<Tensor>) -> Result<Vec<Item>, Fault> {
    Ok(vec![Item::Sequence(Arc::new(tensors))])
}

/// Returns a position below `count`, counted back from `end` if it is negative.
fn place(call: &Call<'_>, index: usize, count: usize, end: usize) -> Result<usize, Fault> {
    let tensor = call.tensor(index)?;
    let given = if tensor.shape().elements() == 1 { integers(tensor) } else { None };
    let Some(&[given]) = given.as_deref() else {
        return Err(Fault::invalid(format!("input {index} is not one integer")));
    };
    let place = if given < 0 { given.saturating_add(end as i64) } else { given };
    let inside = usize::try_from(place).ok().filter(|place| *place < count);
    inside.ok_or_else(|| Fault::invalid(format!("position {given} is outside of a sequence of {end} tensors")))
}
