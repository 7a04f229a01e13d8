//! Elements of tensors as numbers, and axes as operators count them.

use crate::Fault;
use anabranch_kernels::{DType, Tensor};

/// Returns an axis of a tensor of `rank` dimensions, counted from the end if negative.
///
/// # Errors
/// If the tensor has no such axis.
pub fn axis_of(axis: i64, rank: usize) -> Result<usize, Fault> {
    let range = -(rank as i64)..rank as i64;
    if !range.contains(&axis) {
        return Err(Fault::invalid(format!("axis {axis} is outside of a tensor of {rank} dimensions")));
    }
    Ok(axis.rem_euclid(rank as i64) as usize)
}

/// Returns the elements of an integer or bool tensor; `None` for other types, or if a `u64` is beyond `i64`.
pub fn integers(tensor: &Tensor) -> Option<Vec<i64>> {
    fn widened<T: anabranch_kernels::dtype::Element + Into<i64>>(tensor: &Tensor) -> Option<Vec<i64>> {
        Some(tensor.elements::<T>()?.iter().map(|element| (*element).into()).collect())
    }
    match tensor.dtype() {
        DType::I64 => tensor.elements::<i64>().map(<[i64]>::to_vec),
        DType::I32 => widened::<i32>(tensor),
        DType::I16 => widened::<i16>(tensor),
        DType::I8 => widened::<i8>(tensor),
        DType::I4 | DType::I2 => Some(tensor.bytes().iter().map(|byte| i64::from(*byte as i8)).collect()),
        DType::U32 => widened::<u32>(tensor),
        DType::U16 => widened::<u16>(tensor),
        DType::U8 | DType::Bool => widened::<u8>(tensor),
        DType::U4 | DType::U2 => Some(tensor.bytes().iter().map(|byte| i64::from(*byte)).collect()),
        DType::U64 => tensor.elements::<u64>()?.iter().map(|element| i64::try_from(*element).ok()).collect(),
        _ => None,
    }
}

/// Returns the elements of a tensor of any type, as `f64`; `None` if a `u64` is beyond `i64`.
pub fn numbers(tensor: &Tensor) -> Option<Vec<f64>> {
    match tensor.dtype() {
        DType::F32 => Some(tensor.elements::<f32>()?.iter().map(|element| f64::from(*element)).collect()),
        DType::F64 => tensor.elements::<f64>().map(<[f64]>::to_vec),
        DType::F16 => Some(tensor.elements::<half::f16>()?.iter().map(|element| element.to_f64()).collect()),
        DType::BF16 => Some(tensor.elements::<half::bf16>()?.iter().map(|element| element.to_f64()).collect()),
        dtype if dtype.number_of_byte(0).is_some() => {
            tensor.bytes().iter().map(|byte| dtype.number_of_byte(*byte)).collect()
        }
        _ => Some(integers(tensor)?.into_iter().map(|element| element as f64).collect()),
    }
}
