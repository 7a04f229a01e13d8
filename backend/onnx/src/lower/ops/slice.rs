//! Strided sub-tensors, with the standard's rules for bounds beyond the tensor.

use super::{Builder, Entry, Fault, Operator, View, axes_in_order};

pub(super) const TABLE: &[Entry] = &[("Slice", slice)];

/// Lowers a slice. Bounds are attributes before version 10, inputs from there on.
fn slice(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    let starts = operator.ints_by_version(builder, "starts", 10, 1)?.ok_or_else(|| Fault::missing(1))?;
    let ends = operator.ints_by_version(builder, "ends", 10, 2)?.ok_or_else(|| Fault::missing(2))?;
    let axes = operator.ints_by_version(builder, "axes", 10, 3)?;
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = if operator.opset < 10 { None } else { operator.optional_known_ints(builder, 4, "steps")? };
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|length| *length != starts.len()) {
        return Err(Fault::invalid(format!(
            "starts {starts:?}, ends {ends:?}, axes {axes:?}, steps {steps:?} differ in length"
        )));
    }

    let mut first = vec![0; x.rank()];
    let mut step_of = vec![1isize; x.rank()];
    let mut counts = x.dims().to_vec();
    for (index, axis) in axes_in_order(Some(&axes), x.rank())?.into_iter().enumerate() {
        let range = Range::new(starts[index], ends[index], steps[index], x.dims()[axis])?;
        (first[axis], step_of[axis], counts[axis]) = (range.start, range.step, range.count);
    }
    Ok(vec![builder.sliced(x, first, step_of, counts)?])
}

/// Indices `start`, `start + step`, … within an axis.
#[derive(Debug, PartialEq)]
struct Range {
    start: usize,
    step: isize,
    count: usize,
}

impl Range {
    /// Returns the indices from `start` to before `end` of an axis of `dim` elements. Negative bounds count from the
    /// end; bounds beyond the axis are moved to its ends.
    fn new(start: i64, end: i64, step: i64, dim: usize) -> Result<Self, Fault> {
        if step == 0 {
            return Err(Fault::invalid("a step of 0"));
        }
        let size = dim as i128;
        if dim == 0 {
            return Ok(Self { start: 0, step: 1, count: 0 });
        }
        let counted = |value: i64| if value < 0 { i128::from(value) + size } else { value.into() };
        // A start before the axis is moved to its first element, unlike in NumPy.
        let (from, to) = match step {
            1.. => (counted(start).clamp(0, size), counted(end).clamp(0, size)),
            _ => (counted(start).clamp(0, size - 1), counted(end).clamp(-1, size - 1)),
        };
        let distance = if step > 0 { to - from } else { from - to };
        let stride = i128::from(step.unsigned_abs());
        let count = if distance > 0 { (distance + stride - 1) / stride } else { 0 };
        if count == 0 {
            return Ok(Self { start: 0, step: 1, count: 0 });
        }
        // `count ≤ dim`, and with more than one element the step is shorter than the axis.
        let step = if count > 1 { step as isize } else { 1 };
        Ok(Self { start: from as usize, step, count: count as usize })
    }
}
