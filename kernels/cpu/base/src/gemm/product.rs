//! One tile of a matrix product, block by block, so that every operand is read from a fast cache.
//!
//! The loops, outermost first, are over:
//! 1. Slices of the depth.
//! 2. Panels of columns, whose parts of B together fill at most half of the L2 cache.
//! 3. Blocks of rows, which all multiply one panel in one call of the micro-kernel (Goto 2008, section 4, with the two
//!    inner loops exchanged).
//!
//! An affine finish changes the sums of the first and of the last slice in registers. Any other finish is applied to
//! rows when the tile is complete.

use super::block::{Ahead, Blocks, FEW_ROWS, LINE};
use super::finish::Finish;
use super::micro::MicroKernel;
use super::pack::{Panels, pack_panels};
use super::view::View;
use crate::team::{Tile, with_workspace};
use std::ops::Range;

/// Maximum steps of the depth that are summed in one sweep over a tile.
const SLICE: usize = 384;

/// Maximum elements of a panel's part of one slice: three quarters of an L1 cache of 48 KiB. A smaller cache was not
/// tried with wide panels.
const PANEL: usize = 9 << 10;

/// Number of row blocks below which a panel is finished before memory has answered.
const FEW: usize = 4;

/// Number of L1 cache sets from which rows are spread widely enough to be read as fast as copies.
const SPREAD: usize = 4;

/// Returns the steps of each slice of the depth; the last slice may have fewer.
pub(super) fn slice(kernel: &MicroKernel, depth: usize) -> usize {
    even_cut(depth, SLICE.min(PANEL / kernel.columns), 1)
}

/// Left-hand operand of a product.
#[derive(Clone, Copy)]
pub enum Left<'a> {
    /// Matrix in memory.
    View(View<'a>),
    /// Matrix in panels.
    Packed(Panels<'a>),
}

/// Right-hand operand of a product.
#[derive(Clone, Copy)]
pub enum Right<'a> {
    /// Matrix in memory, read in place or copied tile by tile.
    View(View<'a>),
    /// Matrix in panels.
    Packed(Panels<'a>),
    /// Matrix that is written panel by panel.
    Source(&'a dyn PanelSource),
}

/// Matrix that writes its panels when they are needed.
pub trait PanelSource: Sync {
    /// Returns the number of rows.
    fn depth(&self) -> usize;

    /// Returns the number of columns.
    fn columns(&self) -> usize;

    /// Writes rows `steps` and columns `first..first + width` to `panel`, row by row; columns beyond the matrix are not
    /// read later.
    fn pack(&self, steps: Range<usize>, first: usize, width: usize, panel: &mut [f32]);
}

/// Product of two matrices whose tiles can be computed.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    kernel: &'static MicroKernel,
    left: Left<'a>,
    right: Right<'a>,
}

/// Elements with two strides: (i, j) of an operand's part is at `i · first + j · second`.
#[derive(Clone, Copy)]
struct Strided<'a> {
    data: &'a [f32],
    first: usize,
    second: usize,
}

/// Data that one call of a micro-kernel reads.
struct Operands<'a> {
    /// Element (i, p) of the first block.
    left: Strided<'a>,
    /// Distance in elements from block to block.
    distance: usize,
    /// Element (p, j).
    right: Strided<'a>,
    /// Whether the rows of the right-hand operand's part continue to the end of the panel.
    padded: bool,
    ahead: Ahead,
}

/// Steps of the depth that are summed slice by slice.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Steps of the sweep.
    pub steps: Range<usize>,
    /// Whether the sums begin with these steps, or continue those that an earlier sweep left in C.
    pub begins: bool,
    /// Whether the sums are complete after these steps, and are finished.
    pub ends: bool,
}

/// Special treatment of the first and the last slice.
#[derive(Clone, Copy)]
struct Ends<'a> {
    first: bool,
    last: bool,
    finish: &'a Finish<'a>,
}

impl<'a> Product<'a> {
    /// # Panics
    /// If the operands' depths differ, or one of them was packed for another kernel.
    pub fn new(kernel: &'static MicroKernel, left: Left<'a>, right: Right<'a>) -> Self {
        assert_eq!(left.depth(), right.depth(), "the operands of a product have different depths");
        let fits = match right {
            Right::Packed(panels) => panels.width() == kernel.columns,
            Right::View(_) | Right::Source(_) => true,
        };
        assert!(fits && left.height(kernel) <= kernel.rows, "an operand packed for another kernel");
        Self { kernel, left, right }
    }

