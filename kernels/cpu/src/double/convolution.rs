//! Convolutions and transposed convolutions of 64-bit floats, row by row of the output. For each channel and element of
//! the window, a multiple of a row of the image is added. Elements of windows beyond the image are left out.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::geometry::{Geometry, Steps};
use anabranch_cpu_base::team::Grid;
use anabranch_cpu_base::vector::{Isa, Loop, vectorised};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_op::error::KernelError;
use anabranch_op::op::{Conv, ConvTranspose, NodeSpec};
use std::ops::Range;

/// Multiply-adds that are worth a hand-over to another thread.
const PIECE: usize = 1 << 16;

/// Indices along an axis at which an element of the window connects the image and the output.
struct Reach {
    /// Range on the side that advances by one: the output, or the image that is spread.
    walked: Range<usize>,
    /// Index on the opposite side for the first of them; each next one is a stride further.
    first: usize,
}

impl Reach {
    /// Returns the range of `i` below `walked` in which `i · stride + place − pad` is below `other`.
    fn new(place: usize, pad: usize, stride: usize, walked: usize, other: usize) -> Self {
        let (place, stride) = (place as i128 - pad as i128, stride as i128);
        let low = ((-place).max(0) + stride - 1) / stride;
        let room = other as i128 - 1 - place;
        let high = if room < 0 { 0 } else { (room / stride + 1).min(walked as i128) };
        match low < high {
            true => Self { walked: low as usize..high as usize, first: (low * stride + place) as usize },
            false => Self { walked: 0..0, first: 0 },
        }
    }
}

/// Kernel of a convolution of one size.
struct Kernel {
    transposed: bool,
    channels: usize,
    maps: usize,
    group: usize,
    image: [usize; 2],
    output: [usize; 2],
    strides: [usize; 2],
    /// Reach of each row and each column of the window.
    rows: Vec<Reach>,
    columns: Vec<Reach>,
}

/// Prepares a convolution.
pub(super) fn prepare(node: &NodeSpec, op: &Conv) -> Result<Box<dyn CpuKernel>, KernelError> {
    let Conv { strides, pads, dilations, group, .. } = *op;
    let steps = Steps { strides, pads, dilations };
    // `Geometry::new` checks the sizes.
    Geometry::new(node, node.inputs[0].shape.dims(), node.outputs[0].shape.dims(), steps, group)?;
    Ok(Box::new(Kernel::new(node, steps, group, false)?))
}

/// Prepares a transposed convolution.
pub(super) fn prepare_transposed(node: &NodeSpec, op: &ConvTranspose) -> Result<Box<dyn CpuKernel>, KernelError> {
    let ConvTranspose { strides, pads, dilations, group, .. } = *op;
    Ok(Box::new(Kernel::new(node, Steps { strides, pads, dilations }, group, true)?))
}

impl Kernel {
    fn new(node: &NodeSpec, steps: Steps, group: usize, transposed: bool) -> Result<Self, KernelError> {
        let dims =
            |spec: &anabranch_op::TensorSpec| <[usize; 4]>::try_from(spec.shape.dims()).expect("four, as was checked");
        let [_, channels, h, w] = dims(&node.inputs[0]);
        let [_, _, kh, kw] = dims(&node.inputs[1]);
        let [_, maps, oh, ow] = dims(&node.outputs[0]);
        let (image, output, window) = ([h, w], [oh, ow], [kh, kw]);
        let reach = |axis: usize| {
            let (walked, other) = if transposed { (image, output) } else { (output, image) };
            let (pad, stride) = (steps.pads[axis], steps.strides[axis]);
            node.table((0..window[axis]).map(|element| {
                let place = element.saturating_mul(steps.dilations[axis]);
                Reach::new(place, pad, stride, walked[axis], other[axis])
            }))
        };
        let (rows, columns) = (reach(0)?, reach(1)?);
        Ok(Self { transposed, channels, maps, group, image, output, strides: steps.strides, rows, columns })
    }

