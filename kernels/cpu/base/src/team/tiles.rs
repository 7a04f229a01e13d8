//! Rectangular tiles of row-major matrices, which the parts of a run write concurrently.
//!
//! A [`Grid`] cuts a stack of matrices into tiles that do not overlap; each part of a run claims one. Only this file
//! knows that the tiles alias one slice.

use super::Team;
use std::marker::PhantomData;
use std::ops::Range;

/// Division of a stack of `batch` matrices of `rows × columns` elements into tiles.
///
/// The matrices are consecutive, and tiles have `tile_rows × tile_columns` elements. Tiles at the right and lower edges
/// may be smaller. A tile never spans two matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Number of matrices.
    pub batch: usize,
    /// Rows of each matrix.
    pub rows: usize,
    /// Columns of each matrix: the distance of its rows in memory.
    pub columns: usize,
    /// Rows of a tile; 0 counts as 1.
    pub tile_rows: usize,
    /// Columns of a tile; 0 counts as 1.
    pub tile_columns: usize,
}

impl Grid {
    /// Returns the number of tiles; 0 if there are no elements.
    pub fn tiles(&self) -> usize {
        let across = self.columns.div_ceil(self.tile_columns.max(1));
        self.batch * self.rows.div_ceil(self.tile_rows.max(1)) * across
    }

    /// Returns the number of the tile that is number `tile` if each stripe of rows is counted from left to right.
    fn by_rows(&self, tile: usize) -> usize {
        let (down, across) =
            (self.rows.div_ceil(self.tile_rows.max(1)), self.columns.div_ceil(self.tile_columns.max(1)));
        let (matrix, within) = (tile / (down * across), tile % (down * across));
        (matrix * across + within % across) * down + within / across
    }

    /// Returns the matrix, rows and columns of a tile. Tiles are numbered matrix by matrix, stripes of columns from
    /// left to right, and downwards within a stripe. Tiles that are computed one after the other thus read the same
    /// columns of a right-hand operand.
    fn place(&self, tile: usize) -> (usize, Range<usize>, Range<usize>) {
        let (height, width) = (self.tile_rows.max(1), self.tile_columns.max(1));
        let (down, across) = (self.rows.div_ceil(height), self.columns.div_ceil(width));
        let (matrix, within) = (tile / (down * across), tile % (down * across));
        let (row, column) = (within % down * height, within / down * width);
        (matrix, row..self.rows.min(row + height), column..self.columns.min(column + width))
    }
}

/// Order in which tiles are numbered as parts of a run; the same thread computes neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Stripes of columns from left to right, each downwards.
    Columns,
    /// Stripes of rows downwards, each from left to right.
    Rows,
    /// Reverse of [`Self::Rows`].
    RowsBackwards,
}

/// Cuts `data` into the tiles of `grid` and runs `body` on each.
///
/// # Panics
/// If the number of elements in `data` differs from the grid's.
pub(super) fn run<T: Send>(team: &Team, data: &mut [T], grid: Grid, order: Order, body: &(dyn Fn(Tile<'_, T>) + Sync)) {
    let (tiles, count) = (Tiles::new(data, grid), grid.tiles());
    let tile = |part: usize| match order {
        Order::Columns => part,
        Order::Rows => grid.by_rows(part),
        Order::RowsBackwards => grid.by_rows(count - 1 - part),
    };
    // SAFETY: `Team::run` runs each part at most once, and each part has a different tile, so each tile is claimed at
    // most once.
    team.run(count, &|part| body(unsafe { tiles.claim(tile(part)) }));
}

/// Slice with its grid, whose tiles can be claimed.
pub(super) struct Tiles<'a, T> {
    start: *mut T,
    grid: Grid,
    data: PhantomData<&'a mut [T]>,
}

// SAFETY: a shared `Tiles` gives exclusive access to disjoint elements (see `claim`), which moves elements between
// threads as `T: Send` allows. It gives shared access only if `T: Sync`.
unsafe impl<T: Send> Sync for Tiles<'_, T> {}

impl<'a, T> Tiles<'a, T> {
    /// # Panics
    /// If the number of elements in `data` differs from the grid's.
    pub(super) fn new(data: &'a mut [T], grid: Grid) -> Self {
        let elements = grid.rows.checked_mul(grid.columns).and_then(|n| n.checked_mul(grid.batch));
        assert_eq!(elements, Some(data.len()), "the grid {grid:?} does not fit the data");
        Self { start: data.as_mut_ptr(), grid, data: PhantomData }
    }

    /// Claims tile number `tile`.
    ///
    /// # Safety
    /// While the tile is used, no member may claim it again, or [read](Self::matrix) its matrix.
    pub(super) unsafe fn claim(&self, tile: usize) -> Tile<'a, T> {
        assert!(tile < self.grid.tiles(), "tile {tile} of {}", self.grid.tiles());
        let (matrix, rows, columns) = self.grid.place(tile);
        let offset = (matrix * self.grid.rows + rows.start) * self.grid.columns + columns.start;
        // SAFETY: `place` gives rows and columns within the matrix and `matrix < batch`, so the offset lies within the
        // slice, whose length was checked against the grid.
        let start = unsafe { self.start.add(offset) };
        Tile { start, stride: self.grid.columns, matrix, rows, columns, data: PhantomData }
    }

    /// Returns a whole matrix for reading.
    ///
    /// # Safety
    /// While the matrix is used, no member may claim one of its tiles.
    pub(super) unsafe fn matrix(&self, matrix: usize) -> &'a [T]
    where
        T: Sync,
    {
        assert!(matrix < self.grid.batch, "matrix {matrix} of {}", self.grid.batch);
        let size = self.grid.rows * self.grid.columns;
        // SAFETY: `new` checked against the grid that the slice has `batch` matrices; the caller ensures that no member
        // writes.
        unsafe { std::slice::from_raw_parts(self.start.add(matrix * size), size) }
    }
}

