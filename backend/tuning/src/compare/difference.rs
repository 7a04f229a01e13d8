//! Differences between a tensor and the expected one: greatest errors and their positions, root mean square, cosine,
//! and agreement of the largest elements.

use super::tolerance::{Tolerance, floats};
use anabranch_kernels::{DType, Tensor};
use serde::{Serialize, Serializer};

/// Difference between a tensor and the expected tensor of the same shape. Pairs that are equal, both NaN, or the same
/// infinity have no error.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Number of elements of each.
    pub elements: usize,
    /// Number of pairs with a NaN or infinity on one side that the other side does not have.
    pub not_finite: usize,
    /// Number of elements farther apart than the tolerance.
    pub beyond: usize,
    /// Greatest |found − expected|; infinite if one element of a pair is not finite.
    #[serde(serialize_with = "with_infinities")]
    pub greatest_error: f64,
    /// Greatest |found − expected| / |expected|, over elements that are not expected to be 0.
    #[serde(serialize_with = "with_infinities")]
    pub greatest_relative_error: f64,
    /// Root mean square of found − expected, over finite pairs.
    #[serde(serialize_with = "with_infinities")]
    pub rms_error: f64,
    /// Cosine of the angle between both, over finite pairs. `None` if only one of them is 0 throughout, or if pairs
    /// differ and none is finite.
    pub cosine: Option<f64>,
    /// Agreement of the largest element in each row, for tensors of floats with two dimensions.
    pub top1: Option<Top1>,
    /// Pair with the greatest error; `None` if all pairs are equal.
    pub worst: Option<Worst>,
}

/// Agreement of the position of each row's largest element, the first of several. A row with NaN in only one tensor
/// does not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Top1 {
    /// Number of rows that agree.
    pub agree: usize,
    /// Number of all rows.
    pub rows: usize,
}

/// A pair of elements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// Its position, one number per dimension.
    pub index: Vec<usize>,
    /// Element that was found.
    #[serde(serialize_with = "with_infinities")]
    pub found: f64,
    /// Element that was expected.
    #[serde(serialize_with = "with_infinities")]
    pub expected: f64,
}

/// Sums over the pairs so far.
#[derive(Default)]
struct Pairs {
    not_finite: usize,
    beyond: usize,
    relative: f64,
    /// Position of the greatest error, and the error.
    worst: Option<(usize, f64)>,
    /// Number of finite pairs.
    finite: usize,
}

impl Difference {
    /// Compares two tensors. O(elements).
    ///
    /// Floats of different types are compared as numbers, so that a reference may have a wider type. The tolerance is
    /// used as given (see [`Tolerance::for_types`]). All other types have to be equal.
    ///
    /// # Errors
    /// If their types or shapes do not match, as a sentence.
    pub fn between(found: &Tensor, expected: &Tensor, tolerance: Tolerance) -> Result<Self, String> {
        let both_floats = found.dtype().is_float() && expected.dtype().is_float();
        if found.shape() != expected.shape() || found.dtype() != expected.dtype() && !both_floats {
            return Err(format!("it is {} instead of {}", found.spec(), expected.spec()));
        }
        let (a, b) = (numbers(found), numbers(expected));
        let mut pairs = Pairs::default();
        let exact = exact(found).zip(exact(expected));
        // Wide integers may differ even if their nearest floats are equal.
        let apart = |at: usize| exact.as_ref().map(|(a, b)| a(at).abs_diff(b(at)) as f64);
        for (at, (found, expected)) in a.iter().zip(&b).enumerate() {
            pairs.add(at, *found, *expected, apart(at), tolerance);
        }
        let finite = || {
            let all = a.iter().zip(&b).enumerate().filter(|(_, (a, b))| a.is_finite() && b.is_finite());
            all.map(|(at, (a, b))| [*a, *b, apart(at).unwrap_or_else(|| (a - b).abs())])
        };
        let dims = found.shape().dims();
        let [found, expected, errors] = [0, 1, 2].map(|of| Scaled::of(|| finite().map(move |pair| pair[of])));
        let worst = pairs.worst.map(|(at, _)| Worst { index: place(at, dims), found: a[at], expected: b[at] });
        Ok(Self {
            elements: b.len(),
            not_finite: pairs.not_finite,
            beyond: pairs.beyond,
            greatest_error: pairs.worst.map_or(0.0, |(_, error)| error),
            greatest_relative_error: pairs.relative,
            rms_error: errors.root_of_mean_square(pairs.finite),
            cosine: cosine(finite(), &found, &expected).filter(|_| pairs.finite > 0 || pairs.not_finite == 0),
            top1: top1(&a, &b, dims).filter(|_| both_floats),
            worst,
        })
    }
}

