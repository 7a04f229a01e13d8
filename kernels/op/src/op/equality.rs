//! Equality of the ops that hold floats. They compare bits, as [`Literal`](super::Literal) does, so that a node always
//! equals itself.

use super::{Interpolation, Normalize, Resize};

impl PartialEq for Normalize {
    fn eq(&self, other: &Self) -> bool {
        let Self { axis, epsilon, center, epilogue } = self;
        (axis, epsilon.to_bits(), center, epilogue)
            == (&other.axis, other.epsilon.to_bits(), &other.center, &other.epilogue)
    }
}

impl PartialEq for Interpolation {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nearest(a), Self::Nearest(b)) => a == b,
            (Self::Linear, Self::Linear) => true,
            (Self::Cubic { coefficient: a }, Self::Cubic { coefficient: b }) => a.to_bits() == b.to_bits(),
            (Self::Nearest(_) | Self::Linear | Self::Cubic { .. }, _) => false,
        }
    }
}

impl PartialEq for Resize {
    fn eq(&self, other: &Self) -> bool {
        let Self { interpolation, coordinates, scales } = self;
        (interpolation, coordinates, scales.map(f64::to_bits))
            == (&other.interpolation, &other.coordinates, other.scales.map(f64::to_bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Coordinates;

    #[test]
    fn ops_with_floats_that_are_no_numbers_equal_themselves() {
        let normalize = |epsilon| Normalize { axis: 1, epsilon, center: true, epilogue: None };
        assert!(normalize(f32::NAN) == normalize(f32::NAN) && normalize(0.0) != normalize(-0.0));
        let cubic = |coefficient| Resize {
            interpolation: Interpolation::Cubic { coefficient },
            coordinates: Coordinates::HalfPixel,
            scales: [2.0; 2],
        };
        assert!(cubic(f32::NAN) == cubic(f32::NAN) && cubic(0.0) != cubic(-0.0));
        assert!(cubic(0.5) != Resize { interpolation: Interpolation::Linear, ..cubic(0.5) });
    }
}
