//! Sums and extremes of slices, in 16 lanes that are then combined pairwise: one tree, whatever the processor.

use super::vector::{Isa, Loop, vectorised};

/// Numbers that are folded side by side.
pub(super) const LANES: usize = 16;

/// Elements after which a partial result is set aside, so that long sums keep their accuracy.
const BLOCK: usize = 4096;

/// A way of folding numbers into one: associative up to rounding, and commutative.
pub(super) trait Fold: Copy {
    /// What folding nothing gives.
    fn empty(self) -> f32;

    /// Folds one more element in. Inlined always.
    fn add<I: Isa>(self, so_far: f32, element: f32) -> f32;

    /// Folds two results into one. Inlined always.
    fn join(self, a: f32, b: f32) -> f32;
}

/// Folds a slice. O(n).
pub(super) fn fold<F: Fold>(fold: F, data: &[f32]) -> f32 {
    if data.len() <= BLOCK {
        return vectorised(Block { fold, data });
    }
    let half = (data.len() / 2).next_multiple_of(BLOCK).min(data.len() - 1);
    let (low, high) = data.split_at(half);
    fold.join(self::fold(fold, low), self::fold(fold, high))
}

struct Block<'a, F> {
    fold: F,
    data: &'a [f32],
}

impl<F: Fold> Loop for Block<'_, F> {
    type Output = f32;

    #[inline(always)]
    fn run<I: Isa>(self) -> f32 {
        let mut lanes = [self.fold.empty(); LANES];
        let (blocks, rest) = self.data.as_chunks::<LANES>();
        for block in blocks {
            for lane in 0..LANES {
                lanes[lane] = self.fold.add::<I>(lanes[lane], block[lane]);
            }
        }
        for (lane, element) in lanes.iter_mut().zip(rest) {
            *lane = self.fold.add::<I>(*lane, *element);
        }
        joined(lanes, |a, b| self.fold.join(a, b))
    }
}

/// The lanes joined pairwise, halves with halves.
#[inline(always)]
pub(super) fn joined(mut lanes: [f32; LANES], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] = join(lanes[lane], lanes[lane + width]);
        }
    }
    lanes[0]
}

/// The sum.
#[derive(Clone, Copy)]
pub(super) struct Sum;

impl Fold for Sum {
    fn empty(self) -> f32 {
        0.0
    }

    #[inline(always)]
    fn add<I: Isa>(self, so_far: f32, element: f32) -> f32 {
        so_far + element
    }

    #[inline(always)]
    fn join(self, a: f32, b: f32) -> f32 {
        a + b
    }
}

/// The sum of the squared distances from a number.
#[derive(Clone, Copy)]
pub(super) struct SquaresAround(pub(super) f32);

impl Fold for SquaresAround {
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
}

/// The greatest; NaN if one is.
#[derive(Clone, Copy)]
pub(super) struct Greatest;

impl Fold for Greatest {
    fn empty(self) -> f32 {
        f32::NEG_INFINITY
    }

    #[inline(always)]
    fn add<I: Isa>(self, so_far: f32, element: f32) -> f32 {
        self.join(so_far, element)
    }

    #[inline(always)]
    fn join(self, a: f32, b: f32) -> f32 {
        // Written so that a NaN on either side stays.
        if a >= b || a.is_nan() { a } else { b }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_of_all_lengths() {
        for length in [0, 1, 15, 16, 17, 4096, 4097, 100_000] {
            let data: Vec<f32> = (0..length).map(|i| ((i * 31) % 97) as f32).collect();
            let exact: f64 = data.iter().map(|v| f64::from(*v)).sum();
            assert!((f64::from(fold(Sum, &data)) - exact).abs() <= 1e-6 * exact, "{length}");
            let most = data.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(fold(Greatest, &data), most);
        }
        assert!(fold(Greatest, &[1.0, f32::NAN, 3.0]).is_nan());
        assert_eq!(fold(SquaresAround(2.0), &[1.0, 2.0, 4.0]), 5.0);
    }
}
