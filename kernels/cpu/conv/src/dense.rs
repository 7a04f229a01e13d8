//! Convolutions as matrix products: the weights of a group times the windows of an image.

use super::image::Coverage;
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::gemm::{self, Left, MicroKernel, PanelSource, Panels, Product, Right, Sweep, View};
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::layout::{Layout, Packed, Packing};
use anabranch_cpu_base::team::{Grid, Order, Tile};
use anabranch_cpu_base::{Call, CpuKernel, Team};
use anabranch_cpu_map::ProductEpilogue;
use anabranch_op::error::KernelError;
use anabranch_op::op::NodeSpec;
use anabranch_op::shape::Shape;
use anabranch_op::tensor::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// Number of tiles of whole columns that keep a team busy: if there are fewer, columns are cut into rows too.
const ENOUGH_COLUMN_TILES: usize = 16;

/// Number of pixels below which threads divide the output channels instead of the pixels, if there are at least as many
/// output channels as input channels. Threads then read less than they write, and the following depthwise layer divides
/// channels too.
const FEW_PIXELS: usize = 1024;

/// Minimum output channels of a projection that is [halved](Kernel::upper). Each half of them reads the image, which
/// does not pay with fewer.
const LEAST_MAPS: usize = 48;

/// Rows of a panel that are written at a time when all panels are written in advance.
const PANEL_ROWS: usize = 256;

/// Convolution in which each group is a matrix product.
pub(super) struct Kernel {
    micro: &'static MicroKernel,
    geometry: Geometry,
    coverage: Coverage,
    /// Packed weights of each group, or `None` if each call provides them and copies them into the order of the
    /// windows.
    weights: Option<Packed>,
    windows: Windows,
    grid: Grid,
    /// Output channels of the upper half, for a projection of many channels to few. It is computed in two rounds. The
    /// first round sums the first half of the input channels for the upper output channels, and the second half for the
    /// lower ones; the second round swaps the halves. Each of two threads thus reads the channels that it has mostly
    /// written itself, and of the other thread only sums for few output channels.
    upper: Option<usize>,
    epilogue: Option<ProductEpilogue>,
}

/// Source of the right-hand matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Windows {
    /// Image that is the matrix itself.
    Image,
    /// Panels that each tile writes.
    ByTile,
    /// Panels that are all written in advance, and shared by several tiles of rows.
    Ahead,
}

impl Kernel {
    /// # Errors
    /// If the epilogue does not fit the node.
    pub(super) fn new(
        micro: &'static MicroKernel,
        geometry: Geometry,
        node: &NodeSpec,
        constant: bool,
    ) -> Result<Self, KernelError> {
        let products = geometry.images * geometry.group;
        let (rows, columns) = (geometry.group_maps(), geometry.pixels());
        let depth = geometry.depth();
        // This bounds all sizes that are computed below, and it fits the address space.
        Shape::new([products, rows.max(columns.next_multiple_of(micro.columns)), depth])?;
        let by_columns = gemm::column_grid(micro, products, rows, columns, depth);
        let (windows, grid) = if geometry.is_pointwise() {
            (Windows::Image, gemm::grid(micro, products, rows, columns, depth))
        } else if by_columns.tiles() >= ENOUGH_COLUMN_TILES || by_columns.tile_rows <= micro.rows {
            (Windows::ByTile, by_columns)
        } else {
            (Windows::Ahead, gemm::grid(micro, products, rows, columns, depth))
        };
        // With one slice, halving would read and write the result once more.
        let halved = constant
            && products == 1
            && geometry.is_pointwise()
            && (LEAST_MAPS..=depth / 2).contains(&rows)
            && gemm::is_sliced(micro, depth);
        let height = micro.block_height(if halved { rows.div_ceil(2) } else { rows });
        let upper = halved.then(|| rows.div_ceil(2).next_multiple_of(height));
        let grid = upper.map_or(grid, |upper| gemm::halved_grid(micro, [rows, columns, depth], upper));
        let weights = constant.then(|| Packed::new(1, Layout::windows(geometry.weights(), height)));
        let coverage = Coverage::new(&geometry, node)?;
        let epilogue = ProductEpilogue::of(node, [rows, columns])?;
        Ok(Self { micro, geometry, coverage, weights, windows, grid, upper, epilogue })
    }

