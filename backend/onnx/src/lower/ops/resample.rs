//! Resampling of one axis after the other, for features that the interpolating kernel lacks (antialiasing, weights that
//! exclude the outside, cut-out regions).
//!
//! Nearest elements are gathered. Curves are a product with a matrix, whose rows are the weights of the elements for
//! each output.
//!
//! Elements without weight are terms of such a product, too, so that an infinite element or NaN makes all of its line
//! NaN.

use super::gather::chosen;
use super::matmul::multiplied;
use super::{Builder, Fault, View, domain_of, working};
use anabranch_kernels::op::{Binary, NearestRounding};
use anabranch_kernels::{DType, Tensor};

/// The curve that gives the neighbours' weights.
#[derive(Clone, Copy, Debug)]
pub(super) enum Curve {
    /// A triangle.
    Linear,
    /// Cubic convolution (Keys 1981) with this coefficient.
    Cubic(f64),
}

impl Curve {
    /// Returns the weight at a distance.
    fn at(self, distance: f64) -> f64 {
        let d = distance.abs();
        match self {
            Self::Linear => (1.0 - d).max(0.0),
            Self::Cubic(a) if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
            Self::Cubic(a) if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
            Self::Cubic(_) => 0.0,
        }
    }

    /// Returns the distance beyond which weights are zero.
    fn reach(self) -> f64 {
        match self {
            Self::Linear => 1.0,
            Self::Cubic(_) => 2.0,
        }
    }
}

/// Resampling of one axis.
#[derive(Clone, Debug)]
pub(super) struct AxisPlan {
    pub(super) axis: usize,
    /// Coordinate in the input for each index of the output; `None` for a constant.
    pub(super) coordinates: Vec<Option<f64>>,
    /// Factor by which the output is larger.
    pub(super) scale: f64,
}

/// Computation of an element from the elements around its coordinate.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sampling {
    /// The element whose index the coordinate is rounded to, in this manner.
    Nearest(NearestRounding),
    /// The weighted sum of the elements.
    Weighted(Weighting),
}

/// Rules for the weights of neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weighting {
    pub(super) curve: Curve,
    /// Whether neighbours outside have no weight; otherwise they count as the outermost elements.
    pub(super) exclude_outside: bool,
    /// Whether the curve widens in proportion if the output is smaller.
    pub(super) antialias: bool,
}

impl Weighting {
    /// Returns the weights of `size` elements at a coordinate.
    fn row(self, at: f64, scale: f64, size: usize) -> Vec<f64> {
        let mut row = vec![0.0; size];
        let last = size as f64 - 1.0;
        let narrow = if self.antialias { scale.min(1.0) } else { 1.0 };
        let reach = (self.curve.reach() / narrow).ceil();
        let (low, high) = ((at - reach).floor() as i64, (at + reach).ceil() as i64);
        for index in low..=high {
            let weight = self.curve.at((index as f64 - at) * narrow);
            let place = (index as f64).clamp(0.0, last);
            if !(self.exclude_outside && place != index as f64) {
                row[place as usize] += weight;
            }
        }
        let sum: f64 = row.iter().sum();
        row.iter().map(|weight| weight / sum).collect()
    }
}

/// Resamples the axes of these plans one after the other; `constant` is used if there is no coordinate.
pub(super) fn by_axes(
    builder: &mut Builder,
    x: &View,
    plans: &[AxisPlan],
    sampling: Sampling,
    constant: f64,
) -> Result<View, Fault> {
    let work = match sampling {
        Sampling::Nearest(_) => x.dtype(),
        Sampling::Weighted(_) => weighed(x.dtype()),
    };
    let mut result = builder.cast(x, work)?;
    for plan in plans {
        result = match sampling {
            Sampling::Nearest(rounding) => nearest(builder, &result, plan, rounding)?,
            Sampling::Weighted(weighting) => weighted(builder, &result, plan, weighting)?,
        };
    }
    for plan in plans.iter().filter(|plan| plan.coordinates.contains(&None)) {
        let inside: Vec<f64> = plan.coordinates.iter().map(|at| f64::from(u8::from(at.is_some()))).collect();
        let mut dims = vec![1; x.rank()];
        dims[plan.axis] = inside.len();
        let inside = builder.table(working(work), dims, &inside)?;
        result = builder.map(domain_of(work), [&result, &inside], work, |[x, inside]| {
            inside.with(Binary::Greater, 0.0).select(x, constant)
        })?;
    }
    builder.cast(&result, x.dtype())
}

