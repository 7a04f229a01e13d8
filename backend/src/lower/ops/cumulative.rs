//! Running sums and products along an axis, by doubling: after step `i` each element is the sum of the `2^i` elements up to it
//! (Hillis and Steele 1986, "Data parallel algorithms", partial sums). Takes ⌈log₂ n⌉ passes over the tensor.
//!
//! A partial product without the elements before it may overflow where the whole is zero, which would make NaN of it: so products of
//! narrower floats are computed in `f64`.

use super::{Builder, Entry, Fault, Operator, View, axis_of, domain_of};
use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, PadMode};

pub(super) const TABLE: &[Entry] =
    &[("CumSum", |o, b| running(o, b, Binary::Add, 0.0)), ("CumProd", |o, b| running(o, b, Binary::Multiply, 1.0))];

/// `neutral` stands before the first element.
fn running(operator: &Operator<'_>, builder: &mut Builder, function: Binary, neutral: f64) -> Result<Vec<View>, Fault> {
    operator.number(0)?;
    let x = operator.ranked(0, 1)?;
    let axis = axis_of(operator.known_int(builder, 1, "axis")?, x.rank())?;
    let work = if function == Binary::Multiply && x.dtype().is_float() { DType::F64 } else { x.dtype() };
    let reverse = operator.flag("reverse", false)?;
    let mut sum = builder.cast(x, work)?;
    if operator.flag("exclusive", false)? {
        sum = shifted(builder, &sum, axis, if reverse { -1 } else { 1 }, neutral)?;
    }
    let mut distance = 1;
    while distance < x.dims()[axis] {
        let length =
            isize::try_from(distance).map_err(|_| Fault::invalid(format!("an axis of {distance} elements")))?;
        let earlier = shifted(builder, &sum, axis, if reverse { -length } else { length }, neutral)?;
        sum = builder.map(domain_of(work), [&sum, &earlier], work, |[sum, earlier]| sum.with(function, earlier))?;
        distance *= 2;
    }
    Ok(vec![builder.cast(&sum, x.dtype())?])
}

/// The view moved by `distance` elements along an axis, towards its end or (where negative) its start, and `neutral` behind it.
fn shifted(builder: &mut Builder, x: &View, axis: usize, distance: isize, neutral: f64) -> Result<View, Fault> {
    let mut before = vec![0; x.rank()];
    before[axis] = distance;
    // The shape stays, so what is moved beyond the end is cut.
    builder.padded(x, PadMode::Constant(neutral.into()), before, x.dims().to_vec())
}
