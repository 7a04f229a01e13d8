//! Signals: windows, discrete Fourier transforms, and the mel scale's filters.

use super::cast::element_type;
use super::gather::chosen;
use super::{Builder, Entry, Fault, Operator, View, axis_of, domain_of, working};
use anabranch_kernels::op::{Fourier, Op};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use std::f64::consts::PI;

pub(super) const TABLE: &[Entry] = &[
    ("HannWindow", |o, b| window(o, b, [0.5, 0.5, 0.0])),
    ("HammingWindow", |o, b| window(o, b, [25.0 / 46.0, 21.0 / 46.0, 0.0])),
    ("BlackmanWindow", |o, b| window(o, b, [0.42, 0.5, 0.08])),
    ("MelWeightMatrix", mel),
    ("DFT", transform),
    ("STFT", short_transform),
];

/// Returns `a − b cos(2π n / N) + c cos(4π n / N)`; N is the size, or one less for a symmetric window.
fn window(operator: &Operator<'_>, builder: &mut Builder, [a, b, c]: [f64; 3]) -> Result<Vec<View>, Fault> {
    let size = operator.known_int(builder, 0, "size")?;
    let size = usize::try_from(size).map_err(|_| Fault::invalid(format!("a window of {size} elements")))?;
    let period = if operator.flag("periodic", true)? { size as f64 } else { size as f64 - 1.0 };
    builder.afford(size.saturating_mul(8))?;
    let at = |index: usize| {
        let angle = 2.0 * PI * index as f64 / period;
        a - b * angle.cos() + c * (2.0 * angle).cos()
    };
    let elements: Vec<f64> = (0..size).map(at).collect();
    let dtype = output_type(operator)?;
    let made = builder.table(working(dtype), vec![size], &elements)?;
    Ok(vec![builder.cast(&made, dtype)?])
}

fn output_type(operator: &Operator<'_>) -> Result<DType, Fault> {
    element_type(operator.int("output_datatype", 1)?)
}

/// Returns triangles over the bins of a spectrum, whose corners are equally far apart on the mel scale.
fn mel(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let mut given = [0.0; 5];
    for (index, value) in given.iter_mut().enumerate() {
        *value = operator.known_number(builder, index, "a parameter")?;
    }
    let [filters, length, rate, low, high] = given;
    let sound = (1.0..1e6).contains(&filters) && (1.0..1e8).contains(&length) && rate > 0.0 && low >= 0.0 && high > low;
    if !sound {
        return Err(Fault::invalid(format!("{filters} filters from {low} to {high} over {length} at {rate}")));
    }
    let (filters, bins) = (filters as usize, (length / 2.0).floor() as usize + 1);
    builder.afford(filters.saturating_mul(bins).saturating_mul(8))?;
    let scale = |hertz: f64| 2595.0 * (hertz / 700.0).ln_1p() / 10f64.ln();
    let step = (scale(high) - scale(low)) / (filters + 2) as f64;
    let corner = |index: usize| {
        let hertz = 700.0 * ((index as f64 * step + scale(low)) / 2595.0 * 10f64.ln()).exp_m1();
        ((length + 1.0) * hertz / rate).floor() as i64
    };
    let last = bins as i64 - 1;
    let mut elements = vec![0.0; filters * bins];
    for filter in 0..filters {
        let (left, middle, right) = (corner(filter), corner(filter + 1), corner(filter + 2));
        let mut put = |bin: i64, value: f64| {
            if let Some(bin) = usize::try_from(bin).ok().filter(|bin| *bin < bins) {
                elements[bin * filters + filter] = value;
            }
        };
        if middle == left {
            put(middle, 1.0);
        } else {
            (left..=middle.min(last)).for_each(|bin| put(bin, (bin - left) as f64 / (middle - left) as f64));
        }
        if right > middle {
            (middle..right.min(last + 1)).for_each(|bin| put(bin, (right - bin) as f64 / (right - middle) as f64));
        }
    }
    let dtype = output_type(operator)?;
    let made = builder.table(working(dtype), vec![bins, filters], &elements)?;
    Ok(vec![builder.cast(&made, dtype)?])
}

/// A requested transform.
#[derive(Clone, Copy)]
struct Transform {
    length: usize,
    inverse: bool,
    /// Whether only the half of the spectrum that determines the other half is made (forward) or read (inverse).
    onesided: bool,
}

