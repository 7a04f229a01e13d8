//! The greatest elements of windows with their positions, which few models need: compares one element of all windows
//! after the other.

use super::pool::{fitted, pooled_input};
use super::window::{Window, plane};
use super::{Builder, Fault, Operator, Term, View, domain_of, working};
use anabranch_kernels::op::{Binary, Domain, PadMode};
use anabranch_kernels::{DType, Shape, TensorSpec};

/// Most elements of a window: each becomes nodes of its own.
const LARGEST: usize = 256;

/// One of three axes along which windows slide.
#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    before: usize,
    output: usize,
}

impl Axis {
    fn of(window: &Window, axis: usize, size: usize, output: usize) -> Self {
        let (kernel, stride) = (window.kernel[axis], window.strides[axis]);
        Self { size, kernel, stride, dilation: window.dilations[axis], before: window.pads[axis], output }
    }

    /// Returns the elements from the border before the first window to the last element of the last window.
    fn reach(&self) -> Result<usize, Fault> {
        let last = self.output.saturating_sub(1).checked_mul(self.stride);
        let extent = (self.kernel - 1).checked_mul(self.dilation);
        let reach = last.zip(extent).and_then(|(last, extent)| last.checked_add(extent)?.checked_add(1));
        reach.ok_or_else(|| Fault::invalid("the windows are too large"))
    }
}

/// Returns depth, rows and columns; axes that the input lacks have one element.
fn axes(operator: &Operator<'_>, x: &View) -> Result<[Axis; 3], Fault> {
    let partial = operator.flag("ceil_mode", false)?;
    if let &[_, _, depth, rows, columns] = x.dims() {
        let [mut across, mut along] = Window::read_volume(operator, None)?;
        let [high, wide] = fitted(&mut across, [rows, columns], partial)?;
        let [deep, _] = fitted(&mut along, [depth, 1], partial)?;
        return Ok([
            Axis::of(&along, 0, depth, deep),
            Axis::of(&across, 0, rows, high),
            Axis::of(&across, 1, columns, wide),
        ]);
    }
    let mut window = Window::read(operator, x, None)?;
    let [rows, columns] = plane(x)?;
    let [high, wide] = fitted(&mut window, [rows, columns], partial)?;
    let single = Axis { size: 1, kernel: 1, stride: 1, dilation: 1, before: 0, output: 1 };
    Ok([single, Axis::of(&window, 0, rows, high), Axis::of(&window, 1, columns, wide)])
}

