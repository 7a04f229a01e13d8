//! Samples images at given points: each sample is a weighted sum of elements whose positions are computed, and which
//! are then gathered.

use super::{Builder, Entry, Fault, Operator, Term, View, domain_of, gather};
use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, Unary};

pub(super) const TABLE: &[Entry] = &[("GridSample", grid_sample)];

/// Interpolation between neighbours.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

/// Values outside the image.
#[derive(Clone, Copy, PartialEq)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

/// Rules for sampling along the axes of the points.
struct Sampling {
    mode: Mode,
    outside: Outside,
    align_corners: bool,
}

/// For one axis: positions of neighbours (−1 for none) and their weights, for all points.
pub(super) struct Neighbour {
    place: View,
    weight: View,
}

fn grid_sample(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let grid = operator.float_input(1)?;
    let axes = x.rank().saturating_sub(2);
    let fits = axes > 0 && grid.rank() == x.rank() && grid.dims()[0] == x.dims()[0] && grid.dims()[axes + 1] == axes;
    if !fits || x.elements() == 0 {
        return Err(Fault::invalid(format!("a grid of shape {} does not fit {}", grid.shape(), x.shape())));
    }
    if x.elements() >= 1 << 24 {
        // Coordinates are counted in `f32`; positions are combined in integers.
        let longest = x.dims()[2..].iter().max().copied().unwrap_or(0);
        if longest >= 1 << 24 {
            return Err(Fault::unsupported(format!("an axis of {longest} elements")));
        }
    }
    let sampling = Sampling::read(operator)?;
    let (batch, channels) = (x.dims()[0], x.dims()[1]);
    let points: usize = grid.dims()[1..=axes].iter().product();
    // Computed in `f64` if one of the inputs is.
    let double = [x, grid].iter().any(|view| view.dtype() == DType::F64);
    let work = if double { DType::F64 } else { DType::F32 };
    let coordinates = builder.cast(grid, work)?.reshaped(vec![batch, points, axes])?;
    let mut neighbours = Vec::with_capacity(axes);
    for axis in 0..axes {
        // The last axis' coordinate comes first.
        let coordinate = builder.part(&coordinates, 2, axes - 1 - axis, 1)?.reshaped(vec![batch, points])?;
        neighbours.push(sampling.neighbours(builder, &coordinate, x.dims()[2 + axis])?);
    }
    // Images with their channels innermost, so that one position selects all of them.
    let order: Vec<_> = [0].into_iter().chain(2..x.rank()).chain([1]).collect();
    let pixels: usize = x.dims()[2..].iter().product();
    let table = builder.cast(x, work)?;
    let table = builder.transposed(&table, &order)?.reshaped(vec![batch * pixels, channels])?;
    let sum = weighted_sum(builder, &table, &x.dims()[2..], &neighbours, [batch, points, channels])?;
    let moved = builder.transposed(&sum, &[0, 2, 1])?;
    let dims = [&[batch, channels], &grid.dims()[1..=axes]].concat();
    Ok(vec![builder.cast(&moved.reshaped(dims)?, x.dtype())?])
}

impl Sampling {
    fn read(operator: &Operator<'_>) -> Result<Self, Fault> {
        // Before version 20 the names are those for two axes.
        let mode = match operator.string("mode", "linear")? {
            "nearest" => Mode::Nearest,
            "linear" | "bilinear" => Mode::Linear,
            "cubic" | "bicubic" => Mode::Cubic,
            other => return Err(Fault::attribute("mode", other, "nearest, linear or cubic")),
        };
        let outside = match operator.string("padding_mode", "zeros")? {
            "zeros" => Outside::Zeros,
            "border" => Outside::Border,
            "reflection" => Outside::Reflection,
            other => return Err(Fault::attribute("padding_mode", other, "zeros, border or reflection")),
        };
        Ok(Self { mode, outside, align_corners: operator.flag("align_corners", false)? })
    }

    /// Returns the neighbours along an axis of `size` elements, for points whose coordinate goes from −1 to 1.
    fn neighbours(&self, builder: &mut Builder, coordinate: &View, size: usize) -> Result<Vec<Neighbour>, Fault> {
        let work = coordinate.dtype();
        let at = builder.map(domain_of(work), [coordinate], work, |[x]| {
            let at = self.placed(x, size as f64);
            let at = if self.mode == Mode::Nearest { at.apply(Unary::Round) } else { at };
            self.drawn_in(at, size as f64)
        })?;
        let offsets: &[f64] = match self.mode {
            Mode::Nearest => &[0.0],
            Mode::Linear => &[0.0, 1.0],
            Mode::Cubic => &[-1.0, 0.0, 1.0, 2.0],
        };
        offsets.iter().map(|offset| self.neighbour(builder, &at, *offset, size as f64)).collect()
    }

