//! One tile of a matrix product, block by block so that every operand is read from a near cache.
//!
//! Loops, outermost first: slices of the depth; blocks of rows, whose part of A stays in the first-level cache; panels
//! of columns, whose parts of B together fill at most half of the second-level cache (Goto 2008, section 4, with the two
//! inner loops exchanged so that finished rows of C are contiguous). When the last slice of a block of rows is done, its
//! rows are finished by the caller while they are in the cache.

use super::micro::{Block, MicroKernel};
use super::pack::{Panels, pack_panels};
use super::view::View;
use crate::cpu::team::{Tile, with_workspace};
use std::ops::Range;

/// Most steps of the depth that are added up in one sweep over a tile.
const SLICE: usize = 384;

/// Applied to each finished run of a row of C: its row and first column in the matrix, and the elements.
pub(crate) type Finish<'a> = &'a dyn Fn(usize, usize, &mut [f32]);

/// The left-hand operand of a product.
#[derive(Clone, Copy)]
pub(crate) enum Left<'a> {
    /// As it lies in memory.
    View(View<'a>),
    Packed(Panels<'a>),
}

/// The right-hand operand of a product.
#[derive(Clone, Copy)]
pub(crate) enum Right<'a> {
    /// As it lies in memory: read in place, or copied tile by tile.
    View(View<'a>),
    Packed(Panels<'a>),
    Source(&'a dyn PanelSource),
}

/// A matrix that writes its panels when they are needed.
pub(crate) trait PanelSource: Sync {
    fn depth(&self) -> usize;

    fn columns(&self) -> usize;

    /// Writes rows `steps` and columns `first..first + width` to `panel`, row by row; what lies beyond the matrix is not
    /// read.
    fn pack(&self, steps: Range<usize>, first: usize, width: usize, panel: &mut [f32]);
}

/// A product of two matrices, of which tiles can be computed.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    kernel: &'static MicroKernel,
    left: Left<'a>,
    right: Right<'a>,
}

/// Elements at two distances: (i, j) of an operand's part at `i · first + j · second`.
#[derive(Clone, Copy)]
struct Strided<'a> {
    data: &'a [f32],
    first: usize,
    second: usize,
}

/// What one call of a micro-kernel reads.
struct Operands<'a> {
    /// Element (i, p).
    left: Strided<'a>,
    /// Element (p, j).
    right: Strided<'a>,
    /// What to fetch meanwhile.
    ahead: &'a [f32],
}

impl<'a> Product<'a> {
    /// # Panics
    /// If the operands' depths differ, or one was packed for another kernel.
    pub(crate) fn new(kernel: &'static MicroKernel, left: Left<'a>, right: Right<'a>) -> Self {
        assert_eq!(left.depth(), right.depth(), "the operands of a product have different depths");
        let fits = match right {
            Right::Packed(panels) => panels.width() == kernel.columns,
            Right::View(_) | Right::Source(_) => true,
        };
        assert!(fits && left.height(kernel) <= kernel.rows, "an operand packed for another kernel");
        Self { kernel, left, right }
    }

    /// Computes the elements of C in `tile` and calls `finish` on each of its rows. The first row of the tile is a multiple
    /// of the [block height](MicroKernel::block_height) of the product's rows, its first column one of the kernel's columns.
    ///
    /// # Panics
    /// If the tile lies outside of the product, or does not begin at a block.
    pub(crate) fn compute(&self, tile: &mut Tile<'_, f32>, finish: Option<Finish<'_>>) {
        let (rows, columns, depth) = (self.left.rows(), self.right.columns(), self.left.depth());
        assert!(tile.rows.end <= rows && tile.columns.end <= columns, "a tile outside of the product");
        let height = self.left.height(self.kernel);
        assert!(
            tile.rows.start.is_multiple_of(height) && tile.columns.start.is_multiple_of(self.kernel.columns),
            "a tile between blocks"
        );
        if depth == 0 {
            (0..tile.rows.len()).for_each(|row| tile.row(row).fill(0.0));
            return self.finish_rows(tile, finish);
        }
        let slice = even_cut(depth, SLICE, 1);
        let packed = if self.in_place(slice, tile.rows.len()) { 0 } else { slice * self.padded(tile.columns.len()) };
        let copied = if self.copies_rows(tile.columns.len()) { tile.rows.len() * row_distance(slice) } else { 0 };
        with_workspace(packed + copied, |workspace| {
            let (panels, copies) = workspace.split_at_mut(packed);
            for start in (0..depth).step_by(slice) {
                let steps = start..depth.min(start + slice);
                self.copy_rows(tile.rows.clone(), &steps, copies);
                self.pack_columns(tile.columns.clone(), &steps, panels);
                self.add_slice(tile, &steps, panels, copies);
            }
        });
        self.finish_rows(tile, finish);
    }

