//! Transposed convolution over one to three axes.

use super::conv::{Parts, bias, convolved, volume};
use super::window::{Window, plane, sizes};
use super::{Builder, Entry, Fault, Operator, View, domain_of};
use anabranch_kernels::op::{ConvTranspose, Op, PadMode};
use anabranch_kernels::{Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[("ConvTranspose", conv_transpose)];

/// Most planes between two of the input's planes in the output of three axes: each is a node's.
const MOST_TURNS: usize = 256;

fn conv_transpose(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    if operator.input(0)?.rank() == 5 {
        return over_volume(operator, builder);
    }
    let Parts { x, weights, mut window, group } = Parts::read(operator)?;
    let filters = filters(x, weights, group)?;
    let input = plane(x)?;
    let extra = sizes(operator, "output_padding", window.axes, 0)?.unwrap_or([0; 2]);
    let extra = if window.axes == 1 { [0, extra[1]] } else { extra };
    let asked = sizes(operator, "output_shape", window.axes, 1)?;
    let mut size = [0; 2];
    for axis in 0..2 {
        let asked = match asked {
            None if window.axes == 1 && axis == 0 && window.keeps_size() => Some(1),
            asked => asked.map(|asked| asked[axis]),
        };
        size[axis] = output_size(&mut window, axis, input[axis], extra[axis], asked)?;
    }
    let Window { strides, pads, dilations, .. } = window;
    let op = Op::ConvTranspose(ConvTranspose { strides, pads, dilations, group, epilogue: None });
    convolved(operator, builder, &window, filters, size, op)
}

/// Returns the number of filters of all groups together.
fn filters(x: &View, weights: &View, group: usize) -> Result<usize, Fault> {
    if x.dims()[1] != weights.dims()[0] || !x.dims()[1].is_multiple_of(group) {
        let (channels, rows) = (x.dims()[1], weights.dims()[0]);
        return Err(Fault::invalid(format!("{channels} channels in {group} groups, weights for {rows} channels")));
    }
    weights.dims()[1].checked_mul(group).ok_or_else(|| Fault::invalid(format!("{group} groups")))
}

/// Returns the output's size along an axis of `window`. If the size is requested, by number or as the input's times the
/// stride, the border is chosen to reach it.
fn output_size(
    window: &mut Window,
    axis: usize,
    input: usize,
    extra: usize,
    asked: Option<usize>,
) -> Result<usize, Fault> {
    let stride = window.strides[axis];
    if extra >= stride.max(window.dilations[axis]) {
        return Err(Fault::attribute("output_padding", extra, "smaller than the stride or the dilation"));
    }
    let too_long = || Fault::invalid(format!("{input} elements at strides of {:?}", window.strides));
    let reach = window.extent(axis)?.checked_add(extra).ok_or_else(too_long)?;
    let full = match input {
        // By the definition, a stride is missing.
        0 => reach.saturating_sub(stride),
        _ => (input - 1).checked_mul(stride).and_then(|steps| steps.checked_add(reach)).ok_or_else(too_long)?,
    };
    let asked = match asked {
        None if window.keeps_size() => Some(input.checked_mul(stride).ok_or_else(too_long)?),
        asked => asked,
    };
    if let Some(asked) = asked {
        window.set_border(axis, full.saturating_sub(asked));
        return Ok(asked);
    }
    let (before, after) = (window.pads[axis], window.pads[axis + 2]);
    let left = full.checked_sub(before).and_then(|left| left.checked_sub(after)).filter(|left| *left > 0);
    left.ok_or_else(|| Fault::invalid(format!("no element is left of {full} when {before} and {after} are cut off")))
}

/// Lowers a transposed convolution over three axes.
///
/// Planes are convolved for each element of the window along the depth. Planes with equal remainder by the stride fall
/// on the same planes of the output, where they are added up. The remainders are then interleaved.
fn over_volume(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (x, weights, [mut across, mut along], group) = volume(operator)?;
    let kernel = weights.dims()[2..].to_vec();
    let (filters, in_each) = (filters(x, weights, group)?, weights.dims()[1]);
    let &[images, channels, depth, rows, columns] = x.dims() else { return Err(Fault::missing(0)) };
    let extra = operator.node.sizes("output_padding", 3, 0..=i64::MAX)?.unwrap_or_else(|| vec![0; 3]);
    let asked = operator.node.sizes("output_shape", 3, 1..=i64::MAX)?;
    let asked = |axis: usize| asked.as_ref().map(|asked| asked[axis]);
    let made_depth = output_size(&mut along, 0, depth, extra[0], asked(0))?;
    let made_rows = output_size(&mut across, 0, rows, extra[1], asked(1))?;
    let made_columns = output_size(&mut across, 1, columns, extra[2], asked(2))?;

    // Depth before channels, so that planes are images.
    let planes = builder.as_working(x)?;
    let work = planes.dtype();
    let planes = builder.transposed(&planes, &[0, 2, 1, 3, 4])?;
    let planes = planes.reshaped(vec![images.saturating_mul(depth), channels, rows, columns])?;
    let weights = builder.as_working(weights)?;
    let (stride, dilation) = (along.strides[0], along.dilations[0]);
    let turns = stride.min(made_depth.saturating_add(along.pads[0])).max(1);
    if turns > MOST_TURNS {
        return Err(Fault::unsupported(format!("a stride of {stride} along the depth")));
    }
    Builder::require_few(kernel[0], "planes of a window")?;
    let reach = (kernel[0] - 1).saturating_mul(dilation) / stride;
    let wide = [images, depth.saturating_add(reach), filters, made_rows, made_columns];
    let mut turned: Vec<Option<View>> = vec![None; turns];
    for tap in 0..kernel[0] {
        let (later, turn) = (tap * dilation / stride, tap * dilation % stride);
        // Planes beyond the output's last plane are not needed.
        let Some(sum) = turned.get_mut(turn) else { continue };
        let taken = builder.part(&weights, 2, tap, 1)?;
        let taken = taken.reshaped(vec![channels, in_each, kernel[1], kernel[2]])?;
        let Window { strides, pads, dilations, .. } = across;
        let op = Op::ConvTranspose(ConvTranspose { strides, pads, dilations, group, epilogue: None });
        let dims = [planes.dims()[0], filters, made_rows, made_columns];
        let part = builder.emit_one(op, &[planes.clone(), taken], TensorSpec::new(work, Shape::new(dims)?))?;
        let part = part.reshaped(vec![images, depth, filters, made_rows, made_columns])?;
        let before = vec![0, later as isize, 0, 0, 0];
        let part = builder.padded(&part, PadMode::ZERO, before, wide.to_vec())?;
        *sum = Some(match sum.take() {
            None => part,
            Some(sum) => builder.map(domain_of(work), [&sum, &part], work, |[sum, part]| sum + part)?,
        });
    }
    let mut parts = Vec::with_capacity(turns);
    for part in turned {
        let part = match part {
            Some(part) => part,
            None => builder.filled(TensorSpec::new(work, Shape::new(wide)?), 0.0)?,
        };
        parts.push(part.reshaped(vec![images, wide[1], 1, filters, made_rows, made_columns])?);
    }
    let stack = builder.concatenated(&parts, 2)?;
    let stack = stack.reshaped(vec![images, wide[1].saturating_mul(turns), filters, made_rows, made_columns])?;
    let before = vec![0, -(along.pads[0] as isize), 0, 0, 0];
    let dims = vec![images, made_depth, filters, made_rows, made_columns];
    let stack = builder.padded(&stack, PadMode::ZERO, before, dims)?;
    let result = builder.transposed(&stack, &[0, 2, 1, 3, 4])?;
    let added = bias(operator, builder, filters)?;
    let result = match added.operands.first() {
        None => result,
        Some(bias) => {
            let bias = bias.reshaped(vec![filters, 1, 1, 1])?;
            builder.map(domain_of(work), [&result, &bias], work, |[x, bias]| x + bias)?
        }
    };
    Ok(vec![builder.cast(&result, x.dtype())?])
}
