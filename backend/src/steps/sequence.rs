//! Sequences of tensors. Tensors in them share their elements with where they come from.

use super::{Call, buffer, slices};
use crate::item::Item;
use crate::lower::{Fault, axis_of, integers};
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// Passes on its input, which may be a sequence or an optional.
pub(super) fn same(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    Ok(vec![call.optional(0).cloned().ok_or_else(|| Fault::missing(0))?])
}

/// An optional that holds the input, or nothing if there is no input.
pub(super) fn optional(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    match call.optional(0) {
        Some(Item::Absent) => Err(Fault::invalid("an optional within an optional")),
        Some(item) => Ok(vec![item.clone()]),
        None => Ok(vec![Item::Absent]),
    }
}

/// What an optional holds.
pub(super) fn element(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    match call.optional(0) {
        None | Some(Item::Absent) => Err(Fault::invalid("its input is an optional that holds nothing")),
        Some(item) => Ok(vec![item.clone()]),
    }
}

/// Whether the input is there and holds anything.
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
    sequence((0..call.inputs.len()).map(|index| call.tensor(index).cloned()).collect::<Result<_, _>>()?)
}

pub(super) fn insert(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let (before, tensor) = (call.sequence(0)?, call.tensor(1)?);
    let at = match call.optional(2) {
        Some(_) => place(call, 2, before.len() + 1, before.len())?,
        None => before.len(),
    };
    let mut tensors = before.to_vec();
    tensors.insert(at, tensor.clone());
    sequence(tensors)
}

pub(super) fn erase(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let mut tensors = call.sequence(0)?.to_vec();
    let count = tensors.len();
    let at = match call.optional(1) {
        Some(_) => place(call, 1, count, count)?,
        None => count.checked_sub(1).ok_or_else(|| Fault::invalid("the sequence is empty"))?,
    };
    tensors.remove(at);
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

/// Parts of a size, the last of which may be smaller, or of these sizes; of one slice each, perhaps without the axis, if none is given.
pub(super) fn split(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let x = call.tensor(0)?;
    let axis = axis_of(call.node.int("axis")?.unwrap_or(0), x.shape().rank())?;
    let size = x.shape().dims()[axis];
    let sizes = match call.optional(1) {
        None => vec![1; size],
        Some(_) => {
            let tensor = call.tensor(1)?;
            let given = integers(tensor).ok_or_else(|| Fault::of_type(1, tensor.dtype(), "an integer type"))?;
            let given: Option<Vec<usize>> = given.iter().map(|size| usize::try_from(*size).ok()).collect();
            match (given.as_deref(), tensor.shape().rank()) {
                (Some(&[part]), 0) if part > 0 => (0..size).step_by(part).map(|at| part.min(size - at)).collect(),
                (Some(parts), 1) if parts.iter().fold(0usize, |sum, part| sum.saturating_add(*part)) == size => {
                    parts.to_vec()
                }
                _ => return Err(Fault::invalid(format!("an axis of {size} does not split into such parts"))),
            }
        }
    };
    let keep = call.optional(1).is_some() || call.node.int("keepdims")?.unwrap_or(1) != 0;
    let mut start = 0;
    let mut tensors = Vec::with_capacity(sizes.len());
    for part in sizes {
        let places: Vec<usize> = (start..start + part).collect();
        start += part;
        let slice = slices(x, axis, &places)?;
        let mut dims = slice.shape().dims().to_vec();
        if !keep {
            dims.remove(axis);
        }
        tensors.push(slice.reshaped(Shape::new(dims)?).expect("an axis of one slice says nothing"));
    }
    sequence(tensors)
}

/// All side by side along an axis, which is a new one if that is asked for.
pub(super) fn concatenate(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let tensors = call.sequence(0)?;
    let new = call.node.int("new_axis")?.unwrap_or(0) != 0;
    let axis = call.node.int("axis")?.ok_or_else(|| Fault::invalid("attribute `axis` is missing"))?;
    let rank = tensors.first().map_or(0, |first| first.shape().rank());
    let axis = axis_of(axis, rank + usize::from(new))?;
    Ok(vec![Item::Tensor(side_by_side(tensors, axis, new)?)])
}

/// Tensors side by side along an axis, which is a `new` one or theirs. O(bytes).
pub(crate) fn side_by_side(tensors: &[Tensor], axis: usize, new: bool) -> Result<Tensor, Fault> {
    let first = tensors.first().ok_or_else(|| Fault::invalid("there is nothing to put side by side"))?;
    let dims = |tensor: &Tensor| {
        let mut dims = tensor.shape().dims().to_vec();
        if new {
            dims.insert(axis, 1);
        }
        dims
    };
    let mut all = dims(first);
    all[axis] = 0;
    for tensor in tensors {
        let mut own = dims(tensor);
        let size = std::mem::take(&mut own[axis]);
        let total = all[axis].checked_add(size);
        if tensor.dtype() != first.dtype() || own[..axis] != all[..axis] || own[axis + 1..] != all[axis + 1..] {
            let (own, first) = (tensor.spec(), first.spec());
            return Err(Fault::invalid(format!("{own} and {first} do not go side by side along axis {axis}")));
        }
        all[axis] = total.ok_or_else(|| Fault::invalid("the parts are too many"))?;
    }
    let outer: usize = all[..axis].iter().product();
    let spec = TensorSpec::new(first.dtype(), Shape::new(all)?);
    let mut made = buffer(spec.bytes())?;
    let rows = (0..outer).flat_map(|row| tensors.iter().map(move |tensor| (row, tensor)));
    let mut rest = made.bytes_mut();
    for (row, tensor) in rows {
        // There are rows, so that they are not nothing.
        let bytes = tensor.bytes().len() / outer;
        let (target, after) = rest.split_at_mut(bytes);
        target.copy_from_slice(&tensor.bytes()[row * bytes..][..bytes]);
        rest = after;
    }
    Ok(Tensor::new(spec, Arc::new(made)).expect("the buffer was made with the spec's size"))
}

fn sequence(tensors: Vec<Tensor>) -> Result<Vec<Item>, Fault> {
    Ok(vec![Item::Sequence(Arc::new(tensors))])
}

/// A place below `count`, counted back from `end` if it is negative.
fn place(call: &Call<'_>, index: usize, count: usize, end: usize) -> Result<usize, Fault> {
    let tensor = call.tensor(index)?;
    let Some(&[given]) = integers(tensor).as_deref() else {
        return Err(Fault::invalid(format!("input {index} is not one integer")));
    };
    let place = if given < 0 { given.saturating_add(end as i64) } else { given };
    let inside = usize::try_from(place).ok().filter(|place| *place < count);
    inside.ok_or_else(|| Fault::invalid(format!("place {given} of a sequence of {end} tensors")))
}
