//! Converts token ids, masks and positions to the element type of a model's input.

use super::error::GenerateError;
use anabranch_kernels::{DType, Shape, Tensor};
use anabranch_session::Session;

/// A tensor of integers in the type that an input has.
///
/// # Errors
/// If the input is of a type that has no such integers.
pub(crate) fn integers(session: &Session, name: &str, dims: &[usize], values: &[i64]) -> Result<Tensor, GenerateError> {
    let shape = Shape::new(dims).map_err(GenerateError::given)?;
    let made = match session.input_info(name).and_then(|info| info.dtype()) {
        Some(DType::I64) => Tensor::from_elements(shape, values),
        Some(DType::I32) => Tensor::from_elements(shape, &values.iter().map(|value| *value as i32).collect::<Vec<_>>()),
        Some(DType::F32) => Tensor::from_elements(shape, &values.iter().map(|value| *value as f32).collect::<Vec<_>>()),
        other => {
            let other = other.map_or("?", DType::name);
            return Err(GenerateError::given(format!("input `{name}` has type {other}; export it with i64")));
        }
    };
    made.map_err(GenerateError::given)
}
