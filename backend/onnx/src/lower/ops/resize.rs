//! Resampling of images.

use super::expand::sizes;
use super::resample::{AxisPlan, Curve, Sampling, Weighting, by_axes, is_wide, weighed};
use super::{Builder, Entry, Fault, Operator, View, axes_in_order, numbers};
use anabranch_kernels::op::{Coordinates, Interpolation, NearestRounding, Op, Resize};
use anabranch_kernels::{Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[("Resize", resize), ("Upsample", upsample)];

/// Scale and output size along one axis.
#[derive(Clone, Copy, Debug, PartialEq)]
struct AxisScale {
    /// Numerator and denominator of the scale: sizes, or a given scale and 1.
    quotient: [f64; 2],
    size: usize,
}

impl AxisScale {
    fn scale(self) -> f64 {
        self.quotient[0] / self.quotient[1]
    }

    /// Whether the kernel finds the exact scale of an axis of `dim` elements from the sizes or from a number.
    fn is_exact(self, dim: usize) -> bool {
        let [made, read] = self.quotient;
        read == 1.0 || made * dim as f64 == self.size as f64 * read
    }
}

fn resize(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    if operator.opset < 11 {
        return by_scales(operator, builder, scales(operator, builder, 1)?, true);
    }
    let axes = axes_in_order(operator.node.ints("axes")?, x.rank())?;
    let mut targets: Vec<_> = x.dims().iter().map(|dim| AxisScale { quotient: [1.0; 2], size: *dim }).collect();
    for (axis, target) in axes.iter().zip(wanted(operator, builder, &axes)?) {
        targets[*axis] = target;
    }
    let interpolation = interpolation(operator)?;
    let (antialias, exclude) = (operator.flag("antialias", false)?, operator.flag("exclude_outside", false)?);
    let Some(coordinates) = coordinates(operator, x, &targets)?.filter(|_| !antialias && !exclude) else {
        return Ok(vec![by_weights(operator, builder, &axes, &targets, interpolation, [antialias, exclude])?]);
    };
    Ok(vec![resampled(builder, x, &targets, interpolation, coordinates)?])
}

/// Lowers the older operator, which has scales only, and coordinates without an offset.
fn upsample(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    if operator.opset < 7 {
        let scale = |name: &'static str| operator.node.float(name)?.ok_or_else(|| Fault::attribute(name, (), "there"));
        let scales = [1.0, 1.0, scale("height_scale")?, scale("width_scale")?];
        return by_scales(operator, builder, scales.map(f64::from).to_vec(), false);
    }
    let scales = match operator.node.floats("scales")? {
        Some(scales) if operator.opset < 9 => scales.iter().map(|scale| f64::from(*scale)).collect(),
        _ => scales(operator, builder, 1)?,
    };
    by_scales(operator, builder, scales, false)
}

fn by_scales(
    operator: &Operator<'_>,
    builder: &mut Builder,
    scales: Vec<f64>,
    may_shrink: bool,
) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    let axes: Vec<_> = (0..x.rank()).collect();
    let targets = by_scale(x, &axes, &scales)?;
    let shrinks = scales.iter().any(|scale| *scale < 1.0);
    if shrinks && (!may_shrink || scales.iter().any(|scale| *scale > 1.0)) {
        return Err(Fault::unsupported(format!("scales of {scales:?} in this version of the operator")));
    }
    let interpolation = match operator.string("mode", "nearest")? {
        "nearest" if shrinks => Interpolation::Nearest(NearestRounding::Ceil),
        "nearest" => Interpolation::Nearest(NearestRounding::Floor),
        "linear" | "bilinear" => Interpolation::Linear,
        other => return Err(Fault::attribute("mode", other, "nearest or linear")),
    };
    Ok(vec![resampled(builder, x, &targets, interpolation, Coordinates::Asymmetric)?])
}

fn scales(operator: &Operator<'_>, builder: &Builder, index: usize) -> Result<Vec<f64>, Fault> {
    let view = operator.input(index)?;
    let tensor = builder.tensor(view).ok_or_else(|| Fault::run_time(view.value, index, "scales"))?;
    numbers(&tensor).ok_or_else(|| Fault::invalid("the scales are not numbers"))
}

