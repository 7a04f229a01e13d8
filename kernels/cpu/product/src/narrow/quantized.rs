//! Products with 4-bit weights whose left-hand matrix is rounded to 8-bit integers, each block of a row with a scale of
//! its own. Integers are multiplied, and each block's sum is scaled.
//!
//! Sums of integers are exact. A result therefore depends on the processor only as far as multiply-adds do.

use super::element::{Bits, Element};
use super::panel::{AHEAD, parameter};
use super::{Call, CpuKernel, Grid, KernelError, Packing, Rows, Weights};
use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::layout::narrow::PANEL;
use anabranch_cpu_base::vector::{Isa, LANES, Loop, vectorised, vectorised_with_dots};
use anabranch_op::tensor::Buffer;
use std::sync::Arc;

/// Steps of the depth whose weights lie together, four bytes for each column.
const GROUP: usize = 8;

/// Bits of the weights of a column and a group.
pub(super) const GROUP_BITS: usize = 32;

/// Greatest integer that elements are rounded to.
const GREATEST: f32 = 127.0;

/// Approximate elements of a part of the left-hand matrix that a thread rounds.
const ROUNDED_TOGETHER: usize = 1 << 14;

/// Returns the groups of a depth.
pub(super) fn groups(depth: usize) -> usize {
    depth.div_ceil(GROUP)
}

/// Integers of a group: those of the even steps, and those of the odd steps, as the halves of bytes hold them.
type Factors = [[i8; 4]; 2];

pub(super) struct Kernel(super::Kernel<Bits<4>>);

impl Kernel {
    pub(super) fn new(kernel: super::Kernel<Bits<4>>) -> Self {
        Self(kernel)
    }

    fn shape(&self) -> RowShape {
        RowShape { groups: groups(self.0.depth), blocks: self.0.depth.div_ceil(self.0.block) }
    }
}

/// Sizes of a row after rounding: factors, a scale for each block, and the sum of the integers of each block.
#[derive(Clone, Copy)]
struct RowShape {
    groups: usize,
    blocks: usize,
}

impl RowShape {
    const FACTORS: usize = size_of::<Factors>() / size_of::<f32>();

    fn floats(self) -> usize {
        self.groups * Self::FACTORS + 2 * self.blocks
    }
}

/// A row after rounding.
#[derive(Clone, Copy)]
struct Row<'a> {
    factors: &'a [Factors],
    scales: &'a [f32],
    /// Sum of the integers of each block.
    totals: &'a [f32],
}

/// Rounded rows of a matrix.
struct Integers<'a> {
    rows: &'a [f32],
    shape: RowShape,
    weights: Weights<'a>,
}

impl Integers<'_> {
    fn row(&self, row: usize) -> Row<'_> {
        let floats = &self.rows[row * self.shape.floats()..][..self.shape.floats()];
        let (factors, rest) = floats.split_at(self.shape.groups * RowShape::FACTORS);
        let (scales, totals) = rest.split_at(self.shape.blocks);
        Row { factors: bytemuck::cast_slice(factors), scales, totals }
    }
}

impl Rows for Integers<'_> {
    fn times<const COUNT: usize>(&self, row: usize, column: usize) -> [[f32; PANEL]; COUNT] {
        let [scales, zero_points] = self.weights.parameters(column);
        vectorised_with_dots(Panel {
            rows: std::array::from_fn(|i| self.row(row + i)),
            weights: &elements(self.weights.packed)[column / PANEL * self.shape.groups..][..self.shape.groups],
            block: self.weights.block,
            scales: scales.unwrap_or_default(),
            zero_points,
        })
    }
}

/// Loop for some rows times the columns of a panel.
struct Panel<'a, const ROWS: usize> {
    rows: [Row<'a>; ROWS],
    /// Weights of each group: four bytes for each column.
    weights: &'a [[[u8; 4 * LANES]; PANEL / LANES]],
    block: usize,
    scales: &'a [f32],
    zero_points: Option<&'a [f32]>,
}

