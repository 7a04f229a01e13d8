//! Convolutions as products over patches (im2col, Chellapilla 2006, as in the paper's section 7.3), and pooling and resampling.

use super::elements::epilogue;
use super::product::{Product, by_depth, shares};
use super::weave::{Held, Id, Weave};
use anabranch_kernels::op::{Conv, ConvTranspose, Interpolation, Resize};

/// A [`Conv`]: a task for each output channel. The input is stored and read as patches, a row of `channels / group × kh × kw` for
/// each output position; a task reads its group's patches and its channel's weights again and again, and gives one element for each
/// position. Weights stay with their task, and its output is a channel as it lies in the result. Few channels over deep patches
/// are done by depth, where that is sooner.
pub(super) fn conv(weave: &mut Weave<'_>, op: &Conv) -> Option<()> {
    let [images, channels, height, width] = weave.node().spec.outputs.first()?.shape.dims()[..] else { return None };
    let [_, depth @ ..] = weave.node().spec.inputs.get(1)?.shape.dims() else { return None };
    let depth = depth.iter().map(|size| *size as u64).product::<u64>();
    let (rows, columns) = ((images * height * width) as u64, channels as u64);
    let levels = u64::from(depth.next_power_of_two().trailing_zeros());
    let result = if op.group == 1 && columns.saturating_mul(1 + levels) < depth {
        by_depth(weave, &Product { rows, depth, columns })
    } else {
        by_channels(weave, rows, depth, columns)?
    };
    // A product by depth comes position by position, and images are kept channel by channel.
    let ordered = match result {
        Held::Stream(task) if columns > 1 && rows > 1 => Held::Parts(vec![task]),
        other => other,
    };
    epilogue(weave, ordered)
}

/// A [`ConvTranspose`]: a product of each input position's channels with the weights, whose columns are stored and added up where
/// they overlap in the result.
pub(super) fn conv_transpose(weave: &mut Weave<'_>, op: &ConvTranspose) -> Option<()> {
    let [images, channels, height, width] = weave.node().spec.inputs.first()?.shape.dims()[..] else { return None };
    let [_, columns @ ..] = weave.node().spec.inputs.get(1)?.shape.dims() else { return None };
    let rows = (images * height * width) as u64;
    let columns = columns.iter().map(|size| *size as u64).product::<u64>() * op.group as u64;
    let depth = (channels / op.group.max(1)) as u64;
    let (read, written) = (rows * columns, weave.written()?);
    let product = by_channels(weave, rows, depth, columns)?;
    let columns = weave.whole("overlaps", &product, read);
    let sum = weave.task("overlap sum", &[columns], read, written);
    epilogue(weave, Held::Stream(sum))
}

/// A [`Pool`](anabranch_kernels::op::Pool): a downsampler.
pub(super) fn pool(weave: &mut Weave<'_>) -> Option<()> {
    let (read, written, value) = (weave.read(0)?, weave.written()?, weave.input(0)?);
    let input = weave.stream(value);
    let task = weave.task("windows", &[input], read, written);
    weave.hold(0, Held::Stream(task));
    Some(())
}

/// A [`Resize`]: memory where each element is one of the input's, else a downsampler that reads the neighbours of each element.
pub(super) fn resize(weave: &mut Weave<'_>, op: &Resize) -> Option<()> {
    let (written, value) = (weave.written()?, weave.input(0)?);
    let neighbours = match op.interpolation {
        Interpolation::Nearest(_) => return super::views::view(weave),
        Interpolation::Linear => 4,
        Interpolation::Cubic { .. } => 16,
    };
    let memory = weave.memory(value, written * neighbours);
    let task = weave.task("interpolation", &[memory], written * neighbours, written);
    weave.hold(0, Held::Stream(task));
    Some(())
}

/// Tasks by the columns of the weights; the input as patches.
fn by_channels(weave: &mut Weave<'_>, rows: u64, depth: u64, columns: u64) -> Option<Held> {
    let (patches, weights) = (weave.input(0)?, weave.input(1)?);
    let shares = shares(columns, weave.granularity.product_tasks as u64);
    let channel = |(number, share): (usize, u64)| {
        let read = rows * depth * share;
        let operands = [weave.memory(patches, read), weave.memory(weights, read)];
        weave.task(&format!("channels {number}"), &operands, read, rows * share)
    };
    let parts: Vec<Id> = shares.into_iter().enumerate().map(channel).collect();
    Some(weave.join(parts, rows * columns))
}
