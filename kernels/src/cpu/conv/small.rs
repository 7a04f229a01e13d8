//! Convolutions to small images, as products of the windows with the weights.
//!
//! A vector of neighbouring pixels would be mostly empty in the last layers of a network, so the product is computed
//! transposed: the output channels, of which these layers have many, lie along the vectors. The result is brought into
//! the output's order at the end.

use super::geometry::Geometry;
use super::image::Coverage;
use crate::cpu::elements::{elements, elements_mut};
use crate::cpu::gemm::{self, Finish, Left, MicroKernel, PanelSource, Panels, Product, Right, View};
use crate::cpu::layout::{Layout, Packed, Packing};
use crate::cpu::map::Epilogue;
use crate::cpu::team::{Grid, Tile};
use crate::cpu::{Call, CpuKernel};
use crate::error::KernelError;
use crate::op::NodeSpec;
use crate::shape::Shape;
use crate::tensor::Buffer;
use std::sync::Arc;

/// Most pixels of a small image: the windows of all are one panel.
const MOST_PIXELS: usize = 64;

/// Least output channels for which this order pays.
const LEAST_MAPS: usize = 32;

/// Rows of the windows' matrix that are written at a time.
const WINDOW_ROWS: usize = 256;

/// Output channels that are brought into order at a time.
const REORDERED: usize = 64;

/// A convolution to a small image, with constant weights.
pub(super) struct Kernel {
    micro: &'static MicroKernel,
    geometry: Geometry,
    coverage: Coverage,
    /// The weights of each group, transposed.
    weights: Packed,
    /// Tiles of the transposed products.
    products: Grid,
    epilogue: Option<Epilogue>,
}

impl Kernel {
    /// Whether this method suits: the pixels would leave more than a tenth of their vectors empty.
    pub(super) fn suits(micro: &MicroKernel, geometry: &Geometry) -> bool {
        let pixels = geometry.pixels();
        let filled = pixels.next_multiple_of(micro.lanes);
        pixels <= MOST_PIXELS && geometry.group_maps() >= LEAST_MAPS && 10 * filled > 11 * pixels
    }

    /// # Errors
    /// If the epilogue does not fit the node, or the intermediate results do not fit the address space.
    pub(super) fn new(micro: &'static MicroKernel, geometry: Geometry, node: &NodeSpec) -> Result<Self, KernelError> {
        let (maps, depth) = (geometry.group_maps(), geometry.depth());
        let batch = geometry.images * geometry.group;
        Shape::new([batch, maps + depth, MOST_PIXELS])?;
        let weights = Packed::new(1, Layout::windows(geometry.weights(), micro.columns));
        let products = gemm::grid(micro, batch, geometry.pixels(), maps, depth);
        let coverage = Coverage::new(&geometry, node)?;
        Ok(Self { micro, geometry, coverage, weights, products, epilogue: Epilogue::of(node)? })
    }

    /// The windows of all products: matrices of one row for each element of a window, as wide as a panel.
    fn windows(&self) -> Grid {
        let (batch, width) = match self.geometry.is_pointwise() {
            true => (0, self.geometry.pixels()),
            false => (self.products.batch, self.geometry.pixels().next_multiple_of(16)),
        };
        Grid { batch, rows: self.geometry.depth(), columns: width, tile_rows: WINDOW_ROWS, tile_columns: width }
    }

    fn window_floats(&self) -> usize {
        let Grid { batch, rows, columns, .. } = self.windows();
        batch * rows * columns
    }

    /// The blocks of rows of all products' left-hand matrices: a row for each element of a window, in which lie the pixels of the block.
    fn blocks(&self) -> Grid {
        let height = self.micro.block_height(self.geometry.pixels());
        let batch = self.products.batch * self.geometry.pixels().div_ceil(height);
        Grid { batch, rows: self.geometry.depth(), columns: height, tile_rows: WINDOW_ROWS, tile_columns: height }
    }

    fn block_floats(&self) -> usize {
        let Grid { batch, rows, columns, .. } = self.blocks();
        batch * rows * columns
    }

