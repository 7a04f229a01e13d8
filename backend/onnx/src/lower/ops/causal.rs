//! Causal convolution over time: values before the input are given, or are zeros.

use super::{Builder, Entry, Epilogue, Fault, Operator, View, domain_of};
use anabranch_kernels::op::{Binary, Conv, Expression, Op, Unary};
use anabranch_kernels::{Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[("CausalConvWithState", causal)];

/// Convolves each channel by one window; the second output is the past for the next call.
fn causal(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let (x, weights) = operator.pair()?;
    operator.float_input(0)?;
    let (&[batch, channels, length], &[filters, 1, taps]) = (x.dims(), weights.dims()) else {
        return Err(Fault::invalid(format!("weights of shape {} for an input of {}", weights.shape(), x.shape())));
    };
    if filters != channels || taps == 0 {
        return Err(Fault::invalid(format!("{filters} windows of {taps} for {channels} channels")));
    }
    let dims = vec![batch, channels, taps - 1];
    let before = match operator.optional(3) {
        Some(_) => operator.typed(3, x.dtype())?.clone(),
        None => builder.filled(TensorSpec::new(x.dtype(), Shape::new(dims.clone())?), 0.0)?,
    };
    if *before.dims() != dims[..] {
        return Err(Fault::invalid(format!("a state of shape {}, but {dims:?} is needed", before.shape())));
    }
    let whole = builder.concatenated(&[before, x.clone()], 2)?;
    let state = builder.part(&whole, 2, length, taps - 1)?;

    let image = builder.as_working(&whole)?.reshaped(vec![batch, channels, 1, length + taps - 1])?;
    let work = image.dtype();
    let inputs = vec![image, builder.as_working(weights)?.reshaped(vec![channels, 1, 1, taps])?];
    let mut bias = Epilogue::default();
    if operator.optional(2).is_some() {
        let operand = builder.as_working(operator.typed(2, x.dtype())?)?.reshaped(vec![channels, 1, 1])?;
        bias = Epilogue { expression: Some(Expression::binary(Binary::Add)), operands: vec![operand] };
    }
    let op = Conv { strides: [1; 2], pads: [0; 4], dilations: [1; 2], group: channels, epilogue: None };
    let output = TensorSpec::new(work, Shape::new(vec![batch, channels, 1, length])?);
    let made = builder.emit_finished(Op::Conv(op), inputs, bias, output)?.reshaped(x.dims())?;
    let y = match operator.string("activation", "none")? {
        "none" => builder.cast(&made, x.dtype())?,
        "silu" | "swish" => builder.map(domain_of(work), [&made], x.dtype(), |[x]| x * x.apply(Unary::Sigmoid))?,
        other => return Err(Fault::attribute("activation", other, "none, silu or swish")),
    };
    Ok(vec![y, state])
}
