//! Selects elements by indices.

use super::{Builder, Entry, Fault, Operator, Term, View, integers};
use anabranch_kernels::op::{Binary, Domain, Gather, Op};
use anabranch_kernels::{DType, Shape, TensorSpec};

pub(super) const TABLE: &[Entry] =
    &[("Gather", gather), ("GatherElements", gather_elements), ("GatherND", gather_many)];

fn gather(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.ranked(0, 1)?;
    let indices = index_input(operator)?;
    let axis = operator.axis(0, x.rank())?;
    let dims = [&x.dims()[..axis], indices.dims(), &x.dims()[axis + 1..]].concat();
    if let Some(view) = contiguous(builder, x, indices, axis, &dims)? {
        return Ok(vec![view]);
    }
    Ok(vec![chosen(builder, x, indices, axis, dims)?])
}

fn gather_elements(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.ranked(0, 1)?;
    let indices = index_input(operator)?;
    let axis = operator.axis(0, x.rank())?;
    if !fits_elements(x, indices, axis) {
        let reason = format!("indices of shape {} do not fit the data's {}", indices.shape(), x.shape());
        return Err(Fault::invalid(reason));
    }
    refuse_empty(x, indices, axis)?;
    let output = TensorSpec::new(x.dtype(), indices.shape().clone());
    let op = Op::Gather(Gather { axis, elementwise: true });
    Ok(vec![builder.emit_one(op, &[x.clone(), indices.clone()], output)?])
}

/// Whether indices of single elements lie within the data along all other axes.
pub(super) fn fits_elements(x: &View, indices: &View, axis: usize) -> bool {
    let within = |other| other == axis || indices.dims()[other] <= x.dims()[other];
    indices.rank() == x.rank() && (0..x.rank()).all(within)
}

/// Combines indices of several axes into indices of one axis.
fn gather_many(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.ranked(0, 1)?;
    let indices = operator.typed(1, DType::I64)?;
    let batch = operator.size("batch_dims", 0, 0)?;
    let depth = *indices.dims().last().ok_or_else(|| Fault::invalid("the indices are a scalar"))?;
    let lead = indices.rank() - 1;
    let fits = depth > 0
        && batch <= lead
        && batch.saturating_add(depth) <= x.rank()
        && indices.dims()[..batch] == x.dims()[..batch];
    if !fits {
        let (indices, x) = (indices.shape(), x.shape());
        return Err(Fault::invalid(format!("indices of shape {indices} do not fit {x} with {batch} batch dimensions")));
    }
    let flat = flat_indices(builder, x, indices, batch, depth)?;
    let rest = &x.dims()[batch + depth..];
    let chosen_from: usize = x.dims()[..batch + depth].iter().product();
    let data = x.reshaped([&[chosen_from], rest].concat())?;
    let dims = [&indices.dims()[..lead], rest].concat();
    Ok(vec![chosen(builder, &data, &flat, 0, dims)?])
}

/// Returns for each tuple of indices along the last axis the index into `x` with its first `batch + depth` axes read as
/// one.
pub(super) fn flat_indices(
    builder: &mut Builder,
    x: &View,
    indices: &View,
    batch: usize,
    depth: usize,
) -> Result<View, Fault> {
    let lead = indices.rank() - 1;
    let dims = indices.dims()[..lead].to_vec();
    let mut flat: Option<View> = None;
    let mut count = 1usize;
    for axis in 0..batch + depth {
        count = x.dims()[axis].saturating_mul(count);
        let index = if axis < batch {
            builder.indices(DType::I64, x.dims()[axis], axis, lead)?
        } else {
            builder.part(indices, lead, axis - batch, 1)?.reshaped(dims.clone())?
        };
        flat = Some(combined(builder, flat, &index, x.dims()[axis], count)?);
    }
    let flat = flat.ok_or_else(|| Fault::invalid("an empty index"))?;
    builder.expanded(&flat, Shape::new(dims)?)
}

/// Returns `flat · size + index`, one of `count`, with a negative index counted from the end.
///
/// An index outside its axis makes every combined index less than −`count`, for any indices of other axes.
fn combined(builder: &mut Builder, flat: Option<View>, index: &View, size: usize, count: usize) -> Result<View, Fault> {
    let (size, outside) = (size as f64, count as f64 * -3.0);
    match flat {
        None => builder.map(Domain::I64, [index], DType::I64, |[index]| from_start(index, size, outside)),
        Some(flat) => builder.map(Domain::I64, [index, &flat], DType::I64, |[index, flat]| {
            let counted = from_start(index, size, outside);
            flat * size + counted
        }),
    }
}

/// Returns an index of `size`, counted from the end if it is negative; `outside` if there is no such element.
pub(super) fn from_start(index: Term<'_>, size: f64, outside: f64) -> Term<'_> {
    let counted = index.with(Binary::Less, 0.0).select(index + size, index);
    let inside = counted.with(Binary::GreaterOrEqual, 0.0).with(Binary::And, counted.with(Binary::Less, size));
    inside.select(counted, outside)
}

/// Selects slices of `x` along `axis` by the indices.
pub(super) fn chosen(
    builder: &mut Builder,
    x: &View,
    indices: &View,
    axis: usize,
    dims: Vec<usize>,
) -> Result<View, Fault> {
    refuse_empty(x, indices, axis)?;
    let output = TensorSpec::new(x.dtype(), Shape::new(dims)?);
    let op = Op::Gather(Gather { axis, elementwise: false });
    builder.emit_one(op, &[x.clone(), indices.clone()], output)
}

/// Returns a slice if the indices are one known index.
fn contiguous(
    builder: &mut Builder,
    x: &View,
    indices: &View,
    axis: usize,
    dims: &[usize],
) -> Result<Option<View>, Fault> {
    if indices.elements() != 1 || builder.is_constant(x) {
        return Ok(None);
    }
    let Some(tensor) = builder.tensor(indices) else { return Ok(None) };
    let Some(&[index]) = integers(&tensor).as_deref() else { return Ok(None) };
    let size = x.dims()[axis] as i64;
    let index = if index < 0 { index.saturating_add(size) } else { index };
    if !(0..size).contains(&index) {
        return Err(Fault::invalid(format!("index {index} of {size} along axis {axis}")));
    }
    Ok(Some(builder.part(x, axis, index as usize, 1)?.reshaped(dims.to_vec())?))
}

fn index_input<'a>(operator: &'a Operator<'_>) -> Result<&'a View, Fault> {
    operator.typed(1, DType::I64).or_else(|_| operator.typed(1, DType::I32))
}

/// Rejects indices into an axis without elements.
fn refuse_empty(x: &View, indices: &View, axis: usize) -> Result<(), Fault> {
    if x.dims()[axis] == 0 && indices.elements() > 0 {
        return Err(Fault::invalid(format!("indices into axis {axis} of shape {}, which is empty", x.shape())));
    }
    Ok(())
}
