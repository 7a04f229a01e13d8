//! Normalisation: batch (with stored statistics), layer, instance, group, root-mean-square, by a norm, across channels.

use super::{
    Builder, Entry, Epilogue, Fault, Operator, View, axes_of, domain_of, element_of, expression, numbers, working,
};
use anabranch_kernels::op::{Binary, Domain, Normalize, Op, Pool, PoolKind, ReduceKind, Unary};
use anabranch_kernels::{DType, Shape, TensorSpec};
use std::slice::from_ref;

pub(super) const TABLE: &[Entry] = &[
    ("BatchNormalization", batch),
    ("LayerNormalization", layer),
    ("InstanceNormalization", instance),
    ("GroupNormalization", group),
    ("RMSNormalization", |o, b| trailing(o, b, false)),
    // Not in the standard; ONNX Runtime's optimiser puts it into the standard domain.
    ("SimplifiedLayerNormalization", |o, b| trailing(o, b, false)),
    ("LpNormalization", by_norm),
    ("LRN", across_channels),
    ("MeanVarianceNormalization", by_moments),
];

/// Returns `x · s + t` with `s = scale / √(variance + ε)` and `t = bias − mean · s`, which fold if they are constant.
///
/// If they are not constant, or `t` is not finite, returns `(x − mean) · s + bias`.
fn batch(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let training = operator.flag("training_mode", operator.opset < 7 && !operator.flag("is_test", false)?)?;
    if training && operator.opset < 14 {
        return Err(Fault::unsupported("training mode, in a version before 14"));
    }
    // Before version 9 there may be statistics per element instead of per channel.
    let spatial = operator.opset >= 9 || operator.flag("spatial", true)?;
    if training && !spatial {
        return Err(Fault::unsupported("training mode, with statistics per element"));
    }
    if !training {
        operator.only_outputs(1, "of statistics")?;
    }
    operator.float_input(0)?;
    let x = operator.ranked(0, 2)?;
    let channels = x.dims()[1];
    let mut parameters = Vec::with_capacity(4);
    for index in 1..5 {
        parameters.push(match spatial {
            true => channel_parameter(operator, builder, x, index, channels)?,
            false => element_parameter(operator, builder, x, index)?,
        });
    }
    let work = statistics_type(operator)?;
    let mut statistics = Vec::new();
    if training {
        let axes: Vec<_> = (0..x.rank()).filter(|axis| *axis != 1).collect();
        let x = builder.cast(x, work)?;
        let own = moments(builder, &x, &axes)?;
        let momentum = f64::from(operator.float("momentum", 0.9)?);
        for (index, own) in [(3, own.0), (4, own.1)] {
            let running = &mut parameters[index - 1];
            let own = own.reshaped(running.dims())?;
            let next =
                builder.map(domain_of(work), [&*running, &own], operator.input(index)?.dtype(), |[old, new]| {
                    let kept = old * momentum;
                    kept + new * (1.0 - momentum)
                })?;
            statistics.push(next.reshaped(vec![channels])?);
            *running = own;
        }
    }
    let [scale, bias, mean, variance] = &parameters[..] else { return Err(Fault::missing(4)) };

    let epsilon = f64::from(operator.float("epsilon", 1e-5)?);
    let factor = builder.map(domain_of(work), [scale, variance], work, |[scale, variance]| {
        scale / (variance + epsilon).apply(Unary::Sqrt)
    })?;
    let offset =
        builder.map(domain_of(work), [bias, mean, &factor], work, |[bias, mean, factor]| bias - mean * factor)?;
    // Two steps if offsets are known to be finite; else the mean is subtracted first, because the mean times its factor
    // may overflow.
    let y = if is_finite(builder, &offset) {
        let inputs = [x, &factor, &offset];
        builder.map(domain_of(work), inputs, x.dtype(), |[x, factor, offset]| x * factor + offset)?
    } else {
        let inputs = [x, mean, &factor, bias];
        builder.map(domain_of(work), inputs, x.dtype(), |[x, mean, factor, bias]| (x - mean) * factor + bias)?
    };
    statistics.insert(0, y);
    Ok(statistics)
}

/// Whether all elements are known to be finite.
fn is_finite(builder: &Builder, view: &View) -> bool {
    let known = builder.tensor(view).and_then(|tensor| numbers(&tensor));
    known.is_some_and(|numbers| numbers.iter().all(|number| number.is_finite()))
}

