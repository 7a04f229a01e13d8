//! Position of the rows of a batch in a tensor, under any of its shapes.

use anabranch_kernels::{Shape, TensorSpec};

/// Position of the rows of a batch in a tensor: its elements, in order, are `[outer, batch, inner]`.
///
/// Reshapes do not change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Layout {
    pub(super) outer: usize,
    pub(super) inner: usize,
}

/// Axis that contains the batch: it has `before · batch · after` positions, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) number: usize,
    pub(super) before: usize,
    pub(super) after: usize,
}

impl Layout {
    /// Returns the layout of a tensor of these dimensions whose axis contains the batch.
    pub(super) fn along(dims: &[usize], axis: Axis) -> Self {
        let Axis { number, before, after } = axis;
        let outer: usize = dims[..number].iter().product();
        let inner: usize = dims[number + 1..].iter().product();
        Self { outer: outer * before, inner: inner * after }
    }

    /// Returns the layout of a tensor of these dimensions whose axis is the batch.
    pub(super) fn of_axis(dims: &[usize], number: usize) -> Self {
        Self::along(dims, Axis { number, before: 1, after: 1 })
    }

    /// Finds the axis that contains all rows of the batch, if one axis does. O(rank).
    ///
    /// For a batch of at least two rows there is at most one.
    pub(super) fn axis(self, dims: &[usize], batch: usize) -> Option<Axis> {
        let whole = self.outer.checked_mul(batch)?.checked_mul(self.inner)?;
        if whole == 0 || dims.iter().product::<usize>() != whole {
            return None;
        }
        let mut outside = 1;
        for (number, size) in dims.iter().copied().enumerate() {
            let rows = (self.outer / outside).checked_mul(batch)?;
            if self.outer.is_multiple_of(outside) && size >= rows && size.is_multiple_of(rows) {
                return Some(Axis { number, before: self.outer / outside, after: size / rows });
            }
            outside *= size;
            if outside > self.outer {
                return None;
            }
        }
        None
    }

    /// Returns a tensor's spec for `rows` of the `batch` rows; `None` if no axis contains all of them.
    pub(super) fn part(self, spec: &TensorSpec, batch: usize, rows: usize) -> Option<TensorSpec> {
        let mut dims = spec.shape.dims().to_vec();
        let axis = self.axis(&dims, batch)?;
        dims[axis.number] = axis.before * rows * axis.after;
        Some(TensorSpec::new(spec.dtype, Shape::new(dims).ok()?))
    }

    /// Returns the dimensions `[outer, rows, inner]`.
    pub(super) fn dims(self, rows: usize) -> [usize; 3] {
        [self.outer, rows, self.inner]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_is_found_under_every_shape_that_keeps_its_rows_together() {
        let axis = |number, before, after| Some(Axis { number, before, after });
        for (outer, inner, dims, found) in [
            (1, 12, &[4, 12][..], axis(0, 1, 1)),
            (1, 12, &[48], axis(0, 1, 12)),
            (1, 12, &[1, 4, 3, 4], axis(1, 1, 1)),
            (1, 12, &[8, 6], axis(0, 1, 2)),
            (3, 4, &[3, 4, 4], axis(1, 1, 1)),
            (3, 4, &[12, 4], axis(0, 3, 1)),
            (6, 2, &[3, 8, 2], axis(1, 2, 1)),
            (6, 2, &[2, 24, 1, 2], None),
            (1, 12, &[2, 2, 12], None),
            (3, 4, &[4, 3, 4], None),
            (1, 12, &[4, 11], None),
            (1, 0, &[4, 0], None),
        ] {
            assert_eq!(Layout { outer, inner }.axis(dims, 4), found, "{outer} {inner} {dims:?}");
        }
    }
}