impl<const ROWS: usize> Loop for Panel<'_, ROWS> {
    type Output = [[f32; PANEL]; ROWS];

    #[inline(always)]
    fn run<I: Isa>(self) -> Self::Output {
        let mut sums = [[0.0; PANEL]; ROWS];
        match (I::WIDE, ROWS) {
            (true, _) | (false, 1) => self.sums::<I, 4>(&mut sums),
            (false, 2) => self.sums::<I, 2>(&mut sums),
            (false, _) => self.sums::<I, 1>(&mut sums),
        }
        sums
    }
}

impl<const ROWS: usize> Panel<'_, ROWS> {
    /// Computes all sums, `VECTORS` vectors of columns at a time.
    #[inline(always)]
    fn sums<I: Isa, const VECTORS: usize>(&self, sums: &mut [[f32; PANEL]; ROWS]) {
        for at in (0..PANEL / LANES).step_by(VECTORS) {
            let total = self.columns::<I, VECTORS>(at);
            for i in 0..ROWS {
                let out = &mut sums[i].as_chunks_mut().0[at..][..VECTORS];
                for v in 0..VECTORS {
                    I::store(total[i][v], &mut out[v]);
                }
            }
        }
    }

    /// Returns the sums of the vectors of columns from vector `at` on.
    #[inline(always)]
    fn columns<I: Isa, const VECTORS: usize>(&self, at: usize) -> [[I::Vector; VECTORS]; ROWS] {
        let mut total = [[I::splat(0.0); VECTORS]; ROWS];
        let groups = self.block / GROUP;
        for number in 0..self.rows[0].scales.len() {
            let start = number * groups;
            let end = self.weights.len().min(start + groups);
            let mut sums = [[I::splat(0.0); VECTORS]; ROWS];
            // Each group adds products of even and of odd steps.
            for first in (start..end).step_by(I::QUADS / 2) {
                self.add::<I, VECTORS>([first, end.min(first + I::QUADS / 2)], at, &mut sums);
            }
            for v in 0..VECTORS {
                let scale = parameter::<I>(self.scales, number, at + v);
                let zero = match self.zero_points {
                    Some(of) => parameter::<I>(of, number, at + v),
                    None => I::splat(Bits::<4>::MIDDLE),
                };
                for i in 0..ROWS {
                    let Row { scales, totals, .. } = self.rows[i];
                    let shifted = I::fused_lanes(zero, I::splat(-totals[number]), sums[i][v]);
                    let scaled = I::fused_lanes(shifted, I::splat(scales[number]), I::splat(0.0));
                    total[i][v] = I::fused_lanes(scaled, scale, total[i][v]);
                }
            }
        }
        total
    }

    /// Adds the products of a few groups.
    #[inline(always)]
    fn add<I: Isa, const VECTORS: usize>(
        &self,
        [start, end]: [usize; 2],
        at: usize,
        sums: &mut [[I::Vector; VECTORS]; ROWS],
    ) {
        let mut integers = [[I::no_sums(); VECTORS]; ROWS];
        for group in start..end {
            let columns = &self.weights[group];
            for v in 0..VECTORS {
                // A cache line holds a vector's bytes.
                I::prefetch((&raw const columns[at + v]).wrapping_byte_add(AHEAD).cast());
                let [even, odd] = I::nibbles(&columns[at + v]);
                for i in 0..ROWS {
                    let [by_even, by_odd] = self.rows[i].factors[group];
                    integers[i][v] = I::add_quads(I::add_quads(integers[i][v], even, by_even), odd, by_odd);
                }
            }
        }
        for i in 0..ROWS {
            for v in 0..VECTORS {
                sums[i][v] = I::sum(sums[i][v], I::joined_sums(integers[i][v]));
            }
        }
    }
}

/// Loop that rounds a row.
struct Rounding<'a> {
    a: &'a [f32],
    block: usize,
    factors: &'a mut [Factors],
    scales: &'a mut [f32],
    totals: &'a mut [f32],
}

