//! Sums and extremes of slices, in 32 lanes that are then combined pairwise: the same tree on every processor.

use super::row_folds::{LONGEST, VectorFold, fold_row, fold_rows};
pub use super::vector::LANES;
use super::vector::{Isa, Loop, joined, vectorised};
use bytemuck::Pod;

/// Numbers that are folded side by side: two vectors, because with one vector each addition would wait for the last.
const SIDE_BY_SIDE: usize = 2 * LANES;

/// Elements after which a partial result is set aside, so that long sums stay accurate.
const BLOCK: usize = 4096;

/// Fold of numbers into one number: associative up to rounding, and commutative.
pub trait Fold: Copy {
    /// Type of the numbers.
    type Number: Pod;

    /// Returns the fold of no elements.
    fn empty(self) -> Self::Number;

    /// Folds one more element in. Inlined always.
    fn add<I: Isa>(self, so_far: Self::Number, element: Self::Number) -> Self::Number;

    /// Folds two results into one. Inlined always.
    fn join(self, a: Self::Number, b: Self::Number) -> Self::Number;

    /// Folds all lanes into one result, pairwise. Each fold chooses its pairs, the same on every processor. Inlined
    /// always.
    #[inline(always)]
    fn join_all<I: Isa>(self, mut lanes: [Self::Number; SIDE_BY_SIDE]) -> Self::Number {
        // Lanes half of them apart first, then a quarter apart, and so on.
        let mut width = SIDE_BY_SIDE;
        while width > 1 {
            width /= 2;
            for lane in 0..width {
                lanes[lane] = self.join(lanes[lane], lanes[lane + width]);
            }
        }
        lanes[0]
    }

    /// Folds [`LANES`] rows of at most [`LONGEST`] elements into their elements of `target`, each like [`fold`].
    /// Inlined always.
    #[inline(always)]
    fn fold_rows<I: Isa>(self, rows: &[Self::Number], target: &mut [Self::Number; LANES]) {
        for (to, row) in target.iter_mut().zip(rows.chunks_exact(rows.len() / LANES)) {
            *to = fold_inside::<I, Self>(self, row);
        }
    }
}

/// Folds a slice. O(n).
pub fn fold<F: Fold>(fold: F, data: &[F::Number]) -> F::Number {
    if data.len() <= BLOCK { vectorised(Block { fold, data }) } else { of_halves(fold, data) }
}

/// Folds like [`fold`], inside a [`Loop`]. Inlined always.
#[inline(always)]
pub fn fold_inside<I: Isa, F: Fold>(fold: F, data: &[F::Number]) -> F::Number {
    if data.len() <= BLOCK { Block { fold, data }.run::<I>() } else { of_halves(fold, data) }
}

/// Folds consecutive rows of equal length, each into its element of `target`, like [`fold`]. O(n).
pub fn fold_each<F: Fold>(fold: F, source: &[F::Number], target: &mut [F::Number]) {
    match source.len().checked_div(target.len()) {
        None | Some(0) => target.fill(fold.empty()),
        Some(count) => vectorised(Each { fold, count, source, target }),
    }
}

struct Each<'a, F: Fold> {
    fold: F,
    count: usize,
    source: &'a [F::Number],
    target: &'a mut [F::Number],
}

impl<F: Fold> Loop for Each<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { fold, count, mut source, mut target } = self;
        if count <= LONGEST {
            let (together, rest) = target.as_chunks_mut::<LANES>();
            let (rows, last) = source.split_at(together.len() * LANES * count);
            // No closures in this function: one that is not inlined would not have the instruction set.
            for (to, rows) in together.iter_mut().zip(rows.chunks_exact(LANES * count)) {
                fold.fold_rows::<I>(rows, to);
            }
            (source, target) = (last, rest);
        }
        for (to, row) in target.iter_mut().zip(source.chunks_exact(count)) {
            *to = fold_inside::<I, F>(fold, row);
        }
    }
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

/// Returns [`Fold::join_all`] of sums: lanes half of them apart, then neighbours, in vectors.
#[inline(always)]
fn total<I: Isa>(lanes: [f32; SIDE_BY_SIDE]) -> f32 {
    let halves = lanes.as_chunks().0;
    joined::<I>(I::sum(I::load(&halves[0]), I::load(&halves[1])), I::sum)
}

/// Writes the greatest or the least number of each row, like [`fold_each`]; NaN if there is a NaN. An empty row gives
/// −∞ for the greatest and ∞ for the least. O(n).
pub(super) fn extreme_each<const GREATEST: bool>(source: &[f32], target: &mut [f32]) {
    match source.len().checked_div(target.len()) {
        None | Some(0) => target.fill(Extremes::<GREATEST>::EMPTY),
        Some(count) => vectorised(ExtremeEach::<GREATEST> { count, source, target }),
    }
}

