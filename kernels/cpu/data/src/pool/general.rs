//! Pools windows of any size, stride and dilation: joins the rows of a window (maximum or sum), then its columns.

use super::{AHEAD, Join, PoolKernel, TOGETHER};
use anabranch_cpu_base::vector::{Isa, LANES, Loop};
use anabranch_op::op::PoolKind;
use std::marker::PhantomData;

/// Loop over planes. For each row of the output, the rows of its windows are joined to one row, and then its columns.
/// Several rows are computed at once, because data that was just stored is slow to load at other alignments.
pub(super) struct Planes<'a, J> {
    pub(super) kernel: &'a PoolKernel,
    pub(super) source: &'a [f32],
    /// Memory for [`TOGETHER`] rows of the input with their padding.
    pub(super) joined: &'a mut [f32],
    /// Divisors of a mean along the row, one for each column of the output.
    pub(super) counts: &'a [f32],
    pub(super) target: &'a mut [f32],
    pub(super) join: PhantomData<J>,
}

impl<J: Join> Loop for Planes<'_, J> {
    /// Whether an element that a window may hold is NaN and was lost.
    type Output = bool;

    #[inline(always)]
    fn run<I: Isa>(self) -> bool {
        let Self { kernel: PoolKernel { op, input: [height, width], output: [high, wide] }, source, .. } = self;
        self.joined.fill(J::NEUTRAL);
        let (reach, parts) = (self.joined.len() / TOGETHER, self.kernel.parts());
        let columns = |column: usize| match column * op.dilations[1] {
            at if parts => at % 2 * (reach / 2) + at / 2,
            at => at,
        };
        let (mut lost, mut seen) = (false, 0);
        let (mut plane, mut line) = (0, 0);
        for (block, target) in self.target.chunks_mut(TOGETHER * wide).enumerate() {
            let mut read = seen;
            for joined in self.joined.chunks_exact_mut(reach).take(target.len() / wide) {
                let (rows, top) = self.kernel.window(0, line);
                let row = |i: usize| plane + (top + ((rows.start + i) * op.dilations[0]) as isize) as usize * width;
                match rows.len() {
                    0 => joined.fill(J::NEUTRAL),
                    count => {
                        let rows = (count, &row);
                        if parts {
                            join_rows::<I, J, true>(rows, source, *width, self.kernel.parted(joined));
                        } else {
                            join_rows::<I, J, false>(rows, source, *width, [&mut joined[op.pads[1]..], &mut []]);
                        }
                        read = read.max(row(count - 1) + width);
                    }
                }
                line += 1;
                if line == *high {
                    (plane, line) = (plane + height * width, 0);
                }
            }
            if !J::KEEPS_NAN {
                // Checks for NaN now, while the elements are in the L1 cache.
                lost |= source[seen..read].iter().fold(false, |found, x| found | x.is_nan());
                seen = read;
            }
            for (at, target) in target.chunks_exact_mut(*wide).enumerate() {
                join_all::<I, J>(
                    (op.window[1], &columns),
                    &self.joined[at * reach..][..reach],
                    if parts { 1 } else { self.kernel.stride() },
                    target,
                );
                if let PoolKind::Average { .. } = op.kind {
                    let rows = self.kernel.count(0, (block * TOGETHER + at) % high) as f32;
                    target.iter_mut().zip(self.counts).for_each(|(sum, columns)| *sum /= rows * columns);
                }
            }
        }
        lost
    }
}

/// Joins to element `i` of the target the elements of `source` that are `i · stride` after each of `count` starts.
/// There is at least one start.
#[inline(always)]
fn join_all<I: Isa, J: Join>(
    (count, start): (usize, &impl Fn(usize) -> usize),
    source: &[f32],
    stride: usize,
    target: &mut [f32],
) {
    let from = |at: usize| &source[start(at)..];
    match (stride, count) {
        (1, 1) => join::<I, J, 1>([from(0)], target, false),
        (1, 2) => join::<I, J, 2>([from(0), from(1)], target, false),
        (1, _) => join::<I, J, 3>([from(0), from(1), from(2)], target, false),
        _ => target.iter_mut().zip(from(0).iter().step_by(stride)).for_each(|(to, x)| *to = *x),
    }
    for at in if stride == 1 { 3 } else { 1 }..count {
        match stride {
            1 => join::<I, J, 1>([from(at)], target, true),
            _ => target.iter_mut().zip(from(at).iter().step_by(stride)).for_each(|(to, x)| *to = J::scalar(*to, *x)),
        }
    }
}