/// Lowers a layer norm, with the mean and the reciprocal of the standard deviation of each row, if they are used.
fn layer(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let mut outputs = trailing(operator, builder, true)?;
    if operator.wants(1) || operator.wants(2) {
        let x = operator.input(0)?;
        let axes: Vec<_> = (operator.axis(-1, x.rank())?..x.rank()).collect();
        let x = builder.as_working(x)?;
        let (mean, variance) = moments(builder, &x, &axes)?;
        let epsilon = f64::from(operator.float("epsilon", 1e-5)?);
        let deviation = builder.map(domain_of(x.dtype()), [&variance], x.dtype(), |[variance]| {
            (variance + epsilon).apply(Unary::Sqrt).apply(Unary::Reciprocal)
        })?;
        // Their type is independent of the input's.
        let kept = element_of(operator.int("stash_type", 1)?)?;
        outputs.extend([builder.cast(&mean, kept)?, builder.cast(&deviation, kept)?]);
    }
    Ok(outputs)
}

/// Returns mean and variance over axes, which stay with one element each.
fn moments(builder: &mut Builder, x: &View, axes: &[usize]) -> Result<(View, View), Fault> {
    let mean = builder.reduced(x, ReduceKind::Mean, axes)?;
    let square = builder.map(domain_of(x.dtype()), [x, &mean], x.dtype(), |[x, mean]| {
        let distance = x - mean;
        distance * distance
    })?;
    Ok((mean, builder.reduced(&square, ReduceKind::Mean, axes)?))
}

/// Returns `(x − mean) / (√variance + 10⁻⁹)` over axes, by default all except the channels.
fn by_moments(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let axes = axes_of(operator.node.ints("axes")?.unwrap_or(&[0, 2, 3]), x.rank())?;
    let wide = builder.as_working(x)?;
    let (mean, variance) = moments(builder, &wide, &axes)?;
    let domain = domain_of(wide.dtype());
    // A node of its own: there are far fewer deviations than elements.
    let deviation = builder.map(domain, [&variance], wide.dtype(), |[variance]| variance.apply(Unary::Sqrt) + 1e-9)?;
    let inputs = [&wide, &mean, &deviation];
    Ok(vec![builder.map(domain, inputs, x.dtype(), |[x, mean, deviation]| {
        let distance = x - mean;
        distance / deviation
    })?])
}

/// Normalises over all axes from `axis` on, with a scale and a bias of the shape of those axes.
fn trailing(operator: &Operator<'_>, builder: &mut Builder, center: bool) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let x = operator.ranked(0, 1)?;
    let axis = operator.axis(-1, x.rank())?;
    let mut parameters = Vec::new();
    for index in [1, 2] {
        if operator.optional(index).is_some() {
            let parameter = operator.float_input(index)?;
            parameter.shape().broadcast_strides(x.shape())?;
            parameters.push(builder.cast(parameter, working(x.dtype()))?);
        }
    }
    let rows = x.dims()[..axis].iter().product();
    let columns = x.dims()[axis..].iter().product();
    let epsilon = operator.float("epsilon", 1e-5)?;
    Ok(vec![rows_normalized(builder, x, epsilon, [rows, columns], center, parameters)?])
}

fn instance(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.ranked(0, 3)?;
    let scale = channel_parameter(operator, builder, x, 1, x.dims()[1])?;
    let bias = channel_parameter(operator, builder, x, 2, x.dims()[1])?;
    grouped(operator, builder, x.dims()[1], scale, bias)
}

/// Lowers a group norm. Before version 21 there is one scale and bias for each group, from there on for each channel.
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

/// Normalises over each of `groups` groups of channels of each element of the batch.
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
    let work = working(x.dtype());
    let parameters = vec![builder.cast(&scale, work)?, builder.cast(&bias, work)?];
    let epsilon = operator.float("epsilon", 1e-5)?;
    Ok(vec![rows_normalized(builder, x, epsilon, [rows, columns], true, parameters)?])
}

/// Reads `x` as `rows` rows, normalises each, then multiplies by the first of `parameters` and adds the second, if they
/// are given.
pub(super) fn rows_normalized(
    builder: &mut Builder,
    x: &View,
    epsilon: f32,
    rows: [usize; 2],
    center: bool,
    parameters: Vec<View>,
) -> Result<View, Fault> {
    let epilogue = scaled(parameters);
    let op = Op::Normalize(Normalize { axis: 1, epsilon, center, epilogue: None });
    let input = builder.as_working(x)?.reshaped(rows)?;
    let output = TensorSpec::new(input.dtype(), x.shape().clone());
    let result = builder.emit_finished(op, vec![input], epilogue, output)?;
    builder.cast(&result, x.dtype())
}

