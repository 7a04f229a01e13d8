//! Running sums along an axis, by doubling: after step `i` each element is the sum of the `2^i` elements up to it
//! (Hillis and Steele 1986, "Data parallel algorithms", partial sums). Takes ⌈log₂ n⌉ passes over the tensor.

use super::{Builder, Entry, Fault, Operator, View, axis_of, domain_of};
use anabranch_kernels::op::PadMode;

pub(super) const TABLE: &[Entry] = &[("CumSum", running_sum)];

fn running_sum(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.number(0)?;
    let x = operator.ranked(0, 1)?;
    let axis = axis_of(operator.known_int(builder, 1, "axis")?, x.rank())?;
    let reverse = operator.flag("reverse", false)?;
    let mut sum = x.clone();
    if operator.flag("exclusive", false)? {
        sum = shifted(builder, &sum, axis, 1, reverse)?;
    }
    let mut distance = 1;
    while distance < x.dims()[axis] {
        let earlier = shifted(builder, &sum, axis, distance, reverse)?;
        sum = builder.map(domain_of(x.dtype()), [&sum, &earlier], x.dtype(), |[sum, earlier]| sum + earlier)?;
        distance *= 2;
    }
    Ok(vec![sum])
}

/// The view moved by `distance` elements along an axis, towards its end or (`back`) its start, zeros behind it.
fn shifted(builder: &mut Builder, x: &View, axis: usize, distance: usize, back: bool) -> Result<View, Fault> {
    let mut before = vec![0; x.rank()];
    let distance = isize::try_from(distance).map_err(|_| Fault::invalid(format!("an axis of {distance} elements")))?;
    before[axis] = if back { -distance } else { distance };
    // The shape stays, so what is moved beyond the end is cut.
    builder.padded(x, PadMode::Constant(0.0), before, x.dims().to_vec())
}
