//! Sums and extremes of slices, in 32 lanes that are then combined pairwise: one tree, whatever the processor.

pub(super) use super::vector::LANES;
use super::vector::{Isa, Loop, joined, vectorised};
use bytemuck::Pod;

/// Numbers that are folded side by side: two vectors, or each addition would wait for the one before.
const SIDE_BY_SIDE: usize = 2 * LANES;

/// Elements after which a partial result is set aside, so that long sums keep their accuracy.
const BLOCK: usize = 4096;

/// A way of folding numbers into one: associative up to rounding, and commutative.
pub(super) trait Fold: Copy {
    type Number: Pod;

    /// What folding nothing gives.
    fn empty(self) -> Self::Number;

    /// Folds one more element in. Inlined always.
    fn add<I: Isa>(self, so_far: Self::Number, element: Self::Number) -> Self::Number;

    /// Folds two results into one. Inlined always.
    fn join(self, a: Self::Number, b: Self::Number) -> Self::Number;

    /// Folds so many results into one, pairwise; in which pairs is each fold's own, the same on every processor. Inlined always.
    #[inline(always)]
    fn join_all<I: Isa>(self, mut lanes: [Self::Number; SIDE_BY_SIDE]) -> Self::Number {
        // Those half of them apart, then those a quarter apart, and so on.
        let mut width = SIDE_BY_SIDE;
        while width > 1 {
            width /= 2;
            for lane in 0..width {
                lanes[lane] = self.join(lanes[lane], lanes[lane + width]);
            }
        }
        lanes[0]
    }
}

/// Folds a slice. O(n).
pub(super) fn fold<F: Fold>(fold: F, data: &[F::Number]) -> F::Number {
    if data.len() <= BLOCK { vectorised(Block { fold, data }) } else { of_halves(fold, data) }
}

/// [`fold`] for use inside of a [`Loop`]. Inlined always.
#[inline(always)]
pub(super) fn fold_inside<I: Isa, F: Fold>(fold: F, data: &[F::Number]) -> F::Number {
    if data.len() <= BLOCK { Block { fold, data }.run::<I>() } else { of_halves(fold, data) }
}

/// Folds more than a block by halves.
fn of_halves<F: Fold>(fold: F, data: &[F::Number]) -> F::Number {
    let half = (data.len() / 2).next_multiple_of(BLOCK).min(data.len() - 1);
    let (low, high) = data.split_at(half);
    fold.join(self::fold(fold, low), self::fold(fold, high))
}

struct Block<'a, F: Fold> {
    fold: F,
    data: &'a [F::Number],
}

impl<F: Fold> Loop for Block<'_, F> {
    type Output = F::Number;

    #[inline(always)]
    fn run<I: Isa>(self) -> F::Number {
        let mut lanes = [self.fold.empty(); SIDE_BY_SIDE];
        let (blocks, rest) = self.data.as_chunks::<SIDE_BY_SIDE>();
        for block in blocks {
            for lane in 0..SIDE_BY_SIDE {
                lanes[lane] = self.fold.add::<I>(lanes[lane], block[lane]);
            }
        }
        for (lane, element) in lanes.iter_mut().zip(rest) {
            *lane = self.fold.add::<I>(*lane, *element);
        }
        self.fold.join_all::<I>(lanes)
    }
}

/// [`Fold::join_all`] of sums: those half of them apart, then neighbours, in vectors.
#[inline(always)]
fn total<I: Isa>(lanes: [f32; SIDE_BY_SIDE]) -> f32 {
    let halves = lanes.as_chunks().0;
    joined::<I>(I::sum(I::load(&halves[0]), I::load(&halves[1])), I::sum)
}

/// The greatest number, or the least; NaN if there is one. Of none the infinity that is never found. O(n).
pub(super) fn extreme<const GREATEST: bool>(data: &[f32]) -> f32 {
    let (found, suspect) = vectorised(Extreme::<GREATEST>(data));
    if suspect && data.iter().any(|x| x.is_nan()) { f32::NAN } else { found }
}

struct Extreme<'a, const GREATEST: bool>(&'a [f32]);

impl<const GREATEST: bool> Loop for Extreme<'_, GREATEST> {
    type Output = (f32, bool);

    #[inline(always)]
    fn run<I: Isa>(self) -> (f32, bool) {
        extreme_inside::<I, GREATEST>(self.0)
    }
}

/// How far beyond an element of a row of `count` what is asked for lies while the row is in work: the next row, of which processors fetch nothing by
/// themselves where it begins another page; nothing of long rows, two of which the second-level cache would not hold beside their results.
pub(super) fn next_row(count: usize) -> usize {
    if count <= LONG_ROW { count } else { 0 }
}

/// Elements of a row from which on the next one is not asked for: 128 KiB.
const LONG_ROW: usize = 32 << 10;