/// Returns scale and size for each of `axes`, from the input `sizes` or `scales`, of which one is given.
fn wanted(operator: &Operator<'_>, builder: &Builder, axes: &[usize]) -> Result<Vec<AxisScale>, Fault> {
    let x = operator.input(0)?;
    let given = |index: usize| operator.optional(index).is_some_and(|view| view.elements() > 0);
    if given(3) {
        let sizes = sizes(&operator.known_ints(builder, 3, "sizes")?, "sizes")?;
        return by_size(operator, x, axes, &sizes);
    }
    if given(2) {
        return by_scale(x, axes, &scales(operator, builder, 2)?);
    }
    Err(Fault::invalid("sizes and scales are missing"))
}

fn by_scale(x: &View, axes: &[usize], scales: &[f64]) -> Result<Vec<AxisScale>, Fault> {
    if scales.len() != axes.len() {
        return Err(Fault::invalid(format!("{} scales for {} axes", scales.len(), axes.len())));
    }
    let target = |(axis, scale): (&usize, &f64)| {
        let size = (x.dims()[*axis] as f64 * scale).floor();
        if !(*scale > 0.0 && size < isize::MAX as f64) {
            return Err(Fault::invalid(format!("a scale of {scale} for {} elements", x.dims()[*axis])));
        }
        Ok(AxisScale { quotient: [*scale, 1.0], size: size as usize })
    };
    axes.iter().zip(scales).map(target).collect()
}

fn by_size(operator: &Operator<'_>, x: &View, axes: &[usize], sizes: &[usize]) -> Result<Vec<AxisScale>, Fault> {
    if sizes.len() != axes.len() {
        return Err(Fault::invalid(format!("{} sizes for {} axes", sizes.len(), axes.len())));
    }
    let quotient = |(axis, size): (&usize, &usize)| [*size as f64, x.dims()[*axis].max(1) as f64];
    let is_less = |a: [f64; 2], b: [f64; 2]| a[0] / a[1] < b[0] / b[1];
    let quotients = || axes.iter().zip(sizes).map(quotient);
    let common = match operator.string("keep_aspect_ratio_policy", "stretch")? {
        "stretch" => None,
        "not_larger" => quotients().reduce(|a, b| if is_less(b, a) { b } else { a }),
        "not_smaller" => quotients().reduce(|a, b| if is_less(a, b) { b } else { a }),
        other => {
            return Err(Fault::attribute("keep_aspect_ratio_policy", other, "stretch, not_larger or not_smaller"));
        }
    };
    let target = |(axis, size): (&usize, &usize)| match common {
        None => AxisScale { quotient: quotient((axis, size)), size: *size },
        // Divided last, so that a half is exact.
        Some([made, read]) => {
            AxisScale { quotient: [made, read], size: (x.dims()[*axis] as f64 * made / read).round() as usize }
        }
    };
    Ok(axes.iter().zip(sizes).map(target).collect())
}

fn interpolation(operator: &Operator<'_>) -> Result<Interpolation, Fault> {
    match operator.string("mode", "nearest")? {
        "linear" => Ok(Interpolation::Linear),
        "cubic" => Ok(Interpolation::Cubic { coefficient: operator.float("cubic_coeff_a", -0.75)? }),
        "nearest" => Ok(Interpolation::Nearest(match operator.string("nearest_mode", "round_prefer_floor")? {
            "round_prefer_floor" => NearestRounding::RoundPreferFloor,
            "round_prefer_ceil" => NearestRounding::RoundPreferCeil,
            "floor" => NearestRounding::Floor,
            "ceil" => NearestRounding::Ceil,
            other => return Err(Fault::attribute("nearest_mode", other, "a rounding mode of the ONNX specification")),
        })),
        other => Err(Fault::attribute("mode", other, "nearest, linear or cubic")),
    }
}

