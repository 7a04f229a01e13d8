//! Shapes of dense row-major tensors. Making a shape checks every size.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Maximum number of dimensions.
pub const MAX_RANK: usize = 16;

/// Error of a shape that does not fit the address space, or of two shapes that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The number of elements times eight bytes exceeds the address space.
    #[error("a tensor of shape {0:?} is too large for this machine's address space")]
    TooLarge(Vec<usize>),
    /// More than [`MAX_RANK`] dimensions.
    #[error("a tensor has {0} dimensions, but at most {MAX_RANK} are supported")]
    Rank(usize),
    /// Two sizes of a dimension differ, and neither is 1.
    #[error("shapes {0} and {1} cannot be broadcast together")]
    Broadcast(Shape, Shape),
}

/// Dimensions of a tensor, outermost first.
///
/// The product of the dimensions, in elements of eight bytes, fits `isize`, so size arithmetic on a `Shape` cannot
/// overflow. Clones share the dimensions, so that they allocate nothing.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<usize>", into = "Vec<usize>")]
pub struct Shape(Option<Arc<[usize]>>);

impl Shape {
    /// Creates a shape with these dimensions, outermost first.
    ///
    /// # Errors
    /// If there are too many dimensions, or the product of the dimensions that are not 0 does not fit the address
    /// space.
    pub fn new(dims: impl Into<Vec<usize>>) -> Result<Self, ShapeError> {
        let dims = dims.into();
        if dims.len() > MAX_RANK {
            return Err(ShapeError::Rank(dims.len()));
        }
        let bytes = dims.iter().filter(|d| **d != 0).try_fold(8usize, |n, d| n.checked_mul(*d));
        match bytes {
            Some(bytes) if isize::try_from(bytes).is_ok() => Ok(Self((!dims.is_empty()).then(|| dims.into()))),
            _ => Err(ShapeError::TooLarge(dims)),
        }
    }

    /// Returns the shape of a scalar: no dimensions, one element.
    pub const fn scalar() -> Self {
        Self(None)
    }

    /// Returns the dimensions, outermost first.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Returns the number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.dims().len()
    }

    /// Returns the number of elements; 1 for a scalar.
    #[inline]
    pub fn elements(&self) -> usize {
        self.dims().iter().product()
    }

    /// Returns the row-major strides in elements.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.rank()];
        for axis in (1..self.rank()).rev() {
            strides[axis - 1] = strides[axis] * self.dims()[axis].max(1);
        }
        strides
    }

    /// Returns the strides in elements for reading this shape broadcast to `target`: 0 along each broadcast axis. The
    /// result has `target`'s rank.
    ///
    /// # Errors
    /// If this shape cannot be broadcast to `target`.
    pub fn broadcast_strides(&self, target: &Self) -> Result<Vec<usize>, ShapeError> {
        let error = || ShapeError::Broadcast(self.clone(), target.clone());
        let lead = target.rank().checked_sub(self.rank()).ok_or_else(error)?;
        let mut strides = vec![0; target.rank()];
        for (axis, stride) in self.strides().into_iter().enumerate() {
            match (self.dims()[axis], target.dims()[lead + axis]) {
                (1, _) => {}
                (here, there) if here == there => strides[lead + axis] = stride,
                _ => return Err(error()),
            }
        }
        Ok(strides)
    }

    /// Returns the smallest shape to which both shapes can be broadcast (NumPy's rule).
    ///
    /// # Errors
    /// If they differ in a dimension in which neither is 1, or if the result is too large.
    pub fn broadcast(&self, other: &Self) -> Result<Self, ShapeError> {
        let rank = self.rank().max(other.rank());
        let dim = |shape: &Self, axis: usize| (axis + shape.rank()).checked_sub(rank).map_or(1, |i| shape.dims()[i]);
        let mut dims = Vec::with_capacity(rank);
        for axis in 0..rank {
            dims.push(match (dim(self, axis), dim(other, axis)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return Err(ShapeError::Broadcast(self.clone(), other.clone())),
            });
        }
        Self::new(dims)
    }
}

/// Returns the axes that have more than one element, each with its size and strides. Two consecutive axes become one if
/// `fits` accepts the first's strides, the second's strides and the second's size: a step of the first must equal a
/// step over the whole second.
#[doc(hidden)]
pub fn merged<S>(axes: impl Iterator<Item = (usize, S)>, fits: impl Fn(&S, &S, usize) -> bool) -> Vec<(usize, S)> {
    let mut merged: Vec<(usize, S)> = Vec::new();
    for (size, strides) in axes.filter(|(size, _)| *size != 1) {
        match merged.last_mut() {
            Some(last) if fits(&last.1, &strides, size) => *last = (last.0 * size, strides),
            _ => merged.push((size, strides)),
        }
    }
    merged
}

impl TryFrom<Vec<usize>> for Shape {
    type Error = ShapeError;
    fn try_from(dims: Vec<usize>) -> Result<Self, ShapeError> {
        Self::new(dims)
    }
}

impl From<Shape> for Vec<usize> {
    fn from(shape: Shape) -> Self {
        shape.dims().to_vec()
    }
}

impl fmt::Display for Shape {
    /// Writes `1×3×224×224`, or `scalar`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dims().is_empty() {
            return f.write_str("scalar");
        }
        for (axis, dim) in self.dims().iter().enumerate() {
            if axis > 0 {
                f.write_str("×")?;
            }
            write!(f, "{dim}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).expect("a small shape")
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        for dims in [vec![1 << 32, 1 << 32], vec![usize::MAX], vec![0, usize::MAX, 2], vec![1 << 61]] {
            assert_eq!(Shape::new(dims.clone()), Err(ShapeError::TooLarge(dims)));
        }
        assert_eq!(Shape::new(vec![1; 17]), Err(ShapeError::Rank(17)));
        assert_eq!(shape(&[0, 7]).elements(), 0);
        assert_eq!(Shape::scalar().elements(), 1);
    }

    #[test]
    fn broadcasting_follows_numpy() {
        for (a, b, want) in [
            (vec![2, 3], vec![3], Some(vec![2, 3])),
            (vec![2, 1], vec![1, 5], Some(vec![2, 5])),
            (vec![], vec![4], Some(vec![4])),
            (vec![0], vec![1], Some(vec![0])),
            (vec![2], vec![3], None),
        ] {
            let got = shape(&a).broadcast(&shape(&b)).ok().map(Vec::from);
            assert_eq!(got, want, "{a:?} with {b:?}");
        }
    }

    #[test]
    fn broadcast_strides_are_zero_where_repeated() {
        let target = shape(&[2, 3, 4]);
        assert_eq!(shape(&[3, 1]).broadcast_strides(&target), Ok(vec![0, 1, 0]));
        assert_eq!(shape(&[2, 3, 4]).broadcast_strides(&target), Ok(vec![12, 4, 1]));
        assert!(shape(&[2, 2, 3, 4]).broadcast_strides(&target).is_err());
    }
}
