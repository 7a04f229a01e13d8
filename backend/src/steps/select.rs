//! Elements picked by truth values.

use super::{Call, Item, buffer, slices};
use crate::lower::{Fault, axis_of, numbers};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// The indices of the elements that are not zero, one row an axis. O(elements · rank).
pub(super) fn non_zero(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let x = call.tensor(0)?;
    let found: Vec<usize> = match x.dtype() {
        dtype if dtype.is_float() => {
            let elements = numbers(x).ok_or_else(|| Fault::unsupported("its element type"))?;
            places(elements.into_iter().map(|element| element != 0.0))
        }
        dtype => places(x.bytes().chunks(dtype.size()).map(|element| element.iter().any(|byte| *byte != 0))),
    };
    let (rank, strides) = (x.shape().rank(), x.shape().strides());
    let spec = TensorSpec::new(DType::I64, Shape::new(vec![rank, found.len()])?);
    let mut made = buffer(spec.bytes())?;
    let coordinates = (0..rank).flat_map(|axis| found.iter().map(move |index| (axis, *index)));
    for (target, (axis, index)) in made.bytes_mut().chunks_exact_mut(8).zip(coordinates) {
        let coordinate = (index / strides[axis] % x.shape().dims()[axis]) as i64;
        target.copy_from_slice(&coordinate.to_ne_bytes());
    }
    let tensor = Tensor::new(spec, Arc::new(made)).expect("the buffer was made with the spec's size");
    Ok(vec![Item::Tensor(tensor)])
}

/// The slices whose truth value is true; of all elements where no axis is given. O(bytes).
pub(super) fn compress(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let (x, truths) = (call.tensor(0)?, call.tensor(1)?);
    if truths.dtype() != DType::Bool {
        return Err(Fault::of_type(1, truths.dtype(), "bool"));
    }
    let (data, axis) = match call.node.int("axis")? {
        Some(axis) => (x.clone(), axis_of(axis, x.shape().rank())?),
        None => (flat(x)?, 0),
    };
    let count = truths.shape().elements();
    if count > data.shape().dims()[axis] {
        return Err(Fault::invalid(format!("{count} truth values for {} slices", data.shape().dims()[axis])));
    }
    let places = places(truths.bytes().iter().map(|byte| *byte != 0));
    Ok(vec![Item::Tensor(slices(&data, axis, &places)?)])
}

/// All elements along one axis.
pub(super) fn flat(tensor: &Tensor) -> Result<Tensor, Fault> {
    let flat = Shape::new(vec![tensor.shape().elements()])?;
    Ok(tensor.reshaped(flat).expect("as many elements"))
}

fn places(truths: impl Iterator<Item = bool>) -> Vec<usize> {
    truths.enumerate().filter(|(_, truth)| *truth).map(|(place, _)| place).collect()
}