    /// Computes the elements of C in `tile` and finishes them. The first row of the tile is a multiple of the
    /// [block height](MicroKernel::block_height) of the product's rows. Its first column is a multiple of the kernel's
    /// columns, or of its lanes if the tile lies within a panel.
    ///
    /// # Panics
    /// If the tile lies outside of the product, or does not begin at a block.
    pub fn compute(&self, tile: &mut Tile<'_, f32>, finish: Finish<'_>) {
        self.sweep(tile, &Sweep { steps: 0..self.left.depth(), begins: true, ends: true }, finish);
    }

    /// Computes like [`compute`](Self::compute), for some steps of the depth.
    ///
    /// # Panics
    /// If the tile lies outside of the product or does not begin at a block, or if the product does not have these
    /// steps.
    pub fn sweep(&self, tile: &mut Tile<'_, f32>, sweep: &Sweep, finish: Finish<'_>) {
        let (rows, columns, depth) = (self.left.rows(), self.right.columns(), self.left.depth());
        let Range { start: from, end: to } = sweep.steps;
        assert!(tile.rows.end <= rows && tile.columns.end <= columns, "a tile outside of the product");
        assert!(from <= to && to <= depth, "steps outside of the product");
        let height = self.left.height(self.kernel);
        let column = tile.columns.start % self.kernel.columns;
        let within = column.is_multiple_of(self.kernel.lanes) && column + tile.columns.len() <= self.kernel.columns;
        assert!(tile.rows.start.is_multiple_of(height) && (column == 0 || within), "a tile between blocks");
        let slice = slice(self.kernel, to - from);
        let packed = if self.in_place(tile.rows.len()) { 0 } else { slice * self.padded(tile.columns.len()) };
        let copied = if self.copies_rows(tile.columns.len()) { tile.rows.len() * row_distance(slice) } else { 0 };
        with_workspace(packed + copied, |workspace| {
            let (panels, copies) = workspace.split_at_mut(packed);
            // A product of depth 0 is zero, and is finished too.
            for start in (from..to.max(from + 1)).step_by(slice) {
                let steps = start..to.min(start + slice);
                let ends =
                    Ends { first: sweep.begins && start == from, last: sweep.ends && steps.end == to, finish: &finish };
                self.copy_rows(tile.rows.clone(), &steps, copies);
                self.pack_columns(tile.columns.clone(), &steps, panels);
                self.add_slice(tile, (&steps, &sweep.steps), (panels, copies), ends);
            }
        });
        match finish {
            _ if !sweep.ends => {}
            Finish::Affine(_, Some(then)) => then(tile),
            Finish::Runs(finish) if tile.columns.len() == tile.stride() => {
                finish(tile.rows.start, tile.columns.start, tile.whole_rows())
            }
            Finish::Runs(finish) => {
                (0..tile.rows.len()).for_each(|row| finish(tile.rows.start + row, tile.columns.start, tile.row(row)))
            }
            Finish::Nothing | Finish::Affine(_, None) => {}
        }
    }

    /// Stores the first slice of a sweep, or adds a later slice to C.
    fn add_slice(
        &self,
        tile: &mut Tile<'_, f32>,
        (steps, all): (&Range<usize>, &Range<usize>),
        (panels, copies): (&[f32], &[f32]),
        ends: Ends<'_>,
    ) {
        let height = self.left.height(self.kernel);
        let (whole_blocks, rest) = (tile.rows.len() / height, tile.rows.len() % height);
        let padded = !matches!(self.right, Right::View(_)) || !panels.is_empty();
        for first in (0..tile.columns.len()).step_by(self.kernel.columns) {
            let columns = first..tile.columns.len().min(first + self.kernel.columns);
            let right = self.right_panel(tile.columns.start, first, steps, panels);
            let ahead = self.ahead(tile, &columns, (steps, all), whole_blocks, panels.is_empty());
            let mut run = |top: usize, count: usize, rows: usize| {
                if count > 0 && rows > 0 {
                    let (left, distance) = self.left_block(tile.rows.start, top, steps, copies);
                    let operands = Operands { left, distance, right, padded, ahead };
                    run_blocks(self.kernel, &operands, steps.len(), tile, ([top, count, rows], columns.clone()), ends);
                }
            };
            run(0, whole_blocks, height);
            run(whole_blocks * height, 1, rest);
        }
    }

