//! Convolutions of 3 × 3 windows with constant weights, by the Winograd algorithm (Lavin and Gray 2015, section 4).
//!
//! Tiles of the image and the filters are transformed. A convolution then becomes one matrix product for each position
//! of a tile, of the tiles' channels with the filters' channels. The products of a tile are transformed to its outputs.
//!
//! Tiles are computed block by block, so that the transformed values and the products stay in the core's own caches. A
//! block's products are computed for a panel of output channels at a time, and become outputs at once. If
//! threads cannot share blocks equally, parts are some of the output channels of blocks.
//!
//! The result differs from direct convolution by rounding at the size of the greatest value that a tile reads. An
//! outlier therefore spoils outputs whose windows do not touch it. If a value or its multiples are not finite, all
//! outputs of its tiles become NaN.

mod division;
mod tiles;

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::gemm::{Finish, Left, MicroKernel, Product, Right, View};
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::lanes::LANES;
use anabranch_cpu_base::layout::winograd::{F2, F4, Transform};
use anabranch_cpu_base::layout::{Layout, Packed, Packing};
use anabranch_cpu_base::team::{Order, Tile, with_workspace};
use anabranch_cpu_base::vector::vectorised;
use anabranch_cpu_base::{Call, CpuKernel, gemm};
use anabranch_cpu_map::Epilogue;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, WinogradTile};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::Buffer;
use division::{Blocks, Division};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use tiles::{Input, Output, gather};

/// Winograd convolution with constant weights.
pub(super) struct Kernel {
    micro: &'static MicroKernel,
    geometry: Geometry,
    winograd_tile: WinogradTile,
    /// Transformed filters.
    weights: Packed,
    /// Division for one thread.
    division: Division,
    epilogue: Option<Epilogue>,
}

impl Kernel {
    /// Whether a panel has whole vectors of output channels.
    pub(super) fn suits(micro: &MicroKernel) -> bool {
        micro.columns.is_multiple_of(LANES)
    }

    /// # Errors
    /// If the epilogue does not fit the node, or the transformed filters do not fit the address space.
    pub(super) fn new(
        micro: &'static MicroKernel,
        geometry: Geometry,
        winograd_tile: WinogradTile,
        node: &NodeSpec,
    ) -> Result<Self, KernelError> {
        let [group, maps, channels, _] = geometry.weights();
        Shape::new([winograd_tile.positions(), channels, group, maps.next_multiple_of(micro.columns)])?;
        let division = Division::new(&geometry, winograd_tile, micro.columns);
        let weights = Packed::new(1, Layout::filters([group, maps, channels], winograd_tile, micro.columns));
        Ok(Self { micro, geometry, winograd_tile, weights, division, epilogue: Epilogue::of(node)? })
    }

    /// Returns the rows of tiles of a block for one thread, all of which one product computes.
    pub(super) fn block_rows(&self) -> usize {
        self.division.blocks.down
    }

    /// Returns the division for so many threads.
    fn division(&self, threads: usize) -> Division {
        self.division.for_team(threads)
    }

    /// Returns the sizes of a block's transformed inputs, a matrix of tiles and channels for each position: the rows of
    /// all, and the distance of rows. Neighbouring rows fall into different sets of an L1 cache.
    fn inputs(&self, blocks: &Blocks) -> [usize; 2] {
        let rows = self.winograd_tile.positions() * blocks.tiles();
        [rows, self.geometry.group_channels().next_multiple_of(LANES) | LANES]
    }

    /// Transforms the inputs of a block, for as many channels as the tile is wide.
    fn transform(&self, tile: &mut Tile<'_, f32>, place: (&Blocks, usize), input: &[f32], workspace: &mut [f32]) {
        match self.winograd_tile {
            WinogradTile::Two => self.transform_by::<F2, 4, 2>(tile, place, input, workspace),
            WinogradTile::Four => self.transform_by::<F4, 6, 4>(tile, place, input, workspace),
        }
    }

