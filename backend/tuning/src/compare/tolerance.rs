//! Comparison of a tensor with the expected one, by the rule of the ONNX project's own test runner. Unlike there,
//! integers have to be equal.

use anabranch_kernels::dtype::Element;
use anabranch_kernels::{DType, Tensor};
use half::{bf16, f16};

/// Allowed difference of a float element: `atol + rtol · |expected|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Tolerance relative to the expected value.
    pub rtol: f64,
    /// Absolute tolerance.
    pub atol: f64,
}

/// Least relative tolerance of a `bf16`: two units in its last place.
const BF16_RTOL: f64 = 1.0 / 64.0;

/// Least relative tolerance of an `f16` against a wider type: a unit in its last place.
const F16_RTOL: f64 = 1.0 / 1024.0;

impl Tolerance {
    /// Checks that `found` is as expected. NaN is as expected if NaN is expected. O(elements).
    ///
    /// # Errors
    /// If it is not, with the difference: type or shape, or the number of elements that differ and the first of them.
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

    /// Whether one number is near enough to another. NaN is near to NaN only.
    pub(super) fn admits(self, found: f64, expected: f64) -> bool {
        let equal = found == expected || found.is_nan() && expected.is_nan();
        equal || expected.is_finite() && (found - expected).abs() <= self.atol + self.rtol * expected.abs()
    }

    /// Returns the tolerance between numbers of these types. If a number is rounded to a narrower type, it is at least
    /// the unit in that type's last place.
    pub fn for_types(self, found: DType, expected: DType) -> Self {
        let least = match (found, expected) {
            (DType::BF16, _) | (_, DType::BF16) => BF16_RTOL,
            (DType::F16, other) | (other, DType::F16) if other != DType::F16 => F16_RTOL,
            _ => 0.0,
        };
        Self { rtol: self.rtol.max(least), ..self }
    }
}

/// Returns the elements of a tensor of floating-point numbers.
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
