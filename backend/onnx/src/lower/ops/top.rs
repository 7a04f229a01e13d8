//! The greatest or least elements along an axis.

use super::{Builder, Entry, Fault, Operator, View};
use anabranch_kernels::op::{Op, TopK};
use anabranch_kernels::{DType, Shape, TensorSpec};
use std::slice::from_ref;

pub(super) const TABLE: &[Entry] = &[("TopK", top)];

/// Lowers TopK. The number of elements is an attribute before version 10, an input from there on.
fn top(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.number(0)?;
    let x = operator.ranked(0, 1)?;
    let axis = operator.axis(-1, x.rank())?;
    let count = match operator.opset {
        ..10 => operator.int("k", 0)?,
        _ => operator.known_int(builder, 1, "K")?,
    };
    let fits = usize::try_from(count).ok().filter(|count| *count <= x.dims()[axis]);
    let kept = fits.ok_or_else(|| Fault::invalid(format!("{count} of {} elements", x.dims()[axis])))?;
    let mut dims = x.dims().to_vec();
    dims[axis] = kept;
    let shape = Shape::new(dims)?;
    let outputs = [x.dtype(), DType::I64].map(|dtype| TensorSpec::new(dtype, shape.clone()));
    let op = Op::TopK(TopK { axis, largest: operator.flag("largest", true)? });
    builder.emit(op, from_ref(x), outputs.to_vec())
}