struct ExtremeEach<'a, const GREATEST: bool> {
    count: usize,
    source: &'a [f32],
    target: &'a mut [f32],
}

impl<const GREATEST: bool> Loop for ExtremeEach<'_, GREATEST> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { count, source, target } = self;
        for (rows, target) in source.chunks(LANES * count).zip(target.chunks_mut(LANES)) {
            let suspect = match target.first_chunk_mut() {
                Some(target) if count <= LONGEST => {
                    I::store(fold_rows::<I, _>(rows, |_| Extremes::<GREATEST>), target);
                    is_suspect::<I>(rows)
                }
                // Both ways give the same of zeros of both signs.
                None if count <= LONGEST => {
                    for (to, row) in target.iter_mut().zip(rows.chunks_exact(count)) {
                        *to = fold_row::<I, _>(row, Extremes::<GREATEST>);
                    }
                    is_suspect::<I>(rows)
                }
                _ => {
                    let mut suspect = false;
                    for (to, row) in target.iter_mut().zip(rows.chunks_exact(count)) {
                        let (found, of_row) = extreme_inside::<I, GREATEST>(row);
                        *to = found;
                        suspect |= of_row;
                    }
                    suspect
                }
            };
            if suspect {
                let rows = target.iter_mut().zip(rows.chunks_exact(count));
                rows.filter(|(_, row)| row.iter().any(|x| x.is_nan())).for_each(|(to, _)| *to = f32::NAN);
            }
        }
    }
}

/// Greatest or least number that is not NaN.
#[derive(Clone, Copy)]
struct Extremes<const GREATEST: bool>;

impl<const GREATEST: bool> VectorFold for Extremes<GREATEST> {
    const EMPTY: f32 = if GREATEST { f32::NEG_INFINITY } else { f32::INFINITY };

    #[inline(always)]
    fn absent(self) -> f32 {
        Self::EMPTY
    }

    #[inline(always)]
    fn add<I: Isa>(self, so_far: I::Vector, x: I::Vector) -> I::Vector {
        beyond::<I, GREATEST>(x, so_far)
    }

    #[inline(always)]
    fn join<I: Isa>(a: I::Vector, b: I::Vector) -> I::Vector {
        beyond::<I, GREATEST>(a, b)
    }
}

/// Whether there may be a NaN because a number is not finite.
#[inline(always)]
fn is_suspect<I: Isa>(data: &[f32]) -> bool {
    let (mut zeros, zero) = ([I::splat(0.0); 4], I::splat(0.0));
    let (blocks, rest) = data.as_chunks::<{ 4 * LANES }>();
    for block in blocks {
        for (zeros, part) in zeros.iter_mut().zip(block.as_chunks().0) {
            *zeros = I::fused_lanes(I::load(part), zero, *zeros);
        }
    }
    for part in rest.chunks(LANES) {
        zeros[0] = I::fused_lanes(I::load_part(part, zero), zero, zeros[0]);
    }
    joined::<I>(I::sum(I::sum(zeros[0], zeros[1]), I::sum(zeros[2], zeros[3])), I::sum) != 0.0
}

/// Returns the prefetch distance in elements for rows of `count` elements: one row, because hardware prefetchers stop
/// at page boundaries. Returns 0, no prefetch, for rows so long that two of them and their results exceed the L2 cache.
#[inline]
pub fn next_row(count: usize) -> usize {
    if count <= LONG_ROW { count } else { 0 }
}

/// Maximum elements of a row whose next row is prefetched: 128 KiB.
const LONG_ROW: usize = 32 << 10;

