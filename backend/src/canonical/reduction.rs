//! Reductions, softmax and normalisation (the paper's sections 3.2.3 and 3.2.4).

use super::elements::epilogue;
use super::weave::{Held, Id, Weave};
use anabranch_kernels::op::{Normalize, Softmax};

/// A [`Reduce`](anabranch_kernels::op::Reduce) or an [`ArgReduce`](anabranch_kernels::op::ArgReduce) over `axes`: a downsampler,
/// behind memory where the elements of one result do not follow each other.
pub(super) fn reduce(weave: &mut Weave<'_>, axes: &[usize]) -> Option<()> {
    let (read, written, value) = (weave.read(0)?, weave.written()?, weave.input(0)?);
    let input = lines(weave, |axis| axes.contains(&axis))?;
    let input = if input { weave.stream(value) } else { weave.memory(value, read) };
    let task = weave.task("reduction", &[input], read, written);
    weave.hold(0, Held::Stream(task));
    Some(())
}

/// A [`Softmax`] as in figure 5: the greatest of each line is stored, subtracted, the exponentials are added up, and the sum is
/// stored to divide the exponentials by, each of which is computed once.
pub(super) fn softmax(weave: &mut Weave<'_>, op: &Softmax) -> Option<()> {
    let (volume, value) = (weave.read(0)?, weave.input(0)?);
    let size = *weave.node().spec.inputs.first()?.shape.dims().get(op.axis)? as u64;
    let count = volume / size.max(1);
    let ordered = lines(weave, |axis| axis == op.axis)?;
    let input = if ordered { weave.stream(value) } else { weave.memory(value, volume) };
    let greatest = weave.task("greatest", &[input], volume, count);
    let greatest = weave.store("greatest, repeated", &[greatest], count, volume);
    let difference = weave.task("difference", &[input, greatest], volume, volume);
    let exponential = weave.task("exponential", &[difference], volume, volume);
    let sum = weave.task("sum", &[exponential], volume, count);
    let sum = weave.store("sum, repeated", &[sum], count, volume);
    let result = match op.log {
        false => weave.task("quotient", &[exponential, sum], volume, volume),
        true => weave.task("logarithm", &[difference, sum], volume, volume),
    };
    weave.hold(0, if ordered { Held::Stream(result) } else { Held::Parts(vec![result]) });
    Some(())
}

/// A [`Normalize`] as figure 4 ➀: a norm that is stored, and what is divided by it. A centred one first subtracts the mean in the
/// same way.
pub(super) fn normalize(weave: &mut Weave<'_>, op: &Normalize) -> Option<()> {
    let (volume, value) = (weave.read(0)?, weave.input(0)?);
    let count =
        weave.node().spec.inputs.first()?.shape.dims().get(..op.axis)?.iter().map(|size| *size as u64).product();
    let mut line = weave.stream(value);
    if op.center {
        let mean = repeated(weave, "mean", line, volume, count);
        line = weave.task("difference", &[line, mean], volume, volume);
    }
    let norm = repeated(weave, "norm", line, volume, count);
    let result = weave.task("quotient", &[line, norm], volume, volume);
    epilogue(weave, Held::Stream(result))
}

/// A downsampler over each of `count` lines, and memory that repeats what it gives for each element of the line.
fn repeated(weave: &mut Weave<'_>, role: &str, line: Id, volume: u64, count: u64) -> Id {
    let reduced = weave.task(role, &[line], volume, count);
    weave.store(&format!("{role}, repeated"), &[reduced], count, volume)
}

/// Whether the axes that are reduced are the innermost, but for those of one element: then a line's elements follow each other.
fn lines(weave: &Weave<'_>, reduced: impl Fn(usize) -> bool) -> Option<bool> {
    let dims = weave.node().spec.inputs.first()?.shape.dims();
    let reduced: Vec<bool> =
        dims.iter().enumerate().filter(|(_, size)| **size > 1).map(|(axis, _)| reduced(axis)).collect();
    Some(reduced.is_sorted())
}