    /// Converts −1 … 1 to indices: the corners are the middles of the outermost elements, or their outer edges.
    fn placed<'a>(&self, x: Term<'a>, size: f64) -> Term<'a> {
        match self.align_corners {
            true => (x + 1.0) / 2.0 * (size - 1.0),
            false => ((x + 1.0) * size - 1.0) / 2.0,
        }
    }

    /// Moves a point outside to the inside, unless zeros are outside.
    fn drawn_in<'a>(&self, at: Term<'a>, size: f64) -> Term<'a> {
        match self.outside {
            Outside::Zeros => at,
            // Moves only points beyond the outermost elements' edges: a cubic curve may be placed between middle and
            // edge.
            Outside::Border => {
                let (low, high) = self.edges(size);
                let (before, behind) = (at.with(Binary::Less, low), at.with(Binary::Greater, high));
                before.select(0.0, behind.select(size - 1.0, at))
            }
            Outside::Reflection => self.reflected(at, size),
        }
    }

    /// Returns the positions of −1 and 1.
    fn edges(&self, size: f64) -> (f64, f64) {
        if self.align_corners { (0.0, size - 1.0) } else { (-0.5, size - 0.5) }
    }

    /// Mirrors a point at the outermost elements' middles or outer edges until it is between them.
    fn reflected<'a>(&self, at: Term<'a>, size: f64) -> Term<'a> {
        let (low, high) = self.edges(size);
        let width = high - low;
        if width <= 0.0 {
            return at * 0.0;
        }
        // A sawtooth of twice the width, whose second half runs backwards.
        let along = (at - low).with(Binary::FloorModulo, 2.0 * width);
        let back = along * -1.0 + 2.0 * width;
        along.with(Binary::Min, back) + low
    }

    fn neighbour(&self, builder: &mut Builder, at: &View, offset: f64, size: f64) -> Result<Neighbour, Fault> {
        let (domain, work) = (domain_of(at.dtype()), at.dtype());
        let place = builder.map(domain, [at], work, |[at]| {
            let index = at.apply(Unary::Floor) + offset;
            let index = if self.outside == Outside::Reflection { self.reflected(index, size) } else { index };
            // Rounded towards zero: a mirrored index may lie between two integers.
            let index = index.apply(Unary::Truncate);
            if self.outside == Outside::Zeros {
                let below = index.with(Binary::Less, size);
                return index.with(Binary::GreaterOrEqual, 0.0).with(Binary::And, below).select(index, -1.0);
            }
            // NaN gets any position: its weight is NaN, too.
            let inside = index.with(Binary::Max, 0.0).with(Binary::Min, size - 1.0);
            inside.apply(Unary::IsNan).select(0.0, inside)
        })?;
        let weight = builder.map(domain, [at], work, |[at]| {
            let floor = at.apply(Unary::Floor);
            let fraction = at - floor;
            match self.mode {
                Mode::Nearest => fraction * 0.0 + 1.0,
                Mode::Linear if offset == 0.0 => fraction * -1.0 + 1.0,
                Mode::Linear => fraction,
                Mode::Cubic => cubic(fraction, offset),
            }
        })?;
        Ok(Neighbour { place, weight })
    }
}

/// Returns the two neighbours along an axis of `size` elements of points at these indices, with zeros outside, for
/// interpolation.
pub(super) fn linear_neighbours(builder: &mut Builder, at: &View, size: usize) -> Result<Vec<Neighbour>, Fault> {
    let sampling = Sampling { mode: Mode::Linear, outside: Outside::Zeros, align_corners: true };
    [0.0, 1.0].into_iter().map(|offset| sampling.neighbour(builder, at, offset, size as f64)).collect()
}