/// Rectangle of one matrix, to which its owner has exclusive access.
pub struct Tile<'a, T> {
    start: *mut T,
    stride: usize,
    /// Number of the matrix in the stack.
    pub matrix: usize,
    /// Rows of the tile in the matrix.
    pub rows: Range<usize>,
    /// Columns of the tile in the matrix.
    pub columns: Range<usize>,
    data: PhantomData<&'a mut [T]>,
}

impl<'a, T> Tile<'a, T> {
    /// Creates a tile of a whole matrix with rows of `columns` elements, to which the caller has exclusive access.
    ///
    /// # Panics
    /// If the matrix does not consist of whole rows.
    pub fn whole(matrix: &'a mut [T], columns: usize) -> Self {
        assert!(matrix.len().is_multiple_of(columns), "{} elements are not rows of {columns}", matrix.len());
        let rows = 0..matrix.len() / columns;
        Self { start: matrix.as_mut_ptr(), stride: columns, matrix: 0, rows, columns: 0..columns, data: PhantomData }
    }

    /// Returns the same elements as the tile of another matrix that begins at this row and column.
    pub fn at(self, [row, column]: [usize; 2]) -> Self {
        let (rows, columns) = (row..row + self.rows.len(), column..column + self.columns.len());
        Self { rows, columns, ..self }
    }

    /// Creates a tile of one row from a slice.
    pub fn of(row: &'a mut [T]) -> Self {
        let columns = row.len();
        Self { start: row.as_mut_ptr(), stride: columns, matrix: 0, rows: 0..1, columns: 0..columns, data: PhantomData }
    }

    /// Returns row `index` of the tile, counted from its first.
    ///
    /// # Panics
    /// If the tile has fewer rows.
    // Always inlined, because loops of vectors write row by row.
    #[inline(always)]
    pub fn row(&mut self, index: usize) -> &mut [T] {
        assert!(index < self.rows.len(), "row {index} of a tile of {} rows", self.rows.len());
        // SAFETY: the tile's rectangle lies within the slice that it was cut from, and no other tile shares an element
        // with it. Each tile is handed out once, and the borrow of `self` keeps rows of one tile from being held twice.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(index * self.stride), self.columns.len()) }
    }

    /// Returns the tile's columns as rectangles of an image, if each row of the matrix is an image whose rows have
    /// `wide` elements. The rectangles are in order, and the elements of each are consecutive. A tile of whole rows is
    /// one rectangle; other tiles have one for each row.
    pub fn rectangles(&self, wide: usize) -> impl Iterator<Item = [Range<usize>; 2]> + use<T> {
        let Range { start: mut at, end } = self.columns;
        let whole = at.is_multiple_of(wide) && end.is_multiple_of(wide);
        std::iter::from_fn(move || {
            let (row, column) = (at.checked_div(wide)?, at % wide);
            let next = if whole { end } else { end.min((row + 1) * wide) };
            let rectangle = if whole { [row..end / wide, 0..wide] } else { [row..row + 1, column..column + next - at] };
            (std::mem::replace(&mut at, next) < end).then_some(rectangle)
        })
    }

    /// Returns all rows of a tile that is as wide as its matrix, in order.
    ///
    /// # Panics
    /// If the tile is narrower.
    pub fn whole_rows(&mut self) -> &mut [T] {
        assert_eq!(self.columns.len(), self.stride, "a tile whose rows are not consecutive");
        // SAFETY: as for `row`; rows as long as their distance are consecutive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.rows.len() * self.stride) }
    }

