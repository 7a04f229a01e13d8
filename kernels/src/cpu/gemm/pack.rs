//! Operands copied into the order in which the micro-kernel reads them.
//!
//! B is cut into panels as wide as the kernel's blocks and A into blocks of rows as high as them; inside, the elements lie
//! step by step, so that the kernel reads each with one stream (Goto 2008, section 4). Missing columns are zeros.

use super::micro::MicroKernel;
use super::transpose::transpose;
use super::view::View;
use crate::tensor::Buffer;
use std::ops::Range;

/// A right-hand operand in panels of the whole depth, packed ahead.
pub(crate) struct PackedRight {
    panels: Buffer,
    depth: usize,
    columns: usize,
    width: usize,
}

impl PackedRight {
    /// Packs `right` for `kernel`. O(elements).
    pub(crate) fn new(kernel: &MicroKernel, right: View<'_>) -> Self {
        let (depth, columns, width) = (right.rows(), right.columns(), kernel.columns);
        let mut panels = Buffer::zeroed(Panels::floats(kernel, depth, columns) * size_of::<f32>());
        let floats: &mut [f32] = bytemuck::cast_slice_mut(panels.bytes_mut());
        pack_panels(right, 0..depth, 0..columns, width, floats);
        Self { panels, depth, columns, width }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.panels.len()
    }

    pub(crate) fn panels(&self) -> Panels<'_> {
        let data = bytemuck::cast_slice(self.panels.bytes());
        Panels { data, depth: self.depth, columns: self.columns, width: self.width }
    }
}

/// Packed panels to read: panel `p` holds the columns from `p · width` on, step by step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panels<'a> {
    data: &'a [f32],
    depth: usize,
    columns: usize,
    width: usize,
}

impl<'a> Panels<'a> {
    /// Panels that were packed into `data`.
    ///
    /// # Panics
    /// If `data` is too short.
    pub(crate) fn new(kernel: &MicroKernel, data: &'a [f32], depth: usize, columns: usize) -> Self {
        let data = &data[..Self::floats(kernel, depth, columns)];
        Self { data, depth, columns, width: kernel.columns }
    }

    /// Elements that the panels of a `depth × columns` matrix take.
    pub(crate) fn floats(kernel: &MicroKernel, depth: usize, columns: usize) -> usize {
        columns.next_multiple_of(kernel.columns) * depth
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The panel that begins at this column, from this step on.
    pub(super) fn from(&self, step: usize, column: usize) -> &'a [f32] {
        &self.data[column / self.width * self.width * self.depth + step * self.width..]
    }
}

/// A left-hand operand in blocks of rows of the whole depth, packed ahead.
pub(crate) struct PackedLeft {
    blocks: Buffer,
    rows: usize,
    depth: usize,
    height: usize,
}

impl PackedLeft {
    /// Packs `left` for `kernel`. O(elements).
    pub(crate) fn new(kernel: &MicroKernel, left: View<'_>) -> Self {
        let (rows, depth) = (left.rows(), left.columns());
        let height = kernel.block_height(rows);
        let mut blocks = Buffer::zeroed(rows.div_ceil(height) * height * depth * size_of::<f32>());
        let floats: &mut [f32] = bytemuck::cast_slice_mut(blocks.bytes_mut());
        pack_panels(left.transposed(), 0..depth, 0..rows, height, floats);
        Self { blocks, rows, depth, height }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn height(&self) -> usize {
        self.height
    }

    /// The block that begins at this row, a multiple of the height, from this step on.
    pub(super) fn from(&self, row: usize, step: usize) -> &[f32] {
        let floats: &[f32] = bytemuck::cast_slice(self.blocks.bytes());
        &floats[row * self.depth + step * self.height..]
    }
}

/// Copies rows `steps` of the `columns` of `right` into panels of `width` columns, one after the other, each row by row.
/// Columns are from the first of a panel to the last or to the last of the matrix.
pub(super) fn pack_panels(
    right: View<'_>,
    steps: Range<usize>,
    columns: Range<usize>,
    width: usize,
    panels: &mut [f32],
) {
    let panel = steps.len() * width;
    if panel == 0 || columns.is_empty() {
        return;
    }
    let source = right.from(steps.start, columns.start);
    if right.column_stride() == 1 {
        // Whole rows one after the other, because memory gives long runs faster.
        for step in 0..steps.len() {
            let row = &source[step * right.row_stride()..][..columns.len()];
            for (part, panel) in row.chunks(width).zip(panels.chunks_mut(panel)) {
                copy_padded(part, &mut panel[step * width..][..width]);
            }
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

/// Copies `from` and fills the rest with zeros.
fn copy_padded(from: &[f32], to: &mut [f32]) {
    // Of a length known ahead, a copy is a few instructions rather than a call.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_hold_the_columns_step_by_step() {
        let data: Vec<f32> = (0..70 * 45).map(|i| i as f32).collect();
        for (depth, columns, transposed) in
            [(70, 45, false), (45, 70, true), (1, 1, false), (70, 45, true), (0, 3, false)]
        {
            let view = View::new(&data, depth, columns, transposed);
            for kernel in MicroKernel::available() {
                let packed = PackedRight::new(kernel, view);
                let panels = packed.panels();
                for (step, column) in (0..depth).flat_map(|p| (0..columns).map(move |j| (p, j))) {
                    let found = panels.from(step, column)[column % kernel.columns];
                    assert_eq!(found, view.from(step, column)[0], "{} ({step}, {column})", kernel.name);
                }
                let sum: f64 = panels.data.iter().map(|x| f64::from(*x)).sum();
                let want: f64 = data[..depth * columns].iter().map(|x| f64::from(*x)).sum();
                assert_eq!(sum, want, "padding is not zero");
            }
        }
    }

    #[test]
    fn row_blocks_hold_the_rows_step_by_step() {
        let data: Vec<f32> = (0..33 * 21).map(|i| i as f32).collect();
        for (rows, depth, transposed) in [(33, 21, false), (33, 21, true), (1, 5, false)] {
            let view = View::new(&data, rows, depth, transposed);
            for kernel in MicroKernel::available() {
                let packed = PackedLeft::new(kernel, view);
                let height = packed.height();
                for (row, step) in (0..rows).flat_map(|i| (0..depth).map(move |p| (i, p))) {
                    let found = packed.from(row / height * height, step)[row % height];
                    assert_eq!(found, view.from(row, step)[0], "{} ({row}, {step})", kernel.name);
                }
            }
        }
    }
}
