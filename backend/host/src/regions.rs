//! Regions of images brought to one size (He et al. 2017, "Mask R-CNN", section 3): RoiAlign.
//!
//! An output of a region is the mean, or the greatest, of points of a grid. A point is the sum of `r · c · x` over the
//! four elements `x` around it, with weights `r` of its row and `c` of its column. All rows of the grid meet all its
//! columns. The mean is therefore the sum of `R · C · x` over the elements under the grid, with sums `R` and `C` of
//! weights. The greatest `r · c · x` of an element has the greatest weights if `x` is positive, and the least
//! otherwise. An output takes time by the elements under its grid, not by its points.

use super::work::{PART, Work};
use super::{Call, Item};
use crate::{Fault, integers, numbers};
use anabranch_import::Node;
use anabranch_kernels::dtype::Element;
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use half::{bf16, f16};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Points of an output along an axis, at most.
const MOST_POINTS: usize = 1 << 16;

/// Attributes of the operator.
#[derive(Clone, Copy)]
pub struct Settings {
    /// Rows and columns of the outputs of a region.
    pub size: [usize; 2],
    /// Whether an output is the greatest product instead of the mean of the points.
    pub greatest: bool,
    /// Points along each axis of an output; 0 if the region's size determines them.
    pub points: usize,
    /// Elements of the input for one unit of a region's corners.
    pub scale: f64,
    /// Whether a region's corners are between elements, so that it may be smaller than one element.
    pub half_pixel: bool,
}

impl Settings {
    /// Reads a node's attributes.
    ///
    /// # Errors
    /// If a value violates the definition, or there are too many points.
    pub fn of(node: &Node) -> Result<Self, Fault> {
        let size = |name: &str, least: i64, most: usize| {
            let value = node.int(name)?.unwrap_or(least);
            let size = usize::try_from(value).ok().filter(|size| value >= least && *size <= most);
            size.ok_or_else(|| Fault::attribute(name, value, format!("{least} to {most}")))
        };
        let most = isize::MAX as usize;
        let greatest = match node.string("mode")?.unwrap_or("avg") {
            "avg" => false,
            "max" => true,
            other => return Err(Fault::attribute("mode", other, "avg or max")),
        };
        let usual = if node.version < 16 { "output_half_pixel" } else { "half_pixel" };
        let half_pixel = match node.string("coordinate_transformation_mode")?.unwrap_or(usual) {
            "half_pixel" => true,
            "output_half_pixel" => false,
            other => {
                let known = "half_pixel or output_half_pixel";
                return Err(Fault::attribute("coordinate_transformation_mode", other, known));
            }
        };
        let scale = node.float("spatial_scale")?.unwrap_or(1.0);
        if !scale.is_finite() {
            return Err(Fault::attribute("spatial_scale", scale, "a finite number"));
        }
        Ok(Self {
            size: [size("output_height", 1, most)?, size("output_width", 1, most)?],
            greatest,
            points: size("sampling_ratio", 0, MOST_POINTS)?,
            scale: f64::from(scale),
            half_pixel,
        })
    }
}

/// Returns the outputs of all regions. O(outputs · elements under a grid).
pub(crate) fn align(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    match call.tensor(0)?.dtype() {
        DType::F32 => aligned::<f32>(call),
        DType::F64 => aligned::<f64>(call),
        DType::F16 => aligned::<f16>(call),
        DType::BF16 => aligned::<bf16>(call),
        other => Err(Fault::of_type(0, other, "a float")),
    }
}

/// An element that is computed as an `f64`.
trait Number: Element {
    /// Whether coordinates are computed in `f32`: they decide the number of points.
    const IS_NARROW: bool = true;

    fn read(self) -> f64;

    fn of(number: f64) -> Self;
}

impl Number for f32 {
    fn read(self) -> f64 {
        f64::from(self)
    }

    fn of(number: f64) -> Self {
        number as f32
    }
}

impl Number for f64 {
    const IS_NARROW: bool = false;

    fn read(self) -> f64 {
        self
    }

    fn of(number: f64) -> Self {
        number
    }
}

