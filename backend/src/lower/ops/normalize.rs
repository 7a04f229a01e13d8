//! Normalisation: batch (with stored statistics), layer, instance, group, root-mean-square, by a norm, across channels.

use super::{Builder, Entry, Epilogue, ExpressionBuilder, Fault, Operator, View, domain_of};
use anabranch_kernels::op::{Binary, Domain, Normalize, Op, Pool, PoolKind, ReduceKind, Register, Unary};
use anabranch_kernels::{DType, Shape, TensorSpec};
use std::slice::from_ref;

pub(super) const TABLE: &[Entry] = &[
    ("BatchNormalization", batch),
    ("LayerNormalization", layer),
    ("InstanceNormalization", instance),
    ("GroupNormalization", group),
    ("RMSNormalization", |o, b| trailing(o, b, false)),
    ("LpNormalization", by_norm),
    ("LRN", across_channels),
];

/// `x · s + t` with `s = scale / √(variance + ε)` and `t = bias − mean · s`, which fold where they are constant.
fn batch(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    if operator.flag("training_mode", false)? || !operator.flag("spatial", true)? {
        return Err(Fault::unsupported("it computes statistics, or one for each element"));
    }
    operator.only_outputs(1, "of statistics")?;
    operator.float_input(0)?;
    let x = operator.ranked(0, 2)?;
    let channels = x.dims()[1];
    let mut parameters = Vec::with_capacity(4);
    for index in 1..5 {
        parameters.push(channel_parameter(operator, builder, x, index, channels)?);
    }
    let work = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let [scale, bias, mean, variance] = &parameters[..] else { return Err(Fault::missing(4)) };

    let mut expression = ExpressionBuilder::new(domain_of(work), 2);
    let shifted = expression.with(Binary::Add, Register(1), operator.float("epsilon", 1e-5)?.into());
    let deviation = expression.unary(Unary::Sqrt, shifted);
    expression.binary(Binary::Divide, Register(0), deviation);
    let factor = builder.map(expression, &[scale.clone(), variance.clone()], work)?;

    let mut expression = ExpressionBuilder::new(domain_of(work), 3);
    let moved = expression.binary(Binary::Multiply, Register(1), Register(2));
    expression.binary(Binary::Subtract, Register(0), moved);
    let offset = builder.map(expression, &[bias.clone(), mean.clone(), factor.clone()], work)?;

    let mut expression = ExpressionBuilder::new(domain_of(x.dtype()), 3);
    let scaled = expression.binary(Binary::Multiply, Register(0), Register(1));
    expression.binary(Binary::Add, scaled, Register(2));
    Ok(vec![builder.map(expression, &[x.clone(), factor, offset], x.dtype())?])
}

fn layer(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.only_outputs(1, "of statistics")?;
    trailing(operator, builder, true)
}

/// Normalisation over all axes from `axis` on, with a scale and a bias of the shape of those axes.
fn trailing(operator: &Operator<'_>, builder: &mut Builder, center: bool) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let x = operator.ranked(0, 1)?;
    let axis = operator.axis(-1, x.rank())?;
    let mut parameters = Vec::new();
    for index in [1, 2] {
        if operator.optional(index).is_some() {
            let parameter = operator.float_input(index)?;
            parameter.shape().broadcast_strides(x.shape())?;
            parameters.push(builder.as_f32(parameter)?);
        }
    }
    let rows = x.dims()[..axis].iter().product();
    let columns = x.dims()[axis..].iter().product();
    normalized(operator, builder, [rows, columns], center, parameters)
}

fn instance(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.ranked(0, 3)?;
    let scale = channel_parameter(operator, builder, x, 1, x.dims()[1])?;
    let bias = channel_parameter(operator, builder, x, 2, x.dims()[1])?;
    grouped(operator, builder, x.dims()[1], scale, bias)
}

/// Before version 21 there is one scale and bias for each group, from there on for each channel.
fn group(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.ranked(0, 3)?;
    let channels = x.dims()[1];
    let groups = operator.size("num_groups", 1, 0)?;
    if groups == 0 || !channels.is_multiple_of(groups) {
        return Err(Fault::attribute("num_groups", groups, format!("a divisor of the {channels} channels")));
    }
    let mut parameter = |index: usize| {
        let own = operator.input(index)?;
        if operator.opset >= 21 || *own.dims() == [channels] {
            return channel_parameter(operator, builder, x, index, channels);
        }
        let groupwise = channel_parameter(operator, builder, x, index, groups)?.reshaped(vec![groups, 1])?;
        let spread = builder.expanded(&groupwise, Shape::new(vec![groups, channels / groups])?)?;
        spread.reshaped(channel_dims(x, channels))
    };
    let (scale, bias) = (parameter(1)?, parameter(2)?);
    grouped(operator, builder, groups, scale, bias)
}

/// Normalisation over each of `groups` groups of channels of each element of the batch.
fn grouped(
    operator: &Operator<'_>,
    builder: &mut Builder,
    groups: usize,
    scale: View,
    bias: View,
) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    operator.float_input(0)?;
    let rows = x.dims()[0].saturating_mul(groups);
    let columns = x.elements().checked_div(rows).unwrap_or(0);
    let parameters = vec![builder.as_f32(&scale)?, builder.as_f32(&bias)?];
    normalized(operator, builder, [rows, columns], true, parameters)
}

