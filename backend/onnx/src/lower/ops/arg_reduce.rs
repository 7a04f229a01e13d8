//! Lowers ArgMax and ArgMin, which give indices of extreme elements, and Hardmax, which marks the greatest one.

use super::{Builder, Entry, Fault, Operator, View, domain_of, working};
use anabranch_kernels::op::{ArgReduce, Binary, Op};
use anabranch_kernels::{DType, Shape, TensorSpec};
use std::slice::from_ref;

pub(super) const TABLE: &[Entry] =
    &[("ArgMax", |o, b| arg_reduce(o, b, true)), ("ArgMin", |o, b| arg_reduce(o, b, false)), ("Hardmax", hardmax)];

fn arg_reduce(operator: &Operator<'_>, builder: &mut Builder, greatest: bool) -> Result<Vec<View>, Fault> {
    operator.number(0)?;
    let x = operator.ranked(0, 1)?;
    let axis = operator.axis(0, x.rank())?;
    let last = operator.flag("select_last_index", false)?;
    let index = index_of(builder, x, ArgReduce { axis, greatest, last })?;
    if operator.flag("keepdims", true)? {
        return Ok(vec![index]);
    }
    let mut dims = index.dims().to_vec();
    dims.remove(axis);
    Ok(vec![index.reshaped(dims)?])
}

/// Returns the index along the op's axis, which stays with one element.
pub(super) fn index_of(builder: &mut Builder, x: &View, op: ArgReduce) -> Result<View, Fault> {
    let mut dims = x.dims().to_vec();
    dims[op.axis] = 1;
    let output = TensorSpec::new(DType::I64, Shape::new(dims)?);
    if x.dims()[op.axis] == 0 && output.shape.elements() == 0 {
        return builder.filled(output, 0.0);
    }
    if x.dims()[op.axis] == 0 {
        return Err(Fault::invalid(format!("axis {} of shape {} has no element", op.axis, x.shape())));
    }
    builder.emit_one(Op::ArgReduce(op), from_ref(x), output)
}

/// Returns 1 at the first greatest element along the axis, 0 elsewhere; before version 13 over all axes from the axis
/// on.
fn hardmax(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let x = operator.ranked(0, 1)?;
    let (rows, axis) = if operator.opset >= 13 {
        (x.clone(), operator.axis(-1, x.rank())?)
    } else {
        let (outer, inner) = x.dims().split_at(operator.axis(1, x.rank())?);
        (x.reshaped(vec![outer.iter().product(), inner.iter().product()])?, 1)
    };
    if x.elements() == 0 {
        return Ok(vec![x.clone()]);
    }
    let index = index_of(builder, &rows, ArgReduce { axis, greatest: true, last: false })?;
    // Floats count as fast as they are written, as long as they hold every position.
    let counted = if rows.dims()[axis] < 1 << 24 { working(x.dtype()) } else { DType::I64 };
    let positions = builder.indices(counted, rows.dims()[axis], axis, rows.rank())?;
    let hot = builder.map(domain_of(counted), [&index, &positions], x.dtype(), |[a, b]| a.with(Binary::Equal, b))?;
    Ok(vec![hot.reshaped(x.dims())?])
}
