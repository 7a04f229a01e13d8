//! Convolutions of 3 × 3 windows with constant weights by minimal filtering (Lavin and Gray 2015, section 4): tiles of the image and
//! the filters are transformed, so that a convolution becomes a product for each position of a tile, of the tiles' channels with the
//! filters'; the products of a tile are transformed to its outputs.
//!
//! Tiles are taken block by block, so that what is transformed and the products stay in near caches. A block's products are computed for a
//! panel of maps at a time, and become outputs at once. Where there are few blocks, which threads cannot share equally, parts are some
//! of the maps of blocks.
//!
//! The result differs from sums of products by rounding at the size of the greatest value that a tile reads: an outlier spoils outputs
//! whose windows do not touch it, and one that is not finite, or whose multiples are not, makes all outputs of its tiles not a number.

mod tiles;
mod transform;

pub(in crate::cpu) use transform::transform_filters;

use super::geometry::Geometry;
use crate::cpu::elements::{elements, elements_mut};
use crate::cpu::gemm::{Finish, Left, MicroKernel, Product, Right, View};
use crate::cpu::lanes::LANES;
use crate::cpu::layout::{Layout, Packed, Packing};
use crate::cpu::map::Epilogue;
use crate::cpu::team::{Grid, Order, Tile, with_workspace};
use crate::cpu::vector::vectorised;
use crate::cpu::{Call, CpuKernel, gemm};
use crate::error::KernelError;
use crate::op::{Filtering, NodeSpec};
use crate::shape::Shape;
use crate::tensor::Buffer;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use tiles::{Input, Output, gather};
use transform::{F2, F4, Transform};

/// Tiles of a block, about: enough for products that are not limited by the weights' bandwidth.
const BLOCK_TILES: usize = 64;

/// Blocks that keep a team busy if they cannot be shared out equally.
const ENOUGH_BLOCKS: usize = 16;

/// Least maps of a part: what it transforms should be less than what it multiplies.
const LEAST_MAPS: usize = 2 * LANES;

/// Blocks times panels of maps that keep a small team busy: smaller blocks read the weights more often.
const ENOUGH_PARTS: usize = 4;

/// A convolution by minimal filtering, with constant weights.
pub(super) struct Kernel {
    micro: &'static MicroKernel,
    geometry: Geometry,
    filtering: Filtering,
    /// The transformed filters.
    weights: Packed,
    blocks: Blocks,
    /// Parts of the output that are blocks, of all maps.
    parts: Grid,
    epilogue: Option<Epilogue>,
}

/// How an image is cut into tiles and blocks of whole rows of tiles.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    /// Tiles of a row.
    across: usize,
    /// Rows of tiles of a block; the last may have fewer.
    down: usize,
    /// Blocks of an image.
    count: usize,
}

impl Blocks {
    /// Blocks that with so many panels of maps are enough parts.
    fn new(geometry: &Geometry, filtering: Filtering, panels: usize) -> Self {
        let [rows, across] = geometry.output.map(|size| size.div_ceil(filtering.outputs()));
        let most = (BLOCK_TILES.min(filtering.most_tiles(geometry.channels)) / across.max(1)).max(1);
        let least = ENOUGH_PARTS.div_ceil((geometry.images * panels).max(1)).min(rows);
        let down = rows.div_ceil(rows.div_ceil(most).max(least).max(1)).max(1);
        Self { across, down, count: rows.div_ceil(down) }
    }

    /// Tiles of a whole block.
    fn tiles(&self) -> usize {
        self.across * self.down
    }
}

impl Kernel {
    /// Whether a panel has whole vectors of maps.
    pub(super) fn suits(micro: &MicroKernel) -> bool {
        micro.columns.is_multiple_of(LANES)
    }

    /// # Errors
    /// If the epilogue does not fit the node, or the transformed filters do not fit the address space.
    pub(super) fn new(
        micro: &'static MicroKernel,
        geometry: Geometry,
        filtering: Filtering,
        node: &NodeSpec,
    ) -> Result<Self, KernelError> {
        let Geometry { images, channels, maps, output: [_, wide], .. } = geometry;
        Shape::new([filtering.positions(), channels, maps.next_multiple_of(micro.columns)])?;
        let blocks = Blocks::new(&geometry, filtering, maps.div_ceil(micro.columns));
        let tile_columns = blocks.down * filtering.outputs() * wide;
        let parts = Grid { batch: images, rows: maps, columns: geometry.pixels(), tile_rows: maps, tile_columns };
        let weights = Packed::new(1, Layout::filters([maps, channels], filtering, micro.columns));
        Ok(Self { micro, geometry, filtering, weights, blocks, parts, epilogue: Epilogue::of(node)? })
    }

