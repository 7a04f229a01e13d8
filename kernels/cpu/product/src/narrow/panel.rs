//! Products of few rows with a panel of narrow weights, which are widened in registers. The sums over each piece of a
//! block of the depth are scaled once.

use super::element::Element;
use anabranch_cpu_base::layout::narrow::PANEL;
use anabranch_cpu_base::vector::{Isa, LANES, Loop};
use bytemuck::Zeroable;
use std::ops::Range;

/// Prefetch distance of weights in bytes: few rows read them faster than the processor expects.
pub(super) const AHEAD: usize = 4096;

/// Maximum steps whose products are added one after the other. The sums of such pieces are then added. One sum over all
/// steps would have an error in proportion to the depth.
const PIECE: usize = 512;

/// Loop for some rows times the columns of a panel.
pub(super) struct Panel<'a, E: Element, const ROWS: usize> {
    /// Rows of equal depth.
    pub(super) a: [&'a [f32]; ROWS],
    /// Weights of [`PANEL`] columns, for each step or each group of steps that share bytes.
    pub(super) weights: &'a [[E::Bytes; PANEL / LANES]],
    /// Steps that share a scale.
    pub(super) block: usize,
    /// Parameters of [`PANEL`] columns for each block. `None` means a scale of 1, or the middle of the grid as zero
    /// point.
    pub(super) scales: Option<&'a [f32]>,
    pub(super) zero_points: Option<&'a [f32]>,
}

impl<E: Element, const ROWS: usize> Loop for Panel<'_, E, ROWS> {
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

/// Sums of rows, `VECTORS` vectors of columns each.
type Sums<I, const ROWS: usize, const VECTORS: usize> = [[<I as Isa>::Vector; VECTORS]; ROWS];

impl<E: Element, const ROWS: usize> Panel<'_, E, ROWS> {
    /// Computes all sums, `VECTORS` vectors of columns at a time.
    #[inline(always)]
    fn sums<I: Isa, const VECTORS: usize>(&self, sums: &mut [[f32; PANEL]; ROWS]) {
        for at in (0..PANEL).step_by(VECTORS * LANES) {
            let total = self.columns::<I, VECTORS>(at);
            for i in 0..ROWS {
                let out = &mut sums[i].as_chunks_mut().0[at / LANES..][..VECTORS];
                for v in 0..VECTORS {
                    I::store(total[i][v], &mut out[v]);
                }
            }
        }
    }

    #[inline(always)]
    fn columns<I: Isa, const VECTORS: usize>(&self, at: usize) -> Sums<I, ROWS, VECTORS> {
        let depth = self.a[0].len();
        let mut total = [[I::splat(0.0); VECTORS]; ROWS];
        for (number, first) in (0..depth).step_by(self.block).enumerate() {
            let end = depth.min(first + self.block);
            let mut scale = [I::splat(1.0); VECTORS];
            if let Some(scales) = self.scales {
                for v in 0..VECTORS {
                    scale[v] = parameter::<I>(scales, number, at / LANES + v);
                }
            }
            for start in (first..end).step_by(PIECE) {
                let sums = self.of_piece::<I, VECTORS>(at, start..end.min(start + PIECE), number);
                for i in 0..ROWS {
                    for v in 0..VECTORS {
                        total[i][v] = I::fused_lanes(sums[i][v], scale[v], total[i][v]);
                    }
                }
            }
        }
        total
    }

    /// Returns the sums over steps of block `number`, without the block's scale.
    #[inline(always)]
    fn of_piece<I: Isa, const VECTORS: usize>(
        &self,
        at: usize,
        steps: Range<usize>,
        number: usize,
    ) -> Sums<I, ROWS, VECTORS> {
        let mut shift = [I::splat(0.0); VECTORS];
        match self.zero_points {
            Some(of) if E::MIDDLE != 0.0 => {
                for v in 0..VECTORS {
                    shift[v] = negated::<I>(of, number, at / LANES + v);
                }
                self.of_steps::<I, VECTORS, true>(at, steps, shift)
            }
            _ => self.of_steps::<I, VECTORS, false>(at, steps, shift),
        }
    }

    /// Returns the sums over steps; the first step begins a byte. Weights have a shift of their own if `SHIFTED`.
    #[inline(always)]
    fn of_steps<I: Isa, const VECTORS: usize, const SHIFTED: bool>(
        &self,
        at: usize,
        steps: Range<usize>,
        shift: [I::Vector; VECTORS],
    ) -> Sums<I, ROWS, VECTORS> {
        let groups = &self.weights[steps.start / E::STEPS..steps.end.div_ceil(E::STEPS)];
        let whole = steps.len() / E::STEPS;
        let (groups, last) = groups.split_at(whole);
        let mut a: [&[E::Factors]; ROWS] = [&[]; ROWS];
        for i in 0..ROWS {
            a[i] = &bytemuck::cast_slice(&self.a[i][steps.start..steps.start + whole * E::STEPS])[..whole];
        }
        let mut sums = [[I::splat(0.0); VECTORS]; ROWS];
        for group in 0..whole {
            let mut factors = [E::Factors::zeroed(); ROWS];
            for i in 0..ROWS {
                factors[i] = a[i][group];
            }
            I::prefetch((&raw const groups[group]).wrapping_byte_add(AHEAD).cast());
            add_all::<I, E, ROWS, VECTORS, SHIFTED>(&mut sums, &groups[group], at, &factors, shift);
        }
        if let Some(last) = last.first() {
            let mut factors = [E::Factors::zeroed(); ROWS];
            for i in 0..ROWS {
                let rest = &self.a[i][steps.start + whole * E::STEPS..steps.end];
                factors[i].as_mut()[..rest.len()].copy_from_slice(rest);
            }
            add_all::<I, E, ROWS, VECTORS, SHIFTED>(&mut sums, last, at, &factors, shift);
        }
        sums
    }
}