fn scaled(operands: Vec<View>) -> Epilogue {
    let expression = match operands.len() {
        0 => None,
        1 => Some(expression(Domain::F32, |[x, scale]| x * scale)),
        _ => Some(expression(Domain::F32, |[x, scale, bias]| x * scale + bias)),
    };
    Epilogue { expression, operands }
}

/// Returns `x / ‖x‖` along an axis, with the sum of magnitudes or the root of the sum of squares as norm; 0 if the norm
/// is 0.
fn by_norm(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let x = operator.ranked(0, 1)?;
    let axis = operator.axis(-1, x.rank())?;
    let kind = match operator.int("p", 2)? {
        1 => ReduceKind::SumOfMagnitudes,
        2 => ReduceKind::SumOfSquares,
        other => return Err(Fault::attribute("p", other, "1 or 2")),
    };
    // Squares of narrow floats overflow them.
    let wide = builder.as_working(x)?;
    let sum = builder.reduced(&wide, kind, &[axis])?;
    let scaled = builder.map(domain_of(wide.dtype()), [&wide, &sum], x.dtype(), |[x, sum]| {
        let norm = if kind == ReduceKind::SumOfSquares { sum.apply(Unary::Sqrt) } else { sum };
        let quotient = x / norm;
        norm.with(Binary::Equal, 0.0).select(0.0, quotient)
    })?;
    Ok(vec![scaled])
}

/// Returns `x / (bias + α/size · Σ x²)^β`, with the sum over the `size` channels around each.
fn across_channels(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let x = operator.ranked(0, 2)?;
    let (batch, channels) = (x.dims()[0], x.dims()[1]);
    let size = operator.size("size", 1, 0)?;
    if size == 0 || size > 1 << 20 {
        return Err(Fault::attribute("size", size, "a number of channels"));
    }
    let rest: usize = x.dims()[2..].iter().product();
    let flat = builder.as_working(x)?.reshaped(vec![batch, 1, channels, rest])?;
    let (domain, work) = (domain_of(flat.dtype()), flat.dtype());
    let square = builder.map(domain, [&flat, &flat], work, |[a, b]| a * b)?;
    let pool = Pool {
        kind: PoolKind::Average { count_padding: true },
        window: [size, 1],
        strides: [1, 1],
        pads: [(size - 1) / 2, 0, size / 2, 0],
        dilations: [1, 1],
    };
    let mean = builder.emit_one(Op::Pool(pool), from_ref(&square), square.spec.clone())?;
    let number = |name, default| operator.float(name, default).map(f64::from);
    let (alpha, bias, beta) = (number("alpha", 1e-4)?, number("bias", 1.0)?, number("beta", 0.75)?);
    let result =
        builder.map(domain, [&flat, &mean], work, |[x, mean]| x / (mean * alpha + bias).with(Binary::Power, beta))?;
    Ok(vec![builder.cast(&result.reshaped(x.dims())?, x.dtype())?])
}

/// Returns input `index`, a number for each of `count` channels, read so that it broadcasts over `x`; in `f64` if an
/// input is, else in `f32`.
fn channel_parameter(
    operator: &Operator<'_>,
    builder: &mut Builder,
    x: &View,
    index: usize,
    count: usize,
) -> Result<View, Fault> {
    let parameter = operator.float_input(index)?;
    if *parameter.dims() != [count] {
        let reason =
            format!("input {index} has shape {}, but needs one element for each of {count}", parameter.shape());
        return Err(Fault::invalid(reason));
    }
    builder.cast(parameter, statistics_type(operator)?)?.reshaped(channel_dims(x, count))
}

/// Returns the type of statistics and results from them: `f64` if one of the inputs, which may have different types, is
/// `f64`.
fn statistics_type(operator: &Operator<'_>) -> Result<DType, Fault> {
    let double = operator.all_inputs()?.iter().any(|input| input.dtype() == DType::F64);
    Ok(if double { DType::F64 } else { DType::F32 })
}

/// Returns input `index`, a number for each element of an entry of the batch, in [`statistics_type`].
fn element_parameter(operator: &Operator<'_>, builder: &mut Builder, x: &View, index: usize) -> Result<View, Fault> {
    let (parameter, each) = (operator.float_input(index)?, &x.dims()[1..]);
    if parameter.dims() != each {
        let reason =
            format!("input {index} has shape {}, but needs one element for each of {each:?}", parameter.shape());
        return Err(Fault::invalid(reason));
    }
    builder.cast(parameter, statistics_type(operator)?)
}

/// Returns `count` along the channels' axis, 1 along those after it.
fn channel_dims(x: &View, count: usize) -> Vec<usize> {
    let mut dims = vec![1; x.rank() - 1];
    dims[0] = count;
    dims
}