    /// Whether each sum is computed in two halves.
    pub(super) fn is_halved(&self) -> bool {
        self.upper.is_some()
    }

    /// Returns the elements of the panels of one product, if they are written in advance.
    fn panel_floats(&self) -> usize {
        match self.windows {
            Windows::Ahead => Panels::floats(self.micro.columns, self.geometry.depth(), self.geometry.pixels()),
            Windows::Image | Windows::ByTile => 0,
        }
    }

    /// Returns the elements of the weights in the order of the windows, if they are not packed.
    fn weight_floats(&self) -> usize {
        if self.weights.is_some() { 0 } else { self.geometry.maps * self.geometry.depth() }
    }

    fn write_panels(&self, team: &Team, input: &[f32], panels: &mut [f32]) {
        let (depth, width) = (self.geometry.depth(), self.micro.columns);
        let per_product = self.geometry.pixels().div_ceil(width);
        let batch = self.grid.batch * per_product;
        let grid = Grid { batch, rows: depth, columns: width, tile_rows: PANEL_ROWS, tile_columns: width };
        team.run_tiles(panels, grid, &|mut tile| {
            let (product, panel) = (tile.matrix / per_product, tile.matrix % per_product);
            let steps = tile.rows.clone();
            self.coverage.image(&self.geometry, input, product).pack(steps, panel * width, width, tile.whole_rows());
        });
    }

    /// Returns the steps that one of the two rounds of a [halved](Self::upper) product sums for a tile.
    fn sweep(&self, is_upper: bool, round: usize) -> Sweep {
        let (depth, begins) = (self.geometry.depth(), round == 0);
        let steps = if is_upper == begins { 0..depth / 2 } else { depth / 2..depth };
        Sweep { steps, begins, ends: !begins }
    }

    /// Returns the tiles of a [halved](Self::upper) product, enough for the threads. Tiles are whole blocks of rows, so
    /// that sums stay the same.
    fn halves(&self, upper: usize, threads: usize) -> Grid {
        let height = self.micro.block_height(self.geometry.maps.div_ceil(2));
        let blocks = upper / height;
        let cuts = (1..=blocks).filter(|cut| blocks.is_multiple_of(*cut));
        let mut grids = cuts.map(|cut| Grid { tile_rows: upper / cut, ..self.grid });
        grids.find(|grid| grid.tiles() >= threads).unwrap_or(Grid { tile_rows: height, ..self.grid })
    }

    /// Computes a tile from the input, weights and panels; of a [halved](Self::upper) product, in these rounds.
    fn compute(
        &self,
        tile: &mut Tile<'_, f32>,
        rounds: Range<usize>,
        ([input, weights, panels], extras): ([&[f32]; 3], &[&[u8]]),
    ) {
        let (product, depth, pixels) = (tile.matrix, self.geometry.depth(), self.geometry.pixels());
        let rows = self.geometry.group_maps();
        let group = product % self.geometry.group;
        let left = match &self.weights {
            Some(packed) => Left::Packed(packed.panels(group)),
            None => Left::View(View::new(&weights[group * rows * depth..][..rows * depth], rows, depth, false)),
        };
        let image = self.coverage.image(&self.geometry, input, product);
        let right = match self.windows {
            Windows::Image => Right::View(View::new(image.data, depth, pixels, false)),
            Windows::ByTile => Right::Source(&image),
            Windows::Ahead => {
                let panels = &panels[product * self.panel_floats()..][..self.panel_floats()];
                Right::Packed(Panels::new(panels, depth, pixels, self.micro.columns))
            }
        };
        let product_of = Product::new(self.micro, left, right);
        ProductEpilogue::with(self.epilogue.as_ref(), product, extras, |finish| match self.upper {
            Some(upper) => {
                let is_upper = tile.rows.start < upper;
                rounds.for_each(|round| product_of.sweep(tile, &self.sweep(is_upper, round), finish));
            }
            None => product_of.compute(tile, finish),
        });
    }
}