macro_rules! halves {
    ($($half:ty),*) => { $(impl Number for $half {
        fn read(self) -> f64 {
            self.to_f64()
        }

        fn of(number: f64) -> Self {
            Self::from_f64(number)
        }
    })* };
}

halves!(f16, bf16);

/// Inputs of the computation.
struct Regions<'a, T> {
    settings: Settings,
    x: &'a [T],
    /// Channels, rows and columns of an image.
    dims: [usize; 3],
    /// Left, top, right and bottom of each region.
    corners: &'a [[f64; 4]],
    images: &'a [i64],
}

fn aligned<T: Number>(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let (x, regions, images, work) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?, call.work);
    for (index, tensor, wanted) in [(1, regions, x.dtype()), (2, images, DType::I64)] {
        if tensor.dtype() != wanted {
            return Err(Fault::of_type(index, tensor.dtype(), &wanted.to_string()));
        }
    }
    let (&[batch, channels, height, width], &[count, 4]) = (x.shape().dims(), regions.shape().dims()) else {
        return Err(Fault::invalid(format!("regions of shape {} in images of {}", regions.shape(), x.shape())));
    };
    if *images.shape().dims() != [count] {
        return Err(Fault::invalid(format!("{} images for {count} regions in {}", images.shape(), x.shape())));
    }
    work.charge(count.saturating_mul(size_of::<[f64; 4]>() + size_of::<i64>()))?;
    let (corners, images) = (numbers(regions).unwrap_or_default(), integers(images).unwrap_or_default());
    let outside = |image: &i64| !usize::try_from(*image).is_ok_and(|image| image < batch);
    if let Some((region, image)) = images.iter().enumerate().find(|(_, image)| outside(image)) {
        return Err(Fault::invalid(format!("region {region} is in image {image}; there are {batch}, counted from 0")));
    }
    let settings = Settings::of(call.node)?;
    let [rows, columns] = settings.size;
    let spec = TensorSpec::new(x.dtype(), Shape::new(vec![count, channels, rows, columns])?);
    if spec.bytes() > 0 && x.bytes().is_empty() {
        return Err(Fault::invalid(format!("{count} regions in images of {} without elements", x.shape())));
    }
    let buffer = Arc::new(work.buffer(spec.bytes())?);
    let mut made = Tensor::new(spec, buffer).expect("the buffer was made with the spec's size");
    let all = Regions::<T> {
        settings,
        x: x.elements().expect("the type was matched"),
        dims: [channels, height, width],
        corners: corners.as_chunks().0,
        images: &images,
    };
    all.fill(work, made.elements_mut().expect("nobody else holds the buffer"))?;
    Ok(vec![Item::Tensor(made)])
}