/// Returns the greatest or the least number that is not NaN, and whether there may be a NaN because a number is not
/// finite. Inlined always.
#[inline(always)]
pub fn extreme_inside<I: Isa, const GREATEST: bool>(data: &[f32]) -> (f32, bool) {
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

/// Returns the greater or the lesser; `b` if either is NaN.
#[inline(always)]
fn beyond<I: Isa, const GREATEST: bool>(a: I::Vector, b: I::Vector) -> I::Vector {
    if GREATEST { I::greater(a, b) } else { I::lesser(a, b) }
}

/// Fold by functions.
#[derive(Clone, Copy)]
pub struct By<T, A, J> {
    /// Fold of no elements.
    pub empty: T,
    /// Function that folds one more element in.
    pub add: A,
    /// Function that folds two results into one.
    pub join: J,
}

impl<T: Pod, A: Fn(T, T) -> T + Copy, J: Fn(T, T) -> T + Copy> Fold for By<T, A, J> {
    type Number = T;

    #[inline(always)]
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

/// Sum of elements: their distances from 0.
pub(super) const SUM: DistancesFrom = DistancesFrom(0.0);

/// Sum of the distances from a number.
#[derive(Clone, Copy)]
pub struct DistancesFrom(pub f32);

impl Fold for DistancesFrom {
    type Number = f32;

    #[inline(always)]
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

    #[inline(always)]
    fn fold_rows<I: Isa>(self, rows: &[f32], target: &mut [f32; LANES]) {
        I::store(fold_rows::<I, _>(rows, |_| self), target);
    }
}

impl VectorFold for DistancesFrom {
    const EMPTY: f32 = 0.0;

    #[inline(always)]
    fn absent(self) -> f32 {
        self.0
    }

    #[inline(always)]
    fn add<I: Isa>(self, so_far: I::Vector, x: I::Vector) -> I::Vector {
        I::sum(so_far, I::sum(x, I::splat(-self.0)))
    }

    #[inline(always)]
    fn join<I: Isa>(a: I::Vector, b: I::Vector) -> I::Vector {
        I::sum(a, b)
    }
}

/// Sum of the squared distances from a number.
#[derive(Clone, Copy)]
pub struct SquaresAround(pub f32);

impl Fold for SquaresAround {
    type Number = f32;

    #[inline(always)]
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

    #[inline(always)]
    fn fold_rows<I: Isa>(self, rows: &[f32], target: &mut [f32; LANES]) {
        I::store(fold_rows::<I, _>(rows, |_| self), target);
    }
}

impl VectorFold for SquaresAround {
    const EMPTY: f32 = 0.0;

    #[inline(always)]
    fn absent(self) -> f32 {
        self.0
    }

    #[inline(always)]
    fn add<I: Isa>(self, so_far: I::Vector, x: I::Vector) -> I::Vector {
        let distance = I::sum(x, I::splat(-self.0));
        I::fused_lanes(distance, distance, so_far)
    }

    #[inline(always)]
    fn join<I: Isa>(a: I::Vector, b: I::Vector) -> I::Vector {
        I::sum(a, b)
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

    /// Rows folded by an instruction set, by each fold of `f32`.
    struct Folded<'a>(&'a [f32], usize);

    impl Loop for Folded<'_> {
        type Output = [Vec<f32>; 4];

        #[inline(always)]
        fn run<I: Isa>(self) -> Self::Output {
            let Self(source, rows) = self;
            let count = source.len() / rows;
            let mut made = [(); 4].map(|()| vec![0.0; rows]);
            let [a, b, c, d] = &mut made;
            Each { fold: DistancesFrom(0.5), count, source, target: a }.run::<I>();
            Each { fold: SquaresAround(0.5), count, source, target: b }.run::<I>();
            ExtremeEach::<true> { count, source, target: c }.run::<I>();
            ExtremeEach::<false> { count, source, target: d }.run::<I>();
            made
        }
    }

    #[test]
    fn rows_that_are_folded_together_have_the_bits_of_single_rows() {
        for count in (1..70).chain([255, 256, 257, 4096, 4097]) {
            for rows in [1, 15, 16, 17, 40].into_iter().filter(|rows| rows * count < 70_000) {
                // Zeros of both signs are the greatest and the least in some rows.
                let zero = |i: usize| if i % 5 < 2 { -0.0f32 } else { 0.0 };
                let element = |i: usize| match (i * 31) % 97 {
                    _ if count % 6 == 2 => zero(i),
                    other if count % 11 == 3 => -(other as f32 / 40.0).floor(),
                    0 if count % 3 == 0 => f32::NAN,
                    1 if count % 5 == 0 => f32::INFINITY,
                    2 if count % 7 == 0 => -0.0,
                    other => other as f32 / 7.0 - 5.0,
                };
                let data: Vec<f32> = (0..rows * count).map(element).collect();
                for level in crate::vector::levels() {
                    let together = crate::vector::vectorised_at(level, Folded(&data, rows));
                    let single =
                        data.chunks_exact(count).map(|row| crate::vector::vectorised_at(level, Folded(row, 1)));
                    for (at, single) in single.enumerate() {
                        let same = (0..4).all(|kind| {
                            let [a, b] = [together[kind][at], single[kind][0]];
                            a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
                        });
                        assert!(same, "row {at} of {rows} of {count} at level {level}");
                    }
                }
            }
        }
        let mut none = [1.0; 2];
        fold_each(SUM, &[], &mut none);
        assert_eq!(none, [0.0; 2]);
    }

    #[test]
    fn extremes_are_found_at_every_place_and_nan_stays() {
        fn extreme<const GREATEST: bool>(row: &[f32]) -> f32 {
            let mut found = [0.0];
            extreme_each::<GREATEST>(row, &mut found);
            found[0]
        }

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
