//! Some queries over the keys and values of one head, tile by tile.

use super::block::{self, BLOCK, MANY};
use super::stored::Stored;
use super::{Kernel, Members};
use anabranch_cpu_base::lanes::extreme_inside;
use anabranch_cpu_base::math::{exp_below_one, tanh};
use anabranch_cpu_base::vector::{Isa, LANES, Loop, joined};
use anabranch_op::op::AttentionSizes;
use std::array::from_fn;
use std::ops::Range;

/// Vectors of values that stay in registers while keys pass.
const VALUE_VECTORS: usize = 4;

/// Keys whose scores are worked out together.
const KEYS_PER_QUAD: usize = 4;

/// The passing of queries over their keys.
pub(super) struct Part<'a, 'w, S> {
    pub(super) members: &'a Members<'a, S>,
    /// [`Self::workspace_len`] numbers.
    pub(super) workspace: &'w mut [f32],
}

/// State of a query between tiles.
struct QueryState<'a> {
    most: &'a mut f32,
    sum: &'a mut f32,
    /// The values so far, weighted by exponentials.
    values: &'a mut [f32],
}

impl<S: Stored> Part<'_, '_, S> {
    /// Numbers of workspace that so many queries need: their values, the greatest scores and sums of exponentials,
    /// scores and exponentials of a block in a tile, transposed keys, and widened keys and values.
    pub(super) fn workspace_len(count: usize, kernel: &Kernel<S>) -> usize {
        let (tile, AttentionSizes { depth, width, .. }) = (kernel.tile, kernel.sizes);
        let transposed = if count >= MANY { tile * depth } else { 0 };
        let widened = if S::NARROW { tile * (depth + width) } else { 0 };
        count * (width + 2) + 2 * block_of(count) * tile + transposed + widened
    }
}

impl<'w, S: Stored> Loop for Part<'_, 'w, S> {
    /// The queries' values, one after the other.
    type Output = &'w mut [f32];

    #[inline(always)]
    fn run<I: Isa>(self) -> &'w mut [f32] {
        let Self { members, workspace } = self;
        let (tile, AttentionSizes { depth, width, .. }) = (members.kernel.tile, members.kernel.sizes);
        let count = members.count();
        let (out, rest) = workspace.split_at_mut(count * width);
        let (most, rest) = rest.split_at_mut(count);
        let (sums, rest) = rest.split_at_mut(count);
        let size = block_of(count);
        let (scores, rest) = rest.split_at_mut(size * tile);
        let (weights, rest) = rest.split_at_mut(size * tile);
        let (panels, rest) = rest.split_at_mut(if count >= MANY { tile * depth } else { 0 });
        let (key_space, value_space) = rest.split_at_mut(if S::NARROW { tile * depth } else { 0 });
        out.fill(0.0);
        most.fill(f32::NEG_INFINITY);
        sums.fill(0.0);
        let all = || (0..count).map(|at| members.seen(at)).filter(|seen| !seen.is_empty());
        let start = all().map(|seen| seen.start).min().unwrap_or(0);
        let reach = all().map(|seen| seen.end).max().unwrap_or(0);
        for begin in (start / tile * tile..reach).step_by(tile) {
            let end = reach.min(begin + tile);
            let [keys, values] = members.cached(begin..end);
            let keys = S::widened::<I>(keys, space_for::<S>(key_space, keys.len()));
            let values = S::widened::<I>(values, space_for::<S>(value_space, values.len()));
            if count >= MANY {
                block::panels(keys, depth, panels);
            }
            for first in (0..count).step_by(size) {
                let mut near = members.near(first..count.min(first + size), begin..end);
                let block = size == BLOCK && first + BLOCK <= count;
                let together = near.iter().map(|near| near.start).min()..near.iter().map(|near| near.end).max();
                if let (true, (Some(start), Some(end))) = (block, (together.start, together.end)) {
                    block::dots::<I>(from_fn(|at| members.query(first + at)), panels, start..end, scores);
                }
                for (number, near) in near.iter_mut().enumerate().filter(|(_, near)| near.start < near.end) {
                    let (at, row) = (first + number, number * tile..(number + 1) * tile);
                    let (scores, weights) = (&mut scores[row.clone()], &mut weights[row]);
                    if !block {
                        dots::<I>(members.query(at), keys, near.clone(), scores);
                    }
                    let scores = &mut scores[near.clone()];
                    members.change::<I>(at, begin + near.start, scores);
                    let state =
                        QueryState { most: &mut most[at], sum: &mut sums[at], values: &mut out[at * width..][..width] };
                    if !state.take::<I>(scores, &mut weights[near.clone()]) {
                        *near = 0..0;
                    }
                }
                let weights = |number: usize| &weights[number * tile..][near[number].clone()];
                let values = |number: usize| &values[near[number].start * width..near[number].end * width];
                let out = &mut out[first * width..];
                if block && width.is_multiple_of(LANES) && near.iter().all(|own| *own == near[0]) {
                    block::weighted::<I>(from_fn(weights), values(0), &mut out[..BLOCK * width]);
                } else {
                    for (number, out) in out.chunks_exact_mut(width.max(1)).take(size).enumerate() {
                        weighted::<I>(weights(number), values(number), out);
                    }
                }
            }
        }
        for (out, sum) in out.chunks_exact_mut(width.max(1)).zip(sums) {
            // Nothing was added up where no key was seen.
            let factor = if *sum == 0.0 { 0.0 } else { 1.0 / *sum };
            out.iter_mut().for_each(|out| *out *= factor);
        }
        out
    }
}

