//! Convolutions of 8-bit integers in which each channel is convolved by itself.
//!
//! A window may reach beyond the image. Its `Σ x · w` is `Σ (x − border) · w` over the elements inside, plus the border
//! times the sum of all w. So nothing is copied, and elements outside are never read. Vectors lie along a row of
//! outputs.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::team::{Grid, Tile};
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{IntegerConv, NodeSpec};

/// Approximate products of a tile.
const TILE_PRODUCTS: usize = 1 << 16;

pub(super) struct Kernel {
    geometry: Geometry,
    border: i32,
    zero_points: bool,
    /// Whether the numbers of the image and of the filters are signed.
    signed: [bool; 2],
    grid: Grid,
}

impl Kernel {
    pub(super) fn suits(geometry: &Geometry) -> bool {
        geometry.group_channels() == 1 && geometry.group_maps() <= IntegerConv::MOST_MAPS
    }

    pub(super) fn new(geometry: Geometry, op: &IntegerConv, node: &NodeSpec) -> Self {
        let (rows, columns) = (geometry.images * geometry.maps, geometry.pixels());
        let tile_rows = (TILE_PRODUCTS / (columns * geometry.taps()).max(1)).max(1);
        Self {
            geometry,
            border: i32::from(op.border),
            zero_points: op.zero_points,
            signed: [0, 1].map(|input| node.inputs[input].dtype == DType::I8),
            grid: Grid { batch: 1, rows, columns, tile_rows, tile_columns: columns },
        }
    }

    /// Computes whole output channels.
    fn compute(&self, tile: &mut Tile<'_, i32>, inputs: &[&[u8]]) {
        let Geometry { maps, .. } = self.geometry;
        let parameter = |input: usize, map: usize| elements::<i32>(inputs[input])[map];
        for (at, row) in tile.rows.clone().enumerate() {
            let (map, plane) = (row % maps, self.geometry.plane());
            let zero = if self.zero_points { parameter(3, map) } else { 0 };
            let channel = row / maps * self.geometry.group + map / self.geometry.group_maps();
            vectorised(Sums {
                kernel: self,
                image: &inputs[0][channel * plane..][..plane],
                filter: &inputs[1][map * self.geometry.taps()..][..self.geometry.taps()],
                zero,
                summand: parameter(2, map),
                out: tile.row(at),
            });
        }
    }
}

/// Outputs of one output channel.
struct Sums<'a> {
    kernel: &'a Kernel,
    image: &'a [u8],
    filter: &'a [u8],
    zero: i32,
    summand: i32,
    out: &'a mut [i32],
}

impl Loop for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        match self.kernel.signed[0] {
            true => self.add(|x| i32::from(x as i8)),
            false => self.add(i32::from),
        }
    }
}

impl Sums<'_> {
    #[inline(always)]
    fn add(self, number: impl Fn(u8) -> i32) {
        let Kernel { geometry, border, signed, .. } = *self.kernel;
        let Geometry { size, output: [high, wide], window, steps, .. } = geometry;
        let weight = |tap: usize| {
            let byte = self.filter[tap];
            (if signed[1] { i32::from(byte as i8) } else { i32::from(byte) }).wrapping_sub(self.zero)
        };
        let outside = (0..self.filter.len()).fold(0i32, |sum, tap| sum.wrapping_add(weight(tap)));
        self.out.fill(self.summand.wrapping_add(outside.wrapping_mul(border)));
        for tap in 0..self.filter.len() {
            let weight = weight(tap);
            let (top, bottom, row) = steps.inside(0, tap / window[1], size[0], high);
            let (left, right, column) = steps.inside(1, tap % window[1], size[1], wide);
            for y in top..bottom {
                let from = &self.image[(row + (y - top) * steps.strides[0]) * size[1] + column..];
                let sums = &mut self.out[y * wide..][left..right];
                let add = |(sum, x): (&mut i32, &u8)| {
                    *sum = sum.wrapping_add((number(*x) - border).wrapping_mul(weight));
                };
                match steps.strides[1] {
                    1 => sums.iter_mut().zip(from).for_each(add),
                    stride => sums.iter_mut().zip(from.iter().step_by(stride)).for_each(add),
                }
            }
        }
    }
}

impl CpuKernel for Kernel {
    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let output = elements_mut(call.outputs[0]);
        call.team.run_tiles(output, self.grid, &|mut tile| self.compute(&mut tile, call.inputs));
        Ok(())
    }
}
