//! Products of `f32` matrices: C = A · B, with any strides of A and B, and row-major C.
//!
//! [`grid`] cuts C into tiles, which a team computes with [`Product::compute`]. Constant operands are packed in advance
//! as [`Panels`]. `product` decides what is in which cache, `micro` what is in registers, and `block` computes blocks
//! with one generic function for the instruction sets of `simd`. A product with a vector is limited by memory and has
//! its own loops, in `vector`.
//!
//! Every element is the sum over consecutive slices of the depth, beginning with a summand if there is one. Each slice
//! is summed in order, in up to four interleaved chains. If a product is computed in two rounds, one half of the depth
//! comes first, then the second half. The result therefore depends on the shape and the processor's instruction set,
//! never on the number of threads.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod block;
#[cfg(any(test, feature = "testing"))]
mod emulated;
#[cfg(target_arch = "x86_64")]
mod few_columns;
mod finish;
mod micro;
mod pack;
mod portable;
mod product;
mod simd;
mod transpose;
mod vector;
mod view;

pub use finish::{Affine, Finish, Summand, Then};
pub use micro::MicroKernel;
pub(crate) use pack::pack_rows;
pub use pack::{Panels, pack_panels};
pub use product::{Left, PanelSource, Product, Right, Sweep};
pub use transpose::transpose;
pub use vector::matrix_vector;
pub use view::View;

use crate::team::Grid;
pub use product::even_cut;

/// Maximum columns of a tile: its part of B fits half of an L2 cache of 1 MiB.
const TILE_COLUMNS: usize = 256;

/// Maximum row blocks of a tile.
const TILE_BLOCKS: usize = 16;

/// Maximum elements of A that a tile reads in one sweep if it packs its part of B: a quarter of an L2 cache of 1 MiB.
const TILE_LEFT: usize = 1 << 16;

/// Operations below which a tile is not cut further for a small team: about ten microseconds of one core.
const TILE_WORK: usize = 1 << 21;

/// Operations below which not even a large team cuts a tile further: to take up a part costs a tenth of a microsecond.
const LEAST_WORK: usize = TILE_WORK / 8;

/// Most threads for which [`grid`] has enough tiles.
const SMALL_TEAM: usize = 4;

/// Elements of the matrix that a tile of a matrix-vector product reads: 256 KiB.
const VECTOR_WORK: usize = 1 << 16;

/// Minimum elements of the result in a tile of a matrix-vector product: memory delivers shorter runs of rows slowly.
const VECTOR_COLUMNS: usize = 512;

/// Number of tiles from which no finer cut is needed to keep a team busy.
const ENOUGH_TILES: usize = 32;

/// Number of rows that take as long to multiply as B takes to be read from memory. Fewer rows take as long.
const LEAST_ROWS: usize = 24;

/// Returns the tiles of a stack of `batch` products of these sizes: a function of the sizes alone.
pub fn grid(kernel: &MicroKernel, batch: usize, rows: usize, columns: usize, depth: usize) -> Grid {
    let height = kernel.block_height(rows);
    let tile_rows = even_cut(rows, TILE_BLOCKS * height, height);
    refined(kernel, depth, Grid { tile_rows, ..columns_of(kernel, batch, rows, columns) }, height)
}

/// Returns the grid with tiles cut further if a large team would have fewer than two for each thread. Rows are not cut
/// below `least_rows`. Sums stay the same if that is whole blocks of rows.
pub fn shared(kernel: &MicroKernel, depth: usize, grid: Grid, least_rows: usize, threads: usize) -> Grid {
    let enough = (2 * threads, 2 * LEAST_WORK);
    if threads > SMALL_TEAM { halved(kernel, depth, grid, least_rows, enough) } else { grid }
}

/// Returns the [`grid`] for products whose right-hand matrix may be packed tile by tile. Tiles are higher, so that
/// little of it is packed again.
pub fn given_grid(kernel: &MicroKernel, batch: usize, rows: usize, columns: usize, depth: usize) -> Grid {
    let height = kernel.block_height(rows);
    let least = TILE_BLOCKS * height;
    let tile_rows = even_cut(rows, least.max(TILE_LEFT / product::slice(kernel, depth) / height * height), height);
    refined(kernel, depth, Grid { tile_rows, ..columns_of(kernel, batch, rows, columns) }, least.min(tile_rows))
}

/// Returns the tiles of products whose right-hand matrix is costly to write: each tile is all rows of some columns.
pub fn column_grid(kernel: &MicroKernel, batch: usize, rows: usize, columns: usize, depth: usize) -> Grid {
    refined(kernel, depth, columns_of(kernel, batch, rows, columns), rows.max(1))
}

/// Returns the tiles of a product that is computed in two rounds. Each round sums half of the steps for each half of
/// the rows. No tile has rows of both halves; the upper half has `upper` rows.
pub fn halved_grid(kernel: &MicroKernel, [rows, columns, depth]: [usize; 3], upper: usize) -> Grid {
    let grid = Grid { tile_rows: upper, ..columns_of(kernel, 1, rows, columns) };
    refined(kernel, depth / 2, grid, upper)
}

/// Whether a product of this depth is summed in several slices.
pub fn is_sliced(kernel: &MicroKernel, depth: usize) -> bool {
    product::slice(kernel, depth) < depth
}

/// Returns stripes of all rows and as many columns as the cache holds.
fn columns_of(kernel: &MicroKernel, batch: usize, rows: usize, columns: usize) -> Grid {
    let tile_columns = even_cut(columns, TILE_COLUMNS, kernel.columns);
    Grid { batch, rows, columns, tile_rows: rows.max(1), tile_columns }
}

/// Returns the grid with its tiles cut so that a small team is busy.
fn refined(kernel: &MicroKernel, depth: usize, grid: Grid, least_rows: usize) -> Grid {
    halved(kernel, depth, grid, least_rows, (ENOUGH_TILES, 2 * TILE_WORK))
}

/// Returns the grid with its tiles halved until there are enough or each has less than the least work. The longer side
/// is halved, which adds least to the data that is read. Rows are not cut below `least_rows`, and columns not below two
/// panels.
fn halved(
    kernel: &MicroKernel,
    depth: usize,
    mut grid: Grid,
    least_rows: usize,
    (enough, least): (usize, usize),
) -> Grid {
    loop {
        let Grid { tile_rows, tile_columns, .. } = grid;
        let work = depth.saturating_mul(2 * tile_rows.max(LEAST_ROWS) * tile_columns);
        if work < least || grid.tiles() >= enough {
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

/// Returns the tiles of `batch` products of a `rows × depth` matrix with a vector, for so many threads; each result is
/// one row. A single thread takes longer runs of the matrix's rows, which memory delivers faster.
pub fn vector_grid(batch: usize, rows: usize, depth: usize, threads: usize) -> Grid {
    let least = if threads > 1 { VECTOR_COLUMNS } else { vector::RUN };
    let most = (VECTOR_WORK / depth.max(1)).max(least);
    Grid { batch, rows: 1, columns: rows, tile_rows: 1, tile_columns: even_cut(rows, most, 16) }
}
