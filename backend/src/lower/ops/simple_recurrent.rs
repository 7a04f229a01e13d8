//! The recurrent layer without gates, `h = f(W x + R h + b)`: the product with all inputs at once, then one product a time step.

use super::recurrent::directions;
use super::{Builder, Entry, Epilogue, Fault, Operator, View, integers};
use anabranch_kernels::op::{Binary, Domain, Expression, MatMul, Unary};
use anabranch_kernels::{DType, Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[("RNN", layer)];

/// Time steps at most: each becomes nodes of its own.
const LONGEST: usize = 1024;

fn layer(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let input = operator.float_input(0)?;
    let batch_first = operator.flag("layout", false)?;
    let x = builder.as_f32(input)?;
    let x = if batch_first && x.rank() == 3 { builder.transposed(&x, &[1, 0, 2])? } else { x };
    let &[time, batch, _] = x.dims() else {
        return Err(Fault::invalid(format!("an input of shape {}, not three dimensions", x.shape())));
    };
    check(operator, builder, time)?;
    let reversed = directions(operator)?;
    let units = operator.input(2)?.dims().last().copied().unwrap_or(0);
    let (mut sequences, mut lasts) = (Vec::new(), Vec::new());
    for (direction, reverse) in reversed.iter().enumerate() {
        let states = one_way(operator, builder, &x, [direction, reversed.len(), units], *reverse, batch_first)?;
        lasts.push(states[if *reverse { 0 } else { time - 1 }].reshaped(vec![1, batch, units])?);
        let steps =
            states.iter().map(|state| state.reshaped(vec![1, 1, batch, units])).collect::<Result<Vec<_>, _>>()?;
        sequences.push(builder.concatenated(&steps, 0)?);
    }
    let (sequence, last) = (builder.concatenated(&sequences, 1)?, builder.concatenated(&lasts, 0)?);
    let (sequence, last) = match batch_first {
        false => (sequence, last),
        true => (builder.transposed(&sequence, &[2, 0, 1, 3])?, builder.transposed(&last, &[1, 0, 2])?),
    };
    Ok(vec![builder.cast(&sequence, input.dtype())?, builder.cast(&last, input.dtype())?])
}

/// Refuses what is not computed.
fn check(operator: &Operator<'_>, builder: &Builder, time: usize) -> Result<(), Fault> {
    if operator.opset < 7 || time == 0 || time > LONGEST {
        return Err(Fault::unsupported(format!("{time} time steps; 1 to {LONGEST} are supported, from version 7 on")));
    }
    if operator.node.float("clip")?.is_some_and(|clip| clip > 0.0) {
        return Err(Fault::unsupported("clipped gates"));
    }
    if let Some(lengths) = operator.optional(4) {
        let known = builder.tensor(lengths).and_then(|lengths| integers(&lengths));
        let known = known.ok_or_else(|| Fault::run_time(lengths, 4, "sequence_lens"))?;
        if known.iter().any(|length| usize::try_from(*length) != Ok(time)) {
            return Err(Fault::unsupported("sequences of different lengths"));
        }
    }
    Ok(())
}

/// The state after each time step, in the input's order, of the `direction`-th of so many directions.
fn one_way(
    operator: &Operator<'_>,
    builder: &mut Builder,
    x: &View,
    [direction, directions, units]: [usize; 3],
    reverse: bool,
    batch_first: bool,
) -> Result<Vec<View>, Fault> {
    let &[time, batch, features] = x.dims() else { return Err(Fault::missing(0)) };
    let function = match operator.node.strings("activations")?.and_then(|names| names.get(direction).copied()) {
        None => Unary::Tanh,
        Some(name) if name.eq_ignore_ascii_case("tanh") => Unary::Tanh,
        Some(name) if name.eq_ignore_ascii_case("relu") => Unary::Relu,
        Some(name) if name.eq_ignore_ascii_case("sigmoid") => Unary::Sigmoid,
        Some(name) => return Err(Fault::unsupported(format!("the activation {name}"))),
    };
    let mut part = |index: usize, axis: usize, dims: &[usize]| {
        let whole = operator.float_input(index)?;
        let mut expected = dims.to_vec();
        expected.insert(axis, directions);
        if *whole.dims() != expected[..] {
            return Err(Fault::invalid(format!("input {index} has shape {}, not {expected:?}", whole.shape())));
        }
        let part = builder.part(whole, axis, direction, 1)?.reshaped(dims)?;
        builder.as_f32(&part)
    };
    let (weights, recurrent) = (part(1, 0, &[units, features])?, part(2, 0, &[units, units])?);
    let bias = operator.optional(3).map(|_| part(3, 0, &[2 * units])).transpose()?;
    let first = operator.optional(5).map(|_| part(5, usize::from(batch_first), &[batch, units])).transpose()?;
    let mut state = match first {
        Some(first) => first,
        None => builder.filled(TensorSpec::new(DType::F32, Shape::new(vec![batch, units])?), 0.0)?,
    };
    let bias = match bias {
        None => Epilogue::default(),
        Some(both) => {
            let (own, recurrent) = (builder.part(&both, 0, 0, units)?, builder.part(&both, 0, units, units)?);
            let sum = builder.map(Domain::F32, [&own, &recurrent], DType::F32, |[a, b]| a + b)?;
            Epilogue { expression: Some(Expression::binary(Binary::Add)), operands: vec![sum] }
        }
    };
    let rows = time.checked_mul(batch).ok_or_else(|| Fault::invalid("too many steps"))?;
    let op = || MatMul { transpose_b: true, ..MatMul::default() };
    let projected = builder.product(op(), &x.reshaped(vec![rows, features])?, &weights, vec![rows, units], bias)?;
    let mut states = vec![state.clone(); time];
    for step in 0..time {
        let at = if reverse { time - 1 - step } else { step };
        let read = builder.part(&projected, 0, at * batch, batch)?;
        let sum = Epilogue { expression: Some(Expression::binary(Binary::Add)), operands: vec![read] };
        let sum = builder.product(op(), &state, &recurrent, vec![batch, units], sum)?;
        state = builder.map(Domain::F32, [&sum], DType::F32, |[x]| x.apply(function))?;
        states[at] = state.clone();
    }
    Ok(states)
}
