//! Resampling of images: its parameters, and the coordinates that all kernels share.

use serde::{Deserialize, Serialize};

/// Function that makes a resized element from its neighbours.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// Nearest element.
    Nearest(NearestRounding),
    /// Linear in both directions.
    Linear,
    /// Cubic convolution with this coefficient.
    Cubic {
        /// The coefficient `a`, usually −0.75.
        coefficient: f32,
    },
}

/// Rounding that chooses the nearest neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NearestRounding {
    /// Round, halves down.
    RoundPreferFloor,
    /// Round, halves up.
    RoundPreferCeil,
    /// Round down.
    Floor,
    /// Round up.
    Ceil,
}

/// Mapping from an output's coordinate `x` to one of the input. `s` is the scale, and `i` and `o` are the sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coordinates {
    /// `(x + ½) / s − ½`.
    HalfPixel,
    /// [`Self::HalfPixel`], but 0 if the output has one element.
    PytorchHalfPixel,
    /// `x · (i − 1) / (o − 1)`; 0 if the output has one element.
    AlignCorners,
    /// `x / s`.
    Asymmetric,
}

/// Resampling of the two innermost axes. Input: X `[…, h, w]`. Output: `[…, oh, ow]`. Floats.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resize {
    /// Function that makes an element from its neighbours.
    pub interpolation: Interpolation,
    /// Mapping from an output's coordinate to one of the input.
    pub coordinates: Coordinates,
    /// Scale of rows and columns. A scale is the quotient of the sizes of its axis if it is the `f64` nearest to it;
    /// any other scale is taken as it is.
    pub scales: [f64; 2],
}

impl Interpolation {
    /// Returns the number of input elements from which an element is made.
    pub(crate) const fn neighbours(self) -> f64 {
        match self {
            Self::Nearest(_) => 1.0,
            Self::Linear => 4.0,
            Self::Cubic { .. } => 16.0,
        }
    }
}

impl NearestRounding {
    /// Returns the neighbour of a coordinate.
    pub fn rounded(self, at: f64) -> f64 {
        match self {
            Self::RoundPreferFloor => (at - 0.5).ceil(),
            Self::RoundPreferCeil => (at + 0.5).floor(),
            Self::Floor => at.floor(),
            Self::Ceil => at.ceil(),
        }
    }
}

impl Coordinates {
    /// Returns the input's coordinate for an index of the output, along an axis of these sizes.
    ///
    /// The scale is the quotient `scale`: `[output, input]`, or `[s, 1]` for a number. The coordinate is rounded once,
    /// by a division. So it is an integer or a half exactly if the coordinate of real numbers is, as long as the
    /// product of the sizes is below 2⁵⁰.
    #[doc(hidden)]
    pub fn at(self, index: usize, [input, output]: [usize; 2], scale: [f64; 2]) -> f64 {
        let (x, [made, read]) = (index as f64, scale);
        match self {
            Self::PytorchHalfPixel | Self::AlignCorners if output == 1 => 0.0,
            Self::HalfPixel | Self::PytorchHalfPixel => ((2.0 * x + 1.0) * read - made) / (2.0 * made),
            Self::AlignCorners => x * (input as f64 - 1.0) / (output as f64 - 1.0),
            Self::Asymmetric => x * read / made,
        }
    }
}

impl Resize {
    /// Returns the input coordinate for an index of the output, along an axis of `input` and `output` elements.
    pub fn coordinate(&self, axis: usize, index: usize, input: usize, output: usize) -> f64 {
        let sizes = [output, input].map(|size| size as f64);
        let is_quotient = self.scales[axis] == sizes[0] / sizes[1];
        let scale = if is_quotient { sizes } else { [self.scales[axis], 1.0] };
        self.coordinates.at(index, [input, output], scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the neighbour from the exact coordinate, a quotient of integers.
    fn exact(rounding: NearestRounding, [above, below]: [i64; 2]) -> i64 {
        let floor = |above: i64, below: i64| above.div_euclid(below);
        match rounding {
            NearestRounding::Floor => floor(above, below),
            NearestRounding::Ceil => -floor(-above, below),
            NearestRounding::RoundPreferCeil => floor(2 * above + below, 2 * below),
            NearestRounding::RoundPreferFloor => -floor(below - 2 * above, 2 * below),
        }
    }

    fn check(coordinates: Coordinates, [input, output]: [usize; 2], scale: f64, exactly: impl Fn(i64) -> [i64; 2]) {
        let op = Resize { interpolation: Interpolation::Linear, coordinates, scales: [1.0, scale] };
        for index in 0..output {
            let (at, [above, below]) = (op.coordinate(1, index, input, output), exactly(index as i64));
            assert_eq!(at, above as f64 / below as f64, "{op:?}: {index} of {input} to {output}");
            use NearestRounding::{Ceil, Floor, RoundPreferCeil, RoundPreferFloor};
            for rounding in [Floor, Ceil, RoundPreferFloor, RoundPreferCeil] {
                let want = exact(rounding, [above, below]);
                assert_eq!(rounding.rounded(at) as i64, want, "{op:?} {rounding:?}: {index} of {input} to {output}");
            }
        }
    }

    #[test]
    fn sizes_give_exact_coordinates() {
        for (input, output) in (1..24).flat_map(|input| (1..40).map(move |output| (input, output))) {
            let (sizes, [i, o]) = ([input, output], [input, output].map(|size| size as i64));
            let scale = output as f64 / input as f64;
            let half = |x: i64| [(2 * x + 1) * i - o, 2 * o];
            check(Coordinates::HalfPixel, sizes, scale, half);
            check(Coordinates::PytorchHalfPixel, sizes, scale, |x| if o == 1 { [0, 1] } else { half(x) });
            check(Coordinates::AlignCorners, sizes, scale, |x| if o == 1 { [0, 1] } else { [x * (i - 1), o - 1] });
            check(Coordinates::Asymmetric, sizes, scale, |x| [x * i, o]);
        }
    }

    /// Scales of `f32` are quotients of an integer and a power of two.
    #[test]
    fn given_scales_give_exact_coordinates() {
        for (input, tenths) in (1..24).flat_map(|input| (1..40).map(move |tenths| (input, tenths))) {
            let scale = tenths as f32 / 10.0;
            let sizes = [input, (input as f64 * f64::from(scale)) as usize];
            let below = 1 << 30;
            let above = (f64::from(scale) * below as f64) as i64;
            assert_eq!(above as f64 / below as f64, f64::from(scale), "an exact quotient");
            check(Coordinates::HalfPixel, sizes, scale.into(), |x| [(2 * x + 1) * below - above, 2 * above]);
            check(Coordinates::Asymmetric, sizes, scale.into(), |x| [x * below, above]);
        }
    }
}
