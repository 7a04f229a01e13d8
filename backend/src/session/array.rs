//! Between callers' ndarray arrays and the runtime's tensors.

use anabranch_kernels::dtype::Element;
use anabranch_kernels::{Shape, Tensor, TensorSpec};
use ndarray::{ArrayD, ArrayRef, Dimension};

/// An array that no tensor can hold, or a tensor that is no such array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// The tensor holds another element type.
    #[error("{spec} is not a tensor of {wanted}")]
    Type {
        /// What the tensor is.
        spec: TensorSpec,
        /// The element type asked for.
        wanted: &'static str,
    },
    /// Too many dimensions or elements.
    #[error(transparent)]
    Shape(#[from] anabranch_kernels::shape::ShapeError),
}

/// A tensor with a copy of the array's elements, in row-major order whatever the array's layout.
///
/// # Errors
/// If the array has more dimensions than tensors can have.
pub fn tensor<T: Element, D: Dimension>(array: &ArrayRef<T, D>) -> Result<Tensor, ArrayError> {
    let shape = Shape::new(array.shape())?;
    let tensor = match array.as_slice() {
        Some(elements) => Tensor::from_elements(shape, elements),
        None => Tensor::from_elements(shape, &array.iter().copied().collect::<Vec<T>>()),
    };
    Ok(tensor.expect("an array has as many elements as its shape"))
}

/// An array with a copy of the tensor's elements. Truth values are read as `u8`.
///
/// # Errors
/// If the tensor's elements are not of type `T`.
pub fn array<T: Element>(tensor: &Tensor) -> Result<ArrayD<T>, ArrayError> {
    let wanted = T::DTYPE.name();
    let elements = tensor.elements::<T>().ok_or_else(|| ArrayError::Type { spec: tensor.spec().clone(), wanted })?;
    let dims = tensor.shape().dims().to_vec();
    Ok(ArrayD::from_shape_vec(dims, elements.to_vec()).expect("a tensor has as many elements as its shape"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, array as literal};

    #[test]
    fn arrays_of_any_layout_come_back_equal() {
        let matrix: Array2<f32> = literal![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
        let transposed = tensor(&matrix.t().to_owned().view()).expect("two dimensions");
        assert_eq!(transposed.elements::<f32>(), Some(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0][..]));
        assert_eq!(array::<f32>(&tensor(&matrix).expect("two dimensions")).expect("f32"), matrix.into_dyn());
        assert!(array::<i64>(&transposed).is_err());
    }
}
