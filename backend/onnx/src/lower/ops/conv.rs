//! Convolution over one to three axes.

use super::grid::grid_conv;
use super::window::{Window, as_plane, output_dims, plane};
use super::{Builder, Entry, Epilogue, Fault, Operator, View, working};
use anabranch_kernels::op::{Binary, Conv, Expression, Op, PadMode};
use anabranch_kernels::{Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[("Conv", conv)];

fn conv(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    if operator.input(0)?.rank() == 5 {
        return over_volume(operator, builder);
    }
    let Parts { x, weights, mut window, group } = Parts::read(operator)?;
    window.resolve(plane(x)?)?;
    let filters = weights.dims()[0];
    check_channels(x.dims()[1], weights.dims()[1], filters, group)?;
    if let Some(result) = grid_conv(operator, builder, (x, weights))? {
        return Ok(vec![result]);
    }
    let size = window.output(plane(x)?, false)?;
    let Window { strides, pads, dilations, .. } = window;
    let op = Op::Conv(Conv { strides, pads, dilations, group, epilogue: None });
    convolved(operator, builder, &window, filters, size, op)
}

/// Inputs and attributes of every convolution.
pub(super) struct Parts<'a> {
    pub(super) x: &'a View,
    pub(super) weights: &'a View,
    pub(super) window: Window,
    pub(super) group: usize,
}

impl<'a> Parts<'a> {
    pub(super) fn read(operator: &'a Operator<'_>) -> Result<Self, Fault> {
        let (x, weights) = operator.pair()?;
        operator.float_input(0)?;
        let kernel = weights.dims().get(2..).filter(|_| weights.rank() == x.rank());
        let kernel = kernel.ok_or_else(|| {
            Fault::invalid(format!("weights of shape {} do not fit an input of shape {}", weights.shape(), x.shape()))
        })?;
        let window = Window::read(operator, x, Some(kernel))?;
        Ok(Self { x, weights, window, group: operator.size("group", 1, 1)? })
    }
}

/// Emits the convolution `op` with the bias, to `filters` planes of this size.
pub(super) fn convolved(
    operator: &Operator<'_>,
    builder: &mut Builder,
    window: &Window,
    filters: usize,
    [rows, columns]: [usize; 2],
    op: Op,
) -> Result<Vec<View>, Fault> {
    let (x, weights) = operator.pair()?;
    let (dtype, images) = (x.dtype(), x.dims()[0]);
    let inputs = vec![as_plane(&builder.as_working(x)?)?, as_plane(&builder.as_working(weights)?)?];
    let bias = bias(operator, builder, filters)?;
    let output = TensorSpec::new(inputs[0].dtype(), Shape::new(vec![images, filters, rows, columns])?);
    let result = builder.emit_finished(op, inputs, bias, output)?;
    let result = result.reshaped(output_dims(window, images, filters, [rows, columns]))?;
    Ok(vec![builder.cast(&result, dtype)?])
}

/// Returns input, weights, windows across and along the depth, and groups of a convolution over three axes.
pub(super) fn volume<'a>(operator: &'a Operator<'_>) -> Result<(&'a View, &'a View, [Window; 2], usize), Fault> {
    let (x, weights) = operator.pair()?;
    operator.float_input(0)?;
    let kernel = weights.dims().get(2..).filter(|_| weights.rank() == 5);
    let kernel = kernel.ok_or_else(|| Fault::invalid(format!("weights of shape {}", weights.shape())))?;
    Ok((x, weights, Window::read_volume(operator, Some(kernel))?, operator.size("group", 1, 1)?))
}