/// Input 0 read as `rows` rows, each normalised, then times the first of `parameters` and plus the second, if they are
/// there.
fn normalized(
    operator: &Operator<'_>,
    builder: &mut Builder,
    rows: [usize; 2],
    center: bool,
    parameters: Vec<View>,
) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    let epilogue = scaled(parameters);
    let op = Normalize { axis: 1, epsilon: operator.float("epsilon", 1e-5)?, center, epilogue: epilogue.expression };
    let mut inputs = vec![builder.as_f32(x)?.reshaped(rows)?];
    inputs.extend(epilogue.operands);
    let output = TensorSpec::new(DType::F32, x.shape().clone());
    let result = builder.emit_one(Op::Normalize(op), &inputs, output)?;
    Ok(vec![builder.cast(&result, x.dtype())?])
}

fn scaled(operands: Vec<View>) -> Epilogue {
    if operands.is_empty() {
        return Epilogue::default();
    }
    let mut expression = ExpressionBuilder::new(Domain::F32, 1 + operands.len());
    let scaled = expression.binary(Binary::Multiply, Register(0), Register(1));
    if operands.len() > 1 {
        expression.binary(Binary::Add, scaled, Register(2));
    }
    Epilogue { expression: Some(expression.finish()), operands }
}

/// `x / ‖x‖` along an axis, with the sum of magnitudes or the root of the sum of squares; 0 where that is 0.
fn by_norm(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let x = operator.ranked(0, 1)?;
    let axis = operator.axis(-1, x.rank())?;
    let kind = match operator.int("p", 2)? {
        1 => ReduceKind::SumOfMagnitudes,
        2 => ReduceKind::SumOfSquares,
        other => return Err(Fault::attribute("p", other, "1 or 2")),
    };
    let sum = builder.reduced(x, kind, &[axis])?;
    let mut expression = ExpressionBuilder::new(domain_of(x.dtype()), 2);
    let mut norm = Register(1);
    if kind == ReduceKind::SumOfSquares {
        norm = expression.unary(Unary::Sqrt, norm);
    }
    let quotient = expression.binary(Binary::Divide, Register(0), norm);
    let zero = expression.literal(0.0);
    let nothing = expression.binary(Binary::Equal, norm, zero);
    expression.select(nothing, zero, quotient);
    Ok(vec![builder.map(expression, &[x.clone(), sum], x.dtype())?])
}

/// `x / (bias + α/size · Σ x²)^β`, the sum over the `size` channels around each.
fn across_channels(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let x = operator.ranked(0, 2)?;
    let (batch, channels) = (x.dims()[0], x.dims()[1]);
    let size = operator.size("size", 1, 0)?;
    if size == 0 || size > 1 << 20 {
        return Err(Fault::attribute("size", size, "a number of channels"));
    }
    let rest: usize = x.dims()[2..].iter().product();
    let flat = builder.as_f32(x)?.reshaped(vec![batch, 1, channels, rest])?;
    let square = builder.map(
        ExpressionBuilder::of_two(Domain::F32, Binary::Multiply),
        &[flat.clone(), flat.clone()],
        DType::F32,
    )?;
    let pool = Pool {
        kind: PoolKind::Average { count_padding: true },
        window: [size, 1],
        strides: [1, 1],
        pads: [(size - 1) / 2, 0, size / 2, 0],
        dilations: [1, 1],
    };
    let mean = builder.emit_one(Op::Pool(pool), from_ref(&square), square.spec.clone())?;
    let mut expression = ExpressionBuilder::new(Domain::F32, 2);
    let scaled = expression.with(Binary::Multiply, Register(1), operator.float("alpha", 1e-4)?.into());
    let base = expression.with(Binary::Add, scaled, operator.float("bias", 1.0)?.into());
    let divisor = expression.with(Binary::Power, base, operator.float("beta", 0.75)?.into());
    expression.binary(Binary::Divide, Register(0), divisor);
    let result = builder.map(expression, &[flat, mean], DType::F32)?;
    Ok(vec![builder.cast(&result.reshaped(x.dims())?, x.dtype())?])
}

/// Input `index`, a number for each of `count` channels, read such that it broadcasts over `x`; in `f64` if `x` is, else
/// in `f32`.
fn channel_parameter(
    operator: &Operator<'_>,
    builder: &mut Builder,
    x: &View,
    index: usize,
    count: usize,
) -> Result<View, Fault> {
    let parameter = operator.float_input(index)?;
    if *parameter.dims() != [count] {
        let reason = format!("input {index} has shape {}, not one element for each of {count}", parameter.shape());
        return Err(Fault::invalid(reason));
    }
    let work = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    builder.cast(parameter, work)?.reshaped(channel_dims(x, count))
}

/// `count` along the channels' axis, 1 along those after it.
fn channel_dims(x: &View, count: usize) -> Vec<usize> {
    let mut dims = vec![1; x.rank() - 1];
    dims[0] = count;
    dims
}
