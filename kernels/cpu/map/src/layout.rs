//! Positions of operands' elements for each element of an output to which they are broadcast.

use anabranch_op::shape::{Shape, ShapeError, merged};

/// Dimensions of the output and the operands' strides along them.
///
/// Neighbouring dimensions are joined wherever every operand allows it. Strides are in elements. At least one dimension
/// is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    dims: Vec<usize>,
    strides: Vec<Vec<usize>>,
}

impl Layout {
    /// Returns the layout of operands of these shapes over an output of shape `output`.
    ///
    /// # Errors
    /// If an operand cannot be broadcast to the output.
    pub(crate) fn new(output: &Shape, operands: &[&Shape]) -> Result<Self, ShapeError> {
        let strides = operands.iter().map(|o| o.broadcast_strides(output)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::joined(output.dims(), &strides))
    }

    /// Drops dimensions of size 1, and joins two neighbours if each operand's stride along the outer dimension equals a
    /// step over the whole inner dimension.
    fn joined(dims: &[usize], strides: &[Vec<usize>]) -> Self {
        let axes = dims.iter().enumerate().map(|(axis, dim)| (*dim, strides.iter().map(|s| s[axis]).collect()));
        let steps = |outer: &Vec<usize>, inner: &Vec<usize>, size| outer.iter().zip(inner).all(|(o, i)| *o == i * size);
        let mut kept = merged(axes, steps);
        if kept.is_empty() {
            kept.push((1, vec![0; strides.len()]));
        }
        let dims = kept.iter().map(|(dim, _)| *dim).collect();
        let strides = (0..strides.len()).map(|o| kept.iter().map(|(_, s)| s[o]).collect()).collect();
        Self { dims, strides }
    }

    /// Returns the layout of one operand alone, which may have fewer dimensions.
    pub(crate) fn of_operand(&self, operand: usize) -> Self {
        Self::joined(&self.dims, &self.strides[operand..=operand])
    }

    /// Returns the layout whose only row is the whole output. It holds no valid strides of operands that are neither
    /// one value nor linear.
    pub(crate) fn as_one_row(&self) -> Self {
        let stride = |operand| vec![usize::from(!self.is_scalar(operand))];
        Self { dims: vec![self.dims.iter().product()], strides: (0..self.strides.len()).map(stride).collect() }
    }

    /// Returns a cursor that finds the operand's rows, fastest in order.
    pub(crate) fn rows(&self, operand: usize) -> Rows<'_> {
        Rows { layout: self, operand, row: usize::MAX, offset: 0, left: 0 }
    }

    /// Returns the number of elements of the innermost dimension: a row. Along it every operand is one value or
    /// consecutive.
    pub(crate) fn row(&self) -> usize {
        self.dims[self.dims.len() - 1]
    }

    /// Whether the operand is consecutive along a row, instead of one value.
    pub(crate) fn varies(&self, operand: usize) -> bool {
        self.strides[operand][self.dims.len() - 1] != 0
    }

    /// Whether each operand has the same elements for all rows.
    pub(crate) fn rows_are_alike(&self) -> bool {
        self.strides.iter().all(|strides| strides[..strides.len() - 1].iter().all(|stride| *stride == 0))
    }

    /// Returns the number of neighbouring rows whose values, one for each row, are consecutive; 0 if there are none.
    pub(crate) fn consecutive_rows(&self, operand: usize) -> usize {
        match (&*self.dims, &*self.strides[operand]) {
            ([.., rows, _], [.., 1, 0]) => *rows,
            _ => 0,
        }
    }

    /// Whether the operand is one value for the whole output.
    pub(crate) fn is_scalar(&self, operand: usize) -> bool {
        self.strides[operand].iter().all(|stride| *stride == 0)
    }

    /// Whether the operand has an element for each of the output's, in the same order.
    pub(crate) fn is_linear(&self, operand: usize) -> bool {
        let mut expected = 1;
        self.dims.iter().zip(&self.strides[operand]).rev().all(|(dim, stride)| {
            let linear = *stride == expected;
            expected *= dim;
            linear
        })
    }

    /// Returns the offset in elements of the operand's first element in row `row`. O(rank).
    pub(crate) fn offset(&self, operand: usize, mut row: usize) -> usize {
        let outer = self.dims.len() - 1;
        let mut offset = 0;
        for (dim, stride) in self.dims[..outer].iter().zip(&self.strides[operand][..outer]).rev() {
            // Divisions are slow, and most operands need none.
            if row < *dim {
                return offset + row * stride;
            }
            offset += row % dim * stride;
            row /= dim;
        }
        offset
    }

    /// Returns the number of rows from `row` to the end of its block: the rows along the second innermost dimension.
    pub(crate) fn rows_of_block(&self, row: usize) -> usize {
        let depth = self.dims.len().checked_sub(2).map_or(1, |axis| self.dims[axis]);
        depth - row % depth
    }

    /// Returns the [offset](Self::offset) of a row, and the distance from it to the next row of its block.
    pub(crate) fn block(&self, operand: usize, row: usize) -> (usize, usize) {
        let stride = self.dims.len().checked_sub(2).map_or(0, |axis| self.strides[operand][axis]);
        (self.offset(operand, row), stride)
    }

    /// Cuts the output's elements `start..start + length` into runs inside rows, and calls `visit(row, column, run)`
    /// for each. `run` counts from `start`.
    #[inline]
    pub(crate) fn runs(
        &self,
        start: usize,
        length: usize,
        mut visit: impl FnMut(usize, usize, std::ops::Range<usize>),
    ) {
        let width = self.row();
        if length == 0 {
            return;
        }
        let (mut row, mut column) = if start < width { (0, start) } else { (start / width, start % width) };
        let mut done = 0;
        while done < length {
            let take = (width - column).min(length - done);
            visit(row, column, done..done + take);
            done += take;
            row += 1;
            column = 0;
        }
    }
}