    /// Returns the memory to prefetch while the panel of these columns is multiplied; each block prefetches a part of
    /// it.
    ///
    /// A packed B usually comes from memory. Its next panel is prefetched, then the first panel of the next slice, and
    /// after the last slice the panel of the next matrix. If B is read in place, the rows of the next panel are
    /// prefetched. If B is packed tile by tile, a part of the data that is packed next is prefetched. The next tile is
    /// assumed to be the one to the right, which is true if a tile has all rows. C's lines are prefetched from further
    /// away if a panel has few blocks.
    fn ahead(
        &self,
        tile: &mut Tile<'_, f32>,
        panel: &Range<usize>,
        (steps, all): (&Range<usize>, &Range<usize>),
        blocks: usize,
        in_place: bool,
    ) -> Ahead {
        let (width, end) = (self.kernel.columns, panel.end);
        let columns = width * if blocks < FEW { 3 } else { 1 };
        // The address must be in a mapped page: otherwise each step would search for the page.
        let nothing = Ahead { data: tile.as_mut_ptr(), step: 0, block: 0, last: 0, columns };
        let within = end < tile.columns.len();
        let (row, column) = match self.right {
            _ if within && in_place => (steps.start, tile.columns.start + end),
            _ if steps.end < all.end => (steps.end, tile.columns.start),
            _ => (all.start, tile.columns.end.next_multiple_of(width)),
        };
        match self.right {
            // Few rows prefetch their own panel, and after its end the next one.
            Right::Packed(_) if tile.rows.len() <= FEW_ROWS => nothing,
            Right::Packed(packed) => {
                let next = packed.from(row, column);
                let step = self.kernel.lanes;
                let block = steps.len() * step;
                match next.len() / block.max(1) {
                    0 => nothing,
                    parts => Ahead { data: next.as_ptr(), step, block, last: (parts - 1).min(blocks), columns },
                }
            }
            Right::View(view) if view.column_stride() == 1 && column < view.columns() => {
                // One more line than the columns fill, as rows begin within lines.
                let (first, lines) = if in_place {
                    (0, width.div_ceil(LINE) + 1)
                } else {
                    let panels = tile.columns.len().div_ceil(width);
                    let lines = (tile.columns.len().div_ceil(LINE) + 1).div_ceil(panels);
                    (panel.start / width * lines, lines)
                };
                let data = view.from(row, column).as_ptr().wrapping_add(first * LINE);
                Ahead { data, step: view.row_stride(), block: LINE, last: lines - 1, columns }
            }
            Right::View(_) | Right::Source(_) => nothing,
        }
    }

    /// Copies the tile's rows of A for some steps, unless they are read in place.
    fn copy_rows(&self, rows: Range<usize>, steps: &Range<usize>, copies: &mut [f32]) {
        if let Left::View(view) = self.left {
            for (row, copy) in rows.zip(copies.chunks_mut(row_distance(steps.len()))) {
                copy[..steps.len()].copy_from_slice(&view.from(row, steps.start)[..steps.len()]);
            }
        }
    }