impl Loop for Rounding<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { a, block, factors, scales, totals } = self;
        let parts = factors.chunks_mut(block / GROUP).zip(scales).zip(totals);
        for (a, ((factors, scale), total)) in a.chunks(block).zip(parts) {
            // As integers, magnitudes are in the order of the numbers, and what is not finite comes last.
            let greatest = a.iter().fold(0, |greatest, x| x.abs().to_bits().max(greatest));
            let finite = greatest < f32::INFINITY.to_bits();
            *scale = if finite { (f32::from_bits(greatest) / GREATEST).max(f32::MIN_POSITIVE) } else { f32::NAN };
            let inverse = if finite { 1.0 / *scale } else { 0.0 };
            let mut sum = 0;
            for (steps, factors) in a.chunks(GROUP).zip(factors) {
                let mut group = [0.0; GROUP];
                group[..steps.len()].copy_from_slice(steps);
                for at in 0..GROUP {
                    let integer = rounded(group[at] * inverse);
                    sum += i32::from(integer);
                    factors[at % 2][at / 2] = integer;
                }
            }
            *total = sum as f32;
        }
    }
}

/// Returns the nearest integer, the even one of two, of a number of at most [`GREATEST`].
#[inline(always)]
fn rounded(x: f32) -> i8 {
    // The sum's last bit stands for 1, so that the addition rounds.
    const ONES: f32 = 1.5 * (1 << (f32::MANTISSA_DIGITS - 1)) as f32;
    (x + ONES).to_bits() as i8
}

impl CpuKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        self.0.scratch_bytes() + self.0.rows * self.shape().floats() * size_of::<f32>()
    }

    fn packings(&self) -> Vec<Packing> {
        self.0.packings()
    }

    fn keep(&mut self, packed: &[Arc<Buffer>]) {
        self.0.keep(packed);
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let Call { inputs, outputs, rows: range, scratch, team } = call;
        let shape = self.shape();
        let (of_weights, rows) = elements_mut::<f32>(scratch).split_at_mut(self.0.scratch_bytes() / size_of::<f32>());
        let rows = &mut rows[..self.0.rows * shape.floats()];
        let (a, depth, block): (&[f32], _, _) = (elements(inputs[0]), self.0.depth, self.0.block);
        let grid = Grid {
            batch: 1,
            rows: self.0.rows,
            columns: shape.floats(),
            tile_rows: ROUNDED_TOGETHER / depth.max(1),
            tile_columns: shape.floats(),
        };
        team.run_tiles(rows, grid, &|mut tile| {
            for (at, row) in tile.rows.clone().enumerate() {
                let (factors, rest) = tile.row(at).split_at_mut(shape.groups * RowShape::FACTORS);
                let (scales, totals) = rest.split_at_mut(shape.blocks);
                let (a, factors) = (&a[row * depth..][..depth], bytemuck::cast_slice_mut(factors));
                vectorised(Rounding { a, block, factors, scales, totals });
            }
        });
        let rows = Integers { rows, shape, weights: self.0.weights(inputs, of_weights)? };
        self.0.multiply(Call { inputs, outputs, rows: range, scratch: &mut [], team }, &rows);
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use anabranch_cpu_base::vector::vectorised_at;

    /// Weights of a panel, for each group.
    pub(in super::super) type Weights = [[[u8; 4 * LANES]; PANEL / LANES]];

    /// Returns the products of rows and a panel whose scales are 1, at a level of instructions.
    pub(in super::super) fn rows_by_panel<const ROWS: usize>(
        level: u8,
        a: [&[f32]; ROWS],
        weights: &Weights,
        block: usize,
        zero_points: Option<&[f32]>,
    ) -> [[f32; PANEL]; ROWS] {
        let blocks = a[0].len().div_ceil(block);
        let rounded = a.map(|a| {
            let (mut factors, mut scales) = (vec![Factors::default(); weights.len()], vec![0.0; blocks]);
            let mut totals = scales.clone();
            let rounding = Rounding { a, block, factors: &mut factors, scales: &mut scales, totals: &mut totals };
            vectorised_at(level, rounding);
            (factors, scales, totals)
        });
        let rows = rounded.each_ref().map(|(factors, scales, totals)| Row { factors, scales, totals });
        let ones = vec![1.0; blocks * PANEL];
        vectorised_at(level, Panel { rows, weights, block, scales: &ones, zero_points })
    }
}
