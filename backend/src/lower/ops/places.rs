//! The greatest elements of windows with their places, which only few models ask for: one element of all windows after the other.

use super::pool::fitted;
use super::window::{Window, as_plane, output_dims, plane};
use super::{Builder, Fault, Operator, Term, View, domain_of};
use anabranch_kernels::op::{Binary, Domain, PadMode};
use anabranch_kernels::{DType, Shape, TensorSpec};

/// Elements of a window at most: each becomes nodes of its own.
const LARGEST: usize = 256;

/// `MaxPool` with its output `Indices`: places in the whole input, rows or columns first. Of equal elements the first counts.
pub(super) fn max_pool(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    let mut window = Window::read(operator, x, None)?;
    let [rows, columns] = plane(x)?;
    let size = fitted(&mut window, [rows, columns], operator.flag("ceil_mode", false)?)?;
    let elements = window.kernel[0].saturating_mul(window.kernel[1]);
    if elements > LARGEST {
        return Err(Fault::unsupported(format!("places of the greatest of {elements} elements")));
    }
    if rows.max(columns) >= 1 << 24 {
        // Places are compared in `f32`.
        return Err(Fault::unsupported(format!("an image of {rows} × {columns}")));
    }
    let image = as_plane(&builder.as_working(x)?)?;
    let (domain, work) = (domain_of(image.dtype()), image.dtype());
    let &[images, channels, ..] = image.dims() else { return Err(Fault::missing(0)) };
    let reach = |axis: usize| {
        let last = (size[axis] - 1).saturating_mul(window.strides[axis]);
        last.checked_add(window.extent(axis)?).ok_or_else(|| Fault::invalid("windows beyond reach"))
    };
    let before = vec![0, 0, window.pads[0] as isize, window.pads[1] as isize];
    let wide = vec![images, channels, reach(0)?, reach(1)?];
    let padded = builder.padded(&image, PadMode::Constant(f64::NEG_INFINITY), before, wide)?;

    let dims = [images, channels, size[0], size[1]];
    let spec = |dtype| Ok::<_, Fault>(TensorSpec::new(dtype, Shape::new(dims)?));
    let mut greatest = builder.filled(spec(work)?, f64::NEG_INFINITY)?;
    let mut place = builder.filled(spec(DType::I64)?, -1.0)?;
    for element in 0..elements {
        let at = [element / window.kernel[1], element % window.kernel[1]];
        let first = [at[0] * window.dilations[0], at[1] * window.dilations[1]];
        let steps = vec![1, 1, window.strides[0] as isize, window.strides[1] as isize];
        let read = builder.sliced(&padded, vec![0, 0, first[0], first[1]], steps, dims.to_vec())?;
        let row = along(builder, &window, 0, size, first[0])?;
        let column = along(builder, &window, 1, size, first[1])?;
        // Whether the element is in the image, and greater than all before it, or the first there.
        let better = builder.map_to(
            domain,
            [&read, &greatest, &place, &row, &column],
            spec(DType::Bool)?,
            |[x, greatest, place, row, column]| {
                let inside = within(row, rows).with(Binary::And, within(column, columns));
                let first = place.with(Binary::Less, 0.0);
                let more = x.with(Binary::Greater, greatest).with(Binary::Or, first);
                inside.with(Binary::And, more)
            },
        )?;
        let by_columns = operator.flag("storage_order", false)?;
        place = builder.map_to(
            Domain::I64,
            [&better, &place, &row, &column],
            spec(DType::I64)?,
            |[better, place, row, column]| {
                let own = match by_columns {
                    false => row * columns as f64 + column,
                    true => column * rows as f64 + row,
                };
                better.select(own, place)
            },
        )?;
        greatest = builder.map_to(domain, [&better, &read, &greatest], spec(work)?, |[better, x, greatest]| {
            better.select(x, greatest)
        })?;
    }
    let plane = builder.indices(DType::I64, images.saturating_mul(channels), 0, 1)?;
    let plane = plane.reshaped(vec![images, channels, 1, 1])?;
    let pixels = rows.saturating_mul(columns) as f64;
    let place = builder.map(Domain::I64, [&plane, &place], DType::I64, |[plane, place]| plane * pixels + place)?;
    let dims = output_dims(&window, images, channels, size);
    Ok(vec![builder.cast(&greatest.reshaped(dims.clone())?, x.dtype())?, place.reshaped(dims)?])
}

/// Whether a place is one of so many.
fn within(at: Term<'_>, count: usize) -> Term<'_> {
    let below = at.with(Binary::Less, count as f64);
    at.with(Binary::GreaterOrEqual, 0.0).with(Binary::And, below)
}

/// Rows or columns of the image that the `first`-th element from the border on of all windows lies in.
fn along(builder: &mut Builder, window: &Window, axis: usize, size: [usize; 2], first: usize) -> Result<View, Fault> {
    let number = builder.indices(DType::F32, size[axis], 2 + axis, 4)?;
    let (stride, offset) = (window.strides[axis] as f64, first as f64 - window.pads[axis] as f64);
    builder.map(Domain::F32, [&number], DType::F32, |[number]| {
        let place = number * stride;
        place + offset
    })
}