/// Returns the coordinates of the interpolating kernel; `None` if it lacks the mode.
fn coordinates(operator: &Operator<'_>, x: &View, targets: &[AxisScale]) -> Result<Option<Coordinates>, Fault> {
    // Scales are rounded: the scale from 7 to 29 elements need not give 29 exactly.
    let is_whole = |(t, dim): (&AxisScale, &usize)| {
        let size = t.size as f64;
        (size - *dim as f64 * t.scale()).abs() <= 1e-6 * size
    };
    let whole = targets.iter().zip(x.dims()).all(is_whole);
    match operator.string("coordinate_transformation_mode", "half_pixel")? {
        "half_pixel" => Ok(Some(Coordinates::HalfPixel)),
        "pytorch_half_pixel" => Ok(Some(Coordinates::PytorchHalfPixel)),
        "asymmetric" => Ok(Some(Coordinates::Asymmetric)),
        // Equals `half_pixel` if the scales give whole sizes.
        "half_pixel_symmetric" if whole => Ok(Some(Coordinates::HalfPixel)),
        "align_corners" if whole => Ok(Some(Coordinates::AlignCorners)),
        "align_corners" | "half_pixel_symmetric" | "tf_crop_and_resize" => Ok(None),
        other => Err(Fault::attribute("coordinate_transformation_mode", other, "a mode of the ONNX specification")),
    }
}

/// Resamples the axes by the weights of all elements along each.
fn by_weights(
    operator: &Operator<'_>,
    builder: &mut Builder,
    axes: &[usize],
    targets: &[AxisScale],
    interpolation: Interpolation,
    [antialias, exclude_outside]: [bool; 2],
) -> Result<View, Fault> {
    let x = operator.input(0)?;
    let weighted = |curve| Sampling::Weighted(Weighting { curve, exclude_outside, antialias });
    let sampling = match interpolation {
        Interpolation::Linear => weighted(Curve::Linear),
        Interpolation::Cubic { coefficient } => weighted(Curve::Cubic(coefficient.into())),
        Interpolation::Nearest(rounding) => Sampling::Nearest(rounding),
    };
    let mode = operator.string("coordinate_transformation_mode", "half_pixel")?;
    let region = match (mode, operator.optional(1)) {
        ("tf_crop_and_resize", Some(view)) => {
            let region = builder.tensor(view).ok_or_else(|| Fault::run_time(view.value, 1, "roi"))?;
            numbers(&region).filter(|region| region.len() == 2 * axes.len())
        }
        _ => None,
    };
    if mode == "tf_crop_and_resize" && region.is_none() {
        return Err(Fault::invalid("the region is missing, or does not have two numbers per axis"));
    }
    let mut plans = Vec::new();
    for (place, axis) in axes.iter().enumerate() {
        let region = region.as_ref().map(|region| [region[place], region[place + axes.len()]]);
        let (target, size) = (targets[*axis], x.dims()[*axis]);
        if region.is_none() && target.size == size && target.scale() == 1.0 {
            continue;
        }
        if size == 0 {
            return Err(Fault::invalid(format!("axis {axis} has no element to resample")));
        }
        builder.reserve(target.size.saturating_mul(size_of::<Option<f64>>()))?;
        let coordinates = (0..target.size).map(|index| coordinate(mode, index, size, target, region));
        plans.push(AxisPlan { axis: *axis, coordinates: coordinates.collect(), scale: target.scale() });
    }
    let constant = operator.float("extrapolation_value", 0.0)?.into();
    by_axes(builder, x, &plans, sampling, constant)
}

/// Returns the coordinate in the input, of `size` elements, for an output's index; `None` outside a cut-out region.
/// Each coordinate is divided last, so that it is an integer or a half exactly if the coordinate of real numbers is.
fn coordinate(mode: &str, index: usize, size: usize, target: AxisScale, region: Option<[f64; 2]>) -> Option<f64> {
    let (x, last, [made, read]) = (index as f64, size as f64 - 1.0, target.quotient);
    // The output's exact length, less 1, is `gaps / read`.
    let gaps = made * size as f64 - read;
    if let Some([start, end]) = region {
        let at = match gaps == 0.0 {
            true => (start + end) * last / 2.0,
            false => (start * gaps + x * (end - start) * read) * last / gaps,
        };
        return (0.0..=last).contains(&at).then_some(at);
    }
    let shared = |coordinates: Coordinates| coordinates.at(index, [size, target.size], target.quotient);
    Some(match mode {
        "align_corners" if gaps == 0.0 => 0.0,
        "align_corners" => x * last * read / gaps,
        "half_pixel_symmetric" => ((2.0 * x + 1.0 - target.size as f64) * read + last * made) / (2.0 * made),
        "asymmetric" => shared(Coordinates::Asymmetric),
        "pytorch_half_pixel" => shared(Coordinates::PytorchHalfPixel),
        _ => shared(Coordinates::HalfPixel),
    })
}

