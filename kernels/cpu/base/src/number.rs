//! Number types of reductions: how each type folds elements, and joins the folds of parts.

use super::lanes::{self, By, LANES, SUM, SquaresAround};
use super::vector::{Isa, Loop, vectorised};
use super::{math, mean, products};
use anabranch_op::dtype::{DType, Element};
use anabranch_op::op::ReduceKind;
use bytemuck::Pod;
use std::ops::{Add, AddAssign, Sub};

/// Maximum [`Number::short`].
pub const SHORT: usize = 32;

/// Columns whose exponentials are summed together.
const COLUMNS: usize = 64;

/// Number type that reductions work on.
pub trait Number: Pod + Send + Sync {
    /// Tensor type whose elements are this type.
    const DTYPE: DType;

    /// Returns the elements of a row up to which [`Self::fold_rows`] of columns takes less time than
    /// [`Self::fold_each`].
    fn short(kind: ReduceKind) -> usize;

    /// Folds consecutive rows of equal length, each into its element of `target`, without the final step in
    /// [`Self::finish`]. A row's fold does not depend on the others.
    fn fold_each(kind: ReduceKind, source: &[Self], target: &mut [Self]);

    /// Folds elements as one row of [`Self::fold_each`].
    fn fold(kind: ReduceKind, elements: &[Self]) -> Self {
        let mut folded = [Self::zeroed()];
        Self::fold_each(kind, elements, &mut folded);
        folded[0]
    }

    /// Whether folds of parts can be joined without an error beyond rounding. Integers lose the fraction of each part's
    /// [`ReduceKind::LogSumExp`], and the sum for a [`ReduceKind::Mean`] may need more bits than they have.
    fn joins(kind: ReduceKind) -> bool;

    /// Joins two folds into one, if the kind [joins](Self::joins).
    fn join(kind: ReduceKind, a: Self, b: Self) -> Self;

    /// Whether [`Self::fold_rows`] folds this kind. It folds all kinds that [join](Self::joins).
    fn folds_rows(kind: ReduceKind) -> bool;

    /// Folds neighbouring columns, each into its element of `target`. Element `i` of the row at `start` is
    /// `source[start + i]`, for each of `starts`.
    fn fold_rows(kind: ReduceKind, source: &[Self], starts: impl Iterator<Item = usize> + Clone, target: &mut [Self]);

    /// Returns the result for `folded`, the fold of `count` elements.
    fn finish(kind: ReduceKind, folded: Self, count: usize) -> Self;
}

/// Folds rows, from `empty`, by `add`, and partial results by `join`. O(n).
fn each<T: Pod>(
    source: &[T],
    target: &mut [T],
    empty: T,
    add: impl Fn(T, T) -> T + Copy,
    join: impl Fn(T, T) -> T + Copy,
) {
    lanes::fold_each(By { empty, add, join }, source, target);
}

/// Writes `fold` of each row.
fn row_by_row<T>(source: &[T], target: &mut [T], fold: impl Fn(&[T]) -> T) {
    let count = source.len().checked_div(target.len()).unwrap_or(0);
    target.iter_mut().enumerate().for_each(|(at, to)| *to = fold(&source[at * count..][..count]));
}

/// Returns the greater of two; NaN if either is NaN.
#[inline(always)]
pub fn greater<T: PartialOrd + Copy>(a: T, b: T) -> T {
    // A NaN in `a` stays because nothing is greater. The test of `b` does not wait for the fold before.
    let most = if b > a { b } else { a };
    if is_nan(&b) { b } else { most }
}

/// Returns the lesser of two; NaN if either is NaN.
#[inline(always)]
pub fn less<T: PartialOrd + Copy>(a: T, b: T) -> T {
    let least = if b < a { b } else { a };
    if is_nan(&b) { b } else { least }
}

#[inline(always)]
fn is_nan<T: PartialOrd>(value: &T) -> bool {
    value.partial_cmp(value).is_none()
}

/// Computes [`Number::fold_rows`] by `add`, from `empty`.
fn rows<T: Pod>(
    source: &[T],
    starts: impl Iterator<Item = usize>,
    target: &mut [T],
    empty: T,
    add: impl Fn(T, T) -> T,
) {
    vectorised(Rows { source, starts, target, empty, add });
}

struct Rows<'a, T, S, A> {
    source: &'a [T],
    starts: S,
    target: &'a mut [T],
    empty: T,
    add: A,
}

impl<T: Pod, S: Iterator<Item = usize>, A: Fn(T, T) -> T> Loop for Rows<'_, T, S, A> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { source, starts, target, empty, add } = self;
        let mut starts = starts.fuse();
        target.fill(empty);
        let width = target.len();
        let row = |start: usize| &source[start..start + width];
        // Four rows at a time; otherwise each row would load and store the sums.
        while let Some(first) = starts.next() {
            let others: [Option<usize>; 3] = std::array::from_fn(|_| starts.next());
            if let [Some(b), Some(c), Some(d)] = others {
                let four = row(first).iter().zip(row(b)).zip(row(c).iter().zip(row(d)));
                for (sum, ((a, b), (c, d))) in target.iter_mut().zip(four) {
                    *sum = add(add(add(add(*sum, *a), *b), *c), *d);
                }
                continue;
            }
            for start in [Some(first)].into_iter().chain(others).flatten() {
                target.iter_mut().zip(row(start)).for_each(|(sum, element)| *sum = add(*sum, *element));
            }
        }
    }
}

