//! Pools over windows of one to three axes, or over all elements of these axes.

use super::window::{Window, as_plane, output_dims, plane};
use super::{Builder, Entry, Fault, Operator, View, domain_of, working};
use super::{border, places};
use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, PoolKind, ReduceKind, Unary};

pub(super) const TABLE: &[Entry] = &[
    ("MaxPool", max_pool),
    ("AveragePool", average_pool),
    ("LpPool", norm_pool),
    ("GlobalMaxPool", |o, b| global(o, b, ReduceKind::Max)),
    ("GlobalLpPool", global_norm),
    ("GlobalAveragePool", |o, b| global(o, b, ReduceKind::Mean)),
];

/// Treatment of a last window that ends beyond the border.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// The window is left out.
    Left,
    /// The window is cut at the border.
    Cut,
    /// The window is whole, and holds zeros beyond the border.
    Whole,
}

impl Edge {
    fn read(operator: &Operator<'_>, otherwise: Self) -> Result<Self, Fault> {
        Ok(if operator.flag("ceil_mode", false)? { otherwise } else { Self::Left })
    }
}

fn max_pool(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    if operator.wants(1) { places::max_pool(operator, builder) } else { pool(operator, builder, PoolKind::Max) }
}

fn average_pool(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let count_padding = operator.flag("count_include_pad", false)?;
    pool(operator, builder, PoolKind::Average { count_padding })
}

fn pool(operator: &Operator<'_>, builder: &mut Builder, kind: PoolKind) -> Result<Vec<View>, Fault> {
    let x = pooled_input(operator)?;
    let edge = Edge::read(operator, Edge::Cut)?;
    let input = builder.as_working(x)?;
    if x.rank() == 5 {
        let result = pooled_volume(operator, builder, &input, kind, edge)?;
        return Ok(vec![builder.cast(&result, x.dtype())?]);
    }
    let window = Window::read(operator, x, None)?;
    let made = pooled(builder, &as_plane(&input)?, window, kind, edge)?;
    let dims = output_dims(&window, x.dims()[0], x.dims()[1], plane(&made)?);
    Ok(vec![builder.cast(&made.reshaped(dims)?, x.dtype())?])
}

/// Returns the images, of numbers that `f32` or `f64` hold.
pub(super) fn pooled_input<'a>(operator: &'a Operator<'_>) -> Result<&'a View, Fault> {
    let x = operator.number(0)?;
    match x.dtype() {
        DType::I32 | DType::U32 | DType::I64 | DType::U64 => {
            Err(Fault::of_type(0, x.dtype(), "a floating-point type, or integers of 8 or 16 bits"))
        }
        _ => Ok(x),
    }
}

/// Pools images by a window.
fn pooled(builder: &mut Builder, image: &View, mut window: Window, kind: PoolKind, edge: Edge) -> Result<View, Fault> {
    let input = plane(image)?;
    let size = fitted(&mut window, input, edge != Edge::Left)?;
    if edge == Edge::Whole {
        window.hold_all(input, size)?;
    }
    if window.kernel == input && size == [1, 1] && window.pads == [0; 4] && window.dilations == [1, 1] {
        // One window of all elements, which a reduction reads in their order.
        let kind = if kind == PoolKind::Max { ReduceKind::Max } else { ReduceKind::Mean };
        return builder.reduced(image, kind, &[2, 3])?.reshaped([&image.dims()[..2], &[1, 1]].concat());
    }
    match window.is_within()? {
        true => border::emitted(builder, image, &window, kind, size),
        false => border::pooled(builder, image, &window, kind, size),
    }
}

/// Returns rows and columns of the output, with the requested border.
pub(super) fn fitted(window: &mut Window, input: [usize; 2], partial: bool) -> Result<[usize; 2], Fault> {
    window.resolve(input)?;
    window.output(input, partial)
}

/// Pools volumes plane by plane, then along their depth. The greatest of greatest elements is the greatest, and equally
/// many elements count in every plane of a window, so that the mean of means is the mean.
fn pooled_volume(
    operator: &Operator<'_>,
    builder: &mut Builder,
    x: &View,
    kind: PoolKind,
    edge: Edge,
) -> Result<View, Fault> {
    let &[batch, channels, depth, rows, columns] = x.dims() else { return Err(Fault::missing(0)) };
    let [across, along] = Window::read_volume(operator, None)?;
    let planes = x.reshaped(vec![batch, channels.saturating_mul(depth), rows, columns])?;
    let planes = pooled(builder, &planes, across, kind, edge)?;
    let [rows, columns] = plane(&planes)?;
    let stack = planes.reshaped(vec![batch, channels, depth, rows.saturating_mul(columns)])?;
    let made = pooled(builder, &stack, along, kind, edge)?;
    made.reshaped(vec![batch, channels, made.dims()[2], rows, columns])
}

/// Computes `(Σ |x|^p)^(1/p)` over windows: the mean of powers, padded by zeros that count, times the elements of a
/// window.
fn norm_pool(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let p = exponent(operator)?;
    let edge = Edge::read(operator, Edge::Whole)?;
    let (domain, work) = (domain_of(x.dtype()), working(x.dtype()));
    let powers = builder.map(domain, [x], work, |[x]| x.apply(Unary::Abs).with(Binary::Power, p))?;
    let kind = PoolKind::Average { count_padding: true };
    let (mean, count) = if x.rank() == 5 {
        let [across, along] = Window::read_volume(operator, None)?;
        let count = elements(&across) * elements(&along);
        (pooled_volume(operator, builder, &powers, kind, edge)?, count)
    } else {
        let window = Window::read(operator, x, None)?;
        let made = pooled(builder, &as_plane(&powers)?, window, kind, edge)?;
        let dims = output_dims(&window, x.dims()[0], x.dims()[1], plane(&made)?);
        (made.reshaped(dims)?, elements(&window))
    };
    Ok(vec![builder.map(domain, [&mean], x.dtype(), |[mean]| {
        let sum = mean * count;
        sum.with(Binary::Power, 1.0 / p)
    })?])
}

/// Returns the elements of a window, for which a file may give any number.
fn elements(window: &Window) -> f64 {
    window.kernel.iter().map(|size| *size as f64).product()
}

/// Returns the attribute `p`, which is a float before version 2.
fn exponent(operator: &Operator<'_>) -> Result<f64, Fault> {
    let p = match operator.opset {
        ..2 => operator.float("p", 2.0)?.into(),
        _ => operator.size("p", 1, 2)? as f64,
    };
    if p > 0.0 { Ok(p) } else { Err(Fault::attribute("p", p, "more than 0")) }
}

/// Computes `(Σ |x|^p)^(1/p)` over all but the first two axes.
fn global_norm(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let p = exponent(operator)?;
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
