//! Moves elements: crops and pads around the middle, reverses up to a length, writes at positions, selects by bools,
//! and puts back elements of windows and pools.

use super::cached::{appended, judged};
use super::expand::sizes;
use super::gather::chosen;
use super::{Builder, Entry, Fault, Operator, View, axes_in_order, axis_of, domain_of};
use anabranch_kernels::op::{Binary, Domain, Op, PadMode, Scatter, ScatterKind};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};

pub(super) const TABLE: &[Entry] = &[
    ("CenterCropPad", crop_or_pad),
    ("ReverseSequence", reverse),
    ("TensorScatter", write_at),
    ("Compress", compress),
    ("Col2Im", fold_columns),
    ("MaxUnpool", unpool),
];

/// Cuts or pads each axis to a size around its middle; an odd element is cut or added at the end.
fn crop_or_pad(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    let wanted = sizes(&operator.known_ints(builder, 1, "shape")?, "shape")?;
    let axes = axes_in_order(operator.node.ints("axes")?, x.rank())?;
    if axes.len() != wanted.len() {
        return Err(Fault::invalid(format!("{} sizes for {} axes", wanted.len(), axes.len())));
    }
    let (mut dims, mut before) = (x.dims().to_vec(), vec![0; x.rank()]);
    for (axis, size) in axes.into_iter().zip(wanted) {
        let (less, more) = (size.min(dims[axis]), size.max(dims[axis]));
        let half = ((more - less) / 2) as isize;
        before[axis] = if size < dims[axis] { -half } else { half };
        dims[axis] = size;
    }
    if dims.iter().zip(x.dims()).all(|(size, own)| size <= own) {
        let starts = before.iter().map(|before| before.unsigned_abs()).collect();
        return Ok(vec![builder.sliced(x, starts, vec![1; x.rank()], dims)?]);
    }
    Ok(vec![builder.padded(x, PadMode::ZERO, before, dims)?])
}

/// For each element of the batch, reverses the first elements along time (their number is an input), and keeps the
/// others.
fn reverse(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.ranked(0, 2)?;
    let lengths = operator.typed(1, DType::I64)?;
    let (batch, time) = (operator.size("batch_axis", 0, 1)?, operator.size("time_axis", 0, 0)?);
    if batch.max(time) > 1 || batch == time || *lengths.dims() != [x.dims()[batch]] {
        let (lengths, x) = (lengths.shape(), x.shape());
        return Err(Fault::invalid(format!("lengths of shape {lengths} along axis {batch} of {x}, time along {time}")));
    }
    let steps = builder.indices(DType::I64, x.dims()[time], time, 2)?;
    let nowhere = (x.dims()[0] * x.dims()[1]) as f64 * -2.0;
    let mut dims = vec![1; 2];
    dims[batch] = x.dims()[batch];
    let lengths = lengths.reshaped(dims)?;
    let from = builder.map(Domain::I64, [&steps, &lengths], DType::I64, |[step, length]| {
        let inside = step.with(Binary::Less, length);
        let mirrored = length - step - 1.0;
        let from = inside.select(mirrored, step);
        // A length below 0 or beyond the axis gets no position at all, instead of another element's position.
        let more = length.with(Binary::Greater, x.dims()[time] as f64);
        length.with(Binary::Less, 0.0).with(Binary::Or, more).select(nowhere, from)
    })?;
    // Position among all pairs of time and batch.
    let items = builder.indices(DType::I64, x.dims()[batch], batch, 2)?;
    let (of_time, of_batch) = if time == 0 { (x.dims()[1], 1) } else { (1, x.dims()[1]) };
    let (of_time, of_batch) = (of_time as f64, of_batch as f64);
    let places = builder.map(Domain::I64, [&from, &items], DType::I64, |[from, item]| {
        let first = from * of_time;
        first + item * of_batch
    })?;
    let rest = &x.dims()[2..];
    let flat = x.reshaped([&[x.dims()[0] * x.dims()[1]], rest].concat())?;
    Ok(vec![chosen(builder, &flat, &places, 0, x.dims().to_vec())?])
}