    fn transform_by<F: Transform<IN, OUT>, const IN: usize, const OUT: usize>(
        &self,
        tile: &mut Tile<'_, f32>,
        (blocks, block): (&Blocks, usize),
        input: &[f32],
        workspace: &mut [f32],
    ) {
        let (Geometry { size, steps, .. }, channels) = (self.geometry, self.geometry.group_channels());
        let (image, block) = (block / blocks.count(), block % blocks.count());
        let (across, down, distance) = (blocks.across, blocks.rows_of(block), blocks.tiles());
        let (plane, padded) = (self.geometry.plane(), across * OUT + 2);
        let top = (block * blocks.down * OUT) as isize - steps.pads[0] as isize;
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

    /// Returns the numbers of a workspace for [`transform`](Self::transform).
    fn transform_floats(&self, blocks: &Blocks) -> usize {
        let [high, wide] = [blocks.down, blocks.across].map(|tiles| tiles * self.winograd_tile.outputs() + 2);
        (high + self.winograd_tile.outputs() + 2) * wide * LANES
    }

    /// Computes a part of the output from the transformed inputs of its block, one panel of output channels after the
    /// other.
    fn compute(
        &self,
        part: &mut Tile<'_, f32>,
        division: &Division,
        (inputs, extras): (&[f32], &[&[u8]]),
        workspace: &mut [f32],
    ) {
        let (width, Division { blocks, parts }) = (self.micro.columns, division);
        let tiles = blocks.rows_of(part.columns.start / parts.tile_columns) * blocks.across;
        let (sums, outputs) = workspace.split_at_mut(self.winograd_tile.positions() * tiles * width);
        let maps = part.rows.clone();
        for panel in maps.start / width..maps.end.div_ceil(width) {
            let panel = maps.start.max(panel * width)..maps.end.min((panel + 1) * width);
            let group = part.matrix % self.geometry.group;
            let products = self.multiply((group, panel.clone()), (blocks, tiles), inputs, sums);
            for first in panel.clone().step_by(LANES) {
                let vector = first..panel.end.min(first + LANES);
                self.finish(part, vector, (&sums[first - panel.start..], products, blocks.across), outputs, extras);
            }
        }
    }

    /// Returns the numbers of a workspace for [`compute`](Self::compute).
    fn compute_floats(&self, Division { blocks, parts }: &Division) -> usize {
        self.winograd_tile.positions() * blocks.tiles() * self.micro.columns + 2 * parts.tile_columns * LANES
    }

    /// Computes the products of all positions of a block with `tiles` tiles, for output channels of one panel of a
    /// group. Returns the rows and columns of the matrices.
    fn multiply(
        &self,
        (group, maps): (usize, Range<usize>),
        (blocks, tiles): (&Blocks, usize),
        inputs: &[f32],
        sums: &mut [f32],
    ) -> [usize; 2] {
        let positions = self.winograd_tile.positions();
        let width = self.micro.columns;
        let panel = (group * self.geometry.group_maps().div_ceil(width) + maps.start / width) * positions;
        let first = maps.start % width;
        let columns = maps.len().next_multiple_of(LANES);
        let [rows, distance] = self.inputs(blocks);
        let matrix = rows / positions * distance;
        let products = sums.chunks_exact_mut(tiles * columns).zip(inputs.chunks_exact(matrix));
        for (position, (product, inputs)) in products.take(positions).enumerate() {
            let left = View::with_strides(inputs, tiles, self.geometry.group_channels(), (distance, 1));
            let right = self.weights.panels(panel + position);
            let product = &mut Tile::whole(product, columns).at([0, first]);
            Product::new(self.micro, Left::View(left), Right::Packed(right)).compute(product, Finish::Nothing);
        }
        [tiles, columns]
    }

    /// Computes the outputs of up to sixteen output channels of a part, whose first product is the first of `sums`.
    fn finish(
        &self,
        part: &mut Tile<'_, f32>,
        maps: Range<usize>,
        (sums, products, across): (&[f32], [usize; 2], usize),
        workspace: &mut [f32],
        extras: &[&[u8]],
    ) {
        let [high, wide] = self.geometry.output;
        let pixels = part.columns.len();
        let (turned, planes) = workspace.split_at_mut(pixels * LANES);
        let size = [pixels / wide, wide];
        let out = turned.as_chunks_mut().0;
        match self.winograd_tile {
            WinogradTile::Two => vectorised(Output::<F2, 4, 2>::new(sums, products, across, size, out)),
            WinogradTile::Four => vectorised(Output::<F4, 6, 4>::new(sums, products, across, size, out)),
        }
        gemm::transpose(turned, (LANES, 1), (pixels, maps.len()), planes, pixels);
        for (map, plane) in maps.zip(planes.chunks_exact(pixels)) {
            let row = (part.matrix * self.geometry.group_maps() + map) * high + part.columns.start / wide;
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
        let division = self.division(call.team.threads());
        let Division { blocks, parts } = &division;
        let [rows, columns] = self.inputs(blocks);
        let floats = self.transform_floats(blocks).max(self.compute_floats(&division));
        call.team.run_in_order(elements_mut(call.outputs[0]), *parts, Order::Rows, &|mut part| {
            let block = part.matrix * blocks.count() + part.columns.start / parts.tile_columns;
            with_workspace(rows * columns + floats, |space| {
                let (inputs, space) = space.split_at_mut(rows * columns);
                self.transform(&mut Tile::whole(inputs, columns), (blocks, block), input, space);
                self.compute(&mut part, &division, (inputs, extras), space);
            });
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