/// Lowers a convolution over three axes as the sum of convolutions of planes, one for each element of the window along
/// the depth.
fn over_volume(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (x, weights, [mut across, mut along], group) = volume(operator)?;
    let kernel = &weights.dims()[2..];
    let &[images, channels, depth, rows, columns] = x.dims() else { return Err(Fault::missing(0)) };
    let (filters, in_each) = (weights.dims()[0], weights.dims()[1]);
    check_channels(channels, in_each, filters, group)?;
    across.resolve([rows, columns])?;
    along.resolve([depth, 1])?;
    let [made_depth, _] = along.output([depth, 1], false)?;
    let [made_rows, made_columns] = across.output([rows, columns], false)?;
    // Depth before channels, so that planes are images.
    let moved = builder.as_working(x)?;
    let moved = builder.transposed(&moved, &[0, 2, 1, 3, 4])?;
    let mut dims = moved.dims().to_vec();
    dims[1] = dims[1].saturating_add(along.pads[0]).saturating_add(along.pads[2]);
    let before = vec![0, along.pads[0] as isize, 0, 0, 0];
    let stack = builder.padded(&moved, PadMode::ZERO, before, dims)?;
    let weights = builder.as_working(weights)?;
    let mut sum = bias(operator, builder, filters)?;
    Builder::require_few(kernel[0], "planes of a window")?;
    for tap in 0..kernel[0] {
        let starts = vec![0, tap * along.dilations[0], 0, 0, 0];
        let steps = vec![1, along.strides[0] as isize, 1, 1, 1];
        let read = builder.sliced(&stack, starts, steps, vec![images, made_depth, channels, rows, columns])?;
        let planes = read.reshaped(vec![images.saturating_mul(made_depth), channels, rows, columns])?;
        let taken = builder.part(&weights, 2, tap, 1)?;
        let taken = taken.reshaped(vec![filters, in_each, kernel[1], kernel[2]])?;
        let Window { strides, pads, dilations, .. } = across;
        let op = Op::Conv(Conv { strides, pads, dilations, group, epilogue: None });
        let dims = [planes.dims()[0], filters, made_rows, made_columns];
        let output = TensorSpec::new(planes.dtype(), Shape::new(dims)?);
        let part = builder.emit_finished(op, vec![planes, taken], sum, output)?;
        sum = Epilogue { expression: Some(Expression::binary(Binary::Add)), operands: vec![part] };
    }
    let sum = sum.operands.pop().ok_or_else(|| Fault::invalid("a window without elements"))?;
    let stack = sum.reshaped(vec![images, made_depth, filters, made_rows, made_columns])?;
    let result = builder.transposed(&stack, &[0, 2, 1, 3, 4])?;
    Ok(vec![builder.cast(&result, x.dtype())?])
}

/// Checks that groups divide channels and filters; each filter has `in_each` channels.
pub(super) fn check_channels(channels: usize, in_each: usize, filters: usize, group: usize) -> Result<(), Fault> {
    if !channels.is_multiple_of(group) || !filters.is_multiple_of(group) {
        let counts = format!("{channels} channels and {filters} filters cannot be divided into {group} groups");
        return Err(Fault::invalid(counts));
    }
    let read = channels / group;
    if read == in_each {
        return Ok(());
    }
    Err(Fault::invalid(format!("filters over {in_each} channels, but each of {group} groups has {read}")))
}

/// Checks that there is a value for each channel.
pub(super) fn require_bias(bias: &View, channels: usize) -> Result<(), Fault> {
    if *bias.dims() == [channels] {
        return Ok(());
    }
    Err(Fault::invalid(format!("a bias of shape {} for {channels} channels", bias.shape())))
}

/// Returns an epilogue that adds a value to each channel of the result, if input 2 is given.
pub(super) fn bias(operator: &Operator<'_>, builder: &mut Builder, channels: usize) -> Result<Epilogue, Fault> {
    let Some(bias) = operator.optional(2) else { return Ok(Epilogue::default()) };
    operator.float_input(2)?;
    require_bias(bias, channels)?;
    let work = working(operator.input(0)?.dtype());
    let operand = builder.cast(bias, work)?.reshaped(vec![channels, 1, 1])?;
    Ok(Epilogue { expression: Some(Expression::binary(Binary::Add)), operands: vec![operand] })
}