    /// Stores the first slice, or adds a later one to what is there.
    fn add_slice(&self, tile: &mut Tile<'_, f32>, steps: &Range<usize>, panels: &[f32], copies: &[f32]) {
        let height = self.left.height(self.kernel);
        for first in (0..tile.columns.len()).step_by(self.kernel.columns) {
            let columns = first..tile.columns.len().min(first + self.kernel.columns);
            let right = self.right_panel(tile.columns.start, first, steps, panels);
            let mut ahead = self.next_panel(tile, columns.end, steps, panels);
            for top in (0..tile.rows.len()).step_by(height) {
                let rows = top..tile.rows.len().min(top + height);
                let left = self.left_block(tile.rows.start, top, steps, copies);
                run_block(self.kernel, Operands { left, right, ahead }, steps, tile, rows, columns.clone());
                ahead = &ahead[ahead.len().min(steps.len() * self.kernel.lanes)..];
            }
        }
    }

    fn finish_rows(&self, tile: &mut Tile<'_, f32>, finish: Option<Finish<'_>>) {
        if let Some(finish) = finish {
            for row in 0..tile.rows.len() {
                finish(tile.rows.start + row, tile.columns.start, tile.row(row));
            }
        }
    }

    /// Copies the tile's rows of A for some steps, unless they are read where they are.
    fn copy_rows(&self, rows: Range<usize>, steps: &Range<usize>, copies: &mut [f32]) {
        if let Left::View(view) = self.left {
            for (row, copy) in rows.zip(copies.chunks_mut(row_distance(steps.len()))) {
                copy[..steps.len()].copy_from_slice(&view.from(row, steps.start)[..steps.len()]);
            }
        }
    }

    /// Packs the tile's panels of B for some steps, unless B is read where it is.
    fn pack_columns(&self, columns: Range<usize>, steps: &Range<usize>, panels: &mut [f32]) {
        let width = self.kernel.columns;
        if panels.is_empty() {
            return;
        }
        match self.right {
            Right::View(view) => pack_panels(view, steps.clone(), columns, width, panels),
            Right::Source(source) => {
                for (panel, first) in panels.chunks_mut(steps.len() * width).zip(columns.step_by(width)) {
                    source.pack(steps.clone(), first, width, panel);
                }
            }
            Right::Packed(_) => {}
        }
    }

    /// A block of the tile's rows of A for some steps: element (i, p).
    fn left_block<'b>(&self, first: usize, top: usize, steps: &Range<usize>, copies: &'b [f32]) -> Strided<'b>
    where
        'a: 'b,
    {
        match self.left {
            Left::Packed(packed) => {
                Strided { data: packed.from(steps.start, first + top), first: 1, second: packed.width() }
            }
            Left::View(view) if copies.is_empty() => {
                let data = view.from(first + top, steps.start);
                Strided { data, first: view.row_stride(), second: view.column_stride() }
            }
            Left::View(_) => {
                let distance = row_distance(steps.len());
                Strided { data: &copies[top * distance..], first: distance, second: 1 }
            }
        }
    }

    /// A panel of the tile's columns of B for some steps: element (p, j).
    fn right_panel<'b>(&self, start: usize, first: usize, steps: &Range<usize>, panels: &'b [f32]) -> Strided<'b>
    where
        'a: 'b,
    {
        let width = self.kernel.columns;
        match self.right {
            Right::Packed(panels) => Strided { data: panels.from(steps.start, start + first), first: width, second: 1 },
            Right::View(view) if panels.is_empty() => {
                Strided { data: view.from(steps.start, start + first), first: view.row_stride(), second: 1 }
            }
            _ => Strided { data: &panels[first * steps.len()..], first: width, second: 1 },
        }
    }

    /// What will be read after the panel before column `end` of the tile: the next panel, or the first one of the next
    /// slice. It is fetched while that panel is multiplied, because a constant B usually comes from memory.
    fn next_panel<'b>(&self, tile: &Tile<'_, f32>, end: usize, steps: &Range<usize>, panels: &'b [f32]) -> &'b [f32]
    where
        'a: 'b,
    {
        match self.right {
            Right::Packed(packed) if end < tile.columns.len() => packed.from(steps.start, tile.columns.start + end),
            Right::Packed(packed) if steps.end < packed.depth() => packed.from(steps.end, tile.columns.start),
            Right::Packed(packed) => packed.from(0, tile.columns.start + end),
            _ => panels,
        }
    }

    /// Whether B is read where it is: it is packed, or its rows are contiguous and packing would not pay, because few
    /// blocks of rows read it or the panel's rows spread over enough sets of the first-level cache.
    fn in_place(&self, slice: usize, rows: usize) -> bool {
        match self.right {
            Right::Packed(_) => true,
            Right::Source(_) => false,
            Right::View(view) => {
                let few = rows <= 2 * self.kernel.rows;
                view.column_stride() == 1 && (few || slice <= 8 * cache_sets(view.row_stride()))
            }
        }
    }

    /// Whether blocks of A are copied before use: where many panels read rows that fall into the same sets of the
    /// first-level cache.
    fn copies_rows(&self, columns: usize) -> bool {
        match self.left {
            Left::Packed(_) => false,
            Left::View(view) => {
                view.column_stride() == 1 && columns > 2 * self.kernel.columns && cache_sets(view.row_stride()) < 4
            }
        }
    }

    fn padded(&self, columns: usize) -> usize {
        columns.next_multiple_of(self.kernel.columns)
    }
}