    /// Parts of the output that are blocks, or some maps of blocks where threads cannot share these equally. Each part transforms its inputs
    /// itself: what they become is several times as much, and would come slowly from another core's cache.
    fn parts(&self, threads: usize) -> Grid {
        let blocks = self.parts.tiles();
        if blocks >= ENOUGH_BLOCKS || blocks.is_multiple_of(threads) {
            return self.parts;
        }
        // As many stripes of maps as make the parts a multiple of the threads.
        let stripes = (1..threads).find(|stripes| (blocks * stripes).is_multiple_of(threads)).unwrap_or(threads);
        let maps = self.parts.rows.div_ceil(stripes).next_multiple_of(LANES);
        Grid { tile_rows: maps.max(LEAST_MAPS), ..self.parts }
    }

    /// The transformed inputs of a block, a matrix of tiles and channels for each position: the rows of all, and the distance of rows, which
    /// fall into different sets of a first-level cache.
    fn inputs(&self) -> [usize; 2] {
        let rows = self.filtering.positions() * self.blocks.tiles();
        [rows, self.geometry.channels.next_multiple_of(LANES) | LANES]
    }

    /// Rows of tiles in a block of an image.
    fn rows_of(&self, block: usize) -> usize {
        let rows = self.geometry.output[0].div_ceil(self.filtering.outputs());
        self.blocks.down.min(rows - block * self.blocks.down)
    }

    /// Transforms the inputs of a block, as many channels as the tile is wide.
    fn transform(&self, tile: &mut Tile<'_, f32>, block: usize, input: &[f32], workspace: &mut [f32]) {
        match self.filtering {
            Filtering::Two => self.transform_by::<F2, 4, 2>(tile, block, input, workspace),
            Filtering::Four => self.transform_by::<F4, 6, 4>(tile, block, input, workspace),
        }
    }

    fn transform_by<F: Transform<IN, OUT>, const IN: usize, const OUT: usize>(
        &self,
        tile: &mut Tile<'_, f32>,
        block: usize,
        input: &[f32],
        workspace: &mut [f32],
    ) {
        let Geometry { channels, size, steps, .. } = self.geometry;
        let (image, block) = (block / self.blocks.count, block % self.blocks.count);
        let (across, down, distance) = (self.blocks.across, self.rows_of(block), self.blocks.tiles());
        let (plane, padded) = (self.geometry.plane(), across * OUT + 2);
        let top = (block * self.blocks.down * OUT) as isize - steps.pads[0] as isize;
        let (columns, source) = workspace.as_chunks_mut::<LANES>().0.split_at_mut(IN * padded);
        let source = &mut source[..(down * OUT + 2) * padded];
        for channel in (tile.columns.start..tile.columns.end.min(channels)).step_by(LANES) {
            let planes = &input[(image * channels + channel) * plane..][..(channels - channel).min(LANES) * plane];
            gather(planes, size, (top, steps.pads[1]), padded, source);
            let first = channel - tile.columns.start;
            let (transform, source, columns) = (PhantomData::<F>, &*source, &mut *columns);
            vectorised(Input { transform, source, columns, across, down, distance, first, out: tile });
        }
    }

    /// Numbers of a workspace for [`transform`](Self::transform).
    fn transform_floats(&self) -> usize {
        let [high, wide] = [self.blocks.down, self.blocks.across].map(|tiles| tiles * self.filtering.outputs() + 2);
        (high + self.filtering.outputs() + 2) * wide * LANES
    }