/// Float with the functions of a sum of exponentials. They are inlined always.
trait Exponential: Pod + PartialOrd + Sub<Output = Self> + AddAssign + Add<Output = Self> {
    fn is_finite(self) -> bool;
    /// Returns `e^x` of a number that is not positive.
    fn exp<I: Isa>(self) -> Self;
    fn ln<I: Isa>(self) -> Self;
}

macro_rules! exponential {
    ($float:ident, $exp:expr, $ln:expr) => {
        impl Exponential for $float {
            #[inline(always)]
            fn is_finite(self) -> bool {
                self.is_finite()
            }

            #[inline(always)]
            fn exp<I: Isa>(self) -> Self {
                $exp(self)
            }

            #[inline(always)]
            fn ln<I: Isa>(self) -> Self {
                $ln(self)
            }
        }
    };
}

exponential!(f32, math::exp_below_one::<I>, math::log::<I>);
exponential!(f64, f64::exp, f64::ln);

/// Logarithms of the columns' sums of exponentials; the target has their greatest elements.
struct Exponentials<'a, T, S> {
    source: &'a [T],
    starts: S,
    target: &'a mut [T],
}

impl<T: Exponential, S: Iterator<Item = usize> + Clone> Loop for Exponentials<'_, T, S> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for (block, target) in self.target.chunks_mut(COLUMNS).enumerate() {
            let (mut sums, mut most) = ([T::zeroed(); COLUMNS], [T::zeroed(); COLUMNS]);
            // The result is the greatest element if that is not finite.
            most.iter_mut().zip(&*target).filter(|(_, x)| x.is_finite()).for_each(|(most, x)| *most = *x);
            for start in self.starts.clone() {
                let row = &self.source[start + block * COLUMNS..][..target.len()];
                for ((sum, x), most) in sums.iter_mut().zip(row).zip(&most) {
                    *sum += (*x - *most).exp::<I>();
                }
            }
            for ((to, sum), most) in target.iter_mut().zip(sums).zip(most) {
                *to = if to.is_finite() { sum.ln::<I>() + most } else { *to };
            }
        }
    }
}

macro_rules! float_number {
    ($float:ident, $short:expr, $sum:expr, $squares:expr, $greatest:expr, $least:expr) => {
        impl Number for $float {
            const DTYPE: DType = <Self as Element>::DTYPE;

            fn short(kind: ReduceKind) -> usize {
                match kind {
                    // Computed in vectors across columns alone.
                    ReduceKind::LogSumExp | ReduceKind::Product | ReduceKind::SumOfMagnitudes => SHORT,
                    _ => $short,
                }
            }

            fn fold_each(kind: ReduceKind, source: &[Self], target: &mut [Self]) {
                let plus = |a, b| a + b;
                match kind {
                    ReduceKind::Sum | ReduceKind::Mean => $sum(source, target),
                    ReduceKind::SumOfSquares => $squares(source, target),
                    ReduceKind::Max => $greatest(source, target),
                    ReduceKind::Min => $least(source, target),
                    ReduceKind::Product => products::each(source, target),
                    ReduceKind::SumOfMagnitudes => each(source, target, 0.0, |a, b: Self| a + b.abs(), plus),
                    ReduceKind::LogSumExp => row_by_row(source, target, |row| {
                        let most = Self::fold(ReduceKind::Max, row);
                        if !most.is_finite() {
                            return most;
                        }
                        lanes::fold(By { empty: 0.0, add: |a, b: Self| a + (b - most).exp(), join: plus }, row).ln()
                            + most
                    }),
                }
            }

            #[inline]
            fn joins(_: ReduceKind) -> bool {
                true
            }

            #[inline]
            fn folds_rows(_: ReduceKind) -> bool {
                true
            }

            #[inline]
            fn join(kind: ReduceKind, a: Self, b: Self) -> Self {
                match kind {
                    ReduceKind::Max => greater(a, b),
                    ReduceKind::Min => less(a, b),
                    ReduceKind::Product => a * b,
                    ReduceKind::LogSumExp => {
                        let most = greater(a, b);
                        if most.is_finite() { ((a - most).exp() + (b - most).exp()).ln() + most } else { most }
                    }
                    _ => a + b,
                }
            }

            fn fold_rows(
                kind: ReduceKind,
                source: &[Self],
                starts: impl Iterator<Item = usize> + Clone,
                target: &mut [Self],
            ) {
                match kind {
                    ReduceKind::Max => rows(source, starts, target, Self::NEG_INFINITY, greater),
                    ReduceKind::Min => rows(source, starts, target, Self::INFINITY, less),
                    ReduceKind::Product => rows(source, starts, target, 1.0, |a, b| a * b),
                    ReduceKind::SumOfSquares => rows(source, starts, target, 0.0, |a, b| a + b * b),
                    ReduceKind::SumOfMagnitudes => rows(source, starts, target, 0.0, |a: Self, b: Self| a + b.abs()),
                    ReduceKind::LogSumExp => {
                        Self::fold_rows(ReduceKind::Max, source, starts.clone(), target);
                        vectorised(Exponentials { source, starts, target });
                    }
                    _ => rows(source, starts, target, 0.0, |a, b| a + b),
                }
            }

            #[inline]
            fn finish(kind: ReduceKind, folded: Self, count: usize) -> Self {
                if kind == ReduceKind::Mean { folded / count as Self } else { folded }
            }
        }
    };
}