    /// Returns the address of the tile's first element. Row `i` begins [`Self::stride`]` · i` elements later; only the
    /// `columns.len()` elements from each row's beginning belong to the tile.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.start
    }

    /// Returns the distance of the tile's rows in elements.
    pub fn stride(&self) -> usize {
        self.stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_element_once() {
        let team = Team::new(2, |_| {});
        for [batch, rows, columns, tile_rows, tile_columns] in [
            [1, 7, 5, 2, 3],
            [3, 4, 4, 4, 4],
            [2, 1, 9, 8, 2],
            [2, 3, 1, 1, 1],
            [1, 0, 5, 2, 2],
            [0, 3, 3, 1, 1],
            [2, 3, 3, 0, 0],
        ] {
            let grid = Grid { batch, rows, columns, tile_rows, tile_columns };
            let mut data = vec![0; batch * rows * columns];
            run(&team, &mut data, grid, Order::Columns, &|mut tile| {
                let (matrix, top, left) = (tile.matrix, tile.rows.start, tile.columns.start);
                for row in 0..tile.rows.len() {
                    for (column, element) in tile.row(row).iter_mut().enumerate() {
                        *element += 1 + (matrix * rows + top + row) * columns + left + column;
                    }
                }
            });
            let want: Vec<_> = (1..=data.len()).collect();
            assert_eq!(data, want, "{grid:?}");
        }
    }

    #[test]
    fn in_any_order_tiles_are_the_same() {
        let grid = Grid { batch: 2, rows: 7, columns: 5, tile_rows: 3, tile_columns: 2 };
        for order in [Order::Columns, Order::Rows, Order::RowsBackwards] {
            let mut data = vec![0; 70];
            run(&Team::new(2, |_| {}), &mut data, grid, order, &|mut tile| {
                (0..tile.rows.len()).for_each(|row| tile.row(row).iter_mut().for_each(|element| *element += 1));
            });
            assert_eq!(data, [1; 70], "{order:?}");
        }
        let places: Vec<_> = (0..grid.tiles()).map(|part| grid.place(grid.by_rows(part))).collect();
        assert!(places.is_sorted_by_key(|(matrix, rows, columns)| (*matrix, rows.start, columns.start)), "{places:?}");
    }

    #[test]
    fn a_tile_is_found_elsewhere() {
        let mut data = [0; 6];
        let mut tile = Tile::whole(&mut data, 3).at([4, 9]);
        tile.row(1)[2] = 1;
        assert_eq!((&tile.rows, &tile.columns), (&(4..6), &(9..12)));
        assert_eq!(data, [0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn rows_as_wide_as_the_matrix_are_consecutive() {
        let mut data = vec![0; 15];
        let grid = Grid { batch: 1, rows: 5, columns: 3, tile_rows: 2, tile_columns: 3 };
        run(&Team::solo(), &mut data, grid, Order::Columns, &|mut tile| {
            let first = tile.rows.start;
            tile.whole_rows().fill(first + 1);
        });
        assert_eq!(data, [1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 5, 5, 5]);
    }

    #[test]
    fn a_whole_matrix_is_one_tile() {
        let mut data = [0; 12];
        let mut tile = Tile::whole(&mut data, 4);
        tile.row(2)[1] = 7;
        assert_eq!((&tile.rows, &tile.columns, tile.stride()), (&(0..3), &(0..4), 4));
        assert_eq!(data.iter().position(|x| *x == 7), Some(9));
    }

    #[test]
    fn rectangles_are_the_tile() {
        for (tile_columns, want) in [(14, 1), (7, 1), (3, 2), (5, 2), (35, 1)] {
            let mut data = vec![0; 2 * 35];
            let grid = Grid { batch: 1, rows: 2, columns: 35, tile_rows: 2, tile_columns };
            run(&Team::solo(), &mut data, grid, Order::Columns, &|mut tile| {
                let mut at = 0;
                assert!(tile.rectangles(7).count() <= want, "{tile_columns}");
                for [rows, columns] in tile.rectangles(7) {
                    for (row, column) in rows.flat_map(|row| columns.clone().map(move |column| (row, column))) {
                        tile.row(1)[at] = row * 7 + column;
                        at += 1;
                    }
                }
                assert_eq!(at, tile.columns.len());
            });
            assert!(data[35..].iter().copied().eq(0..35), "{tile_columns}");
        }
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_grid_larger_than_the_data_is_refused() {
        let grid = Grid { batch: 1, rows: 2, columns: 3, tile_rows: 1, tile_columns: 3 };
        run(&Team::solo(), &mut [0; 5], grid, Order::Columns, &|_| {});
    }
}