/// Returns the weight in cubic convolution (Keys 1981) with the coefficient −0.75 of the neighbour at this offset from
/// the lower neighbour.
fn cubic(fraction: Term<'_>, offset: f64) -> Term<'_> {
    const A: f64 = -0.75;
    let distance = (fraction - offset).apply(Unary::Abs);
    if offset == 0.0 || offset == 1.0 {
        let slope = distance * (A + 2.0) - (A + 3.0);
        slope * distance * distance + 1.0
    } else {
        let curve = (distance * A - 5.0 * A) * distance + 8.0 * A;
        curve * distance - 4.0 * A
    }
}

/// Returns for each point the sum over all combinations of neighbours along the axes, those along the first axis the
/// fastest.
pub(super) fn weighted_sum(
    builder: &mut Builder,
    table: &View,
    dims: &[usize],
    neighbours: &[Vec<Neighbour>],
    [batch, points, channels]: [usize; 3],
) -> Result<View, Fault> {
    let (domain, work) = (domain_of(table.dtype()), table.dtype());
    let corners = corners(builder, table, dims, neighbours, batch)?;
    let mut parts = Vec::with_capacity(corners.len());
    for Neighbour { place, weight } in corners {
        let read = gather::chosen(builder, table, &place, 0, vec![batch, points, channels])?;
        parts.push((read, weight.reshaped(vec![batch, points, 1])?));
    }
    let mut sum: Option<View> = None;
    for pair in parts.chunks(2) {
        sum = match (sum, pair) {
            (None, [(x, a)]) => Some(builder.map(domain, [x, a], work, |[x, a]| product(x, a))?),
            (None, [(x, a), (y, b), ..]) => {
                Some(builder.map(domain, [x, a, y, b], work, |[x, a, y, b]| product(x, a) + product(y, b))?)
            }
            (Some(sum), [(x, a)]) => Some(builder.map(domain, [&sum, x, a], work, |[sum, x, a]| sum + product(x, a))?),
            (Some(sum), [(x, a), (y, b), ..]) => {
                Some(builder.map(domain, [&sum, x, a, y, b], work, |[sum, x, a, y, b]| {
                    let sum = sum + product(x, a);
                    sum + product(y, b)
                })?)
            }
            (sum, []) => sum,
        };
    }
    sum.ok_or_else(|| Fault::invalid("no neighbour"))
}

/// Weight of an element that is outside. No other weight is infinite.
const EXCLUDED: f64 = f64::INFINITY;

/// Returns the part of an element in a sum. Elements outside are excluded by selection instead of a weight of 0, with
/// which an infinite element would become NaN.
fn product<'a>(x: Term<'a>, weight: Term<'a>) -> Term<'a> {
    weight.with(Binary::Equal, EXCLUDED).select(0.0, x * weight)
}

/// Returns the combinations of neighbours along the axes: their rows in the table, and the products of their weights.
fn corners(
    builder: &mut Builder,
    table: &View,
    dims: &[usize],
    neighbours: &[Vec<Neighbour>],
    batch: usize,
) -> Result<Vec<Neighbour>, Fault> {
    let (domain, work) = (domain_of(table.dtype()), table.dtype());
    // The type that counts all rows exactly, and that of their indices.
    let (counting, index) = match work {
        DType::F64 => (DType::F64, DType::I64),
        _ if table.dims()[0] < 1 << 24 => (DType::F32, DType::I32),
        _ => (DType::I64, DType::I64),
    };
    let image = builder.indices(counting, batch, 0, 2)?;
    let mut corners: Vec<(View, Option<View>)> = vec![(image, None)];
    for (axis, choices) in neighbours.iter().enumerate() {
        let (size, is_last) = (dims[axis] as f64, axis + 1 == neighbours.len());
        let before = std::mem::take(&mut corners);
        for (chosen, (place, weight)) in choices.iter().flat_map(|chosen| before.iter().map(move |own| (chosen, own))) {
            let dtype = if is_last { index } else { counting };
            let place = builder.map(domain_of(counting), [place, &chosen.place], dtype, |[place, index]| {
                let outside = place.with(Binary::Less, 0.0).with(Binary::Or, index.with(Binary::Less, 0.0));
                outside.select(-1.0, place * size + index)
            })?;
            let weight = match weight {
                None => chosen.weight.clone(),
                Some(weight) => builder.map(domain, [weight, &chosen.weight], work, |[a, b]| a * b)?,
            };
            corners.push((place, Some(weight)));
        }
    }
    let mut found = Vec::with_capacity(corners.len());
    for (place, weight) in corners {
        let weight = weight.ok_or_else(|| Fault::invalid("no axis"))?;
        let weight = builder.map(domain, [&place, &weight], work, |[place, weight]| {
            place.with(Binary::Less, 0.0).select(EXCLUDED, weight)
        })?;
        found.push(Neighbour { place, weight });
    }
    Ok(found)
}