/// Lowers `MaxPool` with its output `Indices`: positions in the whole input, the last or the first axis fastest. Among
/// equal elements the first counts.
pub(super) fn max_pool(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = pooled_input(operator)?;
    let axes = axes(operator, x)?;
    let elements = axes.iter().fold(1usize, |elements, axis| elements.saturating_mul(axis.kernel));
    if elements > LARGEST {
        return Err(Fault::unsupported(format!("places of the greatest of {elements} elements")));
    }
    for axis in &axes {
        // Positions are compared in `f32`.
        let most = axis.reach()?.max(axis.size).max(axis.output);
        if most >= 1 << 24 {
            return Err(Fault::unsupported(format!("places along an axis of {most} elements, borders included")));
        }
    }
    let work = working(x.dtype());
    let domain = domain_of(work);
    let (images, channels) = (x.dims()[0], x.dims()[1]);
    let [depth, rows, columns] = axes.map(|axis| axis.size);
    let image = builder.as_working(x)?.reshaped(vec![images, channels, depth, rows, columns])?;
    let before = [0, 0].into_iter().chain(axes.iter().map(|axis| axis.before as isize)).collect();
    let wide = [images, channels, axes[0].reach()?, axes[1].reach()?, axes[2].reach()?];
    let padded = builder.padded(&image, PadMode::Constant(f64::NEG_INFINITY.into()), before, wide.to_vec())?;

    let dims = [images, channels, axes[0].output, axes[1].output, axes[2].output];
    let spec = |dtype| Ok::<_, Fault>(TensorSpec::new(dtype, Shape::new(dims)?));
    let mut greatest = builder.filled(spec(work)?, f64::NEG_INFINITY)?;
    let mut place = builder.filled(spec(DType::I64)?, -1.0)?;
    let weights = match operator.flag("storage_order", false)? {
        false => [rows.saturating_mul(columns), columns, 1],
        true => [1, depth, depth.saturating_mul(rows)],
    };
    let [of_depth, of_rows, of_columns] = weights.map(|weight| weight as f64);
    for element in 0..elements {
        let at = [
            element / (axes[1].kernel * axes[2].kernel),
            element / axes[2].kernel % axes[1].kernel,
            element % axes[2].kernel,
        ];
        let first: [usize; 3] = std::array::from_fn(|axis| at[axis] * axes[axis].dilation);
        let steps = [1, 1].into_iter().chain(axes.iter().map(|axis| axis.stride as isize)).collect();
        let read = builder.sliced(&padded, vec![0, 0, first[0], first[1], first[2]], steps, dims.to_vec())?;
        let deep = along(builder, &axes, 0, first[0])?;
        let row = along(builder, &axes, 1, first[1])?;
        let column = along(builder, &axes, 2, first[2])?;
        // Whether the element is in the image, and greater than all before it, or the first there.
        let better = builder.map_to(
            domain,
            [&read, &greatest, &place, &deep, &row, &column],
            spec(DType::Bool)?,
            |[x, greatest, place, deep, row, column]| {
                let inside = within(deep, depth).with(Binary::And, within(row, rows));
                let inside = inside.with(Binary::And, within(column, columns));
                let first = place.with(Binary::Less, 0.0);
                let more = x.with(Binary::Greater, greatest).with(Binary::Or, first);
                inside.with(Binary::And, more)
            },
        )?;
        place = builder.map_to(
            Domain::I64,
            [&better, &place, &deep, &row, &column],
            spec(DType::I64)?,
            |[better, place, deep, row, column]| {
                let own = deep * of_depth + row * of_rows + column * of_columns;
                better.select(own, place)
            },
        )?;
        greatest = builder.map_to(domain, [&better, &read, &greatest], spec(work)?, |[better, x, greatest]| {
            better.select(x, greatest)
        })?;
    }
    let number = builder.indices(DType::I64, images.saturating_mul(channels), 0, 1)?;
    let number = number.reshaped(vec![images, channels, 1, 1, 1])?;
    let each = depth.saturating_mul(rows).saturating_mul(columns) as f64;
    // A window in the border alone holds no element.
    let place = builder.map(Domain::I64, [&number, &place], DType::I64, |[number, place]| {
        let absent = place.with(Binary::Less, 0.0);
        let own = number * each + place;
        absent.select(-1.0, own)
    })?;
    let own = [&dims[..2], &dims[5 + 2 - x.rank()..]].concat();
    Ok(vec![builder.cast(&greatest.reshaped(own.clone())?, x.dtype())?, place.reshaped(own)?])
}

/// Whether a position is below `count`, and not negative.
fn within(at: Term<'_>, count: usize) -> Term<'_> {
    let below = at.with(Binary::Less, count as f64);
    at.with(Binary::GreaterOrEqual, 0.0).with(Binary::And, below)
}

/// Returns the positions along an axis of the input of the windows' elements that are the `first`-th from the border
/// on.
fn along(builder: &mut Builder, axes: &[Axis; 3], axis: usize, first: usize) -> Result<View, Fault> {
    let number = builder.indices(DType::F32, axes[axis].output, 2 + axis, 5)?;
    let (stride, offset) = (axes[axis].stride as f64, first as f64 - axes[axis].before as f64);
    builder.map(Domain::F32, [&number], DType::F32, |[number]| {
        let place = number * stride;
        place + offset
    })
}
