//! Convolution over one or two axes.

use super::window::{AutoPad, Window, as_plane, output_dims, plane};
use super::{Entry, Rule};
use crate::lower::builder::Builder;
use crate::lower::compose::Epilogue;
use crate::lower::error::Fault;
use crate::lower::operator::Operator;
use crate::lower::view::View;
use anabranch_kernels::op::{Binary, Conv, Expression, Op};
use anabranch_kernels::{DType, Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[Entry::new("Conv", Rule::Call(conv))];

fn conv(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (x, weights) = operator.pair()?;
    let dtype = operator.float_input(0)?.dtype();
    let kernel = weights.dims().get(2..).filter(|_| weights.rank() == x.rank());
    let kernel = kernel.ok_or_else(|| {
        Fault::invalid(format!("weights of shape {} do not fit an input of shape {}", weights.shape(), x.shape()))
    })?;
    let mut window = Window::read(operator, x, Some(kernel))?;
    window.resolve(AutoPad::read(operator)?, plane(x)?)?;
    let group = operator.size("group", 1, 1)?;
    let filters = weights.dims()[0];
    check_channels(x.dims()[1], weights.dims()[1], filters, group)?;
    let [rows, columns] = window.output(plane(x)?, false)?;

    let x = builder.as_f32(x)?;
    let weights = builder.as_f32(weights)?;
    let bias = bias(operator, builder, 2, filters)?;
    let mut inputs = vec![as_plane(&x)?, as_plane(&weights)?];
    inputs.extend(bias.operands);
    let Window { strides, pads, dilations, .. } = window;
    let op = Op::Conv(Conv { strides, pads, dilations, group, epilogue: bias.expression });
    let output = TensorSpec::new(DType::F32, Shape::new(vec![x.dims()[0], filters, rows, columns])?);
    let result = builder.emit_one(op, &inputs, output)?;
    let result = result.reshaped(output_dims(&window, x.dims()[0], filters, [rows, columns]))?;
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

/// A value added to each channel of the result, where input `index` gives one.
pub(super) fn bias(
    operator: &Operator<'_>,
    builder: &mut Builder,
    index: usize,
    channels: usize,
) -> Result<Epilogue, Fault> {
    let Some(bias) = operator.optional(index) else { return Ok(Epilogue::default()) };
    operator.float_input(index)?;
    if *bias.dims() != [channels] {
        return Err(Fault::invalid(format!("a bias of shape {} for {channels} channels", bias.shape())));
    }
    let operand = builder.as_f32(bias)?.reshaped(vec![channels, 1, 1])?;
    Ok(Epilogue { expression: Some(Expression::binary(Binary::Add)), operands: vec![operand] })
}
