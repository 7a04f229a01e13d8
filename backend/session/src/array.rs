//! Conversions between callers' ndarray arrays and the runtime's tensors.

use anabranch_kernels::dtype::Element;
use anabranch_kernels::{Shape, Tensor, TensorSpec};
use ndarray::{ArrayRef, ArrayViewD, Dimension};

/// Error of an array that no tensor can hold, or of a tensor that is not such an array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ArrayError(pub(super) String);

/// Returns a tensor with a copy of the array's elements, in row-major order for any layout of the array.
///
/// # Errors
/// If the array has more dimensions than tensors can have.
pub fn tensor<T: Element, D: Dimension>(array: &ArrayRef<T, D>) -> Result<Tensor, ArrayError> {
    let shape = Shape::new(array.shape()).map_err(|error| ArrayError(error.to_string()))?;
    let mut tensor = Tensor::zeroed(TensorSpec::new(T::DTYPE, shape));
    copy(array, tensor.elements_mut().expect("a new tensor is of this type, and nothing else holds it"));
    Ok(tensor)
}

/// Copies an array's elements in row-major order to `elements`, which has the same number of elements.
pub(super) fn copy<T: Element, D: Dimension>(array: &ArrayRef<T, D>, elements: &mut [T]) {
    match array.as_slice() {
        Some(slice) => elements.copy_from_slice(slice),
        None => elements.iter_mut().zip(array.iter()).for_each(|(to, from)| *to = *from),
    }
}

/// Returns the tensor's elements as an array, without a copy. Bools are read as `u8`.
///
/// # Errors
/// If the tensor's elements are not of type `T`.
pub fn view<T: Element>(tensor: &Tensor) -> Result<ArrayViewD<'_, T>, ArrayError> {
    let elements = elements(tensor)?;
    Ok(ArrayViewD::from_shape(tensor.shape().dims(), elements).expect("a tensor has as many elements as its shape"))
}

/// Returns the tensor's elements in row-major order.
pub(super) fn elements<T: Element>(tensor: &Tensor) -> Result<&[T], ArrayError> {
    let other = || ArrayError(format!("{} is not a tensor of {}", tensor.spec(), T::DTYPE.name()));
    tensor.elements::<T>().ok_or_else(other)
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
        assert_eq!(view::<f32>(&tensor(&matrix).expect("two dimensions")).expect("f32"), matrix.view().into_dyn());
        let mut upside_down = matrix.view();
        upside_down.invert_axis(ndarray::Axis(0));
        let reversed = tensor(&upside_down).expect("two dimensions");
        assert_eq!(reversed.elements::<f32>(), Some(&[4.0, 5.0, 6.0, 1.0, 2.0, 3.0][..]));
        assert!(view::<i64>(&transposed).is_err());
    }
}
