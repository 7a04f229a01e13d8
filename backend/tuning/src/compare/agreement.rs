//! Comparison of the outputs of two runs.

use anabranch_kernels::Tensor;
use anabranch_kernels::dtype::Element;
use anabranch_session::Outputs;
use half::{bf16, f16};
use serde::{Deserialize, Deserializer, Serialize};

/// Tolerance of float outputs relative to the greatest reference value of the output.
const RELATIVE: f64 = 1e-4;
/// Absolute tolerance of float outputs, added to the relative one.
const ABSOLUTE: f64 = 1e-5;

/// Comparison of outputs with those of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Whether every output has the same bits.
    pub same_bits: bool,
    /// Whether every element of float outputs is within `1e-4 · max |reference| + 1e-5` of the reference's, and all
    /// other outputs are equal.
    pub within: bool,
    /// Greatest difference of any float, divided by the tolerance.
    #[serde(deserialize_with = "or_infinite")]
    pub worst: f64,
}

/// Reads a number; `null` is infinite, because JSON has no infinite numbers.
fn or_infinite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

impl Agreement {
    /// Compares outputs of the same model.
    pub fn of(outputs: &Outputs, reference: &Outputs) -> Self {
        let same_count = outputs.iter().count() == reference.iter().count();
        let mut agreement = Self { same_bits: same_count, within: same_count, worst: 0.0 };
        for ((_, ours), (_, theirs)) in outputs.iter().zip(reference.iter()) {
            if ours.same_bits(theirs) {
                continue;
            }
            agreement.same_bits = false;
            match distance(ours, theirs) {
                Some(distance) => {
                    agreement.worst = agreement.worst.max(distance);
                    agreement.within &= distance <= 1.0;
                }
                None => agreement.within = false,
            }
        }
        agreement
    }

    /// Combines two comparisons.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            same_bits: self.same_bits && other.same_bits,
            within: self.within && other.within,
            worst: self.worst.max(other.worst),
        }
    }
}

/// Returns the greatest difference of two tensors of floats, divided by the tolerance. `None` for other tensors, and if
/// an element is NaN in only one of them.
fn distance(ours: &Tensor, theirs: &Tensor) -> Option<f64> {
    if ours.spec() != theirs.spec() {
        return None;
    }
    floats::<f32>(ours, theirs, f64::from)
        .or_else(|| floats::<f64>(ours, theirs, |x| x))
        .or_else(|| floats::<f16>(ours, theirs, f64::from))
        .or_else(|| floats::<bf16>(ours, theirs, f64::from))
        .filter(|distance| !distance.is_nan())
}

fn floats<T: Element>(ours: &Tensor, theirs: &Tensor, wide: impl Fn(T) -> f64) -> Option<f64> {
    let (ours, theirs) = (ours.elements::<T>()?, theirs.elements::<T>()?);
    let finite = theirs.iter().map(|x| wide(*x).abs()).filter(|x| x.is_finite());
    let allowed = RELATIVE * finite.fold(0.0, f64::max) + ABSOLUTE;
    let differences = ours.iter().zip(theirs).map(|(ours, theirs)| {
        let (ours, theirs) = (wide(*ours), wide(*theirs));
        let same = ours == theirs || (ours.is_nan() && theirs.is_nan());
        if same { 0.0 } else { (ours - theirs).abs() / allowed }
    });
    // `max` would skip NaN.
    Some(differences.fold(0.0, |worst: f64, d| if d.is_nan() || worst.is_nan() { f64::NAN } else { worst.max(d) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::Shape;

    fn outputs(elements: &[f32]) -> Outputs {
        let shape = Shape::new(vec![elements.len()]).expect("small");
        Outputs::new(["y".to_owned()].into(), vec![Tensor::from_elements(shape, elements).expect("one for each")])
    }

    #[test]
    fn equal_close_and_different() {
        let reference = outputs(&[1.0, -10.0, f32::NAN]);
        let same = Agreement::of(&outputs(&[1.0, -10.0, f32::NAN]), &reference);
        assert_eq!((same.same_bits, same.within, same.worst), (true, true, 0.0));
        let close = Agreement::of(&outputs(&[1.0005, -10.0, f32::NAN]), &reference);
        assert!(!close.same_bits && close.within && close.worst > 0.4 && close.worst < 0.6, "{close:?}");
        assert!(!Agreement::of(&outputs(&[1.01, -10.0, f32::NAN]), &reference).within);
        assert!(!Agreement::of(&outputs(&[f32::NAN, -10.0, f32::NAN]), &reference).within);
        assert!(!Agreement::of(&outputs(&[1.0, -10.0]), &reference).within);
    }
}