impl<T: Number> Regions<'_, T> {
    /// Writes the outputs of all regions in parts of whole planes.
    fn fill(&self, work: &Work<'_>, outputs: &mut [T]) -> Result<(), Fault> {
        if outputs.is_empty() {
            return Ok(());
        }
        let ([rows, columns], [channels, height, width]) = (self.settings.size, self.dims);
        let (plane, refused) = (rows * columns, AtomicUsize::new(usize::MAX));
        let together = PART.div_ceil(plane);
        // An element is in at most three consecutive cells.
        let cells = height.saturating_add(width).saturating_add(rows).saturating_add(columns).saturating_mul(3);
        let parts = outputs.len().div_ceil(together * plane).min(work.threads());
        work.charge(cells.saturating_mul(size_of::<Cell>()).saturating_mul(parts))?;
        work.pieces(outputs, together * plane, |piece, outputs| {
            let (mut axes, mut pace, mut known) = ([Axis::default(), Axis::default()], Pace::new(work), usize::MAX);
            for (at, output) in (piece * together..).zip(outputs.chunks_mut(plane)) {
                let region = at / channels;
                if region != known {
                    known = region;
                    if !self.read(&mut pace, region, &mut axes) {
                        // The least region is reported, regardless of the thread that finds it.
                        refused.fetch_min(region, Ordering::Relaxed);
                        return;
                    }
                }
                let image = (self.images[region] as usize * channels + at % channels) * height * width;
                let image = &self.x[image..][..height * width];
                for (place, output) in output.iter_mut().enumerate() {
                    let (row, column) = (axes[0].line(place / columns), axes[1].line(place % columns));
                    *output = T::of(if self.settings.greatest {
                        greatest(image, width, &row, &column, &mut pace)
                    } else {
                        mean(image, width, &row, &column, &mut pace)
                    });
                    if !pace.goes_on(1) {
                        return;
                    }
                }
            }
        })?;
        match refused.into_inner() {
            usize::MAX => Ok(()),
            region => {
                let corners = self.corners[region];
                let [left, top, right, bottom] = corners;
                let problem = if !corners.iter().all(|corner| corner.is_finite()) {
                    "has a corner that is not a finite number".to_owned()
                } else if self.is_beyond(corners) {
                    let scale = self.settings.scale;
                    format!("is too large to compute with `spatial_scale` {scale}; make it or `spatial_scale` smaller")
                } else {
                    format!(
                        "needs more than {MOST_POINTS} points along an axis of an output; make it smaller, or set `sampling_ratio`"
                    )
                };
                Err(Fault::invalid(format!("region {region} from ({left}, {top}) to ({right}, {bottom}) {problem}")))
            }
        }
    }

    /// Whether the size of a region with these corners overflows in the type that coordinates are computed in.
    fn is_beyond(&self, [left, top, right, bottom]: [f64; 4]) -> bool {
        let narrow = |number: f64| if T::IS_NARROW { f64::from(number as f32) } else { number };
        let scaled = |corner: f64| narrow(corner * self.settings.scale);
        [[left, right], [top, bottom]]
            .map(|ends| ends.map(scaled))
            .iter()
            .any(|[low, high]| !narrow(high - low).is_finite())
    }

    /// Finds what is under the grids of a region. Whether its points can be counted.
    fn read(&self, pace: &mut Pace<'_>, region: usize, axes: &mut [Axis; 2]) -> bool {
        let ([left, top, right, bottom], [_, height, width]) = (self.corners[region], self.dims);
        let [rows, columns] = self.settings.size;
        let mut read = |axis: usize, ends, outputs, size| {
            let narrow = |number: f64| if T::IS_NARROW { f64::from(number as f32) } else { number };
            axes[axis].read(pace, &self.settings, ends, outputs, size, narrow)
        };
        read(0, [top, bottom], rows, height) && read(1, [left, right], columns, width)
    }
}

/// Work since the last check of the clock and the token.
struct Pace<'a> {
    work: &'a Work<'a>,
    done: usize,
    is_left: bool,
}

impl<'a> Pace<'a> {
    fn new(work: &'a Work<'a>) -> Self {
        Self { work, done: 0, is_left: false }
    }

    /// Counts elements or points. Returns whether the operator continues.
    fn goes_on(&mut self, done: usize) -> bool {
        self.done += done;
        if self.done >= PART {
            self.done = 0;
            self.is_left |= self.work.look().is_err();
        }
        !self.is_left
    }
}

/// An element along an axis with its weights in the points around it.
#[derive(Clone, Copy)]
struct Cell {
    place: usize,
    sum: f64,
    least: f64,
    most: f64,
}

/// Elements under the grids of a region along an axis.
#[derive(Default)]
struct Axis {
    cells: Vec<Cell>,
    /// For each output the end of its cells, and whether a point is outside the image.
    outputs: Vec<(usize, bool)>,
    /// Points of each output.
    points: usize,
}

/// Elements under the grid of one output along an axis.
struct Line<'a> {
    cells: &'a [Cell],
    is_outside: bool,
    points: usize,
}