/// Adds the products of the steps that share bytes. Each call is written out, so that the step's position in the bytes
/// is a constant.
#[inline(always)]
fn add_all<I: Isa, E: Element, const ROWS: usize, const VECTORS: usize, const SHIFTED: bool>(
    sums: &mut Sums<I, ROWS, VECTORS>,
    columns: &[E::Bytes; PANEL / LANES],
    at: usize,
    factors: &[E::Factors; ROWS],
    shift: [I::Vector; VECTORS],
) {
    add::<I, E, ROWS, VECTORS, SHIFTED, 0>(sums, columns, at, factors, shift);
    add::<I, E, ROWS, VECTORS, SHIFTED, 1>(sums, columns, at, factors, shift);
    add::<I, E, ROWS, VECTORS, SHIFTED, 2>(sums, columns, at, factors, shift);
    add::<I, E, ROWS, VECTORS, SHIFTED, 3>(sums, columns, at, factors, shift);
}

/// Adds the products of one step, if there are that many steps.
#[inline(always)]
fn add<I: Isa, E: Element, const ROWS: usize, const VECTORS: usize, const SHIFTED: bool, const STEP: usize>(
    sums: &mut Sums<I, ROWS, VECTORS>,
    columns: &[E::Bytes; PANEL / LANES],
    at: usize,
    factors: &[E::Factors; ROWS],
    shift: [I::Vector; VECTORS],
) {
    if STEP >= E::STEPS {
        return;
    }
    for v in 0..VECTORS {
        let bytes = &columns[at / LANES + v];
        let weights = if SHIFTED { E::widened::<I>(bytes, STEP, shift[v]) } else { E::centred::<I>(bytes, STEP) };
        for i in 0..ROWS {
            sums[i][v] = I::fused_lanes(I::splat(factors[i].as_ref()[STEP]), weights, sums[i][v]);
        }
    }
}

/// Returns the parameters of a block for a vector of columns.
#[inline(always)]
pub(super) fn parameter<I: Isa>(parameters: &[f32], number: usize, vector: usize) -> I::Vector {
    I::load(&parameters[number * PANEL..][..PANEL].as_chunks().0[vector])
}

/// Returns the parameters of a block for a vector of columns with the other sign.
#[inline(always)]
pub(super) fn negated<I: Isa>(parameters: &[f32], number: usize, vector: usize) -> I::Vector {
    I::fused_lanes(parameter::<I>(parameters, number, vector), I::splat(-1.0), I::splat(0.0))
}