/// Offsets of one operand's rows. The next row is found by a step of the second innermost stride.
pub(crate) struct Rows<'a> {
    layout: &'a Layout,
    operand: usize,
    row: usize,
    offset: usize,
    /// Number of rows left in the same second innermost dimension.
    left: usize,
}

impl Rows<'_> {
    /// Returns [`Layout::offset`] of the operand.
    #[inline]
    pub(crate) fn offset(&mut self, row: usize) -> usize {
        if self.left > 0 && row == self.row + 1 {
            self.left -= 1;
            self.offset += self.layout.strides[self.operand][self.layout.dims.len() - 2];
        } else {
            self.left = self.layout.rows_of_block(row) - 1;
            self.offset = self.layout.offset(self.operand, row);
        }
        self.row = row;
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::shape;

    fn layout(output: &[usize], operands: &[&[usize]]) -> Layout {
        let operands: Vec<_> = operands.iter().map(|o| shape(o)).collect();
        Layout::new(&shape(output), &operands.iter().collect::<Vec<_>>()).expect("broadcastable")
    }

    #[test]
    fn dimensions_are_joined_where_all_operands_allow() {
        let found = layout(&[2, 3, 4, 5], &[&[2, 3, 4, 5], &[3, 1, 1]]);
        assert_eq!(found, Layout { dims: vec![2, 3, 20], strides: vec![vec![60, 20, 1], vec![0, 1, 0]] });
        let found = layout(&[2, 3, 1, 5], &[&[2, 3, 1, 5], &[]]);
        assert_eq!(found, Layout { dims: vec![30], strides: vec![vec![1], vec![0]] });
        assert_eq!(layout(&[1, 1], &[&[1]]), Layout { dims: vec![1], strides: vec![vec![0]] });
        assert_eq!(layout(&[2, 3, 20], &[&[2, 3, 20], &[3, 1]]).of_operand(0).dims, [120]);
    }

    #[test]
    fn every_element_is_found_as_by_its_coordinates() {
        let (output, operand) = (shape(&[2, 3, 4]), shape(&[3, 1]));
        let layout = Layout::new(&output, &[&operand, &output]).expect("broadcastable");
        let (mut seen, mut cursor) = (0, layout.rows(0));
        layout.runs(5, 17, |row, column, run| {
            assert_eq!(cursor.offset(row), layout.offset(0, row));
            for i in run {
                let flat = 5 + i;
                assert_eq!(layout.offset(0, row), flat / 4 % 3);
                assert_eq!(layout.offset(1, row) + column + (flat - row * layout.row() - column), flat);
                seen += 1;
            }
        });
        assert_eq!(seen, 17);
        assert!(layout.is_linear(1) && !layout.is_linear(0) && !layout.varies(0) && !layout.is_scalar(0));
    }
}