/// Writes an update into a cache for each element of the batch, from a position of its own on, around the end if
/// requested.
fn write_at(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let cache = operator.ranked(0, 2)?;
    let update = operator.typed(1, cache.dtype())?;
    let axis = axis_of(operator.int("axis", -2)?, cache.rank())?;
    let same = |other: usize| other == axis || update.dims()[other] == cache.dims()[other];
    let fits = update.rank() == cache.rank() && (0..cache.rank()).all(same) && axis > 0;
    if !fits || update.dims()[axis] > cache.dims()[axis] {
        return Err(Fault::invalid(format!("an update of shape {} does not fit {}", update.shape(), cache.shape())));
    }
    let circular = match operator.string("mode", "linear")? {
        "linear" => false,
        "circular" => true,
        other => return Err(Fault::attribute("mode", other, "linear or circular")),
    };
    if update.elements() == 0 {
        return Ok(vec![cache.clone()]);
    }
    let (batch, last) = (cache.dims()[0], cache.dims()[axis] - update.dims()[axis]);
    let starts = match operator.optional(2) {
        Some(_) => {
            let starts = operator.typed(2, DType::I64)?.reshaped(vec![batch])?;
            if circular { starts } else { judged(builder, &starts, "write_indices", 0..=last)? }
        }
        None => builder.made(Tensor::from_i64s(&vec![0; batch]))?,
    };
    // The batch, the axes between, the axis, and those behind it.
    let lists = |of: &View| {
        let (between, behind) = (&of.dims()[1..axis], &of.dims()[axis + 1..]);
        of.reshaped(vec![batch, between.iter().product(), of.dims()[axis], behind.iter().product()])
    };
    let (size, own) = (cache.dims()[axis], lists(cache)?);
    let made = appended(builder, Some(&own), &lists(update)?, &starts, size, circular)?;
    Ok(vec![made.reshaped(cache.dims())?])
}

/// Returns the slices whose bool, which must be known, is true; without an axis, selects among all elements.
fn compress(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    operator.typed(1, DType::Bool)?;
    let truths = operator.known_ints(builder, 1, "condition")?;
    let (data, axis) = match operator.node.int("axis")? {
        Some(axis) => (x.clone(), axis_of(axis, x.rank())?),
        None => (x.reshaped(vec![x.elements()])?, 0),
    };
    let places: Vec<i64> = (0..truths.len()).filter(|at| truths[*at] != 0).map(|at| at as i64).collect();
    if truths.len() > data.dims()[axis] {
        return Err(Fault::invalid(format!("{} bools for {} slices", truths.len(), data.dims()[axis])));
    }
    let mut dims = data.dims().to_vec();
    dims[axis] = places.len();
    let places = builder.made(Tensor::from_i64s(&places))?;
    Ok(vec![chosen(builder, &data, &places, axis, dims)?])
}

/// Adds columns of windows back into the image from which they were taken, axis by axis: one strided sum for each
/// position in a window along the axis.
fn fold_columns(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let image = sizes(&operator.known_ints(builder, 1, "image_shape")?, "image_shape")?;
    let block = sizes(&operator.known_ints(builder, 2, "block_shape")?, "block_shape")?;
    let axes = image.len();
    let dilations = list(operator, "dilations", axes, Some(1))?;
    let pads = list(operator, "pads", 2 * axes, Some(0))?;
    let strides = list(operator, "strides", axes, Some(1))?;
    let taps = block.iter().fold(1usize, |taps, size| taps.saturating_mul(*size));
    let fits = x.rank() == 3 && block.len() == axes && taps > 0 && x.dims()[1].is_multiple_of(taps.max(1));
    if !fits || strides.contains(&0) || block.contains(&0) {
        return Err(Fault::invalid(format!("columns of shape {} for windows of {block:?}", x.shape())));
    }
    let padded: Vec<usize> =
        (0..axes).map(|axis| image[axis].saturating_add(pads[axis]).saturating_add(pads[axis + axes])).collect();
    let reach = |axis: usize| dilations[axis].saturating_mul(block[axis] - 1).saturating_add(1);
    if (0..axes).any(|axis| reach(axis) > padded[axis]) {
        return Err(Fault::invalid(format!("windows of {block:?} in an image of {padded:?}")));
    }
    let places: Vec<usize> = (0..axes).map(|axis| (padded[axis] - reach(axis)) / strides[axis] + 1).collect();
    let (batch, channels) = (x.dims()[0], x.dims()[1] / taps);
    // Sums of narrow floats are rounded once, in the end.
    let wide = builder.as_working(x)?;
    let mut sum = wide.reshaped([&[batch, channels], &block[..], &places[..]].concat())?;
    let dims = [&[batch, channels], &image[..]].concat();
    if sum.elements() == 0 {
        // In this case there may be any number of windows.
        return Ok(vec![builder.filled(TensorSpec::new(x.dtype(), Shape::new(dims)?), 0.0)?]);
    }
    for axis in (0..axes).rev() {
        let along = Along { window: 2 + axis, step: strides[axis], dilation: dilations[axis], size: padded[axis] };
        // The axes of the remaining windows' positions lie in between.
        sum = along.folded(builder, &sum, axis)?;
    }
    let starts = [&[0, 0], &pads[..axes]].concat();
    let image = builder.sliced(&sum, starts, vec![1; axes + 2], dims)?;
    Ok(vec![builder.cast(&image, x.dtype())?])
}

/// Most positions in a window along an axis: each becomes two nodes.
const MOST_PLACES: usize = 1 << 13;

/// An axis of windows.
struct Along {
    /// Axis of the windows' elements, which disappears.
    window: usize,
    step: usize,
    dilation: usize,
    /// Number of elements of the image.
    size: usize,
}

