//! Softmax and its logarithm, along one axis, or over all axes from one on before version 13.

use super::{Entry, Rule};
use crate::lower::builder::Builder;
use crate::lower::error::Fault;
use crate::lower::operator::Operator;
use crate::lower::view::View;
use anabranch_kernels::op::{Op, Softmax};

pub(super) const TABLE: &[Entry] =
    &[Entry::new("Softmax", Rule::Call(softmax)), Entry::new("LogSoftmax", Rule::Call(log_softmax))];

fn softmax(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    along(operator, builder, false)
}

fn log_softmax(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    along(operator, builder, true)
}

fn along(operator: &Operator<'_>, builder: &mut Builder, log: bool) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    if x.rank() == 0 {
        return Ok(vec![normalized(builder, &x.reshaped(vec![1])?, 0, log)?.reshaped(vec![])?]);
    }
    if operator.opset() >= 13 {
        let axis = operator.axis(-1, x.rank())?;
        return Ok(vec![normalized(builder, x, axis, log)?]);
    }
    let axis = match operator.int("axis", 1)? {
        axis if axis == x.rank() as i64 => x.rank(),
        _ => operator.axis(1, x.rank())?,
    };
    let product = |dims: &[usize]| dims.iter().product::<usize>();
    let rows = x.reshaped(vec![product(&x.dims()[..axis]), product(&x.dims()[axis..])])?;
    Ok(vec![normalized(builder, &rows, 1, log)?.reshaped(x.dims())?])
}

/// Softmax along an axis, in `f32`.
pub(super) fn normalized(builder: &mut Builder, x: &View, axis: usize, log: bool) -> Result<View, Fault> {
    let input = builder.as_f32(x)?;
    let output = input.spec.clone();
    let result = builder.emit_one(Op::Softmax(Softmax { axis, log }), &[input], output)?;
    builder.cast(&result, x.dtype())
}
