//! Running sums and products along an axis.

use super::{Builder, Entry, Fault, Operator, View, axis_of};
use anabranch_kernels::op::{Op, Running};
use std::slice::from_ref;

pub(super) const TABLE: &[Entry] = &[("CumSum", |o, b| running(o, b, false)), ("CumProd", |o, b| running(o, b, true))];

fn running(operator: &Operator<'_>, builder: &mut Builder, multiply: bool) -> Result<Vec<View>, Fault> {
    operator.number(0)?;
    let x = operator.ranked(0, 1)?;
    let axis = axis_of(operator.known_int(builder, 1, "axis")?, x.rank())?;
    let (reverse, exclusive) = (operator.flag("reverse", false)?, operator.flag("exclusive", false)?);
    let op = Op::Running(Running { axis, multiply, reverse, exclusive });
    Ok(vec![builder.emit_one(op, from_ref(x), x.spec.clone())?])
}
