//! Reductions, softmax and normalisation (the paper's sections 3.2.3 and 3.2.4).

use super::elements::epilogue;
use super::writer::{GraphWriter, Id, ValueSource};
use anabranch_kernels::op::{Normalize, Softmax};

/// Writes a [`Reduce`](anabranch_kernels::op::Reduce) or an [`ArgReduce`](anabranch_kernels::op::ArgReduce) over
/// `axes`.
///
/// It is a downsampler, behind memory if the elements of one result are not consecutive.
pub(super) fn reduce(writer: &mut GraphWriter<'_>, axes: &[usize]) -> Option<()> {
    let (read, written, value) = (writer.read(0)?, writer.written()?, writer.input(0)?);
    let input = lines(writer, |axis| axes.contains(&axis))?;
    let input = if input { writer.stream(value) } else { writer.memory(value, read) };
    let task = writer.task("reduction", &[input], read, written);
    writer.hold(0, ValueSource::Stream(task));
    Some(())
}

/// Writes a [`Softmax`] as in figure 5. The maximum of each line is stored and subtracted, and the exponentials are
/// added up. Their sum is stored, and the exponentials are divided by it. Each exponential is computed once.
pub(super) fn softmax(writer: &mut GraphWriter<'_>, op: &Softmax) -> Option<()> {
    let (volume, value) = (writer.read(0)?, writer.input(0)?);
    let size = *writer.node().spec.inputs.first()?.shape.dims().get(op.axis)? as u64;
    let count = volume / size.max(1);
    let ordered = lines(writer, |axis| axis == op.axis)?;
    let input = if ordered { writer.stream(value) } else { writer.memory(value, volume) };
    let greatest = repeated(writer, "greatest", input, volume, count);
    let difference = writer.task("difference", &[input, greatest], volume, volume);
    let exponential = writer.task("exponential", &[difference], volume, volume);
    let sum = repeated(writer, "sum", exponential, volume, count);
    let result = match op.log {
        false => writer.task("quotient", &[exponential, sum], volume, volume),
        true => writer.task("logarithm", &[difference, sum], volume, volume),
    };
    writer.hold(0, if ordered { ValueSource::Stream(result) } else { ValueSource::Parts(vec![result]) });
    Some(())
}

/// Writes a [`Normalize`] as in figure 4 ➀: a norm that is stored, and the quotients. A centred normalisation first
/// subtracts the mean in the same way.
pub(super) fn normalize(writer: &mut GraphWriter<'_>, op: &Normalize) -> Option<()> {
    let (volume, value) = (writer.read(0)?, writer.input(0)?);
    let count =
        writer.node().spec.inputs.first()?.shape.dims().get(..op.axis)?.iter().map(|size| *size as u64).product();
    let mut line = writer.stream(value);
    if op.center {
        let mean = repeated(writer, "mean", line, volume, count);
        line = writer.task("difference", &[line, mean], volume, volume);
    }
    let norm = repeated(writer, "norm", line, volume, count);
    let result = writer.task("quotient", &[line, norm], volume, volume);
    epilogue(writer, ValueSource::Stream(result))
}

/// Writes a downsampler over each of `count` lines, and memory that repeats its result for each element of the line.
fn repeated(writer: &mut GraphWriter<'_>, role: &str, line: Id, volume: u64, count: u64) -> Id {
    let reduced = writer.task(role, &[line], volume, count);
    writer.store(&format!("{role}, repeated"), &[reduced], count, volume)
}

/// Whether the reduced axes are the innermost, apart from axes of one element. The elements of a line are then
/// consecutive.
fn lines(writer: &GraphWriter<'_>, reduced: impl Fn(usize) -> bool) -> Option<bool> {
    let dims = writer.node().spec.inputs.first()?.shape.dims();
    let reduced: Vec<bool> =
        dims.iter().enumerate().filter(|(_, size)| **size > 1).map(|(axis, _)| reduced(axis)).collect();
    Some(reduced.is_sorted())
}