/// Returns the type in which elements are weighted: 64-bit floats for integers that 32-bit floats do not hold.
pub(super) const fn weighed(dtype: DType) -> DType {
    if is_wide(dtype) { DType::F64 } else { working(dtype) }
}

/// Whether the type has integers that an `f32` does not hold.
pub(super) const fn is_wide(dtype: DType) -> bool {
    matches!(dtype, DType::I32 | DType::U32 | DType::I64 | DType::U64)
}

fn nearest(builder: &mut Builder, x: &View, plan: &AxisPlan, rounding: NearestRounding) -> Result<View, Fault> {
    let last = x.dims()[plan.axis] as f64 - 1.0;
    let place = |at: &Option<f64>| at.map_or(0, |at| rounding.rounded(at).clamp(0.0, last) as i64);
    let places: Vec<_> = plan.coordinates.iter().map(place).collect();
    let mut dims = x.dims().to_vec();
    dims[plan.axis] = places.len();
    let places = builder.made(Tensor::from_i64s(&places))?;
    chosen(builder, x, &places, plan.axis, dims)
}

fn weighted(builder: &mut Builder, x: &View, plan: &AxisPlan, weighting: Weighting) -> Result<View, Fault> {
    let (size, made) = (x.dims()[plan.axis], plan.coordinates.len());
    let bytes = size.saturating_mul(made).saturating_mul(8);
    builder.afford(bytes)?;
    let zeros = || vec![0.0; size];
    let rows = plan.coordinates.iter().map(|at| at.map_or_else(zeros, |at| weighting.row(at, plan.scale, size)));
    let rows: Vec<Vec<f64>> = rows.collect();
    let columns: Vec<f64> = (0..size).flat_map(|index| rows.iter().map(move |row| row[index])).collect();
    let matrix = builder.table(x.dtype(), vec![size, made], &columns)?;
    let mut order: Vec<_> = (0..x.rank()).filter(|axis| *axis != plan.axis).collect();
    order.push(plan.axis);
    let moved = builder.transposed(x, &order)?;
    let product = multiplied(builder, &moved, &matrix)?;
    let mut back: Vec<_> = (0..plan.axis).collect();
    back.push(x.rank() - 1);
    back.extend(plan.axis..x.rank() - 1);
    builder.transposed(&product, &back)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(curve: Curve, exclude_outside: bool, antialias: bool) -> Weighting {
        Weighting { curve, exclude_outside, antialias }
    }

    #[test]
    fn the_weights_of_a_row_add_up_to_one() {
        for curve in [Curve::Linear, Curve::Cubic(-0.5)] {
            for (exclude, antialias) in [(false, false), (true, false), (false, true), (true, true)] {
                for at in [-0.4, 0.0, 1.3, 4.0, 4.7] {
                    let row = rules(curve, exclude, antialias).row(at, 0.3, 5);
                    assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{curve:?} at {at}");
                }
            }
        }
    }

    #[test]
    fn between_two_elements_both_count() {
        let row = rules(Curve::Linear, false, false).row(1.25, 2.0, 4);
        assert_eq!(row, [0.0, 0.75, 0.25, 0.0]);
        // Outside, the outermost element stands for its missing neighbour, or counts alone.
        assert_eq!(rules(Curve::Linear, false, false).row(-0.5, 2.0, 2), [1.0, 0.0]);
        let cubic = rules(Curve::Cubic(-0.5), true, false).row(0.0, 1.0, 3);
        assert_eq!(cubic, [1.0, 0.0, 0.0]);
    }
}