/// Resamples two axes at a time, moved innermost; every interpolation here is separable.
fn resampled(
    builder: &mut Builder,
    x: &View,
    targets: &[AxisScale],
    interpolation: Interpolation,
    coordinates: Coordinates,
) -> Result<View, Fault> {
    let changed = |axis: &usize| targets[*axis].size != x.dims()[*axis] || targets[*axis].scale() != 1.0;
    let axes: Vec<_> = (0..x.rank()).filter(changed).collect();
    if let Some(axis) = axes.iter().find(|axis| x.dims()[**axis] == 0 && targets[**axis].size > 0) {
        return Err(Fault::invalid(format!("axis {axis} has no element to resample")));
    }
    if let Interpolation::Nearest(rounding) = interpolation
        && (is_wide(x.dtype()) || axes.iter().any(|axis| !targets[*axis].is_exact(x.dims()[*axis])))
    {
        // Elements are gathered if the kernel, which computes in floats, does not hold them or the scale.
        let mut plans = Vec::new();
        for axis in axes {
            let (target, dim) = (targets[axis], x.dims()[axis]);
            builder.reserve(target.size.saturating_mul(size_of::<Option<f64>>()))?;
            let places = (0..target.size).map(|at| Some(coordinates.at(at, [dim, target.size], target.quotient)));
            plans.push(AxisPlan { axis, coordinates: places.collect(), scale: target.scale() });
        }
        return by_axes(builder, x, &plans, Sampling::Nearest(rounding), 0.0);
    }
    let mut result = builder.cast(x, weighed(x.dtype()))?;
    for pair in axes.chunks(2) {
        let others = (0..x.rank()).filter(|axis| !pair.contains(axis));
        let order: Vec<_> = others.chain(pair.iter().copied()).collect();
        let inner = builder.transposed(&result, &order)?;
        let outer: Vec<_> = inner.dims()[..x.rank() - pair.len()].to_vec();
        let outer_elements: usize = outer.iter().product();
        let rows = if let [row, _] = pair { Some(*row) } else { None };
        let column = pair[pair.len() - 1];
        let size = |axis: usize| targets[axis].size;
        let read = [outer_elements, rows.map_or(1, |row| x.dims()[row]), x.dims()[column]];
        let made = [outer_elements, rows.map_or(1, size), size(column)];
        let scales = [rows.map_or(1.0, |row| targets[row].scale()), targets[column].scale()];
        let op = Op::Resize(Resize { interpolation, coordinates, scales });
        let output = TensorSpec::new(inner.dtype(), Shape::new(made)?);
        let resized = builder.emit_one(op, &[inner.reshaped(read)?], output)?;
        let dims = outer.iter().copied().chain(pair.iter().map(|axis| size(*axis))).collect::<Vec<_>>();
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(position, axis)| back[*axis] = position);
        result = builder.transposed(&resized.reshaped(dims)?, &back)?;
    }
    builder.cast(&result, x.dtype())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_give_exact_coordinates() {
        for (size, made) in (1..24).flat_map(|size| (1..40).map(move |made| (size, made))) {
            let target = AxisScale { quotient: [made as f64, size as f64], size: made };
            for index in 0..made {
                let [x, i, o] = [index, size, made].map(|number| number as i64);
                let half = [(2 * x + 1) * i - o, 2 * o];
                let corners = if o == 1 { [0, 1] } else { [x * (i - 1), o - 1] };
                let part = |number: i64| number as f64;
                for (mode, [above, below]) in [
                    ("half_pixel", half),
                    ("half_pixel_symmetric", half),
                    ("pytorch_half_pixel", if o == 1 { [0, 1] } else { half }),
                    ("align_corners", corners),
                    ("asymmetric", [x * i, o]),
                ] {
                    let at = coordinate(mode, index, size, target, None);
                    assert_eq!(at, Some(part(above) / part(below)), "{mode}: {index} of {size} to {made}");
                }
                // The whole image as a region, and its first half.
                for (end, [above, below]) in [(1.0, corners), (0.5, [corners[0], 2 * corners[1]])] {
                    let want = if o == 1 { end * part(i - 1) / 2.0 } else { part(above) / part(below) };
                    let at = coordinate("tf_crop_and_resize", index, size, target, Some([0.0, end]));
                    assert_eq!(at, Some(want), "{index} of {size} to {made}, up to {end}");
                }
            }
        }
    }
}