/// Lowers a transform. The axis is an attribute before version 20, an input from there on.
fn transform(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let x = operator.ranked(0, 2)?;
    let axis = match operator.opset {
        ..20 => operator.int("axis", 1)?,
        _ if operator.optional(2).is_some() => operator.known_int(builder, 2, "axis")?,
        _ => -2,
    };
    let axis = axis_of(axis, x.rank())?;
    if axis + 1 == x.rank() {
        return Err(Fault::invalid("the last axis holds the real and imaginary parts, and cannot be transformed"));
    }
    let (inverse, onesided) = (operator.flag("inverse", false)?, operator.flag("onesided", false)?);
    let length = match operator.optional(1) {
        Some(_) => operator.known_int(builder, 1, "dft_length")?,
        None if inverse && onesided => 2 * (x.dims()[axis] as i64 - 1),
        None => x.dims()[axis] as i64,
    };
    let length = usize::try_from(length).ok().filter(|length| *length > 0);
    let length = length.ok_or_else(|| Fault::invalid("a transform without elements"))?;
    Ok(vec![transformed(builder, x, axis, Transform { length, inverse, onesided })?])
}

/// Transforms along an axis of `x`, whose last axis holds real parts, or real and imaginary parts.
fn transformed(builder: &mut Builder, x: &View, axis: usize, plan: Transform) -> Result<View, Fault> {
    let parts = x.dims()[x.rank() - 1];
    if !matches!(parts, 1 | 2) {
        return Err(Fault::invalid(format!("an input of shape {} has no real and imaginary parts", x.shape())));
    }
    let real_output = plan.inverse && plan.onesided;
    let half = plan.length / 2 + 1;
    let read = x.dims()[axis].min(if real_output { half } else { plan.length });
    let made = if plan.onesided && !plan.inverse { half } else { plan.length };
    let made_parts = if real_output { 1 } else { 2 };
    // The axis goes before the parts.
    let mut order: Vec<_> = (0..x.rank()).filter(|other| *other != axis && other + 1 < x.rank()).collect();
    order.extend([axis, x.rank() - 1]);
    let cut = builder.part(x, axis, 0, read)?;
    let moved = builder.transposed(&cut, &order)?;
    let outer = moved.dims()[..x.rank() - 2].to_vec();
    let count = outer.iter().product();
    let lines = builder.as_working(&moved.reshaped(vec![count, read, parts])?)?;
    let op = Op::Fourier(Fourier { length: plan.length, inverse: plan.inverse });
    let output = TensorSpec::new(lines.dtype(), Shape::new(vec![count, made, made_parts])?);
    let made = builder.emit_one(op, &[lines], output)?.reshaped([&outer[..], &[made, made_parts]].concat())?;
    let mut back: Vec<_> = (0..axis).collect();
    back.push(x.rank() - 2);
    back.extend(axis..x.rank() - 2);
    back.push(x.rank() - 1);
    let result = builder.transposed(&made, &back)?;
    builder.cast(&result, x.dtype())
}

/// Transforms windows that start a fixed number of elements apart.
fn short_transform(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let &[batch, size, parts] = x.dims() else {
        return Err(Fault::invalid(format!("a signal of shape {}, but three dimensions are needed", x.shape())));
    };
    let step = operator.known_int(builder, 1, "frame_step")?;
    let length = match (operator.optional(3), operator.optional(2)) {
        (Some(_), _) => operator.known_int(builder, 3, "frame_length")?,
        (None, Some(window)) => window.elements() as i64,
        (None, None) => size as i64,
    };
    let positive = |value: i64| usize::try_from(value).ok().filter(|value| *value > 0);
    let (Some(step), Some(length)) = (positive(step), positive(length).filter(|length| *length <= size)) else {
        return Err(Fault::invalid(format!("windows of {length} elements, {step} apart, of {size}")));
    };
    let frames = (size - length) / step + 1;
    builder.reserve(frames.saturating_mul(length).saturating_mul(8))?;
    let places: Vec<i64> = (0..frames).flat_map(|f| (0..length).map(move |i| (f * step + i) as i64)).collect();
    let places = Tensor::from_elements(Shape::new(vec![frames, length])?, &places).expect("a place for each");
    let places = builder.constant("places", places);
    let mut framed = chosen(builder, x, &places, 1, vec![batch, frames, length, parts])?;
    if operator.optional(2).is_some() {
        let window = operator.typed(2, x.dtype())?;
        if *window.dims() != [length] {
            return Err(Fault::invalid(format!("a window of shape {} for frames of {length}", window.shape())));
        }
        let window = window.reshaped(vec![length, 1])?;
        framed = builder.map(domain_of(x.dtype()), [&framed, &window], x.dtype(), |[x, window]| x * window)?;
    }
    let onesided = operator.flag("onesided", true)? && parts == 1;
    Ok(vec![transformed(builder, &framed, 2, Transform { length, inverse: false, onesided })?])
}
