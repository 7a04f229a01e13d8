//! Elements of an axis from which a resized element is made, and their weights: the definition that all kernels share.

use super::{Interpolation, Resize};
use std::ops::Sub;

/// Maximum neighbours along an axis.
#[doc(hidden)]
pub const NEIGHBOURS: usize = 4;

/// Type of the weights: that of the elements.
pub trait Weight: Copy + PartialEq + From<f32> + Sub<Output = Self> {
    /// Converts a number to this type.
    fn rounded(number: f64) -> Self;
}

impl Weight for f32 {
    fn rounded(number: f64) -> Self {
        number as Self
    }
}

impl Weight for f64 {
    fn rounded(number: f64) -> Self {
        number
    }
}

/// Neighbours of one output index along an axis, with their weights.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub struct Taps<W = f32> {
    /// Positions of the neighbours.
    pub indices: [usize; NEIGHBOURS],
    /// Weight of each neighbour.
    pub weights: [W; NEIGHBOURS],
    /// Number of neighbours.
    pub count: usize,
}

impl<W: Weight> Taps<W> {
    /// Returns the tap of a single element as it is.
    fn only(index: usize) -> Self {
        Self { indices: [index, 0, 0, 0], weights: [1.0, 0.0, 0.0, 0.0].map(W::from), count: 1 }
    }

    /// Returns taps with the same weights, and neighbours that lie `by` elements further.
    pub fn moved(&self, by: usize) -> Self {
        let mut moved = self.clone();
        moved.indices[..self.count].iter_mut().for_each(|index| *index += by);
        moved
    }
}

impl Resize {
    /// Returns the neighbours of an output's index. A neighbour of weight 0 is left out: if it were infinite, its
    /// product would be NaN.
    #[doc(hidden)]
    pub fn taps<W: Weight>(&self, axis: usize, index: usize, input: usize, output: usize) -> Taps<W> {
        let x = self.coordinate(axis, index, input, output);
        let last = input.saturating_sub(1);
        let clamped = |at: f64| (at.max(0.0) as usize).min(last);
        let fraction = |x: f64| x - x.floor();
        match self.interpolation {
            Interpolation::Nearest(rounding) => Taps::only(clamped(rounding.rounded(x))),
            Interpolation::Linear => {
                let x = x.clamp(0.0, last as f64);
                let (fraction, [none, one]) = (W::rounded(fraction(x)), [0.0, 1.0].map(W::from));
                let indices = [clamped(x.floor()), clamped(x.floor() + 1.0), 0, 0];
                match fraction == none {
                    true => Taps::only(indices[0]),
                    false => Taps { indices, weights: [one - fraction, fraction, none, none], count: 2 },
                }
            }
            Interpolation::Cubic { .. } if fraction(x) == 0.0 => Taps::only(clamped(x)),
            Interpolation::Cubic { coefficient } => {
                let weights = cubic_weights(f64::from(coefficient), fraction(x)).map(W::rounded);
                let indices = [-1.0, 0.0, 1.0, 2.0].map(|offset| clamped(x.floor() + offset));
                Taps { indices, weights, count: 4 }
            }
        }
    }
}

/// Returns the weights of the four neighbours in cubic convolution (Keys 1981) with coefficient `a`, at a fraction
/// between the two middle neighbours.
#[doc(hidden)]
pub fn cubic_weights(a: f64, fraction: f64) -> [f64; 4] {
    let near = |d: f64| ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
    let far = |d: f64| ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
    [far(1.0 + fraction), near(fraction), near(1.0 - fraction), far(2.0 - fraction)]
}
