//! Whether a tensor is what is expected: the rule of the ONNX project's own test runner, but that integers have to be equal.

use anabranch_kernels::dtype::Element;
use anabranch_kernels::{DType, Tensor};
use half::{bf16, f16};

/// By how much an element of floats may differ: `atol + rtol · |expected|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Relative to what is expected.
    pub rtol: f64,
    /// Absolute.
    pub atol: f64,
}

/// What a `bf16` may differ by at least, relative to itself: two units in its last place.
const BF16_RTOL: f64 = 1.0 / 64.0;

/// The least relative tolerance of an `f16` against a wider type: a unit in its last place.
const F16_RTOL: f64 = 1.0 / 1024.0;

impl Tolerance {
    /// Whether `found` is as expected; if not, what differs: type or shape, or how many elements and the first of them. What is not a
    /// number is as expected where that is expected. O(elements).
    ///
    /// # Errors
    /// If it is not.
    pub fn compare(self, found: &Tensor, expected: &Tensor) -> Result<(), String> {
        if found.spec() != expected.spec() {
            return Err(format!("it is {} instead of {}", found.spec(), expected.spec()));
        }
        let tolerance = self.for_types(found.dtype(), expected.dtype());
        let (Some(found_floats), Some(expected)) = (floats(found), floats(expected)) else {
            return if found.bytes() == expected.bytes() { Ok(()) } else { Err("it has other elements".into()) };
        };
        let pairs = found_floats.iter().zip(&expected).enumerate();
        let mut wrong = pairs.filter(|(_, (found, expected))| !tolerance.admits(**found, **expected));
        let Some((at, (first, wanted))) = wrong.next() else { return Ok(()) };
        let (others, count) = (wrong.count(), expected.len());
        let more = if others == 0 { String::new() } else { format!("; so do {others} others of {count}") };
        Err(format!("element {at} is {first}, not {wanted}{more}"))
    }

    /// Whether one number is near enough to another; what is not a number is to what is none either.
    pub(super) fn admits(self, found: f64, expected: f64) -> bool {
        let equal = found == expected || found.is_nan() && expected.is_nan();
        equal || expected.is_finite() && (found - expected).abs() <= self.atol + self.rtol * expected.abs()
    }

    /// The tolerance between numbers of these types: of what is rounded to a narrower type than it was, at least the unit in its last place.
    pub fn for_types(self, found: DType, expected: DType) -> Self {
        let least = match (found, expected) {
            (DType::BF16, _) | (_, DType::BF16) => BF16_RTOL,
            (DType::F16, other) | (other, DType::F16) if other != DType::F16 => F16_RTOL,
            _ => 0.0,
        };
        Self { rtol: self.rtol.max(least), ..self }
    }
}

/// The elements of a tensor of floating-point numbers.
pub fn floats(tensor: &Tensor) -> Option<Vec<f64>> {
    fn widened<T: Element>(tensor: &Tensor, widen: impl Fn(T) -> f64) -> Option<Vec<f64>> {
        Some(tensor.elements::<T>()?.iter().map(|element| widen(*element)).collect())
    }
    match tensor.dtype() {
        DType::F32 => widened::<f32>(tensor, f64::from),
        DType::F64 => widened(tensor, |element: f64| element),
        DType::F16 => widened(tensor, f16::to_f64),
        DType::BF16 => widened(tensor, bf16::to_f64),
        dtype => tensor.bytes().iter().map(|byte| dtype.number_of_byte(*byte)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::Shape;

    #[test]
    fn floats_may_differ_a_little_and_integers_not() {
        let tolerance = Tolerance { rtol: 1e-3, atol: 1e-7 };
        let tensor = |value: f32| Tensor::from_elements(Shape::scalar(), &[value]).expect("one element");
        for (found, expected, same) in [
            (1.0009, 1.0, true),
            (1.002, 1.0, false),
            (f32::NAN, f32::NAN, true),
            (f32::INFINITY, f32::INFINITY, true),
            (f32::INFINITY, f32::NEG_INFINITY, false),
            (1e9, f32::INFINITY, false),
            (f32::NAN, 1.0, false),
        ] {
            assert_eq!(tolerance.compare(&tensor(found), &tensor(expected)).is_ok(), same, "{found} and {expected}");
        }
        let integers = |value: i64| Tensor::from_i64s(&[value]);
        assert!(tolerance.compare(&integers(10_000), &integers(10_001)).is_err());
        assert!(tolerance.compare(&integers(1), &tensor(1.0)).is_err());
        let floats = |values: &[f32]| Tensor::from_elements(Shape::new([3]).expect("small"), values).expect("three");
        let error = tolerance.compare(&floats(&[1.0, 2.0, 3.0]), &floats(&[1.0, 1.0, 1.0])).expect_err("others");
        assert_eq!(error, "element 1 is 2, not 1; so do 1 others of 3");
    }
}