float_number!(
    f32,
    LANES - 1,
    |source: &[f32], target: &mut [f32]| lanes::fold_each(SUM, source, target),
    |source: &[f32], target: &mut [f32]| lanes::fold_each(SquaresAround(0.0), source, target),
    lanes::extreme_each::<true>,
    lanes::extreme_each::<false>
);

float_number!(
    f64,
    SHORT,
    |source: &[f64], target: &mut [f64]| each(source, target, 0.0, |a, b| a + b, |a, b| a + b),
    |source: &[f64], target: &mut [f64]| each(source, target, 0.0, |a, b| a + b * b, |a, b| a + b),
    |source: &[f64], target: &mut [f64]| each(source, target, f64::NEG_INFINITY, greater, greater),
    |source: &[f64], target: &mut [f64]| each(source, target, f64::INFINITY, less, less)
);

macro_rules! integer_number {
    ($integer:ident, $magnitude:expr) => {
        impl Number for $integer {
            const DTYPE: DType = <Self as Element>::DTYPE;

            fn short(_: ReduceKind) -> usize {
                SHORT
            }

            fn fold_each(kind: ReduceKind, source: &[Self], target: &mut [Self]) {
                match kind {
                    ReduceKind::Sum => each(source, target, 0, Self::wrapping_add, Self::wrapping_add),
                    ReduceKind::Mean => mean::of_rows(source, target),
                    ReduceKind::Max => each(source, target, Self::MIN, Self::max, Self::max),
                    ReduceKind::Min => each(source, target, Self::MAX, Self::min, Self::min),
                    ReduceKind::Product => each(source, target, 1, Self::wrapping_mul, Self::wrapping_mul),
                    ReduceKind::SumOfSquares => {
                        each(source, target, 0, |a, b| Self::wrapping_add(a, b.wrapping_mul(b)), Self::wrapping_add)
                    }
                    ReduceKind::SumOfMagnitudes => {
                        each(source, target, 0, |a, b| Self::wrapping_add(a, $magnitude(b)), Self::wrapping_add)
                    }
                    ReduceKind::LogSumExp => row_by_row(source, target, |row| {
                        f64::fold(kind, &row.iter().map(|v| *v as f64).collect::<Vec<_>>()) as Self
                    }),
                }
            }

            #[inline]
            fn joins(kind: ReduceKind) -> bool {
                !matches!(kind, ReduceKind::LogSumExp | ReduceKind::Mean)
            }

            #[inline]
            fn folds_rows(kind: ReduceKind) -> bool {
                kind != ReduceKind::LogSumExp
            }

            #[inline]
            fn join(kind: ReduceKind, a: Self, b: Self) -> Self {
                match kind {
                    ReduceKind::Max => a.max(b),
                    ReduceKind::Min => a.min(b),
                    ReduceKind::Product => a.wrapping_mul(b),
                    _ => a.wrapping_add(b),
                }
            }

            fn fold_rows(
                kind: ReduceKind,
                source: &[Self],
                starts: impl Iterator<Item = usize> + Clone,
                target: &mut [Self],
            ) {
                match kind {
                    ReduceKind::Max => rows(source, starts, target, Self::MIN, Self::max),
                    ReduceKind::Min => rows(source, starts, target, Self::MAX, Self::min),
                    ReduceKind::Mean => mean::of_columns(source, starts, target),
                    ReduceKind::Product => rows(source, starts, target, 1, Self::wrapping_mul),
                    ReduceKind::SumOfSquares => {
                        rows(source, starts, target, 0, |a, b| Self::wrapping_add(a, b.wrapping_mul(b)))
                    }
                    ReduceKind::SumOfMagnitudes => {
                        rows(source, starts, target, 0, |a, b| Self::wrapping_add(a, $magnitude(b)))
                    }
                    _ => rows(source, starts, target, 0, Self::wrapping_add),
                }
            }

            #[inline]
            fn finish(_: ReduceKind, folded: Self, _: usize) -> Self {
                folded
            }
        }
    };
}

integer_number!(i32, i32::wrapping_abs);
integer_number!(i64, i64::wrapping_abs);
integer_number!(u64, std::convert::identity);
