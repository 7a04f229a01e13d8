//! Operators that only change the shape under which a value is read: they return views and emit no node.

use super::{Builder, Entry, Fault, Operator, View, axes_of, two_sides};

pub(super) const TABLE: &[Entry] =
    &[("Reshape", reshape), ("Flatten", flatten), ("Squeeze", squeeze), ("Unsqueeze", unsqueeze)];

fn reshape(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    let wanted = operator.ints_by_version(builder, "shape", 5, 1)?.ok_or_else(|| Fault::missing(1))?;
    let keep_zero = operator.flag("allowzero", false)?;
    Ok(vec![x.reshaped(resolve(&wanted, x, keep_zero)?)?])
}

/// Returns the dimensions that `wanted` requests: −1 takes the rest, 0 copies the input's dimension unless `keep_zero`.
fn resolve(wanted: &[i64], x: &View, keep_zero: bool) -> Result<Vec<usize>, Fault> {
    let mut dims = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (axis, dim) in wanted.iter().enumerate() {
        dims.push(match *dim {
            0 if !keep_zero => *x.dims().get(axis).ok_or_else(|| {
                Fault::invalid(format!("the shape {wanted:?} copies dimension {axis}, but the input is {}", x.shape()))
            })?,
            -1 if open.is_none() => {
                open = Some(axis);
                1
            }
            -1 => return Err(Fault::invalid(format!("the shape {wanted:?} has more than one −1"))),
            size => usize::try_from(size)
                .map_err(|_| Fault::invalid(format!("the shape {wanted:?} has the size {size}")))?,
        });
    }
    if let Some(axis) = open {
        let rest = dims.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim)).filter(|rest| *rest > 0);
        let size = rest.filter(|rest| x.elements().is_multiple_of(*rest)).map(|rest| x.elements() / rest);
        dims[axis] = size
            .ok_or_else(|| Fault::invalid(format!("elements of shape {} cannot be read as {wanted:?}", x.shape())))?;
    }
    Ok(dims)
}

fn flatten(operator: &Operator<'_>, _: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    Ok(vec![x.reshaped(two_sides(operator, x)?)?])
}

fn squeeze(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    let axes = match operator.ints_by_version(builder, "axes", 13, 1)? {
        Some(axes) => axes_of(&axes, x.rank())?,
        None => (0..x.rank()).filter(|axis| x.dims()[*axis] == 1).collect(),
    };
    if let Some(axis) = axes.iter().find(|axis| x.dims()[**axis] != 1) {
        return Err(Fault::invalid(format!(
            "axis {axis} of shape {} cannot be removed, because its size is not 1",
            x.shape()
        )));
    }
    let kept: Vec<_> = (0..x.rank()).filter(|axis| !axes.contains(axis)).map(|axis| x.dims()[axis]).collect();
    Ok(vec![x.reshaped(kept)?])
}

fn unsqueeze(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    let axes = operator.ints_by_version(builder, "axes", 13, 1)?.ok_or_else(|| Fault::missing(1))?;
    let rank = x.rank().saturating_add(axes.len());
    let axes = axes_of(&axes, rank)?;
    let mut old = x.dims().iter();
    let dims: Vec<_> =
        (0..rank).map(|axis| if axes.contains(&axis) { 1 } else { old.next().copied().unwrap_or(1) }).collect();
    Ok(vec![x.reshaped(dims)?])
}
