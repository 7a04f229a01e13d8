//! Matrices of two broadcast stacks that each product reads.

use anabranch_op::shape::{Shape, ShapeError};

/// Batch dimensions of a product, and the operands' strides along them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batches {
    dims: Vec<usize>,
    left: Vec<usize>,
    right: Vec<usize>,
}

impl Batches {
    /// Returns the products of two stacks with these batch dimensions.
    ///
    /// # Errors
    /// If they cannot be broadcast together.
    pub fn new(left: &Shape, right: &Shape) -> Result<Self, ShapeError> {
        let dims = left.broadcast(right)?;
        let (left, right) = (left.broadcast_strides(&dims)?, right.broadcast_strides(&dims)?);
        Ok(Self { dims: dims.into(), left, right })
    }

    /// Returns the batch dimensions of the result.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Returns the number of products.
    #[inline]
    pub fn count(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether each product has its own left matrix, and all have the same right matrix: then they are one product.
    #[inline]
    pub fn share_right(&self) -> bool {
        let own_left = (0..self.dims.len()).all(|axis| self.dims[axis] == 1 || self.left[axis] != 0);
        own_left && self.right.iter().all(|stride| *stride == 0)
    }

    /// Returns the numbers of the left and of the right matrix of a product. O(rank).
    #[inline]
    pub fn operands(&self, mut product: usize) -> (usize, usize) {
        let (mut left, mut right) = (0, 0);
        for axis in (0..self.dims.len()).rev() {
            let index = product % self.dims[axis];
            product /= self.dims[axis];
            left += index * self.left[axis];
            right += index * self.right[axis];
        }
        (left, right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_repeat_where_they_are_broadcast() {
        let shape = |dims: &[usize]| Shape::new(dims).expect("small");
        let batches = Batches::new(&shape(&[2, 1]), &shape(&[3])).expect("broadcastable");
        let found: Vec<_> = (0..batches.count()).map(|product| batches.operands(product)).collect();
        assert_eq!(found, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
        assert!(!batches.share_right());
        assert!(Batches::new(&shape(&[2, 1]), &shape(&[1])).expect("broadcastable").share_right());
        assert!(!Batches::new(&shape(&[2]), &shape(&[3, 1])).expect("broadcastable").share_right());
        assert!(Batches::new(&shape(&[2]), &shape(&[3])).is_err());
    }
}