/// The greatest number, or the least, of those that are not NaN, and whether one may be: one is not finite. Inlined always.
#[inline(always)]
pub(super) fn extreme_inside<I: Isa, const GREATEST: bool>(data: &[f32]) -> (f32, bool) {
    let empty = if GREATEST { f32::NEG_INFINITY } else { f32::INFINITY };
    let (mut most, mut zeros) = ([I::splat(empty); 4], [I::splat(0.0); 4]);
    let zero = I::splat(0.0);
    let (blocks, rest) = data.as_chunks::<{ 4 * LANES }>();
    for block in blocks {
        for ((most, zeros), part) in most.iter_mut().zip(&mut zeros).zip(block.as_chunks().0) {
            let x = I::load(part);
            *most = beyond::<I, GREATEST>(x, *most);
            *zeros = I::fused_lanes(x, zero, *zeros);
        }
    }
    for part in rest.chunks(LANES) {
        let x = I::load_part(part, I::splat(empty));
        most[0] = beyond::<I, GREATEST>(x, most[0]);
        zeros[0] = I::fused_lanes(I::load_part(part, zero), zero, zeros[0]);
    }
    let zeros = I::sum(I::sum(zeros[0], zeros[1]), I::sum(zeros[2], zeros[3]));
    let most = most.into_iter().fold(I::splat(empty), beyond::<I, GREATEST>);
    (joined::<I>(most, beyond::<I, GREATEST>), joined::<I>(zeros, I::sum) != 0.0)
}

/// The greater, or the lesser; `b` if one is NaN.
#[inline(always)]
fn beyond<I: Isa, const GREATEST: bool>(a: I::Vector, b: I::Vector) -> I::Vector {
    if GREATEST { I::greater(a, b) } else { I::lesser(a, b) }
}

/// A fold by functions.
#[derive(Clone, Copy)]
pub(super) struct By<T, A, J> {
    pub(super) empty: T,
    pub(super) add: A,
    pub(super) join: J,
}

impl<T: Pod, A: Fn(T, T) -> T + Copy, J: Fn(T, T) -> T + Copy> Fold for By<T, A, J> {
    type Number = T;

    fn empty(self) -> T {
        self.empty
    }

    #[inline(always)]
    fn add<I: Isa>(self, so_far: T, element: T) -> T {
        (self.add)(so_far, element)
    }

    #[inline(always)]
    fn join(self, a: T, b: T) -> T {
        (self.join)(a, b)
    }
}

/// The sum: distances from nothing, which are the elements as they are.
pub(super) const SUM: DistancesFrom = DistancesFrom(0.0);

/// The sum of the distances from a number.
#[derive(Clone, Copy)]
pub(super) struct DistancesFrom(pub(super) f32);

impl Fold for DistancesFrom {
    type Number = f32;

    fn empty(self) -> f32 {
        0.0
    }

    #[inline(always)]
    fn add<I: Isa>(self, so_far: f32, element: f32) -> f32 {
        so_far + (element - self.0)
    }

    #[inline(always)]
    fn join(self, a: f32, b: f32) -> f32 {
        a + b
    }

    #[inline(always)]
    fn join_all<I: Isa>(self, lanes: [f32; SIDE_BY_SIDE]) -> f32 {
        total::<I>(lanes)
    }
}

/// The sum of the squared distances from a number.
#[derive(Clone, Copy)]
pub(super) struct SquaresAround(pub(super) f32);

impl Fold for SquaresAround {
    type Number = f32;

    fn empty(self) -> f32 {
        0.0
    }

    #[inline(always)]
    fn add<I: Isa>(self, so_far: f32, element: f32) -> f32 {
        let distance = element - self.0;
        I::fused(distance, distance, so_far)
    }

    #[inline(always)]
    fn join(self, a: f32, b: f32) -> f32 {
        a + b
    }

    #[inline(always)]
    fn join_all<I: Isa>(self, lanes: [f32; SIDE_BY_SIDE]) -> f32 {
        total::<I>(lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_of_all_lengths() {
        for length in [0, 1, 15, 16, 17, 31, 32, 33, 4096, 4097, 100_000] {
            let data: Vec<f32> = (0..length).map(|i| ((i * 31) % 97) as f32).collect();
            let exact: f64 = data.iter().map(|v| f64::from(*v)).sum();
            assert!((f64::from(fold(SUM, &data)) - exact).abs() <= 1e-6 * exact, "{length}");
            let integers: Vec<i64> = data.iter().map(|v| *v as i64).collect();
            let plus = |a: i64, b: i64| a + b;
            assert_eq!(fold(By { empty: 0, add: plus, join: plus }, &integers) as f64, exact);
        }
        assert_eq!(fold(SquaresAround(2.0), &[1.0, 2.0, 4.0]), 5.0);
        assert_eq!(fold(DistancesFrom(2.0), &[1.0, 2.0, 4.5]), 1.5);
    }

    #[test]
    fn extremes_are_found_at_every_place_and_nan_stays() {
        for length in [1, 15, 16, 17, 63, 64, 65, 150] {
            for at in 0..length {
                let with = |x: f32| (0..length).map(|i| if i == at { x } else { 1.0 }).collect::<Vec<_>>();
                for x in [7.0, f32::INFINITY] {
                    assert_eq!((extreme::<true>(&with(x)), extreme::<false>(&with(-x))), (x, -x), "{at} of {length}");
                }
                let nan = with(f32::NAN);
                assert!(extreme::<true>(&nan).is_nan() && extreme::<false>(&nan).is_nan(), "{at} of {length}");
            }
        }
        assert_eq!((extreme::<true>(&[]), extreme::<false>(&[])), (f32::NEG_INFINITY, f32::INFINITY));
    }
}
