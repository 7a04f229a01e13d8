//! Products of `f32` matrices: C = A · B with any distances of A's and B's rows and columns, C row-major.
//!
//! [`grid`] cuts C into tiles, which a team computes with [`Product::compute`]. Operands that never change are packed
//! ahead as [`Panels`]. What is in which cache is told in `product`, what is in registers in `micro`, how blocks are computed
//! in `block`, one text for the instruction sets of `simd`. A product with a vector is limited by memory and has loops of
//! its own, in `vector`.
//!
//! Every element is the sum over consecutive slices of the depth, beginning with a summand if there is one, each slice added up in order in up
//! to four interleaved chains; where a product is computed in two rounds it is those of one half of the depth and then those of the other. So it
//! depends on the shape and the processor's instruction set, never on the number of threads.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod block;
#[cfg(test)]
mod emulated;
#[cfg(target_arch = "x86_64")]
mod few_columns;
mod finish;
mod micro;
mod pack;
mod portable;
mod product;
mod simd;
#[cfg(test)]
pub(crate) mod testing;
mod transpose;
mod vector;
mod view;

pub(crate) use finish::{Affine, Finish, Summand, Then};
pub(crate) use micro::MicroKernel;
pub(crate) use pack::{Panels, pack_panels, pack_rows};
pub(crate) use product::{Left, PanelSource, Product, Right, Sweep};
pub(crate) use transpose::transpose;
pub(crate) use vector::matrix_vector;
pub(crate) use view::View;

use crate::cpu::team::Grid;
pub(crate) use product::even_cut;

/// Greatest number of columns of a tile: its part of B fits half of a second-level cache of 1 MiB.
const TILE_COLUMNS: usize = 256;

/// Greatest number of row blocks of a tile.
const TILE_BLOCKS: usize = 16;

/// Elements of A that a tile reads in one sweep, at most, where it packs its part of B: a quarter of a second-level cache of 1 MiB.
const TILE_LEFT: usize = 1 << 16;

/// Operations below which a tile is not cut further: about ten microseconds of one core.
const TILE_WORK: usize = 1 << 21;

/// Elements of the matrix that a tile of a product with a vector reads: 256 KiB.
const VECTOR_WORK: usize = 1 << 16;

/// Elements of the result that a tile of a product with a vector has at least: shorter runs of rows come slowly from memory.
const VECTOR_COLUMNS: usize = 512;

/// Tiles beyond which no finer cut is needed to keep a team busy.
const ENOUGH_TILES: usize = 32;

/// Rows that take as long to multiply as B takes to be read from memory: fewer rows take as long as so many.
const LEAST_ROWS: usize = 24;

/// The tiles of a stack of `batch` products of these sizes: a function of the sizes alone.
pub(crate) fn grid(kernel: &MicroKernel, batch: usize, rows: usize, columns: usize, depth: usize) -> Grid {
    let height = kernel.block_height(rows);
    let tile_rows = even_cut(rows, TILE_BLOCKS * height, height);
    refined(kernel, depth, Grid { tile_rows, ..columns_of(kernel, batch, rows, columns) }, height)
}

/// As [`grid`] of products whose right-hand matrix may be packed tile by tile: tiles are higher, so that little of it is packed again.
pub(crate) fn given_grid(kernel: &MicroKernel, batch: usize, rows: usize, columns: usize, depth: usize) -> Grid {
    let height = kernel.block_height(rows);
    let least = TILE_BLOCKS * height;
    let tile_rows = even_cut(rows, least.max(TILE_LEFT / product::slice(kernel, depth) / height * height), height);
    refined(kernel, depth, Grid { tile_rows, ..columns_of(kernel, batch, rows, columns) }, least.min(tile_rows))
}

/// The tiles of a stack of products whose right-hand matrix is costly to write: each is all rows of some columns.
pub(crate) fn column_grid(kernel: &MicroKernel, batch: usize, rows: usize, columns: usize, depth: usize) -> Grid {
    refined(kernel, depth, columns_of(kernel, batch, rows, columns), rows.max(1))
}

/// The tiles of a product that is computed in two rounds, in each of which half of its steps are added up for each half of its rows: none has
/// rows of both halves, of which the upper has `upper`.
pub(crate) fn halved_grid(kernel: &MicroKernel, [rows, columns, depth]: [usize; 3], upper: usize) -> Grid {
    let grid = Grid { tile_rows: upper, ..columns_of(kernel, 1, rows, columns) };
    refined(kernel, depth / 2, grid, upper)
}

/// Whether a product of this depth is added up in several slices.
pub(crate) fn is_sliced(kernel: &MicroKernel, depth: usize) -> bool {
    product::slice(kernel, depth) < depth
}

/// Stripes of all rows and as many columns as the cache holds.
fn columns_of(kernel: &MicroKernel, batch: usize, rows: usize, columns: usize) -> Grid {
    let tile_columns = even_cut(columns, TILE_COLUMNS, kernel.columns);
    Grid { batch, rows, columns, tile_rows: rows.max(1), tile_columns }
}

/// The grid with its tiles halved as long as there are few and each is much work. The longer side is halved, which adds
/// least to what is read; rows are not cut below `least_rows`, nor fewer columns than two panels have.
fn refined(kernel: &MicroKernel, depth: usize, mut grid: Grid, least_rows: usize) -> Grid {
    loop {
        let Grid { tile_rows, tile_columns, .. } = grid;
        let work = depth.saturating_mul(2 * tile_rows.max(LEAST_ROWS) * tile_columns);
        if work < 2 * TILE_WORK || grid.tiles() >= ENOUGH_TILES {
            return grid;
        }
        if tile_columns.min(grid.columns) >= 2 * kernel.columns
            && (tile_columns >= tile_rows || tile_rows <= least_rows)
        {
            grid.tile_columns = (tile_columns / 2).next_multiple_of(kernel.columns);
        } else if tile_rows > least_rows {
            grid.tile_rows = (tile_rows / 2).next_multiple_of(least_rows);
        } else {
            return grid;
        }
    }
}

/// The tiles of `batch` products of a matrix of `rows × depth` with a vector, each of whose results is one row.
pub(crate) fn vector_grid(batch: usize, rows: usize, depth: usize) -> Grid {
    let most = (VECTOR_WORK / depth.max(1)).max(VECTOR_COLUMNS);
    Grid { batch, rows: 1, columns: rows, tile_rows: 1, tile_columns: even_cut(rows, most, 16) }
}
