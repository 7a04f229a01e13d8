//! Deformable convolution: an input gives the position of each element of a window (Dai et al. 2017), and another its
//! weight (Zhu et al. 2019).
//!
//! The elements that are read become the columns of a matrix, which the weights multiply.

use super::matmul::multiplied;
use super::sample::{linear_neighbours, weighted_sum};
use super::{Builder, Entry, Fault, Operator, View, domain_of};
use anabranch_kernels::{Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[("DeformConv", convolution)];

/// Most axes of windows: each point has two neighbours along each.
const MOST_AXES: usize = 4;

/// Sizes of a deformable convolution; lists have an entry for each axis of the windows.
struct Layer {
    batch: usize,
    channels: usize,
    filters: usize,
    group: usize,
    offset_group: usize,
    input: Vec<usize>,
    kernel: Vec<usize>,
    output: Vec<usize>,
    strides: Vec<usize>,
    dilations: Vec<usize>,
    before: Vec<usize>,
}

fn convolution(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let layer = Layer::read(operator)?;
    let dtype = operator.input(0)?.dtype();
    let columns = layer.columns(operator, builder)?;
    let (group, depth) = (layer.group, layer.channels / layer.group);
    let weights = builder.as_working(operator.input(1)?)?;
    let taps = product(&layer.kernel);
    let weights = weights.reshaped(vec![1, group, layer.filters / group, depth.saturating_mul(taps)])?;
    let made = multiplied(builder, &weights, &columns)?;
    let made = made.reshaped([&[layer.batch, layer.filters], &layer.output[..]].concat())?;
    let Some(bias) = operator.optional(3) else { return Ok(vec![builder.cast(&made, dtype)?]) };
    operator.typed(3, dtype)?;
    if *bias.dims() != [layer.filters] {
        return Err(Fault::invalid(format!("a bias of shape {} for {} channels", bias.shape(), layer.filters)));
    }
    let bias = bias.reshaped([&[layer.filters][..], &vec![1; layer.kernel.len()]].concat())?;
    Ok(vec![builder.map(domain_of(made.dtype()), [&made, &bias], dtype, |[made, bias]| made + bias)?])
}

fn product(sizes: &[usize]) -> usize {
    sizes.iter().fold(1, |product, size| product.saturating_mul(*size))
}

impl Layer {
    fn read(operator: &Operator<'_>) -> Result<Self, Fault> {
        let (x, weights) = operator.pair()?;
        operator.float_input(0)?;
        let axes = x.rank().saturating_sub(2);
        if axes == 0 || axes > MOST_AXES || weights.rank() != x.rank() || x.elements() == 0 || weights.elements() == 0 {
            let (x, weights) = (x.shape(), weights.shape());
            return Err(Fault::invalid(format!("weights of shape {weights} do not fit an input of shape {x}")));
        }
        let list = |name: &str, length: usize, least: i64, default: usize| {
            let given = operator.node.sizes(name, length, least..=i64::from(i32::MAX))?;
            Ok::<_, Fault>(given.unwrap_or_else(|| vec![default; length]))
        };
        let kernel = weights.dims()[2..].to_vec();
        if operator.node.sizes("kernel_shape", axes, 1..=i64::MAX)?.is_some_and(|given| given != kernel) {
            return Err(Fault::attribute("kernel_shape", &kernel, "the weights'"));
        }
        let (strides, dilations) = (list("strides", axes, 1, 1)?, list("dilations", axes, 1, 1)?);
        let pads = list("pads", 2 * axes, 0, 0)?;
        let (group, offset_group) = (operator.size("group", 1, 1)?, operator.size("offset_group", 1, 1)?);
        let (channels, filters) = (x.dims()[1], weights.dims()[0]);
        let fits =
            channels.is_multiple_of(group) && filters.is_multiple_of(group) && channels.is_multiple_of(offset_group);
        if !fits || weights.dims()[1] != channels / group {
            let each = weights.dims()[1];
            return Err(Fault::invalid(format!(
                "{channels} channels in {group} groups and {offset_group} of offsets, to {filters} filters over {each} each"
            )));
        }
        let input = x.dims()[2..].to_vec();
        let output = (0..axes).map(|axis| {
            let extent = (kernel[axis] - 1).checked_mul(dilations[axis])?.checked_add(1)?;
            let padded = input[axis].checked_add(pads[axis])?.checked_add(pads[axis + axes])?;
            Some(padded.checked_sub(extent)? / strides[axis] + 1)
        });
        let output: Option<Vec<_>> = output.collect();
        let output = output.ok_or_else(|| Fault::invalid(format!("windows of {kernel:?} do not fit {input:?}")))?;
        if input.iter().chain(&output).any(|size| *size >= 1 << 24) {
            // Positions are computed in `f32`.
            return Err(Fault::unsupported(format!("an axis of {input:?} or {output:?} elements")));
        }
        let before = pads[..axes].to_vec();
        let batch = x.dims()[0];
        Ok(Self { batch, channels, filters, group, offset_group, input, kernel, output, strides, dilations, before })
    }

    /// Returns the elements that the windows read, as `[batch, group, its channels × elements of a window, windows]`.
    fn columns(&self, operator: &Operator<'_>, builder: &mut Builder) -> Result<View, Fault> {
        let axes = self.kernel.len();
        let (taps, windows, groups) = (product(&self.kernel), product(&self.output), self.offset_group);
        let (images, depth) = (self.batch.saturating_mul(groups), self.channels / groups);
        let points = taps.saturating_mul(windows);
        let offsets = self.by_point(operator, builder, 2, axes)?;
        let mut neighbours = Vec::with_capacity(axes);
        for axis in 0..axes {
            let offset = builder.part(&offsets, 2, axis, 1)?;
            let dims = [&[images][..], &self.kernel, &self.output].concat();
            let at = self.placed(builder, &offset.reshaped(dims)?, axis)?;
            neighbours.push(linear_neighbours(builder, &at.reshaped(vec![images, points])?, self.input[axis])?);
        }
        // Images with the channels of a group innermost, so that one index selects all of them.
        let pixels = product(&self.input);
        let table = builder.as_working(operator.input(0)?)?.reshaped(vec![images, depth, pixels])?;
        let table = builder.transposed(&table, &[0, 2, 1])?.reshaped(vec![images.saturating_mul(pixels), depth])?;
        let mut read = weighted_sum(builder, &table, &self.input, &neighbours, [images, points, depth])?;
        if operator.optional(4).is_some() {
            let mask = self.by_point(operator, builder, 4, 1)?.reshaped(vec![images, points, 1])?;
            read = builder.map(domain_of(read.dtype()), [&read, &mask], read.dtype(), |[x, mask]| x * mask)?;
        }
        let read = builder.transposed(&read, &[0, 2, 1])?;
        read.reshaped(vec![self.batch, self.group, (self.channels / self.group).saturating_mul(taps), windows])
    }

    /// Returns input `index`, `count` numbers for each element of each window, as `[images, elements of a window,
    /// count, windows]`.
    fn by_point(
        &self,
        operator: &Operator<'_>,
        builder: &mut Builder,
        index: usize,
        count: usize,
    ) -> Result<View, Fault> {
        let view = operator.typed(index, operator.input(0)?.dtype())?;
        let taps = product(&self.kernel);
        let numbers = product(&[self.offset_group, taps, count]);
        let expected = [&[self.batch, numbers], &self.output[..]].concat();
        if *view.dims() != expected[..] {
            return Err(Fault::invalid(format!("input {index} has shape {}, but needs {expected:?}", view.shape())));
        }
        let images = self.batch.saturating_mul(self.offset_group);
        builder.as_working(view)?.reshaped(vec![images, taps, count, product(&self.output)])
    }

    /// Returns the positions of windows' elements along an axis: the window's position plus the offsets `[images,
    /// kernel …, output …]`.
    fn placed(&self, builder: &mut Builder, offsets: &View, axis: usize) -> Result<View, Fault> {
        let (axes, rank) = (self.kernel.len(), offsets.rank());
        let work = offsets.dtype();
        let tap = builder.indices(work, self.kernel[axis], 1 + axis, rank)?;
        let window = builder.indices(work, self.output[axis], 1 + axes + axis, rank)?;
        let (stride, dilation) = (self.strides[axis] as f64, self.dilations[axis] as f64);
        let before = self.before[axis] as f64;
        let shape = Shape::new(offsets.dims().to_vec())?;
        let spec = TensorSpec::new(work, shape);
        builder.map_to(domain_of(work), [&tap, &window, offsets], spec, |[tap, window, offset]| {
            let place = window * stride - before;
            let place = tap * dilation + place;
            place + offset
        })
    }
}
