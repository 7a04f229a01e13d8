//! Products of many rows with narrow weights: a piece of a panel is widened to `f32` once, and multiplied by all rows
//! of a tile.

use super::Weights;
use super::element::Element;
use super::panel::{negated, parameter};
use anabranch_cpu_base::layout::narrow::PANEL;
use anabranch_cpu_base::team::{Tile, with_workspace};
use anabranch_cpu_base::vector::{Isa, LANES, Loop, vectorised};
use std::ops::Range;

/// Minimum rows of a tile: fewer rows take less time with weights in registers.
const MANY: usize = 8;

/// Steps of the depth that are widened together: they fill a part of an L2 cache. Their products are added first, and
/// then their sum to those of earlier steps. One sum over all steps would have an error in proportion to the depth.
const STEPS: usize = 256;

/// Rows whose sums of a vector fit the registers.
const ROWS: usize = 6;

/// Numbers of a panel at one step.
type Line = [[f32; LANES]; PANEL / LANES];

/// Whether tiles of so many rows are computed here.
pub(super) fn is_for(rows: usize) -> bool {
    rows >= MANY
}

/// Computes a tile of many rows. Returns whether it has many rows.
pub(super) fn multiply<E: Element>(tile: &mut Tile<'_, f32>, a: &[f32], weights: &Weights<'_>) -> bool {
    let (height, depth) = (tile.rows.len(), weights.depth);
    if !is_for(height) {
        return false;
    }
    let rows = &a[tile.rows.start * depth..tile.rows.end * depth];
    with_workspace((STEPS + height) * PANEL, |workspace| {
        let (panel, sums) = bytemuck::cast_slice_mut::<_, Line>(workspace).split_at_mut(STEPS);
        for column in tile.columns.clone().step_by(PANEL) {
            let [scales, zero_points] = weights.parameters(column);
            sums.fill([[0.0; LANES]; PANEL / LANES]);
            for start in (0..depth).step_by(STEPS) {
                let steps = start..depth.min(start + STEPS);
                let panel = &mut panel[..steps.len()];
                let from = Widening::<E> {
                    weights: weights.panel::<E>(column),
                    block: weights.block,
                    scales,
                    zero_points,
                    steps: steps.clone(),
                    panel,
                };
                vectorised(from);
                add_all(rows, depth, &steps, panel, sums);
            }
            let left = tile.columns.start;
            for (i, sums) in sums.iter().enumerate() {
                let out = &mut tile.row(i)[column - left..];
                let count = PANEL.min(out.len());
                out[..count].copy_from_slice(&sums.as_flattened()[..count]);
            }
        }
    });
    true
}

/// Adds the products of all rows with a piece of a panel to their sums.
fn add_all(rows: &[f32], depth: usize, steps: &Range<usize>, panel: &[Line], mut sums: &mut [Line]) {
    let row = |at: usize| &rows[at * depth..][steps.clone()];
    let mut at = 0;
    while !sums.is_empty() {
        let count = match sums.len() {
            ROWS.. => ROWS,
            2.. => 2,
            _ => 1,
        };
        let (own, rest) = sums.split_at_mut(count);
        match count {
            ROWS => vectorised(Multiplying::<ROWS> { rows: std::array::from_fn(|i| row(at + i)), panel, sums: own }),
            2 => vectorised(Multiplying::<2> { rows: [row(at), row(at + 1)], panel, sums: own }),
            _ => vectorised(Multiplying::<1> { rows: [row(at)], panel, sums: own }),
        }
        (sums, at) = (rest, at + count);
    }
}

/// Loop that widens some steps of a panel.
struct Widening<'a, E: Element> {
    weights: &'a [[E::Bytes; PANEL / LANES]],
    block: usize,
    scales: Option<&'a [f32]>,
    zero_points: Option<&'a [f32]>,
    steps: Range<usize>,
    panel: &'a mut [Line],
}

impl<E: Element> Loop for Widening<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { weights, block, scales, zero_points, steps, panel } = self;
        let mut start = steps.start;
        while start < steps.end {
            let number = start / block;
            let end = steps.end.min((number + 1) * block);
            let lines = &mut panel[start - steps.start..end - steps.start];
            for v in 0..PANEL / LANES {
                let shift = zero_points.map(|of| negated::<I>(of, number, v));
                let scale = scales.map(|of| parameter::<I>(of, number, v));
                let bytes = weights[start / E::STEPS..].iter().map(|columns| &columns[v]);
                // The position of a step in its bytes must be known to the compiler, as it is in whole groups.
                let mut whole = lines.chunks_exact_mut(E::STEPS);
                let rest = bytes.clone().skip(whole.len());
                for (lines, bytes) in whole.by_ref().zip(bytes) {
                    widen::<I, E>(lines, v, bytes, shift, scale);
                }
                for (lines, bytes) in whole.into_remainder().chunks_mut(E::STEPS).zip(rest) {
                    widen::<I, E>(lines, v, bytes, shift, scale);
                }
            }
            start = end;
        }
    }
}

/// Widens the numbers of a vector of columns whose steps share bytes.
#[inline(always)]
fn widen<I: Isa, E: Element>(
    lines: &mut [Line],
    vector: usize,
    bytes: &E::Bytes,
    shift: Option<I::Vector>,
    scale: Option<I::Vector>,
) {
    for (step, line) in lines.iter_mut().enumerate() {
        let mut wide = match shift {
            Some(shift) => E::widened::<I>(bytes, step, shift),
            None => E::centred::<I>(bytes, step),
        };
        if let Some(scale) = scale {
            wide = I::fused_lanes(wide, scale, I::splat(0.0));
        }
        I::store(wide, &mut line[vector]);
    }
}

/// Loop that adds the products of some rows with a piece of a panel to their sums.
struct Multiplying<'a, const COUNT: usize> {
    rows: [&'a [f32]; COUNT],
    panel: &'a [Line],
    /// As many as there are rows.
    sums: &'a mut [Line],
}

impl<const COUNT: usize> Loop for Multiplying<'_, COUNT> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        if I::WIDE {
            self.columns::<I, 4>(0);
        } else {
            for at in 0..PANEL / LANES {
                self.columns::<I, 1>(at);
            }
        }
    }
}

impl<const COUNT: usize> Multiplying<'_, COUNT> {
    /// Adds the products of the vectors of columns from vector `at` on.
    #[inline(always)]
    fn columns<I: Isa, const VECTORS: usize>(&mut self, at: usize) {
        let mut total = [[I::splat(0.0); VECTORS]; COUNT];
        let mut rows: [&[f32]; COUNT] = [&[]; COUNT];
        for i in 0..COUNT {
            rows[i] = &self.rows[i][..self.panel.len()];
        }
        for (step, line) in self.panel.iter().enumerate() {
            let mut weights = [I::splat(0.0); VECTORS];
            for v in 0..VECTORS {
                weights[v] = I::load(&line[at + v]);
            }
            for i in 0..COUNT {
                let x = I::splat(rows[i][step]);
                for v in 0..VECTORS {
                    total[i][v] = I::fused_lanes(x, weights[v], total[i][v]);
                }
            }
        }
        for i in 0..COUNT {
            for v in 0..VECTORS {
                let sum = &mut self.sums[i][at + v];
                I::store(I::sum(I::load(sum), total[i][v]), sum);
            }
        }
    }
}
