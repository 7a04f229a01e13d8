//! Division of a convolution into parts that threads compute.

use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::lanes::LANES;
use anabranch_cpu_base::team::Grid;
use anabranch_op::op::WinogradTile;

/// Approximate tiles of a block: enough for products that the weights' bandwidth does not limit.
const BLOCK_TILES: usize = 64;

/// Number of blocks that keep a small team busy if they cannot be shared equally.
const ENOUGH_BLOCKS: usize = 16;

/// Minimum output channels of a part for a small team: its transforms should be cheap next to its products.
const LEAST_MAPS: usize = 2 * LANES;

/// Number of blocks times panels of output channels that keeps a small team busy: smaller blocks read the weights more
/// often.
const ENOUGH_PARTS: usize = 4;

/// Most threads of a small team.
const SMALL_TEAM: usize = 8;

/// Most parts of a thread that are looked at for a large team.
const MOST_TURNS: usize = 3;

/// Output channels whose products take as long as the transforms of a part's inputs.
const TRANSFORM: usize = 6;

/// Division of an image into tiles, and into blocks of whole rows of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Tiles of a row.
    pub(super) across: usize,
    /// Rows of tiles of a block; the last block may have fewer.
    pub(super) down: usize,
    /// Rows of tiles of an image.
    rows: usize,
}

impl Blocks {
    /// Returns the blocks of an image.
    pub(super) fn count(&self) -> usize {
        self.rows.div_ceil(self.down)
    }

    /// Returns the tiles of a whole block.
    pub(super) fn tiles(&self) -> usize {
        self.across * self.down
    }

    /// Returns the rows of tiles in a block of an image.
    pub(super) fn rows_of(&self, block: usize) -> usize {
        self.down.min(self.rows - block * self.down)
    }
}

/// Blocks, and the parts of the output. A part is a block, or some output channels of a block. Each part transforms its
/// inputs itself: the transformed values are several times as large, and would be slow to fetch from another core's
/// cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Division {
    pub(super) blocks: Blocks,
    pub(super) parts: Grid,
}

impl Division {
    /// Creates the division for one thread, with panels of `width` output channels.
    pub(super) fn new(geometry: &Geometry, tile: WinogradTile, width: usize) -> Self {
        let [rows, across] = geometry.output.map(|size| size.div_ceil(tile.outputs()));
        let (batch, maps) = (geometry.images * geometry.group, geometry.group_maps());
        let most = (BLOCK_TILES.min(tile.most_tiles(geometry.group_channels())) / across.max(1)).max(1);
        let least = ENOUGH_PARTS.div_ceil((batch * maps.div_ceil(width)).max(1)).min(rows);
        let down = rows.div_ceil(rows.div_ceil(most).max(least).max(1)).max(1);
        let tile_columns = down * tile.outputs() * geometry.output[1];
        let parts = Grid { batch, rows: maps, columns: geometry.pixels(), tile_rows: maps, tile_columns };
        Self { blocks: Blocks { across, down, rows }, parts }
    }

    /// Returns the division for so many threads. The blocks stay, because the order of a product's sums depends on its
    /// rows.
    pub(super) fn for_team(&self, threads: usize) -> Self {
        if threads > SMALL_TEAM { self.for_large_team(threads) } else { self.for_small_team(threads) }
    }

    /// Returns this division, or stripes of output channels if threads cannot share blocks equally.
    fn for_small_team(&self, threads: usize) -> Self {
        let blocks = self.parts.tiles();
        if blocks >= ENOUGH_BLOCKS || blocks.is_multiple_of(threads) {
            return *self;
        }
        // As many stripes of output channels as make the parts a multiple of the threads.
        let stripes = (1..threads).find(|stripes| (blocks * stripes).is_multiple_of(threads)).unwrap_or(threads);
        let maps = self.parts.rows.div_ceil(stripes).next_multiple_of(LANES);
        Self { parts: Grid { tile_rows: maps.max(LEAST_MAPS), ..self.parts }, ..*self }
    }

    /// Returns the stripes that take the least time: that of a part times the parts of a thread. Of equal ones the one
    /// with the fewest parts.
    fn for_large_team(&self, threads: usize) -> Self {
        let (blocks, maps) = (self.parts.tiles().max(1), self.parts.rows);
        let time = |division: &Self| {
            let Grid { tile_rows, .. } = division.parts;
            division.parts.tiles().div_ceil(threads) * (TRANSFORM + tile_rows.min(maps))
        };
        // As many stripes as give each thread one part, two or more.
        let stripes = (1..=MOST_TURNS).map(|turns| (turns * threads / blocks).max(1));
        let all = stripes.map(|stripes| {
            let tile_rows = maps.div_ceil(stripes).next_multiple_of(LANES);
            Self { parts: Grid { tile_rows, ..self.parts }, ..*self }
        });
        all.min_by_key(|division| (time(division), division.parts.tiles())).unwrap_or(*self)
    }
}
