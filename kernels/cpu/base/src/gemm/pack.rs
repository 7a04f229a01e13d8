//! Operands copied into the order in which the micro-kernel reads them.
//!
//! B is cut into panels as wide as the kernel's blocks, and A into blocks of rows as high as them. Inside, the elements
//! lie step by step, so that the kernel reads each with one stream (Goto 2008, section 4). Missing columns are zeros.

use super::transpose::transpose;
use super::view::View;
use std::ops::Range;

/// Packed panels for reading. Panel `p` holds the columns from `p · width` on, step by step; for a left-hand operand,
/// its rows.
#[derive(Clone, Copy, Debug)]
pub struct Panels<'a> {
    /// Panels, and the data after them.
    data: &'a [f32],
    depth: usize,
    columns: usize,
    width: usize,
}

impl<'a> Panels<'a> {
    /// Wraps panels that were packed into the beginning of `data`. The data after them is soon read, for instance as
    /// the next matrix.
    ///
    /// # Panics
    /// If `data` is too short.
    #[inline]
    pub fn new(data: &'a [f32], depth: usize, columns: usize, width: usize) -> Self {
        assert!(data.len() >= Self::floats(width, depth, columns), "panels that are too short");
        Self { data, depth, columns, width }
    }

    /// Returns the elements that the panels of a `depth × columns` matrix take.
    #[inline]
    pub fn floats(width: usize, depth: usize, columns: usize) -> usize {
        columns.next_multiple_of(width) * depth
    }

    #[inline]
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the columns of a panel.
    #[inline]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the panel of this column from this step and this column on, and the data after it; nothing beyond the
    /// end.
    #[inline]
    pub fn from(&self, step: usize, column: usize) -> &'a [f32] {
        let first = column / self.width * self.width * self.depth + step * self.width + column % self.width;
        &self.data[first.min(self.data.len())..]
    }
}

/// Copies rows `steps` of the `columns` of `right` into panels of `width` columns, panel by panel, each row by row.
/// Columns reach from the first of a panel to the last of a panel or of the matrix.
pub fn pack_panels(right: View<'_>, steps: Range<usize>, columns: Range<usize>, width: usize, panels: &mut [f32]) {
    let panel = steps.len() * width;
    if panel == 0 || columns.is_empty() {
        return;
    }
    let source = right.from(steps.start, columns.start);
    if right.column_stride() == 1 {
        for step in 0..steps.len() {
            let row = &source[step * right.row_stride()..][..columns.len()];
            pack_rows(row, step, [steps.len(), row.len(), width], panels);
        }
    } else {
        for (first, panel) in columns.clone().step_by(width).zip(panels.chunks_mut(panel)) {
            let present = width.min(columns.end - first);
            let source = right.from(steps.start, first);
            transpose(source, (right.column_stride(), right.row_stride()), (present, steps.len()), panel, width);
            panel.chunks_mut(width).for_each(|row| row[present..].fill(0.0));
        }
    }
}

/// Copies rows of `columns` elements into panels of `width` columns; the first is row `first` of `depth`. Whole rows
/// are copied in order, because memory delivers long runs faster.
pub(crate) fn pack_rows(rows: &[f32], first: usize, [depth, columns, width]: [usize; 3], panels: &mut [f32]) {
    for (row, step) in rows.chunks_exact(columns).zip(first..) {
        for (part, panel) in row.chunks(width).zip(panels.chunks_mut(depth * width)) {
            copy_padded(part, &mut panel[step * width..][..width]);
        }
    }
}

/// Copies `from` and fills the rest with zeros.
fn copy_padded(from: &[f32], to: &mut [f32]) {
    // A copy of constant length is a few instructions instead of a call.
    match (from.len(), to.len()) {
        (48, 48) => to[..48].copy_from_slice(&from[..48]),
        (16, 16) => to[..16].copy_from_slice(&from[..16]),
        (8, 8) => to[..8].copy_from_slice(&from[..8]),
        (length, _) => {
            to[..length].copy_from_slice(from);
            to[length..].fill(0.0);
        }
    }
}
