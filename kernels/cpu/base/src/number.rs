//! Number types of reductions: how each type folds elements, and joins the folds of parts.

use super::lanes::{self, By, SUM, SquaresAround};
use super::vector::{Isa, Loop, vectorised};
use anabranch_op::dtype::{DType, Element};
use anabranch_op::op::ReduceKind;
use bytemuck::Pod;

/// Number type that reductions work on.
pub trait Number: Pod + Send + Sync {
    /// Tensor type whose elements are this type.
    const DTYPE: DType;

    /// Folds elements, without the final step in [`Self::finish`].
    fn fold(kind: ReduceKind, elements: &[Self]) -> Self;

    /// Whether folds of parts can be joined without an error beyond rounding. Integers lose the fraction of each part's
    /// [`ReduceKind::LogSumExp`], and the sum for a [`ReduceKind::Mean`] may need more bits than they have.
    fn joins(kind: ReduceKind) -> bool;

    /// Joins two folds into one, if the kind [joins](Self::joins).
    fn join(kind: ReduceKind, a: Self, b: Self) -> Self;

    /// Folds neighbouring columns, each into its element of `target`. Element `i` of the row at `start` is
    /// `source[start + i]`, for each of `starts`. Only for kinds that join, and not for [`ReduceKind::LogSumExp`].
    fn fold_rows(kind: ReduceKind, source: &[Self], starts: impl Iterator<Item = usize>, target: &mut [Self]);

    /// Returns the result for `folded`, the fold of `count` elements.
    fn finish(kind: ReduceKind, folded: Self, count: usize) -> Self;
}

/// Folds elements, from `empty`, by `add`, and partial results by `join`. O(n).
fn folded<T: Pod>(elements: &[T], empty: T, add: impl Fn(T, T) -> T + Copy, join: impl Fn(T, T) -> T + Copy) -> T {
    lanes::fold(By { empty, add, join }, elements)
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

macro_rules! float_number {
    ($float:ident, $sum:expr, $squares:expr, $greatest:expr, $least:expr) => {
        impl Number for $float {
            const DTYPE: DType = <Self as Element>::DTYPE;

            fn fold(kind: ReduceKind, elements: &[Self]) -> Self {
                let plus = |a, b| a + b;
                match kind {
                    ReduceKind::Sum | ReduceKind::Mean => $sum(elements),
                    ReduceKind::SumOfSquares => $squares(elements),
                    ReduceKind::Max => $greatest(elements),
                    ReduceKind::Min => $least(elements),
                    ReduceKind::Product => folded(elements, 1.0, |a, b| a * b, |a, b| a * b),
                    ReduceKind::SumOfMagnitudes => folded(elements, 0.0, |a, b: Self| a + b.abs(), plus),
                    ReduceKind::LogSumExp => {
                        let most = $greatest(elements);
                        if !most.is_finite() {
                            return most;
                        }
                        folded(elements, 0.0, |a, b: Self| a + (b - most).exp(), plus).ln() + most
                    }
                }
            }

            #[inline]
            fn joins(_: ReduceKind) -> bool {
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

            fn fold_rows(kind: ReduceKind, source: &[Self], starts: impl Iterator<Item = usize>, target: &mut [Self]) {
                match kind {
                    ReduceKind::Max => rows(source, starts, target, Self::NEG_INFINITY, greater),
                    ReduceKind::Min => rows(source, starts, target, Self::INFINITY, less),
                    ReduceKind::Product => rows(source, starts, target, 1.0, |a, b| a * b),
                    ReduceKind::SumOfSquares => rows(source, starts, target, 0.0, |a, b| a + b * b),
                    ReduceKind::SumOfMagnitudes => rows(source, starts, target, 0.0, |a: Self, b: Self| a + b.abs()),
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
    |elements: &[f32]| lanes::fold(SUM, elements),
    |elements: &[f32]| lanes::fold(SquaresAround(0.0), elements),
    lanes::extreme::<true>,
    lanes::extreme::<false>
);

float_number!(
    f64,
    |elements: &[f64]| folded(elements, 0.0, |a, b| a + b, |a, b| a + b),
    |elements: &[f64]| folded(elements, 0.0, |a, b| a + b * b, |a, b| a + b),
    |elements: &[f64]| folded(elements, f64::NEG_INFINITY, greater, greater),
    |elements: &[f64]| folded(elements, f64::INFINITY, less, less)
);

macro_rules! integer_number {
    ($integer:ident, $magnitude:expr) => {
        impl Number for $integer {
            const DTYPE: DType = <Self as Element>::DTYPE;

            fn fold(kind: ReduceKind, elements: &[Self]) -> Self {
                match kind {
                    ReduceKind::Sum => folded(elements, 0, Self::wrapping_add, Self::wrapping_add),
                    ReduceKind::Mean => {
                        let sum: i128 = elements.iter().map(|element| i128::from(*element)).sum();
                        sum.checked_div(elements.len() as i128).unwrap_or(0) as Self
                    }
                    ReduceKind::Max => folded(elements, Self::MIN, Self::max, Self::max),
                    ReduceKind::Min => folded(elements, Self::MAX, Self::min, Self::min),
                    ReduceKind::Product => folded(elements, 1, Self::wrapping_mul, Self::wrapping_mul),
                    ReduceKind::SumOfSquares => {
                        folded(elements, 0, |a, b| Self::wrapping_add(a, b.wrapping_mul(b)), Self::wrapping_add)
                    }
                    ReduceKind::SumOfMagnitudes => {
                        folded(elements, 0, |a, b| Self::wrapping_add(a, $magnitude(b)), Self::wrapping_add)
                    }
                    ReduceKind::LogSumExp => {
                        f64::fold(kind, &elements.iter().map(|v| *v as f64).collect::<Vec<_>>()) as Self
                    }
                }
            }

            #[inline]
            fn joins(kind: ReduceKind) -> bool {
                !matches!(kind, ReduceKind::LogSumExp | ReduceKind::Mean)
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

            fn fold_rows(kind: ReduceKind, source: &[Self], starts: impl Iterator<Item = usize>, target: &mut [Self]) {
                match kind {
                    ReduceKind::Max => rows(source, starts, target, Self::MIN, Self::max),
                    ReduceKind::Min => rows(source, starts, target, Self::MAX, Self::min),
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