    /// Returns the row of the image for row `y` of the output at this row of the window.
    #[inline(always)]
    fn image_row(&self, y: usize, reach: &Reach) -> Option<usize> {
        if !self.transposed {
            return reach.walked.contains(&y).then(|| reach.first + (y - reach.walked.start) * self.strides[0]);
        }
        let distance = y.checked_sub(reach.first).filter(|distance| distance.is_multiple_of(self.strides[0]))?;
        let row = reach.walked.start + distance / self.strides[0];
        reach.walked.contains(&row).then_some(row)
    }

    /// Returns the index of the weight of an output channel and one of its group's channels at element 0 of the window.
    fn weights_at(&self, map: usize, channel: usize) -> usize {
        let (channels, maps) = (self.channels / self.group, self.maps / self.group);
        let matrix = match self.transposed {
            true => (map / maps * channels + channel) * maps + map % maps,
            false => map * channels + channel,
        };
        matrix * self.rows.len() * self.columns.len()
    }
}

/// Loop for one row of the output.
struct Row<'a> {
    kernel: &'a Kernel,
    /// Channels of the output channel's group.
    image: &'a [f64],
    weights: &'a [f64],
    map: usize,
    y: usize,
    out: &'a mut [f64],
}

impl Loop for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { kernel, image, weights, map, y, out } = self;
        out.fill(0.0);
        let [height, width] = kernel.image;
        for channel in 0..kernel.channels / kernel.group {
            let weights = &weights[kernel.weights_at(map, channel)..];
            for (line, reach) in kernel.rows.iter().enumerate() {
                let Some(row) = kernel.image_row(y, reach) else { continue };
                let row = &image[(channel * height + row) * width..][..width];
                for (reach, weight) in kernel.columns.iter().zip(&weights[line * kernel.columns.len()..]) {
                    add::<I>(kernel, reach, *weight, row, out);
                }
            }
        }
    }
}

/// Adds a multiple of an image's row at the positions of this column of the window.
#[inline(always)]
fn add<I: Isa>(kernel: &Kernel, reach: &Reach, weight: f64, row: &[f64], out: &mut [f64]) {
    if reach.walked.is_empty() {
        return;
    }
    let stride = kernel.strides[1];
    let fused = |(to, x): (&mut f64, &f64)| *to = I::fused_f64(weight, *x, *to);
    match (kernel.transposed, stride) {
        (_, 1) => {
            let (from, to) =
                if kernel.transposed { (reach.walked.start, reach.first) } else { (reach.first, reach.walked.start) };
            out[to..].iter_mut().zip(&row[from..]).take(reach.walked.len()).for_each(fused);
        }
        (false, _) => {
            let read = row[reach.first..].iter().step_by(stride);
            out[reach.walked.clone()].iter_mut().zip(read).for_each(fused);
        }
        (true, _) => {
            let written = out[reach.first..].iter_mut().step_by(stride);
            written.zip(&row[reach.walked.clone()]).for_each(fused);
        }
    }
}

impl CpuKernel for Kernel {
    fn resident_bytes(&self) -> usize {
        (self.rows.len() + self.columns.len()) * size_of::<Reach>()
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let (source, weights): (&[f64], &[f64]) = (elements(call.inputs[0]), elements(call.inputs[1]));
        let target: &mut [f64] = elements_mut(call.outputs[0]);
        let [rows, columns] = self.output;
        if target.is_empty() {
            return Ok(());
        }
        let channels = self.channels / self.group;
        let work = channels * self.rows.len() * self.columns.len() * columns;
        let grid = Grid {
            batch: target.len() / (rows * columns),
            rows,
            columns,
            tile_rows: PIECE.div_ceil(work.max(1)),
            tile_columns: columns,
        };
        let pixels = self.image[0] * self.image[1];
        call.team.run_tiles(target, grid, &|mut tile| {
            let (image, map) = (tile.matrix / self.maps, tile.matrix % self.maps);
            let first = image * self.channels + map / (self.maps / self.group) * channels;
            let image = &source[first * pixels..][..channels * pixels];
            for (at, y) in tile.rows.clone().enumerate() {
                vectorised(Row { kernel: self, image, weights, map, y, out: tile.row(at) });
            }
        });
        Ok(())
    }
}
