//! Repeats along axes: explicit broadcasting, and tiling.

use super::{Builder, Entry, Fault, Operator, View, axis_of};
use anabranch_kernels::Shape;

pub(super) const TABLE: &[Entry] = &[("Expand", expand), ("Tile", tile)];

fn expand(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    let wanted = sizes(&operator.known_ints(builder, 1, "shape")?, "shape")?;
    let shape = x.shape().broadcast(&Shape::new(wanted)?)?;
    Ok(vec![builder.expanded(x, shape)?])
}

/// Reads each repeated axis as `1×dim`, broadcasts it to `repeats×dim` and reads it as one axis again.
fn tile(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    let repeats = match operator.opset {
        ..6 => along_one_axis(operator, builder, x.rank())?,
        _ => sizes(&operator.known_ints(builder, 1, "repeats")?, "repeats")?,
    };
    if repeats.len() != x.rank() {
        return Err(Fault::invalid(format!("{} repeats for the shape {}", repeats.len(), x.shape())));
    }
    let (mut read, mut made, mut dims) = (Vec::new(), Vec::new(), Vec::new());
    for (dim, count) in x.dims().iter().zip(&repeats) {
        if *count != 1 && *dim != 1 {
            read.push(1);
            made.push(*count);
        }
        read.push(*dim);
        made.push(if *dim == 1 { *count } else { *dim });
        dims.push(dim.checked_mul(*count).ok_or_else(|| Fault::invalid(format!("{dim} elements {count} times")))?);
    }
    let tiled = builder.expanded(&x.reshaped(read)?, Shape::new(made)?)?;
    Ok(vec![tiled.reshaped(dims)?])
}

/// Returns the repeats of the versions before 6, which repeat along one axis.
fn along_one_axis(operator: &Operator<'_>, builder: &Builder, rank: usize) -> Result<Vec<usize>, Fault> {
    let tiles = operator.known_int(builder, 1, "tiles")?;
    let axis = axis_of(operator.known_int(builder, 2, "axis")?, rank)?;
    let mut repeats = vec![1; rank];
    repeats[axis] = sizes(&[tiles], "tiles")?[0];
    Ok(repeats)
}

/// Converts numbers of elements, none of which may be negative.
pub(super) fn sizes(values: &[i64], what: &str) -> Result<Vec<usize>, Fault> {
    let size = |value: &i64| usize::try_from(*value).map_err(|_| Fault::invalid(format!("{what} is {values:?}")));
    values.iter().map(size).collect()
}