    /// Computes a part of the output from the transformed inputs of its block, a panel of maps after the other.
    fn compute(&self, part: &mut Tile<'_, f32>, inputs: &[f32], extras: &[&[u8]], workspace: &mut [f32]) {
        let width = self.micro.columns;
        let tiles = self.rows_of(part.columns.start / self.parts.tile_columns) * self.blocks.across;
        let (sums, outputs) = workspace.split_at_mut(self.filtering.positions() * tiles * width);
        let maps = part.rows.clone();
        for panel in maps.start / width..maps.end.div_ceil(width) {
            let panel = maps.start.max(panel * width)..maps.end.min((panel + 1) * width);
            let products = self.multiply(panel.clone(), tiles, inputs, sums);
            for first in panel.clone().step_by(LANES) {
                let vector = first..panel.end.min(first + LANES);
                self.finish(part, vector, &sums[first - panel.start..], products, outputs, extras);
            }
        }
    }

    /// Numbers of a workspace for [`compute`](Self::compute).
    fn compute_floats(&self) -> usize {
        self.filtering.positions() * self.blocks.tiles() * self.micro.columns + 2 * self.parts.tile_columns * LANES
    }

    /// The products of all positions of a block with so many tiles, for maps of one panel: matrices of so many rows and columns.
    fn multiply(&self, maps: Range<usize>, tiles: usize, inputs: &[f32], sums: &mut [f32]) -> [usize; 2] {
        let positions = self.filtering.positions();
        let (panel, first) = (maps.start / self.micro.columns * positions, maps.start % self.micro.columns);
        let columns = maps.len().next_multiple_of(LANES);
        let [rows, distance] = self.inputs();
        let matrix = rows / positions * distance;
        let products = sums.chunks_exact_mut(tiles * columns).zip(inputs.chunks_exact(matrix));
        for (position, (product, inputs)) in products.take(positions).enumerate() {
            let left = View::with_strides(inputs, tiles, self.geometry.channels, (distance, 1));
            let right = self.weights.panels(panel + position);
            let product = &mut Tile::whole(product, columns).at([0, first]);
            Product::new(self.micro, Left::View(left), Right::Packed(right)).compute(product, Finish::Nothing);
        }
        [tiles, columns]
    }

    /// Outputs of up to sixteen maps of a part, whose first product is the first of `sums`.
    fn finish(
        &self,
        part: &mut Tile<'_, f32>,
        maps: Range<usize>,
        sums: &[f32],
        products: [usize; 2],
        workspace: &mut [f32],
        extras: &[&[u8]],
    ) {
        let [high, wide] = self.geometry.output;
        let pixels = part.columns.len();
        let (turned, planes) = workspace.split_at_mut(pixels * LANES);
        let size = [pixels / wide, wide];
        let out = turned.as_chunks_mut().0;
        match self.filtering {
            Filtering::Two => vectorised(Output::<F2, 4, 2>::new(sums, products, self.blocks.across, size, out)),
            Filtering::Four => vectorised(Output::<F4, 6, 4>::new(sums, products, self.blocks.across, size, out)),
        }
        gemm::transpose(turned, (LANES, 1), (pixels, maps.len()), planes, pixels);
        for (map, plane) in maps.zip(planes.chunks_exact(pixels)) {
            let row = (part.matrix * self.geometry.maps + map) * high + part.columns.start / wide;
            let out = part.row(map - part.rows.start);
            out.copy_from_slice(plane);
            if let Some(epilogue) = &self.epilogue {
                epilogue.apply(row, 0, out, extras);
            }
        }
    }
}

impl CpuKernel for Kernel {
    fn packings(&self) -> Vec<Packing> {
        vec![self.weights.packing.clone()]
    }

    fn keep(&mut self, packed: &[Arc<Buffer>]) {
        packed.iter().for_each(|packed| self.weights.keep(packed));
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        self.weights.check()?;
        let (input, extras) = (elements(call.inputs[0]), &call.inputs[2..]);
        let [rows, columns] = self.inputs();
        let parts = self.parts(call.team.threads());
        call.team.run_in_order(elements_mut(call.outputs[0]), parts, Order::Rows, &|mut part| {
            let block = part.matrix * self.blocks.count + part.columns.start / self.parts.tile_columns;
            let floats = rows * columns;
            with_workspace(floats + self.transform_floats().max(self.compute_floats()), |space| {
                let (inputs, space) = space.split_at_mut(floats);
                self.transform(&mut Tile::whole(inputs, columns), block, input, space);
                self.compute(&mut part, inputs, extras, space);
            });
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