impl Left<'_> {
    fn rows(&self) -> usize {
        match self {
            Self::View(view) => view.rows(),
            Self::Packed(packed) => packed.columns(),
        }
    }

    fn depth(&self) -> usize {
        match self {
            Self::View(view) => view.columns(),
            Self::Packed(packed) => packed.depth(),
        }
    }

    fn height(&self, kernel: &MicroKernel) -> usize {
        match self {
            Self::View(view) => kernel.block_height(view.rows()),
            Self::Packed(packed) => packed.width(),
        }
    }
}

impl Right<'_> {
    fn depth(&self) -> usize {
        match self {
            Self::View(view) => view.rows(),
            Self::Packed(panels) => panels.depth(),
            Self::Source(source) => source.depth(),
        }
    }

    fn columns(&self) -> usize {
        match self {
            Self::View(view) => view.columns(),
            Self::Packed(panels) => panels.columns(),
            Self::Source(source) => source.columns(),
        }
    }
}

/// Runs the micro-kernel on `rows × columns` of the tile, having checked that all it touches is there.
fn run_block(
    kernel: &MicroKernel,
    operands: Operands<'_>,
    steps: &Range<usize>,
    tile: &mut Tile<'_, f32>,
    rows: Range<usize>,
    columns: Range<usize>,
) {
    let Operands { left, right, ahead } = operands;
    assert!(!rows.is_empty() && !columns.is_empty() && !steps.is_empty(), "an empty block");
    let last_left = (rows.len() - 1) * left.first + (steps.len() - 1) * left.second;
    let last_right = (steps.len() - 1) * right.first + columns.len() - 1;
    assert!(last_left < left.data.len() && last_right < right.data.len(), "a block beyond its operands");
    assert!(rows.end <= tile.rows.len() && columns.end <= tile.columns.len(), "a block beyond its tile");
    assert!(rows.len() <= kernel.rows && columns.len() <= kernel.columns, "a block too large for its kernel");
    let block = Block {
        rows: rows.len(),
        columns: columns.len(),
        depth: steps.len(),
        a: left.data.as_ptr(),
        a_row: left.first,
        a_step: left.second,
        b: right.data.as_ptr(),
        b_step: right.first,
        c: tile.as_mut_ptr().wrapping_add(rows.start * tile.stride() + columns.start),
        c_row: tile.stride(),
        accumulate: steps.start > 0,
        prefetch: ahead.as_ptr(),
    };
    // SAFETY: the last elements read of both operands were shown above to lie in their slices, which were made from
    // matrices whose extent is known not to overflow; the rows and columns of C lie in the tile, to which access is
    // exclusive; the kernel is one of those that this processor can run, the only ones there are.
    unsafe { (kernel.run)(&block) };
}

/// The size of pieces into which `length` is cut: at most about `most`, nearly equal, a multiple of `unit`, not 0.
pub(super) fn even_cut(length: usize, most: usize, unit: usize) -> usize {
    let pieces = length.div_ceil(most).max(1);
    length.div_ceil(pieces).next_multiple_of(unit).max(unit)
}

/// The distance of copied rows: such that neighbouring ones fall into different sets of the first-level cache.
fn row_distance(length: usize) -> usize {
    length.next_multiple_of(16) | 16
}

/// The number of different sets, of the 64 of a typical first-level cache, into which the first elements of many rows
/// fall that are `stride` elements apart.
fn cache_sets(stride: usize) -> usize {
    let bytes = stride.wrapping_mul(size_of::<f32>());
    // The largest power of two that divides the distance.
    let granularity = 1usize << bytes.trailing_zeros().min(12);
    (4096 / granularity).min(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_nearly_equal() {
        for (length, most, unit, want) in [(768, 384, 1, 384), (400, 384, 1, 200), (100, 256, 32, 128), (0, 5, 4, 4)] {
            assert_eq!(even_cut(length, most, unit), want);
        }
    }

    #[test]
    fn rows_of_power_of_two_lengths_share_cache_sets() {
        for (stride, sets) in [(1024, 1), (512, 2), (256, 4), (784, 64), (49, 64), (3136, 16), (0, 1)] {
            assert_eq!(cache_sets(stride), sets, "stride {stride}");
        }
        assert!((1..2000).all(|length| cache_sets(row_distance(length)) == 64 && row_distance(length) >= length));
    }
}
