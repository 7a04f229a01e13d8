//! Operators that move elements of numbers which were widened from a grid of 8-bit integers. They move the integers
//! instead, and the result is widened: it has the same elements, and if it is put on the same grid again, nothing is
//! left to compute.

use super::quantize::widened;
use super::{Builder, Fault, Lowering, Operator, View, numbers};
use crate::lower::narrow::Grid;
use anabranch_kernels::DType;

/// Operators whose outputs' elements are some of their first input's.
const MOVING: [&str; 9] =
    ["DepthToSpace", "Expand", "Gather", "MaxPool", "Slice", "SpaceToDepth", "Split", "Tile", "Transpose"];

/// Lowers an operator, on integers if it moves numbers that were widened from them and are quantised again.
pub(in crate::lower) fn lowered(
    operator: &Operator<'_>,
    builder: &mut Builder,
    lowering: Lowering,
) -> Result<Vec<View>, Fault> {
    let Some((wide, grid)) = moved_grid(operator, builder)? else { return lowering(operator, builder) };
    let parameters = (&grid.scale, grid.zero_point.as_ref());
    let mut made = lowering(&operator.with_first(grid.integers.clone()), builder)?;
    for moved in &mut made {
        *moved = match moved.value == grid.integers.value {
            // Nothing moved.
            true => wide.reshaped(moved.dims())?,
            false => widened(builder, moved, parameters)?,
        };
    }
    Ok(made)
}

/// Returns the numbers that an operator moves, and their grid, if they vary.
fn moved_grid(operator: &Operator<'_>, builder: &mut Builder) -> Result<Option<(View, Grid)>, Fault> {
    let node = operator.node;
    let moves = matches!(&*node.domain, "" | "ai.onnx") && MOVING.contains(&&*node.op_type);
    // On a GPU, bytes have fewer kernels than floats.
    if !moves || !builder.is_quantised || !builder.integer_convolutions {
        return Ok(None);
    }
    let Some(x) = operator.optional(0) else { return Ok(None) };
    let Some(grid) = builder.grid_of(x) else { return Ok(None) };
    let suits = grid.is_uniform() && grid.scale.dtype() != DType::F64 && !builder.is_constant(&grid.integers);
    let ordered = node.op_type != "MaxPool" || keeps_greatest(operator, builder, &grid)?;
    Ok((suits && ordered).then(|| (x.clone(), grid)))
}

/// Whether the greatest of numbers is that of the greatest integer, and each window has a number.
fn keeps_greatest(operator: &Operator<'_>, builder: &Builder, grid: &Grid) -> Result<bool, Fault> {
    let positive = scale_of(builder, &grid.scale).is_some_and(|scale| scale.is_normal() && scale > 0.0);
    let plain = !operator.wants(1)
        && !operator.flag("ceil_mode", false)?
        && operator.node.ints("dilations")?.is_none_or(|all| all.iter().all(|dilation| *dilation == 1));
    let [pads, kernel] = ["pads", "kernel_shape"].map(|name| operator.node.ints(name));
    let (pads, kernel) = (pads?.unwrap_or(&[]), kernel?.unwrap_or(&[]));
    let inside = pads.iter().zip(kernel.iter().cycle()).all(|(pad, size)| pad < size);
    Ok(positive && plain && inside && grid.integers.elements() > 0)
}

/// Returns the scale of a grid that has one, if it is known.
pub(super) fn scale_of(builder: &Builder, scale: &View) -> Option<f32> {
    match &*numbers(&builder.tensor(scale)?)? {
        [scale] => Some(*scale as f32),
        _ => None,
    }
}
