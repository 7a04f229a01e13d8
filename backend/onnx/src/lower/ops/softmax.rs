//! Softmax and its logarithm, along one axis, or before version 13 over all axes from one on.

use super::{Builder, Entry, Fault, Operator, View, two_sides};
use anabranch_kernels::op::{Op, Softmax};

pub(super) const TABLE: &[Entry] = &[("Softmax", |o, b| along(o, b, false)), ("LogSoftmax", |o, b| along(o, b, true))];

fn along(operator: &Operator<'_>, builder: &mut Builder, log: bool) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    if x.rank() == 0 {
        return Ok(vec![normalized(builder, &x.reshaped(vec![1])?, 0, log)?.reshaped(vec![])?]);
    }
    if operator.opset >= 13 {
        let axis = operator.axis(-1, x.rank())?;
        return Ok(vec![normalized(builder, x, axis, log)?]);
    }
    let rows = x.reshaped(two_sides(operator, x)?)?;
    Ok(vec![normalized(builder, &rows, 1, log)?.reshaped(x.dims())?])
}

/// Emits a softmax along an axis, in `f64` for 64-bit floats, else in `f32`.
pub(in crate::lower) fn normalized(builder: &mut Builder, x: &View, axis: usize, log: bool) -> Result<View, Fault> {
    let input = builder.as_working(x)?;
    let output = input.spec.clone();
    let result = builder.emit_one(Op::Softmax(Softmax { axis, log }), &[input], output)?;
    builder.cast(&result, x.dtype())
}
