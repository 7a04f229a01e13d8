//! Grids of points by affine maps (Jaderberg et al. 2015, "Spatial Transformer Networks", section 3.2), for sampling
//! images.

use super::expand::sizes;
use super::matmul::multiplied;
use super::{Builder, Entry, Fault, Operator, View, working};
use anabranch_kernels::Shape;

pub(super) const TABLE: &[Entry] = &[("AffineGrid", affine_grid)];

/// Returns the position to which an affine map takes each element of an image of the given size: coordinates from −1 to
/// 1, the innermost axis' first.
///
/// The outermost positions are the middles of elements, or their corners with `align_corners`.
fn affine_grid(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let theta = operator.float_input(0)?;
    let size = sizes(&operator.known_ints(builder, 1, "size")?, "size")?;
    let axes = size.len().saturating_sub(2);
    if !matches!(axes, 2 | 3) || *theta.dims() != [size[0], axes, axes + 1] {
        return Err(Fault::invalid(format!("a theta of shape {} for an image of {size:?}", theta.shape())));
    }
    let corners = operator.flag("align_corners", false)?;
    let image = &size[2..];
    let points = Shape::new(image.to_vec())?.elements();
    builder.afford(points.saturating_mul(8 * (axes + 1)))?;
    let coordinate = |place: usize, size: usize| match corners {
        true if size > 1 => 2.0 * place as f64 / (size - 1) as f64 - 1.0,
        true => -1.0,
        false => (2 * place + 1) as f64 / size as f64 - 1.0,
    };
    let strides = Shape::new(image.to_vec())?.strides();
    let along = |point: usize, axis: usize| coordinate(point / strides[axis] % image[axis], image[axis]);
    let base: Vec<f64> =
        (0..points).flat_map(|point| (0..axes).rev().map(move |axis| along(point, axis)).chain([1.0])).collect();
    let base = builder.table(working(theta.dtype()), vec![1, points, axes + 1], &base)?;
    let maps = builder.as_working(theta)?;
    let across = builder.transposed(&maps, &[0, 2, 1])?;
    let grid = multiplied(builder, &base, &across)?;
    let dims = [&size[..1], image, &[axes]].concat();
    Ok(vec![builder.cast(&grid.reshaped(dims)?, theta.dtype())?])
}
