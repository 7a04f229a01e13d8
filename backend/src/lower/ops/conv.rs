//! Convolution over one or two axes.

use super::window::{Window, as_plane, output_dims, plane};
use super::{Builder, Entry, Epilogue, Fault, Operator, View};
use anabranch_kernels::op::{Binary, Conv, Expression, Op};
use anabranch_kernels::{DType, Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[("Conv", conv)];

fn conv(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let Parts { x, weights, mut window, group } = Parts::read(operator)?;
    window.resolve(plane(x)?)?;
    let filters = weights.dims()[0];
    check_channels(x.dims()[1], weights.dims()[1], filters, group)?;
    let size = window.output(plane(x)?, false)?;
    let Window { strides, pads, dilations, .. } = window;
    convolved(operator, builder, &window, filters, size, |epilogue| {
        Op::Conv(Conv { strides, pads, dilations, group, epilogue })
    })
}

/// What every convolution reads.
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

/// The convolution `op`, which is given the bias as its epilogue, to `filters` planes of this size.
pub(super) fn convolved(
    operator: &Operator<'_>,
    builder: &mut Builder,
    window: &Window,
    filters: usize,
    [rows, columns]: [usize; 2],
    op: impl FnOnce(Option<Expression>) -> Op,
) -> Result<Vec<View>, Fault> {
    let (x, weights) = operator.pair()?;
    let (dtype, images) = (x.dtype(), x.dims()[0]);
    let mut inputs = vec![as_plane(&builder.as_f32(x)?)?, as_plane(&builder.as_f32(weights)?)?];
    let bias = bias(operator, builder, filters)?;
    inputs.extend(bias.operands);
    let output = TensorSpec::new(DType::F32, Shape::new(vec![images, filters, rows, columns])?);
    let result = builder.emit_one(op(bias.expression), &inputs, output)?;
    let result = result.reshaped(output_dims(window, images, filters, [rows, columns]))?;
    Ok(vec![builder.cast(&result, dtype)?])
}

fn check_channels(channels: usize, in_each: usize, filters: usize, group: usize) -> Result<(), Fault> {
    let sound = channels.is_multiple_of(group) && filters.is_multiple_of(group) && channels / group == in_each;
    if sound {
        return Ok(());
    }
    Err(Fault::invalid(format!(
        "{channels} channels in {group} groups, to {filters} filters over {in_each} channels each"
    )))
}

/// A value added to each channel of the result, where input 2 gives one.
fn bias(operator: &Operator<'_>, builder: &mut Builder, channels: usize) -> Result<Epilogue, Fault> {
    let Some(bias) = operator.optional(2) else { return Ok(Epilogue::default()) };
    operator.float_input(2)?;
    if *bias.dims() != [channels] {
        return Err(Fault::invalid(format!("a bias of shape {} for {channels} channels", bias.shape())));
    }
    let operand = builder.as_f32(bias)?.reshaped(vec![channels, 1, 1])?;
    Ok(Epilogue { expression: Some(Expression::binary(Binary::Add)), operands: vec![operand] })
}
