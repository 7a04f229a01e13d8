//! Winograd algorithm: `m` neighbouring outputs of a filter of three elements from `m + 2` products instead of `3 m`.
//!
//! Sources: Winograd 1980, section V; Lavin and Gray 2015, section 4.1, which nests it in two dimensions.
//!
//! Inputs, filter and outputs are polynomials. Each product is that of the values at one point, and a point at infinity
//! gives the leading coefficients. F(2, 3) uses the points 0 and ±1; F(4, 3) uses 0, ±5/8 and ±3/2. Among the points
//! that Barabasz, Anderson, Soodhalter and Gregg (2020, section 5) compare, and their neighbours, these have nearly the
//! smallest error. It is a quarter of that of ±1 and ±1/2. All coefficients are exact, and symmetric points share their
//! even and odd parts.

use crate::gemm;
use crate::vector::{Isa, Loop, vectorised};
use anabranch_op::op::WinogradTile;

/// Transforms in one dimension.
pub trait Transform<const IN: usize, const OUT: usize> {
    /// Points without the one at infinity.
    const POINTS: &'static [f64];

    /// Returns the values of inputs at the points. Inlined always.
    fn input<I: Isa>(x: [f32; IN]) -> [f32; IN];

    /// Returns the outputs from the products at the points. Inlined always.
    fn output<I: Isa>(x: [f32; IN]) -> [f32; OUT];
}

/// Transforms of F(2, 3).
pub struct F2;

impl Transform<4, 2> for F2 {
    const POINTS: &'static [f64] = &[0.0, 1.0, -1.0];

    #[inline(always)]
    fn input<I: Isa>([a, b, c, d]: [f32; 4]) -> [f32; 4] {
        [c - a, c + b, c - b, d - b]
    }

    #[inline(always)]
    fn output<I: Isa>([a, b, c, d]: [f32; 4]) -> [f32; 2] {
        [a + (b + c), (b - c) + d]
    }
}

/// Transforms of F(4, 3).
pub struct F4;

/// Points of F(4, 3) besides 0.
const NEAR: f32 = 0.625;
const FAR: f32 = 1.5;

impl Transform<6, 4> for F4 {
    const POINTS: &'static [f64] = &[0.0, NEAR as f64, -NEAR as f64, FAR as f64, -FAR as f64];

    #[inline(always)]
    fn input<I: Isa>([a, b, c, d, e, f]: [f32; 6]) -> [f32; 6] {
        const NEAR_2: f32 = NEAR * NEAR;
        const FAR_2: f32 = FAR * FAR;
        let (even_near, odd_near) = (I::fused(-FAR_2, c, e), I::fused(-FAR_2, b, d));
        let (even_far, odd_far) = (I::fused(-NEAR_2, c, e), I::fused(-NEAR_2, b, d));
        [
            I::fused(NEAR_2 * FAR_2, a, I::fused(-(NEAR_2 + FAR_2), c, e)),
            I::fused(NEAR, odd_near, even_near),
            I::fused(-NEAR, odd_near, even_near),
            I::fused(FAR, odd_far, even_far),
            I::fused(-FAR, odd_far, even_far),
            I::fused(NEAR_2 * FAR_2, b, I::fused(-(NEAR_2 + FAR_2), d, f)),
        ]
    }

    #[inline(always)]
    fn output<I: Isa>([a, b, c, d, e, f]: [f32; 6]) -> [f32; 4] {
        let ([near, far], [odd_near, odd_far]) = ([b + c, d + e], [b - c, d - e]);
        [
            a + (near + far),
            I::fused(FAR, odd_far, NEAR * odd_near),
            I::fused(FAR * FAR, far, (NEAR * NEAR) * near),
            I::fused(FAR * FAR * FAR, odd_far, I::fused(NEAR * NEAR * NEAR, odd_near, f)),
        ]
    }
}

/// Output channels whose filters are transformed at once.
const TOGETHER: usize = 8;

/// Transforms the filters `[maps, channels, 3 × 3]` of a panel of `width` output channels to its matrices
/// `[positions, channels, width]`. The last channels may be missing. It computes in `f64`, so that the result is the
/// nearest.
///
/// # Panics
/// If the sizes do not fit together, or `width` is not a multiple of eight.
pub(crate) fn transform_filters(
    winograd_tile: WinogradTile,
    filters: &[f32],
    channels: usize,
    width: usize,
    panel: &mut [f32],
) {
    assert!(width.is_multiple_of(TOGETHER), "panels are of whole vectors");
    assert_eq!(panel.len(), winograd_tile.positions() * channels * width, "a panel's matrices");
    let elements = channels * 9;
    let mut ordered = vec![0.0; elements * width];
    gemm::transpose(filters, (elements, 1), (filters.len() / elements.max(1), elements), &mut ordered, width);
    vectorised(Filters { values: &filter_values(winograd_tile), ordered: &ordered, channels, width, panel });
}

/// Returns the values of a filter of three elements at each point, as combinations of the elements. They are divided by
/// the distances of the point from the other points, because the inputs' values are too large by this factor.
fn filter_values(winograd_tile: WinogradTile) -> Vec<[f64; 3]> {
    let points = match winograd_tile {
        WinogradTile::Two => F2::POINTS,
        WinogradTile::Four => F4::POINTS,
    };
    let values = points.iter().map(|point| {
        let others = points.iter().filter(|other| *other != point);
        let distances: f64 = others.map(|other| point - other).product();
        [1.0, *point, point * point].map(|power| power / distances)
    });
    values.chain([[0.0, 0.0, 1.0]]).collect()
}