impl CpuKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        (self.weight_floats() + self.grid.batch * self.panel_floats()) * size_of::<f32>()
    }

    fn resident_bytes(&self) -> usize {
        self.coverage.resident_bytes()
    }

    fn packings(&self) -> Vec<Packing> {
        self.weights.iter().map(|packed| packed.packing.clone()).collect()
    }

    fn keep(&mut self, packed: &[Arc<Buffer>]) {
        self.weights.iter_mut().zip(packed).for_each(|(own, given)| own.keep(given));
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let input = elements(call.inputs[0]);
        let scratch = elements_mut(&mut call.scratch[..self.scratch_bytes()]);
        let (weights, panels) = scratch.split_at_mut(self.weight_floats());
        match &self.weights {
            Some(packed) => packed.check()?,
            None => reorder(&self.geometry, elements(call.inputs[1]), weights),
        }
        if self.windows == Windows::Ahead {
            self.write_panels(call.team, input, panels);
        }
        let operands = ([input, &*weights, &*panels], &call.inputs[2..]);
        let output = elements_mut(call.outputs[0]);
        let (threads, Grid { batch, rows, columns, .. }) = (call.team.threads(), self.grid);
        let run = |mut tile: Tile<'_, f32>| self.compute(&mut tile, 0..2, operands);
        if let Some(upper) = self.upper.filter(|_| threads > 1) {
            let grid = self.halves(upper, threads);
            for (round, order) in [Order::Rows, Order::RowsBackwards].into_iter().enumerate() {
                let run = |mut tile: Tile<'_, f32>| self.compute(&mut tile, round..round + 1, operands);
                call.team.run_in_order(output, grid, order, &run);
            }
        } else if threads > 1 && self.windows == Windows::Image && columns < FEW_PIXELS && rows >= self.geometry.depth()
        {
            let height = self.micro.block_height(rows);
            let stripes = (2 * threads).div_ceil(batch.max(1));
            let tile_rows = rows.div_ceil(stripes).next_multiple_of(height).min(self.grid.tile_rows);
            call.team.run_in_order(output, Grid { tile_rows, ..self.grid }, Order::Rows, &run);
        } else {
            // Rows that are cut write the windows once more.
            let least = if self.windows == Windows::ByTile { rows.max(1) } else { self.micro.block_height(rows) };
            let grid = gemm::shared(self.micro, self.geometry.depth(), self.grid, least, threads);
            call.team.run_tiles(output, grid, &run);
        }
        Ok(())
    }
}

/// Copies weights `[maps, channels, taps]` to `[maps, taps, channels]`.
fn reorder(geometry: &Geometry, weights: &[f32], ordered: &mut [f32]) {
    let (taps, channels) = (geometry.taps(), geometry.group_channels());
    if taps * channels == 0 {
        return;
    }
    for (from, to) in weights.chunks_exact(taps * channels).zip(ordered.chunks_exact_mut(taps * channels)) {
        gemm::transpose(from, (taps, 1), (channels, taps), to, channels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_cpu_base::geometry::Steps;
    use anabranch_kernel_testing::products::spec;
    use anabranch_op::op::{Conv, Op};

    #[test]
    fn halves_have_tiles_for_a_team() {
        let steps = Steps { strides: [1; 2], pads: [0; 4], dilations: [1; 2] };
        for (micro, (channels, maps, side)) in MicroKernel::of_all_sizes().into_iter().flat_map(|micro| {
            [(400, 64, 14), (960, 160, 9), (1280, 320, 8), (2048, 512, 4), (1024, 256, 28)].map(|case| (micro, case))
        }) {
            let geometry = Geometry::of_image([channels, maps, 1], [side; 2], [1; 2], steps);
            let op = Op::Conv(Conv { strides: [1; 2], pads: [0; 4], dilations: [1; 2], group: 1, epilogue: None });
            let inputs = vec![spec(&[1, channels, side, side]), spec(&[maps, channels, 1, 1])];
            let node = NodeSpec { op, inputs, outputs: vec![spec(&[1, maps, side, side])] };
            let kernel = Kernel::new(micro, geometry, &node, true).expect("a sound node");
            let upper = kernel.upper.expect("many channels and few maps");
            for threads in [2, 3, 5, 8] {
                let grid = kernel.halves(upper, threads);
                let height = micro.block_height(maps.div_ceil(2));
                assert!(grid.tiles() >= threads, "{}, {threads} threads: {grid:?}", micro.name);
                assert!(grid.tile_rows.is_multiple_of(height) && upper.is_multiple_of(grid.tile_rows), "{grid:?}");
            }
        }
    }
}