impl<S: Stored> Members<'_, S> {
    /// Returns the places of a tile that each of at most [`BLOCK`] queries sees.
    #[inline(always)]
    fn near(&self, queries: Range<usize>, tile: Range<usize>) -> [Range<usize>; BLOCK] {
        let mut near = [const { 0..0 }; BLOCK];
        for (at, near) in queries.zip(&mut near) {
            let seen = self.seen(at);
            let own = seen.start.max(tile.start)..seen.end.min(tile.end);
            *near = if own.is_empty() { 0..0 } else { own.start - tile.start..own.end - tile.start };
        }
        near
    }

    /// Scales, bends and adds to the scores of a query with keys from `key` on.
    #[inline(always)]
    fn change<I: Isa>(&self, at: usize, key: usize, scores: &mut [f32]) {
        changed::<I>(scores, self.kernel.op.scale, self.kernel.op.cap);
        if let Some((summands, stride)) = self.summands(at) {
            // A key that is left out has no part in the result, even if its score is not finite.
            scores.iter_mut().enumerate().for_each(|(at, score)| {
                let summand = summands[(key + at) * stride];
                *score = if summand == f32::NEG_INFINITY { summand } else { *score + summand };
            });
        }
    }
}

/// Returns the queries that pass over a tile together, of so many in a part.
fn block_of(count: usize) -> usize {
    if count >= MANY { BLOCK } else { 1 }
}

/// Returns the workspace for so many widened numbers.
#[inline(always)]
fn space_for<S: Stored>(all: &mut [f32], count: usize) -> &mut [f32] {
    if S::NARROW { &mut all[..count] } else { &mut [] }
}

impl QueryState<'_> {
    /// Makes weights of the scores of some keys. Returns whether their values are to be added.
    #[inline(always)]
    fn take<I: Isa>(self, scores: &[f32], weights: &mut [f32]) -> bool {
        let (found, special) = extreme_inside::<I, true>(scores);
        if found == f32::NEG_INFINITY && !scores.iter().any(|score| special && score.is_nan()) {
            return false;
        }
        let most = if found > *self.most { found } else { *self.most };
        if most > *self.most {
            let factor = exp_below_one::<I>(*self.most - most);
            *self.sum *= factor;
            self.values.iter_mut().for_each(|value| *value *= factor);
            *self.most = most;
        }
        *self.sum += exponentials::<I>(scores, most, weights);
        true
    }
}

/// The products of a query with keys `near` of a tile, at their places in `scores`.
#[inline(always)]
fn dots<I: Isa>(query: &[f32], keys: &[f32], near: Range<usize>, scores: &mut [f32]) {
    let (last, depth) = (near.end - 1, query.len());
    for begin in (near.start / LANES * LANES..near.end).step_by(LANES) {
        let mut quads = [I::splat(0.0); LANES / KEYS_PER_QUAD];
        for quad in 0..LANES / KEYS_PER_QUAD {
            let mut four: [&[f32]; KEYS_PER_QUAD] = [&[]; KEYS_PER_QUAD];
            for number in 0..KEYS_PER_QUAD {
                let at = begin + quad * KEYS_PER_QUAD + number;
                four[number] = &keys[at.min(last) * depth..][..depth];
            }
            quads[quad] = joined_dots::<I>(query, four);
        }
        let (low, high) = (paired::<I>(quads[0], quads[1]), paired::<I>(quads[2], quads[3]));
        let end = scores.len().min(begin + LANES);
        I::store_part(paired::<I>(low, high), &mut scores[begin..end]);
    }
}

