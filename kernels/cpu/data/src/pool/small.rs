//! Windows of 2 × 2 and 3 × 3 neighbours, at every position or every second one.
//!
//! A vector of outputs is joined in registers. The rows are read in place, or from a copy if windows reach into the
//! padding.

use super::{Join, PoolKernel, TOGETHER};
use anabranch_cpu_base::vector::{Isa, LANES, Loop};
use anabranch_op::op::PoolKind;
use std::marker::PhantomData;

/// Maximum width of rows that are copied: [`super::general`] joins wider rows of a window faster, as they come from
/// memory.
const MOST_COPIED: usize = 64;

/// Copies of rows with their padding. The rows from which [`TOGETHER`] rows of the output are made are copied together.
/// A row's elements begin after [`LANES`] of padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    /// Elements from row to row.
    row: usize,
    /// Number of rows; 0 if every window is read in place.
    rows: usize,
    /// Elements from the first to the last that are read of a row.
    needed: usize,
}

impl Copied {
    /// Returns the copies for windows for which this file has loops.
    pub(super) fn of(kernel: &PoolKernel) -> Option<Self> {
        let PoolKernel { op, input, output } = kernel;
        let (size, stride) = (op.window[0], kernel.stride());
        let near = op.dilations == [1; 2] && op.pads.iter().all(|pad| *pad < size) && !input.contains(&0);
        let step = if output[0] == 1 { 1 } else { op.strides[0] };
        if op.window != [size; 2] || !(2..=3).contains(&size) || stride.max(step) > 2 || !near {
            return None;
        }
        let needed = stride * first_of_last(output[1]) + span(size, stride);
        let reach = [(output[0] - 1) * step + size, (output[1] - 1) * stride + size];
        let within = op.pads[..2] == [0; 2] && (0..2).all(|axis| reach[axis] <= input[axis]);
        if !within && input[1] > MOST_COPIED {
            return None;
        }
        let row = LANES + input[1].max(needed - op.pads[1]).next_multiple_of(LANES);
        let in_place = within && needed <= input[1];
        Some(Self { row, rows: if in_place { 0 } else { (TOGETHER.min(output[0]) - 1) * step + size }, needed })
    }

    pub(super) fn elements(self) -> usize {
        self.row * self.rows
    }
}

/// Returns the first output of a row's last vector, which begins early enough to be whole if possible.
fn first_of_last(outputs: usize) -> usize {
    outputs.saturating_sub(LANES)
}

/// Returns the elements of a row from the first to the last that are loaded for a vector of outputs.
const fn span(size: usize, stride: usize) -> usize {
    match stride {
        1 => LANES + size - 1,
        _ => 2 * LANES + (size - 1) / 2,
    }
}

/// Loop over planes.
pub(super) struct Small<'a, J> {
    pub(super) kernel: &'a PoolKernel,
    pub(super) copied: Copied,
    pub(super) source: &'a [f32],
    /// Memory for [copied](Copied::elements) rows.
    pub(super) copy: &'a mut [f32],
    /// Divisors of a mean along the row, one for each column of the output.
    pub(super) counts: &'a [f32],
    pub(super) target: &'a mut [f32],
    pub(super) join: PhantomData<J>,
}

impl<J: Join> Loop for Small<'_, J> {
    /// Whether an element is NaN and was lost.
    type Output = bool;

    #[inline(always)]
    fn run<I: Isa>(self) -> bool {
        match (self.kernel.op.window[1], self.kernel.stride()) {
            (2, 1) => self.planes::<I, 2, 1>(),
            (2, _) => self.planes::<I, 2, 2>(),
            (_, 1) => self.planes::<I, 3, 1>(),
            _ => self.planes::<I, 3, 2>(),
        }
    }
}

