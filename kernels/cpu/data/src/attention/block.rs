//! Some queries together over the keys of a tile: what is read once serves all of them. Bits are those of each query
//! alone (`part`).

use anabranch_cpu_base::gemm::transpose;
use anabranch_cpu_base::vector::{Isa, LANES};
use std::ops::Range;

/// Queries of a block.
pub(super) const BLOCK: usize = 4;

/// Queries of a pass from which on its keys are transposed: fewer do not pay for it.
pub(super) const MANY: usize = 16;

/// A feature of the keys of a panel.
type Line = [f32; LANES];

/// A vector of each query of a block.
type Vectors<I> = [<I as Isa>::Vector; BLOCK];

/// Writes keys as panels of [`LANES`] keys, feature by feature. The last panel keeps what it held where there is no
/// key.
pub(super) fn panels(keys: &[f32], depth: usize, panels: &mut [f32]) {
    let own = (LANES * depth).max(1);
    for (keys, panel) in keys.chunks(own).zip(panels.chunks_mut(own)) {
        transpose(keys, (depth, 1), (keys.len() / depth.max(1), depth), panel, LANES);
    }
}

/// The products of queries with the panels that hold keys `near`, at their places in the rows of `scores`.
#[inline(always)]
pub(super) fn dots<I: Isa>(queries: [&[f32]; BLOCK], panels: &[f32], near: Range<usize>, scores: &mut [f32]) {
    let depth = queries[0].len();
    let tile = scores.len() / BLOCK;
    let lines = panels.as_chunks::<LANES>().0;
    for number in near.start / LANES..near.end.div_ceil(LANES) {
        let of = Panel { queries: queries.map(|query| &query[..depth]), lines: &lines[number * depth..][..depth] };
        let made = of.sixteen::<I>();
        for (row, made) in scores.chunks_exact_mut(tile).zip(made) {
            I::store_part(made, &mut row[number * LANES..][..LANES]);
        }
    }
}

/// Queries and a panel, all of the same depth.
///
/// A product of one query alone has a sum in each lane, and then adds neighbouring lanes, their sums and so on. The
/// same sums are made here in the same order, for all keys of the panel at once.
struct Panel<'a> {
    queries: [&'a [f32]; BLOCK],
    lines: &'a [Line],
}

impl Panel<'_> {
    /// The sums of one lane.
    #[inline(always)]
    fn lane<I: Isa>(&self, lane: usize) -> Vectors<I> {
        let mut sums = [I::splat(0.0); BLOCK];
        let mut at = lane;
        while at < self.lines.len() {
            let keys = I::load(&self.lines[at]);
            for query in 0..BLOCK {
                sums[query] = I::fused_lanes(I::splat(self.queries[query][at]), keys, sums[query]);
            }
            at += LANES;
        }
        sums
    }

    #[inline(always)]
    fn two<I: Isa>(&self, lane: usize) -> Vectors<I> {
        added::<I>(self.lane::<I>(lane), self.lane::<I>(lane + 1))
    }

    #[inline(always)]
    fn four<I: Isa>(&self, lane: usize) -> Vectors<I> {
        added::<I>(self.two::<I>(lane), self.two::<I>(lane + 2))
    }

    #[inline(always)]
    fn eight<I: Isa>(&self, lane: usize) -> Vectors<I> {
        added::<I>(self.four::<I>(lane), self.four::<I>(lane + 4))
    }

    /// The sums of all lanes.
    #[inline(always)]
    fn sixteen<I: Isa>(&self) -> Vectors<I> {
        added::<I>(self.eight::<I>(0), self.eight::<I>(8))
    }
}

#[inline(always)]
fn added<I: Isa>(mut low: Vectors<I>, high: Vectors<I>) -> Vectors<I> {
    for query in 0..BLOCK {
        low[query] = I::sum(low[query], high[query]);
    }
    low
}

/// Adds weighted values to the rows of `out`, whose width is a multiple of a vector. Each row has weights of its own.
#[inline(always)]
pub(super) fn weighted<I: Isa>(weights: [&[f32]; BLOCK], values: &[f32], out: &mut [f32]) {
    let width = out.len() / BLOCK;
    let mut at = 0;
    while I::WIDE && at + 4 * LANES <= width {
        columns::<I, 4>(weights, values, at, out);
        at += 4 * LANES;
    }
    while at < width {
        columns::<I, 1>(weights, values, at, out);
        at += LANES;
    }
}

/// Some vectors of columns from `at` on.
#[inline(always)]
fn columns<I: Isa, const COUNT: usize>(weights: [&[f32]; BLOCK], values: &[f32], at: usize, out: &mut [f32]) {
    let width = out.len() / BLOCK;
    let count = weights[0].len();
    let weights = weights.map(|of| &of[..count]);
    let mut sums = [[I::splat(0.0); COUNT]; BLOCK];
    for query in 0..BLOCK {
        let own = &out[query * width + at..].as_chunks::<LANES>().0[..COUNT];
        for v in 0..COUNT {
            sums[query][v] = I::load(&own[v]);
        }
    }
    for (key, value) in values.chunks_exact(width).take(count).enumerate() {
        let value = &value[at..].as_chunks::<LANES>().0[..COUNT];
        let mut vectors = [I::splat(0.0); COUNT];
        for v in 0..COUNT {
            vectors[v] = I::load(&value[v]);
        }
        for query in 0..BLOCK {
            let weight = I::splat(weights[query][key]);
            for v in 0..COUNT {
                sums[query][v] = I::fused_lanes(weight, vectors[v], sums[query][v]);
            }
        }
    }
    for query in 0..BLOCK {
        let own = &mut out[query * width + at..].as_chunks_mut::<LANES>().0[..COUNT];
        for v in 0..COUNT {
            I::store(sums[query][v], &mut own[v]);
        }
    }
}