    /// Packs the tile's panels of B for some steps, unless B is read in place.
    fn pack_columns(&self, columns: Range<usize>, steps: &Range<usize>, panels: &mut [f32]) {
        let width = self.kernel.columns;
        if panels.is_empty() || steps.is_empty() {
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

    /// Returns the blocks of A from row `top` of the tile on for some steps: element (i, p) of the first block, and the
    /// distance to the next.
    fn left_block<'b>(&self, first: usize, top: usize, steps: &Range<usize>, copies: &'b [f32]) -> (Strided<'b>, usize)
    where
        'a: 'b,
    {
        let height = self.left.height(self.kernel);
        match self.left {
            Left::Packed(packed) => {
                let data = packed.from(steps.start, first + top);
                (Strided { data, first: 1, second: packed.width() }, height * packed.depth())
            }
            Left::View(view) if copies.is_empty() => {
                let data = view.from(first + top, steps.start);
                (Strided { data, first: view.row_stride(), second: view.column_stride() }, height * view.row_stride())
            }
            Left::View(_) => {
                let distance = row_distance(steps.len());
                (Strided { data: &copies[top * distance..], first: distance, second: 1 }, height * distance)
            }
        }
    }

    /// Returns a panel of the tile's columns of B for some steps: element (p, j).
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

    /// Whether B is read in place: it is packed, or its rows are contiguous and packing would not pay. Packing does not
    /// pay if few blocks of rows read B, or if its rows do not all fall into the same few sets of the L1 cache.
    fn in_place(&self, rows: usize) -> bool {
        match self.right {
            Right::Packed(_) => true,
            Right::Source(_) => false,
            Right::View(view) => {
                let few = rows <= 2 * self.kernel.rows;
                view.column_stride() == 1 && (few || cache_sets(view.row_stride()) >= SPREAD)
            }
        }
    }

    /// Whether blocks of A are copied before use: many panels read rows that fall into the same sets of the L1 cache.
    fn copies_rows(&self, columns: usize) -> bool {
        match self.left {
            Left::Packed(_) => false,
            Left::View(view) => {
                view.column_stride() == 1 && columns > 2 * self.kernel.columns && cache_sets(view.row_stride()) < SPREAD
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

/// Runs the micro-kernel on blocks of rows and a panel of columns of the tile, after checking that all data exists.
/// `blocks` holds the first row, the number of blocks and their height.
fn run_blocks(
    kernel: &MicroKernel,
    operands: &Operands<'_>,
    steps: usize,
    tile: &mut Tile<'_, f32>,
    ([top, count, rows], columns): ([usize; 3], Range<usize>),
    ends: Ends<'_>,
) {
    let Operands { left, distance, right, padded, ahead } = *operands;
    assert!(count > 0 && rows > 0 && !columns.is_empty(), "no block");
    assert!(rows <= kernel.rows && columns.len() <= kernel.columns, "a block too large for its kernel");
    let all = count.saturating_mul(rows);
    assert!(all <= tile.rows.len() - top && columns.end <= tile.columns.len(), "blocks beyond their tile");
    let wide = if padded { columns.len().next_multiple_of(kernel.lanes) } else { columns.len() };
    if let Some(last) = steps.checked_sub(1) {
        let last_left = (count - 1) * distance + (rows - 1) * left.first + last * left.second;
        let last_right = last * right.first + wide - 1;
        assert!(last_left < left.data.len() && last_right < right.data.len(), "blocks beyond their operands");
    }
    let (place, size) = ([tile.rows.start + top, tile.columns.start + columns.start], [all, columns.len()]);
    let affine = match ends.finish {
        Finish::Affine(affine, _) => Some(affine),
        Finish::Nothing | Finish::Runs(_) => None,
    };
    let c = tile.as_mut_ptr().wrapping_add(top * tile.stride() + columns.start);
    let blocks = Blocks {
        count,
        rows,
        columns: columns.len(),
        depth: steps,
        a: left.data.as_ptr(),
        a_row: left.first,
        a_step: left.second,
        a_block: distance,
        b: right.data.as_ptr(),
        b_step: right.first,
        whole: wide.is_multiple_of(kernel.lanes),
        c,
        c_row: tile.stride(),
        accumulate: !ends.first,
        initial: affine.filter(|_| ends.first).and_then(|affine| affine.initial(place, size)),
        change: affine.filter(|_| ends.last).map(|affine| affine.change(place, size)),
        ahead,
    };
    // SAFETY: the checks above show that the last elements read of both operands lie in their slices, which were made
    // from matrices whose extent is known not to overflow. The operands of the affine function were checked when these
    // parts of them were made. The rows and columns of C lie in the tile, to which access is exclusive. This processor
    // can run the kernel, as it can all kernels that exist.
    unsafe { (kernel.run)(&blocks) };
}

/// Returns the size of pieces into which `length` is cut: at most about `most`, nearly equal, a multiple of `unit`, not
/// 0.
pub fn even_cut(length: usize, most: usize, unit: usize) -> usize {
    let pieces = length.div_ceil(most).max(1);
    length.div_ceil(pieces).next_multiple_of(unit).max(unit)
}

/// Returns the distance of copied rows, such that neighbours fall into different sets of the L1 cache.
fn row_distance(length: usize) -> usize {
    length.next_multiple_of(16) | 16
}

/// Returns the number of different sets, of the 64 of a typical L1 cache, into which the first elements of rows fall
/// that are `stride` elements apart.
fn cache_sets(stride: usize) -> usize {
    let bytes = stride.wrapping_mul(size_of::<f32>());
    // Largest power of two that divides the distance.
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
