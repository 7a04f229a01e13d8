//! Joins tensors along an axis, and splits them.

use super::{Builder, Entry, Fault, Operator, View};

pub(super) const TABLE: &[Entry] = &[("Concat", concat), ("Split", split)];

fn concat(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let views = operator.all_inputs()?;
    let first = operator.input(0)?;
    // Before version 4 the axis may be left out.
    let axis = operator.axis(if operator.opset < 4 { 1 } else { 0 }, first.rank())?;
    for (index, view) in views.iter().enumerate() {
        operator.typed(index, first.dtype())?;
        let fits = view.rank() == first.rank()
            && (0..first.rank()).all(|other| other == axis || view.dims()[other] == first.dims()[other]);
        if !fits {
            let (first, shape) = (first.shape(), view.shape());
            return Err(Fault::invalid(format!(
                "input {index} of shape {shape} cannot be concatenated with {first} along axis {axis}"
            )));
        }
    }
    let joined = builder.concatenated(&views, axis)?;
    builder.remember_parts(&views, axis, &joined);
    Ok(vec![joined])
}

fn split(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.ranked(0, 1)?;
    let axis = operator.axis(0, x.rank())?;
    // The first version takes the sizes from an attribute or from an input.
    let given = match operator.ints_by_version(builder, "split", 13, 1)? {
        None if operator.opset < 2 => operator.optional_known_ints(builder, 1, "split")?,
        given => given,
    };
    let sizes = match given {
        Some(sizes) => given_sizes(&sizes, x.dims()[axis])?,
        None => even_sizes(operator, x.dims()[axis])?,
    };
    if sizes.len() < operator.output_count() {
        let reason = format!("{} sizes for {} outputs", sizes.len(), operator.output_count());
        return Err(Fault::invalid(reason));
    }
    let mut start = 0;
    let mut parts = Vec::with_capacity(operator.output_count());
    for size in sizes.into_iter().take(operator.output_count()) {
        parts.push(builder.part(x, axis, start, size)?);
        start += size;
    }
    Ok(parts)
}

/// Checks sizes, which must add up to the dimension.
fn given_sizes(sizes: &[i64], dim: usize) -> Result<Vec<usize>, Fault> {
    let fault = || Fault::invalid(format!("the sizes {sizes:?} do not add up to the {dim} elements of the axis"));
    let sizes: Vec<usize> =
        sizes.iter().map(|size| usize::try_from(*size).map_err(|_| fault())).collect::<Result<_, _>>()?;
    let total = sizes.iter().try_fold(0usize, |sum, size| sum.checked_add(*size));
    if total == Some(dim) { Ok(sizes) } else { Err(fault()) }
}

/// Returns equal sizes; from version 18 on the last may be smaller.
fn even_sizes(operator: &Operator<'_>, dim: usize) -> Result<Vec<usize>, Fault> {
    let outputs = operator.output_count();
    let parts = operator.size("num_outputs", 1, outputs)?;
    if parts != outputs {
        return Err(Fault::attribute("num_outputs", parts, format!("the number of outputs, {outputs}")));
    }
    if operator.opset < 18 && !dim.is_multiple_of(parts.max(1)) {
        return Err(Fault::invalid(format!("{dim} elements cannot be divided into {parts} equal parts")));
    }
    let size = dim.div_ceil(parts.max(1));
    Ok((0..parts).map(|part| size.min(dim.saturating_sub(part.saturating_mul(size)))).collect())
}