/// The products of a query with four keys, each as four numbers that are to be added up.
#[inline(always)]
fn joined_dots<I: Isa>(query: &[f32], keys: [&[f32]; KEYS_PER_QUAD]) -> I::Vector {
    let mut sums = [I::splat(0.0); KEYS_PER_QUAD];
    let (blocks, rest) = query.as_chunks::<LANES>();
    for (at, block) in blocks.iter().enumerate() {
        let x = I::load(block);
        for key in 0..KEYS_PER_QUAD {
            sums[key] = I::fused_lanes(x, I::load(&keys[key].as_chunks().0[at]), sums[key]);
        }
    }
    if !rest.is_empty() {
        let (x, zero) = (I::load_part(rest, I::splat(0.0)), I::splat(0.0));
        for key in 0..KEYS_PER_QUAD {
            let part = I::load_part(keys[key].as_chunks::<LANES>().1, zero);
            sums[key] = I::fused_lanes(x, part, sums[key]);
        }
    }
    paired::<I>(paired::<I>(sums[0], sums[1]), paired::<I>(sums[2], sums[3]))
}

/// Neighbours added up, those of `low` first.
#[inline(always)]
fn paired<I: Isa>(low: I::Vector, high: I::Vector) -> I::Vector {
    I::sum(I::even(low, high), I::odd(low, high))
}

/// Scales scores and bends them.
#[inline(always)]
fn changed<I: Isa>(scores: &mut [f32], scale: f32, cap: f32) {
    if cap > 0.0 {
        scores.iter_mut().for_each(|score| *score = tanh::<I>(*score * scale / cap) * cap);
    } else {
        scores.iter_mut().for_each(|score| *score *= scale);
    }
}

/// `weights = e^(score − most)`, and their sum.
#[inline(always)]
fn exponentials<I: Isa>(scores: &[f32], most: f32, weights: &mut [f32]) -> f32 {
    weights.iter_mut().zip(scores).for_each(|(weight, score)| *weight = exp_below_one::<I>(*score - most));
    let mut sums = I::splat(0.0);
    let (blocks, rest) = weights.as_chunks::<LANES>();
    for block in blocks {
        sums = I::sum(sums, I::load(block));
    }
    sums = I::sum(sums, I::load_part(rest, I::splat(0.0)));
    joined::<I>(sums, I::sum)
}

/// Adds weighted values, one of which is as long as `out`.
#[inline(always)]
fn weighted<I: Isa>(weights: &[f32], values: &[f32], out: &mut [f32]) {
    let (width, mut at) = (out.len(), 0);
    while at + VALUE_VECTORS * LANES <= width {
        columns::<I, VALUE_VECTORS>(weights, values, width, at, out);
        at += VALUE_VECTORS * LANES;
    }
    while at + LANES <= width {
        columns::<I, 1>(weights, values, width, at, out);
        at += LANES;
    }
    if at < width {
        let mut sums = I::load_part(&out[at..], I::splat(0.0));
        for (weight, value) in weights.iter().zip(values.chunks_exact(width)) {
            sums = I::fused_lanes(I::splat(*weight), I::load_part(&value[at..], I::splat(0.0)), sums);
        }
        I::store_part(sums, &mut out[at..]);
    }
}

/// Some vectors of columns from `at` on.
#[inline(always)]
fn columns<I: Isa, const COUNT: usize>(weights: &[f32], values: &[f32], width: usize, at: usize, out: &mut [f32]) {
    let out = &mut out[at..].as_chunks_mut::<LANES>().0[..COUNT];
    let mut sums = [I::splat(0.0); COUNT];
    for v in 0..COUNT {
        sums[v] = I::load(&out[v]);
    }
    for (weight, value) in weights.iter().zip(values.chunks_exact(width)) {
        let (weight, value) = (I::splat(*weight), &value[at..].as_chunks::<LANES>().0[..COUNT]);
        for v in 0..COUNT {
            sums[v] = I::fused_lanes(weight, I::load(&value[v]), sums[v]);
        }
    }
    for v in 0..COUNT {
        I::store(sums[v], &mut out[v]);
    }
}
