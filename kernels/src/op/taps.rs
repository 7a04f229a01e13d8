//! Which elements of an axis a resized one is made from, and with what weights: the definition that all kernels share.

use super::{Interpolation, Resize};

/// Neighbours along an axis, at most.
pub(crate) const NEIGHBOURS: usize = 4;

/// The neighbours of one output index along an axis, with their weights.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Taps {
    pub(crate) indices: [usize; NEIGHBOURS],
    pub(crate) weights: [f32; NEIGHBOURS],
    pub(crate) count: usize,
}

impl Taps {
    /// An element as it is.
    const fn only(index: usize) -> Self {
        Self { indices: [index, 0, 0, 0], weights: [1.0, 0.0, 0.0, 0.0], count: 1 }
    }

    /// The same weights, of neighbours so much further.
    pub(crate) fn moved(&self, by: usize) -> Self {
        let mut moved = self.clone();
        moved.indices[..self.count].iter_mut().for_each(|index| *index += by);
        moved
    }
}

impl Resize {
    /// The neighbours of an output's index. One without weight is none: were it infinite, its product would be no number.
    pub(crate) fn taps(&self, axis: usize, index: usize, input: usize, output: usize) -> Taps {
        let x = self.coordinate(axis, index, input, output);
        let last = input.saturating_sub(1);
        let clamped = |at: f64| (at.max(0.0) as usize).min(last);
        let fraction = |x: f64| x - x.floor();
        match self.interpolation {
            Interpolation::Nearest(rounding) => Taps::only(clamped(rounding.rounded(x))),
            Interpolation::Linear => {
                let x = x.clamp(0.0, last as f64);
                let fraction = fraction(x) as f32;
                let indices = [clamped(x.floor()), clamped(x.floor() + 1.0), 0, 0];
                match fraction {
                    0.0 => Taps::only(indices[0]),
                    _ => Taps { indices, weights: [1.0 - fraction, fraction, 0.0, 0.0], count: 2 },
                }
            }
            Interpolation::Cubic { .. } if fraction(x) == 0.0 => Taps::only(clamped(x)),
            Interpolation::Cubic { coefficient } => {
                let weights = cubic_weights(f64::from(coefficient), fraction(x)).map(|weight| weight as f32);
                let indices = [-1.0, 0.0, 1.0, 2.0].map(|offset| clamped(x.floor() + offset));
                Taps { indices, weights, count: 4 }
            }
        }
    }
}

/// The weights of the four neighbours in cubic convolution (Keys 1981) with coefficient `a`, at a fraction between the two
/// middle ones.
pub(crate) fn cubic_weights(a: f64, fraction: f64) -> [f64; 4] {
    let near = |d: f64| ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
    let far = |d: f64| ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
    [far(1.0 + fraction), near(fraction), near(1.0 - fraction), far(2.0 - fraction)]
}
