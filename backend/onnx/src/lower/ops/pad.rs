//! Lowers `Pad`: borders around tensors, constant, mirrored, repeated or wrapped.

use super::{Builder, Entry, Fault, Operator, View, axes_in_order, literal_of};
use anabranch_kernels::op::{Literal, PadMode};

pub(super) const TABLE: &[Entry] = &[("Pad", pad)];

/// Elements added before and after along each axis; negative counts cut.
type Border = Vec<(isize, isize)>;

/// Pads a tensor. Border and value are attributes before version 11, inputs from there on. Negative counts are cut
/// before the rest is mirrored or repeated, as in ONNX Runtime.
fn pad(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    let border = border(operator, builder, x)?;
    let dims = padded_dims(x, &border)?;
    let mode = match operator.string("mode", "constant")? {
        "constant" => return Ok(vec![filled(operator, builder, x, border, dims)?]),
        "edge" => PadMode::Edge,
        "reflect" => PadMode::Reflect,
        "wrap" => PadMode::Wrap,
        other => return Err(Fault::attribute("mode", other, "constant, edge, reflect or wrap")),
    };
    let (x, border) = cut(builder, x, &border)?;
    check_source(&x, &border, mode)?;
    let before = border.iter().map(|(before, _)| *before).collect();
    Ok(vec![builder.padded(&x, mode, before, dims)?])
}

/// Adds a border of one value. If more is cut than there is, only that value is left.
fn filled(
    operator: &Operator<'_>,
    builder: &mut Builder,
    x: &View,
    border: Border,
    dims: Vec<usize>,
) -> Result<View, Fault> {
    let mode = PadMode::Constant(fill(operator, builder, x)?);
    let (mut x, mut starts) = (x.clone(), Vec::with_capacity(border.len()));
    for (axis, (before, after)) in border.into_iter().enumerate() {
        let is_gone = kept(x.dims()[axis], before, after).is_none();
        starts.push(if is_gone { dims[axis] as isize } else { before });
        if is_gone {
            x = builder.part(&x, axis, 0, 0)?;
        }
    }
    builder.padded(&x, mode, starts, dims)
}

/// Returns the elements that negative counts leave of `dim`; `None` if they cut more.
fn kept(dim: usize, before: isize, after: isize) -> Option<usize> {
    dim.checked_sub(before.min(0).unsigned_abs())?.checked_sub(after.min(0).unsigned_abs())
}

/// Returns the rest after negative counts, and the border around it.
fn cut(builder: &mut Builder, x: &View, border: &Border) -> Result<(View, Border), Fault> {
    let mut left = x.clone();
    for (axis, (before, after)) in border.iter().enumerate() {
        let dim = x.dims()[axis];
        let kept = kept(dim, *before, *after).ok_or_else(|| {
            Fault::invalid(format!("a border of {before} and {after} cuts off more than the {dim} elements"))
        })?;
        if kept < dim {
            left = builder.part(&left, axis, before.min(&0).unsigned_abs(), kept)?;
        }
    }
    Ok((left, border.iter().map(|(before, after)| (*before.max(&0), *after.max(&0))).collect()))
}

fn border(operator: &Operator<'_>, builder: &Builder, x: &View) -> Result<Border, Fault> {
    let name = if operator.opset < 2 { "paddings" } else { "pads" };
    let pads = operator.ints_by_version(builder, name, 11, 1)?.ok_or_else(|| Fault::missing(1))?;
    let axes = axes_in_order(operator.optional_known_ints(builder, 3, "axes")?.as_deref(), x.rank())?;
    if pads.len() != 2 * axes.len() {
        return Err(Fault::invalid(format!(
            "{} pads for {} axes, but two per axis are needed",
            pads.len(),
            axes.len()
        )));
    }
    let size = |pad: i64| isize::try_from(pad).map_err(|_| Fault::invalid(format!("a border of {pad} elements")));
    let mut border = vec![(0, 0); x.rank()];
    for (index, axis) in axes.iter().enumerate() {
        border[*axis] = (size(pads[index])?, size(pads[index + axes.len()])?);
    }
    Ok(border)
}

fn padded_dims(x: &View, border: &Border) -> Result<Vec<usize>, Fault> {
    let dim = |(dim, (before, after)): (&usize, &(isize, isize))| {
        usize::try_from(*dim as i128 + *before as i128 + *after as i128)
            .map_err(|_| Fault::invalid(format!("a border of {before} and {after} around {dim} elements")))
    };
    x.dims().iter().zip(border).map(dim).collect()
}

/// Checks that elements to be mirrored or repeated exist.
fn check_source(x: &View, border: &Border, mode: PadMode) -> Result<(), Fault> {
    for (dim, (before, after)) in x.dims().iter().zip(border) {
        let most = (*before).max(*after).max(0).unsigned_abs();
        let enough = match mode {
            PadMode::Constant(_) => true,
            PadMode::Edge | PadMode::Wrap => most == 0 || *dim > 0,
            PadMode::Reflect => most == 0 || most < *dim,
        };
        if !enough {
            return Err(Fault::invalid(format!("a border of {most} elements cannot be made from {dim}")));
        }
    }
    Ok(())
}

fn fill(operator: &Operator<'_>, builder: &Builder, x: &View) -> Result<Literal, Fault> {
    if operator.opset < 11 {
        return Ok(Literal::of_f32(operator.float("value", 0.0)?));
    }
    let Some(value) = operator.optional(2).filter(|value| value.elements() > 0) else { return Ok(0.0.into()) };
    operator.typed(2, x.dtype())?;
    let tensor = builder.tensor(value).ok_or_else(|| Fault::run_time(value.value, 2, "constant_value"))?;
    literal_of(&tensor).ok_or_else(|| Fault::invalid("its constant_value is not a number"))
}