impl Pairs {
    fn add(&mut self, at: usize, found: f64, expected: f64, apart: Option<f64>, tolerance: Tolerance) {
        let same = found == expected || found.is_nan() && expected.is_nan();
        if !found.is_finite() || !expected.is_finite() {
            if !same {
                self.not_finite += 1;
                self.beyond += 1;
                self.note(at, f64::INFINITY);
                self.relative = f64::INFINITY;
            }
            return;
        }
        let error = apart.unwrap_or_else(|| (found - expected).abs());
        self.finite += 1;
        if error > 0.0 {
            // Integers have no tolerance.
            self.beyond += usize::from(apart.is_some() || !tolerance.admits(found, expected));
            self.note(at, error);
        }
        if expected != 0.0 {
            self.relative = self.relative.max(error / expected.abs());
        }
    }

    fn note(&mut self, at: usize, error: f64) {
        if self.worst.is_none_or(|(_, worst)| error > worst) {
            self.worst = Some((at, error));
        }
    }
}

/// Sum of squares of some numbers, scaled by the greatest: no square overflows or underflows.
struct Scaled {
    greatest: f64,
    squares: f64,
}

impl Scaled {
    fn of<I: Iterator<Item = f64>>(numbers: impl Fn() -> I) -> Self {
        let greatest = numbers().map(f64::abs).fold(0.0, f64::max);
        let part = |number: f64| if greatest > 0.0 { (number / greatest).powi(2) } else { 0.0 };
        Self { greatest, squares: numbers().map(part).fold(0.0, |sum, square| sum + square) }
    }

    fn root_of_mean_square(&self, count: usize) -> f64 {
        if self.greatest.is_finite() {
            self.greatest * (self.squares / count.max(1) as f64).sqrt()
        } else {
            self.greatest
        }
    }
}

fn cosine(pairs: impl Iterator<Item = [f64; 3]>, found: &Scaled, expected: &Scaled) -> Option<f64> {
    match (found.greatest == 0.0, expected.greatest == 0.0) {
        (true, true) => Some(1.0),
        (false, false) => {
            let product = |[a, b, _]: [f64; 3]| (a / found.greatest) * (b / expected.greatest);
            let products: f64 = pairs.map(product).sum();
            Some((products / (found.squares * expected.squares).sqrt()).clamp(-1.0, 1.0))
        }
        _ => None,
    }
}

/// Returns the elements as floats. Integers of more than 53 bits are rounded.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    let count = tensor.shape().elements();
    let integers = || exact(tensor).map(|element| (0..count).map(|at| element(at) as f64).collect());
    floats(tensor).or_else(integers).unwrap_or_default()
}

/// Returns the elements of a tensor of integers or bools, by position.
fn exact(tensor: &Tensor) -> Option<Box<dyn Fn(usize) -> i128 + '_>> {
    macro_rules! widened {
        ($type:ty) => {{
            let elements = tensor.elements::<$type>()?;
            Some(Box::new(move |at: usize| i128::from(elements[at])))
        }};
    }
    let bytes = tensor.bytes();
    match tensor.dtype() {
        dtype if dtype.is_float() => None,
        DType::I16 => widened!(i16),
        DType::I32 => widened!(i32),
        DType::I64 => widened!(i64),
        DType::U16 => widened!(u16),
        DType::U32 => widened!(u32),
        DType::U64 => widened!(u64),
        DType::I8 | DType::I4 | DType::I2 => Some(Box::new(move |at: usize| i128::from(bytes[at] as i8))),
        _ => Some(Box::new(move |at: usize| i128::from(bytes[at]))),
    }
}

