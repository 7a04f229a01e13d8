//! Products of rows of floats, in 64 bits.
//!
//! Each multiplication rounds, in every order of the numbers. The error of a product of n numbers grows with n, since
//! roundings next to 1 are biased. So long rows of 32-bit floats are multiplied in 64 bits; rows of up to 32 numbers,
//! and products of parts, are in 32 bits.

use super::vector::{Isa, LANES, Loop, vectorised};
use bytemuck::Pod;

/// Float that is multiplied in 64 bits. The conversions are inlined always.
pub(super) trait Factor: Pod {
    fn widened(self) -> f64;
    fn rounded(product: f64) -> Self;
}

impl Factor for f32 {
    #[inline(always)]
    fn widened(self) -> f64 {
        self.into()
    }

    #[inline(always)]
    fn rounded(product: f64) -> Self {
        product as Self
    }
}

impl Factor for f64 {
    #[inline(always)]
    fn widened(self) -> f64 {
        self
    }

    #[inline(always)]
    fn rounded(product: f64) -> Self {
        product
    }
}

/// Writes the product of each of the consecutive rows of equal length. O(n).
pub(super) fn each<T: Factor>(source: &[T], target: &mut [T]) {
    match source.len().checked_div(target.len()) {
        None | Some(0) => target.fill(T::rounded(1.0)),
        Some(count) => vectorised(Each { count, source, target }),
    }
}

struct Each<'a, T> {
    count: usize,
    source: &'a [T],
    target: &'a mut [T],
}

impl<T: Factor> Loop for Each<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for (to, row) in self.target.iter_mut().zip(self.source.chunks_exact(self.count)) {
            let mut lanes = [1.0; LANES];
            let (blocks, rest) = row.as_chunks::<LANES>();
            for block in blocks {
                multiply(&mut lanes, block);
            }
            multiply(&mut lanes, rest);
            let mut width = LANES;
            while width > 1 {
                width /= 2;
                for lane in 0..width {
                    lanes[lane] *= lanes[lane + width];
                }
            }
            *to = T::rounded(lanes[0]);
        }
    }
}

#[inline(always)]
fn multiply<T: Factor>(products: &mut [f64], row: &[T]) {
    for (product, factor) in products.iter_mut().zip(row) {
        *product *= factor.widened();
    }
}