/// Joins elements `i` of all sources to element `i` of the target, and to its old value if `add`.
#[inline(always)]
fn join<I: Isa, J: Join, const COUNT: usize>(sources: [&[f32]; COUNT], target: &mut [f32], add: bool) {
    let end = target.len();
    for start in (0..end).step_by(LANES) {
        // The last vector begins early enough to be whole, if possible: partial stores take long.
        let start = if add || end < LANES { start } else { start.min(end - LANES) };
        let to = &mut target[start..end.min(start + LANES)];
        let mut all = I::splat(J::NEUTRAL);
        if add {
            all = I::load_part(to, all);
        }
        for (at, source) in sources.iter().enumerate() {
            let next = vector_of::<I>(&source[start..], J::NEUTRAL);
            all = if at == 0 && !add { next } else { J::join::<I>(all, next) };
        }
        match to.first_chunk_mut() {
            Some(to) => I::store(all, to),
            None => I::store_part(all, to),
        }
    }
}

/// Joins `count` rows of `width` elements of the source, which begin at these starts. If `PARTED`, columns with even
/// numbers go to the first target, and those with odd numbers to the second. Otherwise all go to the first. The target
/// is filled up to whole vectors.
#[inline(always)]
fn join_rows<I: Isa, J: Join, const PARTED: bool>(
    (count, start): (usize, &impl Fn(usize) -> usize),
    source: &[f32],
    width: usize,
    [first, second]: [&mut [f32]; 2],
) {
    let row = |at: usize| &source[start(at)..][..width];
    for at in (0..count).step_by(3) {
        let targets = [&mut *first, &mut *second];
        match count - at {
            1 => join_few::<I, J, PARTED, 1>([row(at)], targets, at > 0),
            2 => join_few::<I, J, PARTED, 2>([row(at), row(at + 1)], targets, at > 0),
            _ => join_few::<I, J, PARTED, 3>([row(at), row(at + 1), row(at + 2)], targets, at > 0),
        }
    }
}

/// Joins rows, and the old values of the targets if `add`.
#[inline(always)]
fn join_few<I: Isa, J: Join, const PARTED: bool, const COUNT: usize>(
    rows: [&[f32]; COUNT],
    [first, second]: [&mut [f32]; 2],
    add: bool,
) {
    for column in (0..rows[0].len()).step_by(2 * LANES) {
        let mut made = [I::splat(J::NEUTRAL); 2];
        for (half, all) in made.iter_mut().enumerate() {
            for (at, row) in rows.iter().enumerate() {
                let from = row.get(column + half * LANES..).unwrap_or_default();
                I::prefetch(from.as_ptr().wrapping_add(AHEAD));
                let next = vector_of::<I>(from, J::NEUTRAL);
                *all = if at == 0 { next } else { J::join::<I>(*all, next) };
            }
        }
        if PARTED {
            made = [I::even(made[0], made[1]), I::odd(made[0], made[1])];
        }
        let (low, high) = match PARTED {
            true => (&mut first[column / 2..], &mut second[column / 2..]),
            false => first[column..].split_at_mut(LANES),
        };
        for (to, mut all) in [low, high].into_iter().filter_map(<[f32]>::first_chunk_mut).zip(made) {
            if add {
                all = J::join::<I>(I::load(to), all);
            }
            I::store(all, to);
        }
    }
}

/// Returns the first elements, as many as there are; the remaining lanes are `beyond`.
#[inline(always)]
fn vector_of<I: Isa>(elements: &[f32], beyond: f32) -> I::Vector {
    match elements.first_chunk() {
        Some(elements) => I::load(elements),
        // An empty slice may have any address, and processors take long to find that a load there reads nothing.
        None if elements.is_empty() => I::splat(beyond),
        None => I::load_part(elements, I::splat(beyond)),
    }
}