/// Returns the index of an element, outermost dimension first.
fn place(at: usize, dims: &[usize]) -> Vec<usize> {
    let mut rest = at;
    let mut index: Vec<usize> = dims.iter().rev().map(|dim| (rest % dim.max(&1), rest /= dim.max(&1)).0).collect();
    index.reverse();
    index
}

fn top1(found: &[f64], expected: &[f64], dims: &[usize]) -> Option<Top1> {
    let [rows, columns] = *dims else { return None };
    if columns < 2 || rows == 0 {
        return None;
    }
    // Whether an element is NaN, and the position of the largest of the others.
    let first = |row: &[f64]| {
        let numbers = row.iter().enumerate().filter(|(_, element)| !element.is_nan());
        let largest = numbers.reduce(|best, next| if next.1 > best.1 { next } else { best });
        (row.iter().any(|element| element.is_nan()), largest.map(|(at, _)| at))
    };
    let agree = found.chunks(columns).zip(expected.chunks(columns)).filter(|(a, b)| first(a) == first(b)).count();
    Some(Top1 { agree, rows })
}

/// Writes numbers that JSON does not have as strings.
fn with_infinities<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() { serializer.serialize_f64(*value) } else { serializer.serialize_str(&value.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::Shape;
    use anabranch_kernels::dtype::Element;
    use half::f16;

    const TOLERANCE: Tolerance = Tolerance { rtol: 1e-3, atol: 1e-5 };

    fn tensor<T: Element>(dims: &[usize], elements: &[T]) -> Tensor {
        Tensor::from_elements(Shape::new(dims).expect("small"), elements).expect("as many")
    }

    #[test]
    fn errors_are_measured_as_the_definitions_say() {
        let (found, expected) =
            (tensor(&[2, 2], &[1.0f32, 2.5, -4.0, 0.0]), tensor(&[2, 2], &[1.0f32, 2.0, -4.0, 0.0]));
        let difference = Difference::between(&found, &expected, TOLERANCE).expect("of one shape");
        assert_eq!(
            (difference.greatest_error, difference.greatest_relative_error, difference.rms_error),
            (0.5, 0.25, 0.25)
        );
        let worst = Worst { index: vec![0, 1], found: 2.5, expected: 2.0 };
        assert_eq!((difference.worst, difference.beyond, difference.not_finite), (Some(worst), 1, 0));
        let cosine = (1.0 + 5.0 + 16.0) / (23.25f64.sqrt() * 21f64.sqrt());
        assert!((difference.cosine.expect("neither is 0") - cosine).abs() < 1e-15);
        assert_eq!(difference.top1, Some(Top1 { agree: 2, rows: 2 }));
    }

    #[test]
    fn what_is_not_finite_is_equal_to_itself_alone() {
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        let same =
            Difference::between(&tensor(&[3], &special), &tensor(&[3], &special), TOLERANCE).expect("of one shape");
        assert_eq!((same.beyond, same.greatest_error, &same.worst, same.cosine), (0, 0.0, &None, Some(1.0)));
        let turned = [f32::INFINITY, f32::NAN, 1.0];
        let other =
            Difference::between(&tensor(&[3], &turned), &tensor(&[3], &special), TOLERANCE).expect("of one shape");
        assert_eq!((other.beyond, other.not_finite, other.greatest_error), (3, 3, f64::INFINITY));
        assert!(other.cosine.is_none() && other.rms_error.to_bits() == 0);
        let json = serde_json::to_value(&other).expect("plain");
        assert_eq!((&json["greatest_error"], &json["worst"]["expected"]), (&"inf".into(), &"NaN".into()));
    }

    #[test]
    fn a_reference_may_be_wider_and_integers_are_exact() {
        let halves = tensor(&[2], &[f16::from_f32(0.1), f16::from_f32(3.0)]);
        let wide = Difference::between(&halves, &tensor(&[2], &[0.1f64, 3.0]), TOLERANCE).expect("both floats");
        assert!(wide.beyond == 0 && wide.greatest_error > 0.0);
        let tight = Tolerance { rtol: 1e-7, atol: 0.0 };
        let rounded =
            Difference::between(&halves, &tensor(&[2], &[0.1f32, 3.0]), tight.for_types(DType::F16, DType::F32));
        let rounded = rounded.expect("both floats");
        assert_eq!(rounded.beyond, 0, "one rounding to the narrower type is none of the run's errors");
        let (a, b) = (tensor(&[1], &[u64::MAX]), tensor(&[1], &[u64::MAX - 1]));
        let integers = Difference::between(&a, &b, TOLERANCE).expect("of one type");
        assert_eq!((integers.beyond, integers.greatest_error), (1, 1.0));
        let text = Difference::between(&a, &tensor(&[1], &[1i64]), TOLERANCE).expect_err("another type");
        assert_eq!(text, "it is u64[1] instead of i64[1]");
        let shape = Difference::between(&tensor(&[2, 1], &[0f32; 2]), &tensor(&[2], &[0f32; 2]), TOLERANCE);
        assert_eq!(shape.expect_err("another shape"), "it is f32[2×1] instead of f32[2]");
    }

    #[test]
    fn no_magnitude_is_too_large_or_too_small() {
        for scale in [1e300, 1e-300] {
            let (found, expected) =
                (tensor(&[2], &[3.0 * scale, 4.0 * scale]), tensor(&[2], &[4.0 * scale, 3.0 * scale]));
            let difference = Difference::between(&found, &expected, TOLERANCE).expect("of one shape");
            assert!((difference.rms_error / scale - 1.0).abs() < 1e-12, "{difference:?}");
            assert!((difference.cosine.expect("neither is 0") - 0.96).abs() < 1e-12, "{difference:?}");
        }
    }

    #[test]
    fn a_row_that_is_not_a_number_in_one_tensor_does_not_agree() {
        let agree = |found: &[f32], expected: &[f32]| {
            let difference = Difference::between(&tensor(&[1, 3], found), &tensor(&[1, 3], expected), TOLERANCE);
            difference.expect("of one shape").top1.expect("floats in rows").agree
        };
        assert_eq!(agree(&[f32::NAN, 1.0, 2.0], &[3.0, 1.0, 2.0]), 0);
        assert_eq!(agree(&[f32::NAN, 1.0, 2.0], &[f32::NAN, 1.0, 2.0]), 1);
        assert_eq!(agree(&[f32::NAN, 1.0, 2.0], &[f32::NAN, 2.0, 1.0]), 0);
        let far = Difference::between(&tensor(&[1], &[1e308f64]), &tensor(&[1], &[-1e308]), TOLERANCE);
        let json = serde_json::to_value(far.expect("of one shape")).expect("plain");
        assert_eq!(json["rms_error"], "inf");
    }

    #[test]
    fn nothing_and_scalars_are_compared() {
        let none = Difference::between(&tensor::<f32>(&[0, 4], &[]), &tensor::<f32>(&[0, 4], &[]), TOLERANCE);
        let none = none.expect("of one shape");
        assert_eq!((none.elements, none.rms_error, none.top1, none.cosine), (0, 0.0, None, Some(1.0)));
        let one = Difference::between(&tensor(&[], &[2f32]), &tensor(&[], &[1f32]), TOLERANCE).expect("of one shape");
        assert_eq!(one.worst.map(|worst| worst.index), Some(vec![]));
    }
}
