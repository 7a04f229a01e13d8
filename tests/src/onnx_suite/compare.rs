//! Whether an output is what a test expects: the rule of the package's own runner, but that integers have to be equal.

use anabranch::{DType, Tensor};
use anabranch_kernels::dtype::Element;
use std::fs;
use std::path::Path;

/// By how much an output may differ: `atol + rtol · |expected|`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerance {
    rtol: f64,
    atol: f64,
}

/// What a `bf16` may differ by at least, relative to itself: two units in its last place.
const BF16_RTOL: f64 = 1.0 / 64.0;

impl Tolerance {
    /// The tolerance that a test's file gives.
    pub(super) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("each test has a tolerance");
        let fields: serde_json::Value = serde_json::from_str(&text).expect("written by the script");
        let field = |name: &str| fields[name].as_f64().expect("written by the script");
        Self { rtol: field("rtol"), atol: field("atol") }
    }

    /// Whether `found` is as expected; if not, what differs.
    pub(super) fn compare(self, found: &Tensor, expected: &Tensor) -> Result<(), String> {
        if found.spec() != expected.spec() {
            return Err(format!("{} instead of {}", found.spec(), expected.spec()));
        }
        let rtol = if expected.dtype() == DType::BF16 { self.rtol.max(BF16_RTOL) } else { self.rtol };
        let (Some(found), Some(expected)) = (floats(found), floats(expected)) else {
            return if found.bytes() == expected.bytes() { Ok(()) } else { Err("other elements".into()) };
        };
        let close = |found: f64, expected: f64| {
            let equal = found == expected || found.is_nan() && expected.is_nan();
            equal || expected.is_finite() && (found - expected).abs() <= self.atol + rtol * expected.abs()
        };
        match found.iter().zip(&expected).position(|(found, expected)| !close(*found, *expected)) {
            None => Ok(()),
            Some(at) => Err(format!("element {at} is {}, not {}", found[at], expected[at])),
        }
    }
}

/// The elements of a tensor of floating-point numbers.
fn floats(tensor: &Tensor) -> Option<Vec<f64>> {
    fn widened<T: Element>(tensor: &Tensor, widen: impl Fn(T) -> f64) -> Option<Vec<f64>> {
        Some(tensor.elements::<T>()?.iter().map(|element| widen(*element)).collect())
    }
    match tensor.dtype() {
        DType::F32 => widened::<f32>(tensor, f64::from),
        DType::F64 => widened(tensor, |element: f64| element),
        DType::F16 => widened(tensor, half::f16::to_f64),
        DType::BF16 => widened(tensor, half::bf16::to_f64),
        dtype => tensor.bytes().iter().map(|byte| dtype.number_of_byte(*byte)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch::Shape;

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
    }
}
