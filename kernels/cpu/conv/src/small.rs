//! Convolutions to small images, as products of the windows with the weights.
//!
//! A vector of neighbouring pixels would be mostly empty in the last layers of a network. The product is therefore
//! computed transposed: the output channels, which are many in these layers, lie along the vectors. Each part of the
//! result is transposed into the output's order as soon as it is computed.

use super::image::Coverage;
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::gemm::{self, Left, MicroKernel, PanelSource, Product, Right, View};
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::layout::{Layout, Packed, Packing};
use anabranch_cpu_base::team::{Grid, Tile, with_workspace};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_cpu_map::ProductEpilogue;
use anabranch_op::error::KernelError;
use anabranch_op::op::NodeSpec;
use anabranch_op::shape::Shape;
use anabranch_op::tensor::Buffer;
use std::sync::Arc;

/// Maximum pixels of a small image: the windows of all pixels are one panel.
const MOST_PIXELS: usize = 64;

/// Minimum output channels for which this order pays.
const LEAST_MAPS: usize = 32;

/// Panels of output channels per thread that keep a team busy.
const PANELS: usize = 4;

/// Rows of the windows' matrix that are written at a time.
const WINDOW_ROWS: usize = 256;

/// Convolution to a small image, with constant weights.
pub(super) struct Kernel {
    micro: &'static MicroKernel,
    geometry: Geometry,
    coverage: Coverage,
    /// Transposed weights of each group.
    weights: Packed,
    epilogue: Option<ProductEpilogue>,
}

impl Kernel {
    /// Whether this method suits: otherwise the pixels would leave more than a tenth of their vectors empty.
    pub(super) fn suits(micro: &MicroKernel, geometry: &Geometry) -> bool {
        let pixels = geometry.pixels();
        let filled = pixels.next_multiple_of(micro.lanes);
        pixels <= MOST_PIXELS && geometry.group_maps() >= LEAST_MAPS && 10 * filled > 11 * pixels
    }

    /// # Errors
    /// If the epilogue does not fit the node, or the intermediate results do not fit the address space.
    pub(super) fn new(micro: &'static MicroKernel, geometry: Geometry, node: &NodeSpec) -> Result<Self, KernelError> {
        let (maps, depth) = (geometry.group_maps(), geometry.depth());
        Shape::new([geometry.images * geometry.group, depth, MOST_PIXELS])?;
        let weights = Packed::new(1, Layout::windows(geometry.weights(), micro.columns));
        let coverage = Coverage::new(&geometry, node)?;
        let epilogue = ProductEpilogue::of(node, [maps, geometry.pixels()])?;
        Ok(Self { micro, geometry, coverage, weights, epilogue })
    }

    fn products(&self) -> usize {
        self.geometry.images * self.geometry.group
    }

    /// Returns the parts of the output for `threads` threads: output channels of whole panels. A part has all pixels if
    /// these are enough parts or one thread takes them, since each part reads its channels' weights.
    fn parts(&self, threads: usize) -> Grid {
        let (rows, columns, depth) = (self.geometry.group_maps(), self.geometry.pixels(), self.geometry.depth());
        let few = threads > 1 && rows.div_ceil(self.micro.columns) < PANELS * threads;
        // The epilogue after the product is applied to runs of all pixels.
        let cut = few && self.epilogue.as_ref().is_none_or(ProductEpilogue::suits_transposed);
        let transposed = if cut { gemm::grid } else { gemm::column_grid };
        let grid = transposed(self.micro, self.products(), columns, rows, depth);
        let least = if cut { self.micro.block_height(columns) } else { columns.max(1) };
        let Grid { batch, tile_rows, tile_columns, .. } = gemm::shared(self.micro, depth, grid, least, threads);
        Grid { batch, rows, columns, tile_rows: tile_columns, tile_columns: tile_rows }
    }

    /// Returns the windows of all products: matrices of one row for each element of a window, as wide as a panel.
    fn windows(&self) -> Grid {
        let (batch, width) = match self.geometry.is_pointwise() {
            true => (0, self.geometry.pixels()),
            false => (self.products(), self.geometry.pixels().next_multiple_of(16)),
        };
        Grid { batch, rows: self.geometry.depth(), columns: width, tile_rows: WINDOW_ROWS, tile_columns: width }
    }

    fn window_floats(&self) -> usize {
        let Grid { batch, rows, columns, .. } = self.windows();
        batch * rows * columns
    }

    fn write_windows(&self, tile: &mut Tile<'_, f32>, input: &[f32]) {
        let (rows, width) = (tile.rows.clone(), tile.columns.len());
        self.coverage.image(&self.geometry, input, tile.matrix).pack(rows, 0, width, tile.whole_rows());
    }

    /// Computes a part of the output from the transposed product, whose rows are pixels and whose columns are output
    /// channels.
    fn compute(&self, part: &mut Tile<'_, f32>, input: &[f32], windows: &[f32], extras: &[&[u8]]) {
        let (depth, pixels, width) = (self.geometry.depth(), self.geometry.pixels(), self.windows().columns);
        let windows = match self.geometry.is_pointwise() {
            true => self.coverage.image(&self.geometry, input, part.matrix).data,
            false => &windows[part.matrix * depth * width..][..depth * width],
        };
        let left = View::with_strides(windows, pixels, depth, (1, width));
        let right = self.weights.panels(part.matrix % self.geometry.group);
        let product = Product::new(self.micro, Left::View(left), Right::Packed(right));
        let (matrix, maps, columns) = (part.matrix, part.rows.clone(), part.columns.clone());
        let size = (columns.len(), maps.len());
        with_workspace(2 * size.0 * size.1, |space| {
            let (transposed, turned) = space.split_at_mut(size.0 * size.1);
            let tile = &mut Tile::whole(transposed, size.1).at([columns.start, maps.start]);
            let epilogue = self.epilogue.as_ref();
            ProductEpilogue::with_transposed(epilogue, matrix, extras, |finish| product.compute(tile, finish));
            if size.0 == part.stride() {
                gemm::transpose(transposed, (size.1, 1), size, part.whole_rows(), size.0);
            } else {
                gemm::transpose(transposed, (size.1, 1), size, turned, size.0);
                turned.chunks_exact(size.0).enumerate().for_each(|(map, run)| part.row(map).copy_from_slice(run));
            }
            if let Some(epilogue) = epilogue.filter(|epilogue| !epilogue.suits_transposed()) {
                epilogue.apply([matrix, maps.start, 0], part.whole_rows(), extras);
            }
        });
    }
}

impl CpuKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        self.window_floats() * size_of::<f32>()
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
        let windows = elements_mut(&mut call.scratch[..self.scratch_bytes()]);
        call.team.run_tiles(windows, self.windows(), &|mut tile| self.write_windows(&mut tile, input));
        let (windows, output) = (&*windows, elements_mut(call.outputs[0]));
        let parts = self.parts(call.team.threads());
        call.team.run_tiles(output, parts, &|mut part| self.compute(&mut part, input, windows, extras));
        Ok(())
    }
}
