//! Matrix inside a slice, with any strides of its rows and columns.

/// Matrix for reading. Element (i, j) is `data[i · row_stride + j · column_stride]`, which lies within the data for
/// every row and column.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> View<'a> {
    /// Views a row-major matrix of `rows × columns`, or its transpose stored row by row if `transposed`.
    ///
    /// # Panics
    /// If `data` is too short.
    #[inline]
    pub fn new(data: &'a [f32], rows: usize, columns: usize, transposed: bool) -> Self {
        let strides = if transposed { (1, rows) } else { (columns, 1) };
        Self::with_strides(data, rows, columns, strides)
    }

    /// Views a matrix whose rows and columns have these strides, in elements.
    ///
    /// # Panics
    /// If `data` is too short.
    #[inline]
    pub fn with_strides(data: &'a [f32], rows: usize, columns: usize, strides: (usize, usize)) -> Self {
        let (row_stride, column_stride) = strides;
        if rows > 0 && columns > 0 {
            let down = (rows - 1).checked_mul(row_stride);
            let right = (columns - 1).checked_mul(column_stride);
            let last = down.zip(right).and_then(|(down, right)| down.checked_add(right));
            assert!(
                last.is_some_and(|last| last < data.len()),
                "a {rows}×{columns} matrix of strides {strides:?} in {} elements",
                data.len()
            );
        }
        Self { data, rows, columns, row_stride, column_stride }
    }

    /// Returns the number of rows.
    #[inline]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    #[inline]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the distance of neighbouring rows in elements.
    #[inline]
    pub(crate) fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// Returns the distance of neighbouring columns in elements.
    #[inline]
    pub(crate) fn column_stride(&self) -> usize {
        self.column_stride
    }

    /// Returns the transposed matrix.
    #[inline]
    pub fn transposed(self) -> Self {
        let Self { data, rows, columns, row_stride, column_stride } = self;
        Self { data, rows: columns, columns: rows, row_stride: column_stride, column_stride: row_stride }
    }

    /// Returns the data from element (i, j) on; nothing if there is no such element.
    #[inline]
    pub fn from(&self, row: usize, column: usize) -> &'a [f32] {
        if row < self.rows && column < self.columns {
            &self.data[row * self.row_stride + column * self.column_stride..]
        } else {
            &[]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_through_both_strides() {
        let data: Vec<f32> = (0..6u8).map(f32::from).collect();
        let view = View::new(&data, 2, 3, false);
        let stored_transposed = View::new(&data, 3, 2, true);
        for (i, j) in (0..2).flat_map(|i| (0..3).map(move |j| (i, j))) {
            assert_eq!(view.from(i, j)[0], data[i * 3 + j]);
            assert_eq!(view.transposed().from(j, i)[0], data[i * 3 + j]);
            assert_eq!(stored_transposed.from(j, i)[0], data[i * 3 + j]);
        }
        assert!(view.from(2, 0).is_empty());
    }

    #[test]
    #[should_panic(expected = "matrix of strides")]
    fn a_matrix_beyond_its_data_is_refused() {
        View::with_strides(&[0.0; 10], 3, 3, (4, 1));
    }
}
