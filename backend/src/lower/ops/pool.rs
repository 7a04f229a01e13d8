//! Pooling over windows of one to three axes, or over all of them.

use super::places;
use super::window::{Window, as_plane, output_dims, plane};
use super::{Builder, Entry, Fault, Operator, View, domain_of, working};
use anabranch_kernels::op::{Binary, Op, Pool, PoolKind, ReduceKind, Unary};
use anabranch_kernels::{Shape, TensorSpec};
use std::slice::from_ref;

pub(super) const TABLE: &[Entry] = &[
    ("MaxPool", max_pool),
    ("AveragePool", average_pool),
    ("LpPool", norm_pool),
    ("GlobalMaxPool", |o, b| global(o, b, ReduceKind::Max)),
    ("GlobalLpPool", global_norm),
    ("GlobalAveragePool", |o, b| global(o, b, ReduceKind::Mean)),
];

fn max_pool(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    if operator.wants(1) { places::max_pool(operator, builder) } else { pool(operator, builder, PoolKind::Max) }
}

fn average_pool(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let count_padding = operator.flag("count_include_pad", false)?;
    pool(operator, builder, PoolKind::Average { count_padding })
}

fn pool(operator: &Operator<'_>, builder: &mut Builder, kind: PoolKind) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    let partial = operator.flag("ceil_mode", false)?;
    let input = builder.as_working(x)?;
    if x.rank() == 5 {
        let result = pooled_volume(operator, builder, &input, kind, partial)?;
        return Ok(vec![builder.cast(&result, x.dtype())?]);
    }
    let window = Window::read(operator, x, None)?;
    let made = pooled(builder, &as_plane(&input)?, window, kind, partial)?;
    let dims = output_dims(&window, x.dims()[0], x.dims()[1], plane(&made)?);
    Ok(vec![builder.cast(&made.reshaped(dims)?, x.dtype())?])
}

/// Images pooled by a window.
fn pooled(
    builder: &mut Builder,
    image: &View,
    mut window: Window,
    kind: PoolKind,
    partial: bool,
) -> Result<View, Fault> {
    let size = fitted(&mut window, plane(image)?, partial)?;
    let Window { kernel, strides, pads, dilations, .. } = window;
    let op = Op::Pool(Pool { kind, window: kernel, strides, pads, dilations });
    let dims = [image.dims()[0], image.dims()[1], size[0], size[1]];
    builder.emit_one(op, from_ref(image), TensorSpec::new(image.dtype(), Shape::new(dims)?))
}

/// Rows and columns of the output, with the border that is asked for.
pub(super) fn fitted(window: &mut Window, input: [usize; 2], partial: bool) -> Result<[usize; 2], Fault> {
    window.resolve(input)?;
    for axis in 0..2 {
        if window.pads[axis].max(window.pads[axis + 2]) >= window.extent(axis)?.max(1) {
            return Err(Fault::attribute("pads", window.pads, "smaller than the window"));
        }
    }
    window.output(input, partial)
}

/// Volumes pooled plane by plane, then along their depth: the greatest of greatest elements is the greatest, and as many elements count
/// in every plane of a window, so that the mean of means is the mean.
fn pooled_volume(
    operator: &Operator<'_>,
    builder: &mut Builder,
    x: &View,
    kind: PoolKind,
    partial: bool,
) -> Result<View, Fault> {
    let &[batch, channels, depth, rows, columns] = x.dims() else { return Err(Fault::missing(0)) };
    let [across, along] = Window::read_volume(operator, None)?;
    let planes = x.reshaped(vec![batch, channels.saturating_mul(depth), rows, columns])?;
    let planes = pooled(builder, &planes, across, kind, partial)?;
    let [rows, columns] = plane(&planes)?;
    let stack = planes.reshaped(vec![batch, channels, depth, rows.saturating_mul(columns)])?;
    let made = pooled(builder, &stack, along, kind, partial)?;
    made.reshaped(vec![batch, channels, made.dims()[2], rows, columns])
}

/// `(Σ |x|^p)^(1/p)` over windows: the mean of powers, padded by zeros that count, times the elements of a window.
fn norm_pool(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let p = operator.size("p", 1, 2)? as f64;
    if operator.flag("ceil_mode", false)? {
        return Err(Fault::unsupported("`ceil_mode` 1: windows that reach beyond the border"));
    }
    let (domain, work) = (domain_of(x.dtype()), working(x.dtype()));
    let powers = builder.map(domain, [x], work, |[x]| x.apply(Unary::Abs).with(Binary::Power, p))?;
    let kind = PoolKind::Average { count_padding: true };
    let (mean, count) = if x.rank() == 5 {
        let [across, along] = Window::read_volume(operator, None)?;
        let count: usize = [across, along].iter().flat_map(|window| window.kernel).product();
        (pooled_volume(operator, builder, &powers, kind, false)?, count)
    } else {
        let window = Window::read(operator, x, None)?;
        let made = pooled(builder, &as_plane(&powers)?, window, kind, false)?;
        let dims = output_dims(&window, x.dims()[0], x.dims()[1], plane(&made)?);
        (made.reshaped(dims)?, window.kernel.iter().product())
    };
    Ok(vec![builder.map(domain, [&mean], x.dtype(), |[mean]| {
        let sum = mean * count as f64;
        sum.with(Binary::Power, 1.0 / p)
    })?])
}

/// `(Σ |x|^p)^(1/p)` over all but the first two axes.
fn global_norm(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let p = operator.size("p", 1, 2)? as f64;
    let axes: Vec<_> = (2..operator.ranked(0, 3)?.rank()).collect();
    let (domain, work) = (domain_of(x.dtype()), working(x.dtype()));
    let powers = builder.map(domain, [x], work, |[x]| x.apply(Unary::Abs).with(Binary::Power, p))?;
    let sum = builder.reduced(&powers, ReduceKind::Sum, &axes)?;
    Ok(vec![builder.map(domain, [&sum], x.dtype(), |[sum]| sum.with(Binary::Power, 1.0 / p))?])
}

fn global(operator: &Operator<'_>, builder: &mut Builder, kind: ReduceKind) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let x = operator.ranked(0, 3)?;
    let axes: Vec<_> = (2..x.rank()).collect();
    Ok(vec![builder.reduced(x, kind, &axes)?])
}
