//! Convolutions as products over patches (im2col, Chellapilla 2006, as in the paper's section 7.3), pooling and
//! resampling.

use super::elements::epilogue;
use super::product::{by_depth, shares};
use super::writer::{GraphWriter, Id, ValueSource};
use anabranch_kernels::op::{ConvTranspose, Interpolation, Resize};

/// Writes a convolution of `group` groups: a task for each output channel.
///
/// The input is stored and read as patches, a row of `channels / group × kh × kw` for each output position. A task
/// reads its group's patches and its channel's weights again and again, and writes one element per position. Weights
/// stay with their task, and its output is a channel as it lies in the result. A convolution of few channels over deep
/// patches is split by depth if that is faster.
pub(super) fn conv(writer: &mut GraphWriter<'_>, group: usize) -> Option<()> {
    let [images, channels, height, width] = writer.node().spec.outputs.first()?.shape.dims()[..] else { return None };
    let [_, depth @ ..] = writer.node().spec.inputs.get(1)?.shape.dims() else { return None };
    let depth = depth.iter().map(|size| *size as u64).product::<u64>();
    let (rows, columns) = ((images * height * width) as u64, channels as u64);
    let levels = u64::from(depth.next_power_of_two().trailing_zeros());
    let result = if group == 1 && columns.saturating_mul(1 + levels) < depth {
        by_depth(writer, rows, depth, columns)?
    } else {
        by_channels(writer, rows, depth, columns)?
    };
    // A product by depth writes position by position, but images are stored channel by channel.
    let ordered = match result {
        ValueSource::Stream(task) if columns > 1 && rows > 1 => ValueSource::Parts(vec![task]),
        other => other,
    };
    epilogue(writer, ordered)
}

/// Writes a [`ConvTranspose`]: a product of each input position's channels with the weights. Its columns are stored,
/// and added up where they overlap in the result.
pub(super) fn conv_transpose(writer: &mut GraphWriter<'_>, op: &ConvTranspose) -> Option<()> {
    let [images, channels, height, width] = writer.node().spec.inputs.first()?.shape.dims()[..] else { return None };
    let [_, columns @ ..] = writer.node().spec.inputs.get(1)?.shape.dims() else { return None };
    let rows = (images * height * width) as u64;
    let columns = columns.iter().map(|size| *size as u64).product::<u64>() * op.group as u64;
    let depth = (channels / op.group.max(1)) as u64;
    let (read, written) = (rows * columns, writer.written()?);
    let product = by_channels(writer, rows, depth, columns)?;
    let columns = writer.whole("overlaps", &product, read);
    let sum = writer.task("overlap sum", &[columns], read, written);
    epilogue(writer, ValueSource::Stream(sum))
}

/// Writes a [`Pool`](anabranch_kernels::op::Pool): a downsampler.
pub(super) fn pool(writer: &mut GraphWriter<'_>) -> Option<()> {
    let (read, written, value) = (writer.read(0)?, writer.written()?, writer.input(0)?);
    let input = writer.stream(value);
    let task = writer.task("windows", &[input], read, written);
    writer.hold(0, ValueSource::Stream(task));
    Some(())
}

/// Writes a [`Resize`]: memory if each element is copied from the input, otherwise a downsampler that reads the
/// neighbours of each element.
pub(super) fn resize(writer: &mut GraphWriter<'_>, op: &Resize) -> Option<()> {
    let (written, value) = (writer.written()?, writer.input(0)?);
    let neighbours = match op.interpolation {
        Interpolation::Nearest(_) => return super::views::view(writer),
        Interpolation::Linear => 4,
        Interpolation::Cubic { .. } => 16,
    };
    let memory = writer.memory(value, written * neighbours);
    let task = writer.task("interpolation", &[memory], written * neighbours, written);
    writer.hold(0, ValueSource::Stream(task));
    Some(())
}

/// Writes a product with tasks by the columns of the weights, and the input as patches.
fn by_channels(writer: &mut GraphWriter<'_>, rows: u64, depth: u64, columns: u64) -> Option<ValueSource> {
    let (patches, weights) = (writer.input(0)?, writer.input(1)?);
    let shares = shares(columns, writer.granularity.product_tasks as u64);
    let channel = |(number, share): (usize, u64)| {
        let read = rows * depth * share;
        let operands = [writer.memory(patches, read), writer.memory(weights, read)];
        writer.task(&format!("channels {number}"), &operands, read, rows * share)
    };
    let parts: Vec<Id> = shares.into_iter().enumerate().map(channel).collect();
    Some(writer.join(parts, rows * columns))
}