    fn write_block(&self, tile: &mut Tile<'_, f32>, input: &[f32], windows: &[f32]) {
        let (depth, pixels, width) = (self.geometry.depth(), self.geometry.pixels(), self.windows().columns);
        let (steps, height) = (tile.rows.clone(), tile.columns.len());
        let (product, block) = (tile.matrix / pixels.div_ceil(height), tile.matrix % pixels.div_ceil(height));
        let windows = match self.geometry.is_pointwise() {
            true => self.coverage.image(&self.geometry, input, product).data,
            false => &windows[product * depth * width..][..depth * width],
        };
        let view = View::with_strides(windows, depth, pixels, (width, 1));
        let first = block * height;
        gemm::pack_left(view, steps, first..pixels.min(first + height), height, tile.whole_rows());
    }

    fn write_windows(&self, tile: &mut Tile<'_, f32>, input: &[f32]) {
        let (rows, width) = (tile.rows.clone(), tile.columns.len());
        self.coverage.image(&self.geometry, input, tile.matrix).pack(rows, 0, width, tile.whole_rows());
    }

    /// A tile of a product: rows are pixels, columns are maps.
    fn multiply(&self, tile: &mut Tile<'_, f32>, blocks: &[f32]) {
        let Grid { rows, columns, .. } = self.blocks();
        let (pixels, size) = (self.geometry.pixels(), Panels::floats(columns, rows, self.geometry.pixels()));
        let left = Panels::new(&blocks[tile.matrix * size..][..size], rows, pixels, columns);
        let right = self.weights.panels(tile.matrix % self.geometry.group);
        Product::new(self.micro, Left::Packed(left), Right::Packed(right)).compute(tile, Finish::Nothing);
    }

    /// Output channels from the transposed products.
    fn reorder(&self, tile: &mut Tile<'_, f32>, products: &[f32], extras: &[&[u8]]) {
        let (maps, pixels) = (self.geometry.group_maps(), self.geometry.pixels());
        let (first, count) = (tile.rows.start, tile.rows.len());
        let product = &products[tile.matrix * maps * pixels..][..maps * pixels];
        let row = (tile.matrix * maps + first) * self.geometry.output[0];
        let out = tile.whole_rows();
        gemm::transpose(&product[first..], (maps, 1), (pixels, count), out, pixels);
        if let Some(epilogue) = &self.epilogue {
            epilogue.apply(row, 0, out, extras);
        }
    }
}

impl CpuKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        let products = self.products.batch * self.products.rows * self.products.columns;
        (self.window_floats() + self.block_floats() + products) * size_of::<f32>()
    }

    fn resident_bytes(&self) -> usize {
        self.coverage.resident_bytes()
    }

    fn packings(&self) -> Vec<Packing> {
        vec![self.weights.packing.clone()]
    }

    fn keep(&mut self, packed: &[Arc<Buffer>]) {
        packed.iter().for_each(|packed| self.weights.keep(packed));
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        self.weights.check()?;
        let (input, extras) = (elements(call.inputs[0]), &call.inputs[2..]);
        let scratch = elements_mut(&mut call.scratch[..self.scratch_bytes()]);
        let (windows, rest) = scratch.split_at_mut(self.window_floats());
        let (blocks, products) = rest.split_at_mut(self.block_floats());
        call.team.run_tiles(windows, self.windows(), &|mut tile| self.write_windows(&mut tile, input));
        let windows = &*windows;
        call.team.run_tiles(blocks, self.blocks(), &|mut tile| self.write_block(&mut tile, input, windows));
        let blocks = &*blocks;
        call.team.run_tiles(products, self.products, &|mut tile| self.multiply(&mut tile, blocks));
        let (batch, rows, columns) = (self.products.batch, self.geometry.group_maps(), self.geometry.pixels());
        let order = Grid { batch, rows, columns, tile_rows: REORDERED, tile_columns: columns };
        let products = &*products;
        call.team
            .run_tiles(elements_mut(call.outputs[0]), order, &|mut tile| self.reorder(&mut tile, products, extras));
        Ok(())
    }
}
