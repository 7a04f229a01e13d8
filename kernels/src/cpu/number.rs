//! How numbers of each type are folded by reductions.

use super::lanes::{self, Greatest, SquaresAround, Sum};
use crate::op::ReduceKind;
use bytemuck::Pod;

/// A type of numbers that reductions work on.
pub(super) trait Number: Pod + Send + Sync {
    /// Folds elements, but for what [`Self::finish`] does in the end.
    fn fold(kind: ReduceKind, elements: &[Self]) -> Self;

    /// Makes the result of what was folded from `count` elements.
    fn finish(kind: ReduceKind, folded: Self, count: usize) -> Self;
}

/// Folds pairwise in halves of blocks of 1024, so that rounding errors grow with the logarithm of the length.
fn pairwise<T: Copy>(elements: &[T], block: &dyn Fn(&[T]) -> T, join: &dyn Fn(T, T) -> T) -> T {
    if elements.len() <= 1024 {
        return block(elements);
    }
    let (low, high) = elements.split_at((elements.len() / 2).next_multiple_of(1024).min(elements.len() - 1));
    join(pairwise(low, block, join), pairwise(high, block, join))
}

macro_rules! float_number {
    ($float:ident, $sum:expr, $squares:expr, $greatest:expr) => {
        impl Number for $float {
            fn fold(kind: ReduceKind, elements: &[Self]) -> Self {
                let blocks = |empty: Self, add: &dyn Fn(Self, Self) -> Self, join: &dyn Fn(Self, Self) -> Self| {
                    pairwise(elements, &|block| block.iter().fold(empty, |a, b| add(a, *b)), join)
                };
                let plus = |a, b| a + b;
                match kind {
                    ReduceKind::Sum | ReduceKind::Mean => $sum(elements),
                    ReduceKind::SumOfSquares => $squares(elements),
                    ReduceKind::Max => $greatest(elements),
                    ReduceKind::Min => {
                        let least = |a: Self, b: Self| if a <= b || a.is_nan() { a } else { b };
                        blocks(Self::INFINITY, &least, &least)
                    }
                    ReduceKind::Product => blocks(1.0, &|a, b| a * b, &|a, b| a * b),
                    ReduceKind::SumOfMagnitudes => blocks(0.0, &|a, b| a + b.abs(), &plus),
                    ReduceKind::LogSumExp => {
                        let most = $greatest(elements);
                        if !most.is_finite() {
                            return most;
                        }
                        blocks(0.0, &|a, b| a + (b - most).exp(), &plus).ln() + most
                    }
                }
            }

            fn finish(kind: ReduceKind, folded: Self, count: usize) -> Self {
                if kind == ReduceKind::Mean { folded / count as Self } else { folded }
            }
        }
    };
}

float_number!(
    f32,
    |elements: &[f32]| lanes::fold(Sum, elements),
    |elements: &[f32]| lanes::fold(SquaresAround(0.0), elements),
    |elements: &[f32]| lanes::fold(Greatest, elements)
);

float_number!(
    f64,
    |elements: &[f64]| pairwise(elements, &|block| block.iter().sum(), &|a, b| a + b),
    |elements: &[f64]| pairwise(elements, &|block| block.iter().map(|v| v * v).sum(), &|a, b| a + b),
    |elements: &[f64]| elements.iter().fold(f64::NEG_INFINITY, |a, b| if a >= *b || a.is_nan() { a } else { *b })
);

macro_rules! integer_number {
    ($integer:ident) => {
        impl Number for $integer {
            fn fold(kind: ReduceKind, elements: &[Self]) -> Self {
                let fold =
                    |empty: Self, add: &dyn Fn(Self, Self) -> Self| elements.iter().fold(empty, |a, b| add(a, *b));
                match kind {
                    ReduceKind::Sum | ReduceKind::Mean => fold(0, &Self::wrapping_add),
                    ReduceKind::Max => fold(Self::MIN, &Self::max),
                    ReduceKind::Min => fold(Self::MAX, &Self::min),
                    ReduceKind::Product => fold(1, &Self::wrapping_mul),
                    ReduceKind::SumOfSquares => fold(0, &|a, b| a.wrapping_add(b.wrapping_mul(b))),
                    ReduceKind::SumOfMagnitudes => fold(0, &|a, b| a.wrapping_add(b.wrapping_abs())),
                    ReduceKind::LogSumExp => {
                        f64::fold(kind, &elements.iter().map(|v| *v as f64).collect::<Vec<_>>()) as Self
                    }
                }
            }

            fn finish(kind: ReduceKind, folded: Self, count: usize) -> Self {
                match kind {
                    ReduceKind::Mean => folded.checked_div(count as Self).unwrap_or(0),
                    _ => folded,
                }
            }
        }
    };
}

integer_number!(i32);
integer_number!(i64);