impl Along {
    /// Sums the elements of the windows along their axis; the axis of the windows' positions lies `behind` axes after
    /// it. The image's axis may be longer than requested, by less than a step.
    fn folded(&self, builder: &mut Builder, x: &View, behind: usize) -> Result<View, Fault> {
        let (taps, place) = (x.dims()[self.window], self.window + 1 + behind);
        Builder::require_at_most(MOST_PLACES, taps, "places in a window along an axis")?;
        // A step beyond the image is taken by a single position.
        let step = self.step.min(self.size);
        let steps = self.size.div_ceil(step);
        let (mut single, mut dims) = (x.dims().to_vec(), x.dims().to_vec());
        single.insert(place + 1, 1);
        let x = x.reshaped(single.clone())?;
        (single[self.window], single[place], single[place + 1]) = (1, steps, step);
        dims[place] = steps.saturating_mul(step);
        dims.remove(self.window);
        let mut parts = Vec::with_capacity(taps);
        for tap in 0..taps {
            let (mut before, shift) = (vec![0; single.len()], tap * self.dilation);
            (before[self.window], before[place], before[place + 1]) =
                (-(tap as isize), (shift / step) as isize, (shift % step) as isize);
            let part = builder.padded(&x, PadMode::ZERO, before, single.clone())?;
            parts.push(part.reshaped(dims.clone())?);
        }
        let (domain, dtype) = (domain_of(x.dtype()), x.dtype());
        let (first, rest) = parts.split_first().ok_or_else(|| Fault::invalid("a window without elements"))?;
        let mut sum = first.clone();
        for parts in rest.chunks(3) {
            sum = match parts {
                [a] => builder.map(domain, [&sum, a], dtype, |[sum, a]| sum + a)?,
                [a, b] => builder.map(domain, [&sum, a, b], dtype, |[sum, a, b]| sum + a + b)?,
                [a, b, c, ..] => builder.map(domain, [&sum, a, b, c], dtype, |[sum, a, b, c]| sum + a + b + c)?,
                [] => sum,
            };
        }
        Ok(sum)
    }
}

/// Returns this many sizes from an attribute; all are `default` if it is missing.
fn list(
    operator: &Operator<'_>,
    name: &'static str,
    length: usize,
    default: Option<usize>,
) -> Result<Vec<usize>, Fault> {
    let given = operator.node.sizes(name, length, 0..=i64::MAX)?;
    let given = given.or_else(|| default.map(|default| vec![default; length]));
    given.ok_or_else(|| Fault::attribute(name, (), "there"))
}

/// Puts elements back at the positions, counted over the whole output, at which a pool had found them.
fn unpool(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let places = operator.typed(1, DType::I64)?;
    operator.ranked(0, 3)?;
    let axes = x.rank() - 2;
    let kernel = list(operator, "kernel_shape", axes, None)?;
    let strides = list(operator, "strides", axes, Some(1))?;
    let pads = list(operator, "pads", 2 * axes, Some(0))?;
    let mut dims = x.dims()[..2].to_vec();
    for axis in 0..axes {
        // Without elements, the size by the definition is one stride less than a window's.
        let steps = x.dims()[2 + axis] as i128 - 1;
        let size =
            steps * strides[axis] as i128 + kernel[axis] as i128 - pads[axis] as i128 - pads[axis + axes] as i128;
        let wrong = || Fault::invalid(format!("{size} elements unpooled from a shape of {}", x.shape()));
        dims.push(usize::try_from(size).map_err(|_| wrong())?);
    }
    if places.shape() != x.shape() {
        return Err(Fault::invalid(format!("indices of shape {} for an input of {}", places.shape(), x.shape())));
    }
    let whole = Shape::new(dims.clone())?;
    let count = whole.elements();
    let zeros = builder.filled(TensorSpec::new(x.dtype(), Shape::new(vec![count, 1])?), 0.0)?;
    let inputs = [zeros, places.reshaped(vec![x.elements()])?, x.reshaped(vec![x.elements(), 1])?];
    let output = TensorSpec::new(x.dtype(), Shape::new(vec![count, 1])?);
    let op = Op::Scatter(Scatter { kind: ScatterKind::Replace });
    let made = builder.emit_one(op, &inputs, output)?.reshaped(dims.clone())?;
    match operator.optional(2) {
        None => Ok(vec![made]),
        Some(_) => {
            let wanted = sizes(&operator.known_ints(builder, 2, "output_shape")?, "output_shape")?;
            let fits = wanted.len() == dims.len() && wanted.iter().zip(&dims).all(|(wanted, dim)| wanted >= dim);
            if !fits {
                return Err(Fault::unsupported(format!("{dims:?} elements unpooled to {wanted:?}")));
            }
            Ok(vec![builder.padded(&made, PadMode::ZERO, vec![0; dims.len()], wanted)?])
        }
    }
}