struct Filters<'a> {
    values: &'a [[f64; 3]],
    /// `[channels, 3 × 3, width]`.
    ordered: &'a [f32],
    channels: usize,
    width: usize,
    panel: &'a mut [f32],
}

impl Loop for Filters<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { values, ordered, channels, width, panel } = self;
        let (ordered, matrices) = (ordered.as_chunks::<TOGETHER>().0, panel.as_chunks_mut::<TOGETHER>().0);
        let across = width / TOGETHER;
        for (channel, at) in (0..channels).flat_map(|channel| (0..across).map(move |at| (channel, at))) {
            let filter: [[f64; TOGETHER]; 9] =
                std::array::from_fn(|tap| ordered[(channel * 9 + tap) * across + at].map(f64::from));
            for (row, by_row) in values.iter().enumerate() {
                // Without a closure: if the compiler does not inline it, it compiles it for the baseline.
                let a = combined::<I>(by_row, [&filter[0], &filter[3], &filter[6]]);
                let b = combined::<I>(by_row, [&filter[1], &filter[4], &filter[7]]);
                let c = combined::<I>(by_row, [&filter[2], &filter[5], &filter[8]]);
                for (column, by_column) in values.iter().enumerate() {
                    let position = row * values.len() + column;
                    let value = combined::<I>(by_column, [&a, &b, &c]);
                    matrices[(position * channels + channel) * across + at] = value.map(|value| value as f32);
                }
            }
        }
    }
}

#[inline(always)]
fn combined<I: Isa>(factors: &[f64; 3], [a, b, c]: [&[f64; TOGETHER]; 3]) -> [f64; TOGETHER] {
    let mut sums = [0.0; TOGETHER];
    for lane in 0..TOGETHER {
        let two = I::fused_f64(factors[1], b[lane], factors[0] * a[lane]);
        sums[lane] = I::fused_f64(factors[2], c[lane], two);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the products at the points become the outputs of a filter.
    fn require_exact<F: Transform<IN, OUT>, const IN: usize, const OUT: usize>(winograd_tile: WinogradTile) {
        struct Filter<F, const IN: usize, const OUT: usize>(
            [f32; IN],
            [f64; 3],
            WinogradTile,
            std::marker::PhantomData<F>,
        );

        impl<F: Transform<IN, OUT>, const IN: usize, const OUT: usize> Loop for Filter<F, IN, OUT> {
            type Output = [f32; OUT];

            #[inline(always)]
            fn run<I: Isa>(self) -> [f32; OUT] {
                let Self(inputs, filter, winograd_tile, _) = self;
                let mut values = F::input::<I>(inputs);
                for (value, by) in values.iter_mut().zip(filter_values(winograd_tile)) {
                    *value *= by.iter().zip(filter).map(|(by, element)| by * element).sum::<f64>() as f32;
                }
                F::output::<I>(values)
            }
        }

        assert_eq!((winograd_tile.outputs(), F::POINTS.len()), (OUT, IN - 1));
        for seed in 0..20usize {
            let value = |i: usize| ((i + seed * 31) * 2_654_435_761 % 97) as f64 / 48.0 - 1.0;
            let filter = [0, 1, 2].map(value);
            let inputs: [f32; IN] = std::array::from_fn(|i| value(i + 3) as f32);
            let found = vectorised(Filter::<F, IN, OUT>(inputs, filter, winograd_tile, std::marker::PhantomData));
            for (at, found) in found.iter().enumerate() {
                let want: f64 = (0..3).map(|tap| filter[tap] * f64::from(inputs[at + tap])).sum();
                assert!((f64::from(*found) - want).abs() < 3e-6, "{found} rather than {want}, {winograd_tile:?}");
            }
        }
    }

    #[test]
    fn products_at_the_points_become_the_outputs() {
        require_exact::<F2, 4, 2>(WinogradTile::Two);
        require_exact::<F4, 6, 4>(WinogradTile::Four);
    }

    #[test]
    fn filters_are_transformed_along_both_axes() {
        let (channels, maps, width) = (3, 11, 16);
        let filters: Vec<f32> = (0..maps * channels * 9).map(|i| (i * 7 % 23) as f32 - 11.0).collect();
        for winograd_tile in [WinogradTile::Two, WinogradTile::Four] {
            let mut panel = vec![f32::NAN; winograd_tile.positions() * channels * width];
            transform_filters(winograd_tile, &filters, channels, width, &mut panel);
            let values = filter_values(winograd_tile);
            for (at, found) in panel.iter().enumerate() {
                let (position, channel, map) = (at / width / channels, at / width % channels, at % width);
                let (row, column) = (&values[position / values.len()], &values[position % values.len()]);
                let element = |tap: usize| filters.get((map * channels + channel) * 9 + tap).filter(|_| map < maps);
                let term = |tap: usize| row[tap / 3] * column[tap % 3] * element(tap).map_or(0.0, |x| f64::from(*x));
                let want: f64 = (0..9).map(term).sum();
                assert!((f64::from(*found) - want).abs() <= 1e-6 * (1.0 + want.abs()), "{found} rather than {want}");
            }
        }
    }
}