impl Axis {
    fn line(&self, output: usize) -> Line<'_> {
        let start = output.checked_sub(1).map_or(0, |before| self.outputs[before].0);
        let (end, is_outside) = self.outputs[output];
        Line { cells: &self.cells[start..end], is_outside, points: self.points }
    }

    /// Finds the elements around the points of each output. Each operation is rounded like ONNX Runtime's. Returns
    /// whether the points can be counted.
    fn read(
        &mut self,
        pace: &mut Pace<'_>,
        settings: &Settings,
        [first, last]: [f64; 2],
        outputs: usize,
        size: usize,
        narrow: impl Fn(f64) -> f64,
    ) -> bool {
        let offset = if settings.half_pixel { 0.5 } else { 0.0 };
        let [start, end] = [first, last].map(|corner| narrow(narrow(corner * settings.scale) - offset));
        let length = narrow(end - start);
        let length = if settings.half_pixel { length } else { length.max(1.0) };
        let bin = narrow(length / outputs as f64);
        let points = if settings.points > 0 { settings.points as f64 } else { bin.ceil().max(0.0) };
        if ![start, end, bin].iter().all(|number| number.is_finite()) || points > MOST_POINTS as f64 {
            return false;
        }
        self.points = points as usize;
        self.cells.clear();
        self.outputs.clear();
        for output in 0..outputs {
            let (from, low) = (self.cells.len(), narrow(start + narrow(output as f64 * bin)));
            let mut is_outside = false;
            for point in 0..self.points {
                let at = narrow(low + narrow(narrow((point as f64 + 0.5) * bin) / points));
                if (-1.0..=size as f64).contains(&at) {
                    self.add(from, at, size);
                } else {
                    is_outside = true;
                }
            }
            self.outputs.push((self.cells.len(), is_outside));
            if !pace.goes_on(self.points + 1) {
                // The operator ends after this; until then the other outputs have no elements.
                self.outputs.resize(outputs, (self.cells.len(), false));
                return true;
            }
        }
        true
    }

    /// Adds the weights of the two elements around a point to the cells of an output, which start at `from`.
    fn add(&mut self, from: usize, at: f64, size: usize) {
        let at = at.clamp(0.0, (size - 1) as f64);
        let low = at as usize;
        let fraction = at - low as f64;
        for (place, weight) in [(low, 1.0 - fraction), ((low + 1).min(size - 1), fraction)] {
            // Points follow each other, so that an element with a cell is among the last.
            let recent = from.max(self.cells.len().saturating_sub(3));
            match self.cells[recent..].iter_mut().find(|cell| cell.place == place) {
                Some(cell) => {
                    cell.sum += weight;
                    cell.least = cell.least.min(weight);
                    cell.most = cell.most.max(weight);
                }
                None => self.cells.push(Cell { place, sum: weight, least: weight, most: weight }),
            }
        }
    }
}

/// Returns the mean of the points of one output; 0 without points.
fn mean<T: Number>(image: &[T], width: usize, rows: &Line<'_>, columns: &Line<'_>, pace: &mut Pace<'_>) -> f64 {
    // `sum` of nothing would be −0.
    let mut all = 0.0;
    for row in rows.cells {
        let line = &image[row.place * width..][..width];
        all += row.sum * columns.cells.iter().fold(0.0, |sum, cell| sum + cell.sum * line[cell.place].read());
        if !pace.goes_on(columns.cells.len()) {
            break;
        }
    }
    all / (rows.points * columns.points).max(1) as f64
}

/// Returns the greatest product of an element and its weights; 0 without points. NaN is greater than all numbers.
fn greatest<T: Number>(image: &[T], width: usize, rows: &Line<'_>, columns: &Line<'_>, pace: &mut Pace<'_>) -> f64 {
    let is_outside = rows.is_outside && columns.points > 0 || columns.is_outside && rows.points > 0;
    if !is_outside && (rows.cells.is_empty() || columns.cells.is_empty()) {
        return 0.0;
    }
    let mut most = if is_outside { 0.0 } else { f64::NEG_INFINITY };
    for row in rows.cells {
        let line = &image[row.place * width..][..width];
        for column in columns.cells {
            let element = line[column.place].read();
            // Both products are computed, so that there is no branch to mispredict.
            let [least, greatest] = [row.least * column.least, row.most * column.most];
            let product = if element < 0.0 { least } else { greatest } * element;
            if product.is_nan() {
                return product;
            }
            most = if product > most { product } else { most };
        }
        if !pace.goes_on(columns.cells.len()) {
            break;
        }
    }
    most
}