impl<J: Join> Small<'_, J> {
    #[inline(always)]
    fn planes<I: Isa, const SIZE: usize, const STRIDE: usize>(self) -> bool {
        let Self { kernel: PoolKernel { op, input: [height, width], output: [high, wide] }, copied, .. } = self;
        let (step, [top, left, ..]) = (op.strides[0], op.pads);
        let last = first_of_last(*wide);
        let beside = left == 0 && (wide - 1) * STRIDE + SIZE <= *width;
        self.copy.fill(J::NEUTRAL);
        let mut lost = false;
        for (plane, target) in self.target.chunks_exact_mut(high * wide).enumerate() {
            let plane = &self.source[plane * height * width..];
            let mut seen = 0;
            for (block, target) in target.chunks_mut(TOGETHER * wide).enumerate() {
                // First row of the padded input that is read, and the row after the last.
                let first = block * TOGETHER * step;
                let behind = first + (target.len() / wide - 1) * step + SIZE;
                if !J::KEEPS_NAN {
                    let end = behind.saturating_sub(top).min(*height);
                    lost |= plane[seen * width..end * width].iter().fold(false, |found, x| found | x.is_nan());
                    seen = end;
                }
                let within = beside && first >= top && behind <= top + height;
                // Elements that are loaded beyond a row only affect outputs that are not stored.
                let (rows, distance) = if within && (behind - 1 - top) * width + copied.needed <= plane.len() {
                    (&plane[(first - top) * width..], *width)
                } else {
                    for (row, line) in (first..behind).zip(self.copy.chunks_exact_mut(copied.row)) {
                        match row.checked_sub(top).filter(|row| row < height) {
                            Some(row) => copy_row::<I>(&plane[row * width..][..*width], &mut line[LANES..], J::NEUTRAL),
                            None => line.fill(J::NEUTRAL),
                        }
                    }
                    (&self.copy[LANES - left..], copied.row)
                };
                for (line, target) in target.chunks_exact_mut(*wide).enumerate() {
                    let rows = &rows[line * step * distance..];
                    let count = match op.kind {
                        PoolKind::Average { .. } => self.kernel.count(0, block * TOGETHER + line) as f32,
                        PoolKind::Max => 1.0,
                    };
                    for start in (0..*wide).step_by(LANES) {
                        let start = start.min(last);
                        let mut all = window::<I, J, SIZE, STRIDE>(&rows[STRIDE * start..], distance);
                        if let PoolKind::Average { .. } = op.kind {
                            let counts =
                                I::fused_lanes(I::splat(count), load::<I>(&self.counts[start..]), I::splat(0.0));
                            all = I::quotient(all, counts);
                        }
                        let to = &mut target[start..(*wide).min(start + LANES)];
                        match to.first_chunk_mut() {
                            Some(to) => I::store(all, to),
                            None => I::store_part(all, to),
                        }
                    }
                }
            }
        }
        lost
    }
}

/// Copies a row to the beginning of a line; if the row is shorter than a vector, the line's first vector is filled with
/// `beyond`.
#[inline(always)]
fn copy_row<I: Isa>(row: &[f32], line: &mut [f32], beyond: f32) {
    let last = first_of_last(row.len());
    for start in (0..row.len()).step_by(LANES) {
        let start = start.min(last);
        let vector = match row[start..].first_chunk() {
            Some(elements) => I::load(elements),
            None => I::load_part(row, I::splat(beyond)),
        };
        I::store(vector, line[start..].first_chunk_mut().expect("lines have room for a vector"));
    }
}

/// Joins the windows of a vector of neighbouring outputs: rows first, then columns.
#[inline(always)]
fn window<I: Isa, J: Join, const SIZE: usize, const STRIDE: usize>(rows: &[f32], distance: usize) -> I::Vector {
    if STRIDE == 1 {
        let mut all = column::<I, J, SIZE>(rows, distance);
        for at in 1..SIZE {
            all = J::join::<I>(all, column::<I, J, SIZE>(&rows[at..], distance));
        }
        return all;
    }
    let (low, high) = (column::<I, J, SIZE>(rows, distance), column::<I, J, SIZE>(&rows[LANES..], distance));
    let (even, odd) = (I::even(low, high), I::odd(low, high));
    let both = J::join::<I>(even, odd);
    if SIZE == 2 {
        return both;
    }
    let mut next = rows[2 * LANES];
    for row in 1..SIZE {
        next = J::scalar(next, rows[row * distance + 2 * LANES]);
    }
    J::join::<I>(both, I::shifted(even, next))
}

/// Joins a vector of columns over the window's rows.
#[inline(always)]
fn column<I: Isa, J: Join, const SIZE: usize>(rows: &[f32], distance: usize) -> I::Vector {
    let mut all = load::<I>(rows);
    for row in 1..SIZE {
        all = J::join::<I>(all, load::<I>(&rows[row * distance..]));
    }
    all
}

#[inline(always)]
fn load<I: Isa>(from: &[f32]) -> I::Vector {
    I::load(from.first_chunk().expect("rows are readable as far as vectors go"))
}
