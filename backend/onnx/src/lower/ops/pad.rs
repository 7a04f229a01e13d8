//! Borders around tensors.

use super::{Builder, Entry, Fault, Operator, View, axes_in_order, literal_of};
use anabranch_kernels::op::{Literal, PadMode};

pub(super) const TABLE: &[Entry] = &[("Pad", pad)];

/// Elements added before and after along each axis; negative counts cut.
type Border = Vec<(isize, isize)>;

/// Border and value are attributes before version 11, inputs from there on.
fn pad(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.input(0)?;
    let border = border(operator, builder, x)?;
    let dims = padded_dims(x, &border)?;
    let before = border.iter().map(|(before, _)| *before).collect();
    let mode = match operator.string("mode", "constant")? {
        "constant" => PadMode::Constant(fill(operator, builder, x)?),
        "edge" => PadMode::Edge,
        "reflect" => PadMode::Reflect,
        "wrap" => return Ok(vec![wrapped(builder, x, &border)?]),
        other => return Err(Fault::attribute("mode", other, "constant, edge, reflect or wrap")),
    };
    check_source(x, &border, mode)?;
    Ok(vec![builder.padded(x, mode, before, dims)?])
}

fn border(operator: &Operator<'_>, builder: &Builder, x: &View) -> Result<Border, Fault> {
    let name = if operator.opset < 2 { "paddings" } else { "pads" };
    let pads = operator.ints_by_version(builder, name, 11, 1)?.ok_or_else(|| Fault::missing(1))?;
    let axes = axes_in_order(operator.optional_known_ints(builder, 3, "axes")?.as_deref(), x.rank())?;
    if pads.len() != 2 * axes.len() {
        return Err(Fault::invalid(format!("{} pads for {} axes; two an axis are needed", pads.len(), axes.len())));
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
        dim.checked_add_signed(*before)
            .and_then(|dim| dim.checked_add_signed(*after))
            .ok_or_else(|| Fault::invalid(format!("a border of {before} and {after} around {dim} elements")))
    };
    x.dims().iter().zip(border).map(dim).collect()
}

/// What is mirrored or repeated must be there.
fn check_source(x: &View, border: &Border, mode: PadMode) -> Result<(), Fault> {
    for (dim, (before, after)) in x.dims().iter().zip(border) {
        let most = (*before).max(*after).max(0).unsigned_abs();
        let enough = match mode {
            PadMode::Constant(_) => true,
            PadMode::Edge => most == 0 || *dim > 0,
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
    let tensor = builder.tensor(value).ok_or_else(|| Fault::run_time(value, 2, "constant_value"))?;
    literal_of(&tensor).ok_or_else(|| Fault::invalid("its constant_value is no number"))
}

/// A border that continues with the other end, axis by axis.
fn wrapped(builder: &mut Builder, x: &View, border: &Border) -> Result<View, Fault> {
    let mut result = x.clone();
    for (axis, (before, after)) in border.iter().enumerate() {
        let dim = result.dims()[axis];
        let (lead, trail) = (before.max(&0).unsigned_abs(), after.max(&0).unsigned_abs());
        let (cut_lead, cut_trail) = (before.min(&0).unsigned_abs(), after.min(&0).unsigned_abs());
        if lead > dim || trail > dim {
            return Err(Fault::unsupported(format!("a border of {lead} and {trail} wrapped around {dim} elements")));
        }
        let kept = dim.checked_sub(cut_lead).and_then(|kept| kept.checked_sub(cut_trail));
        let kept = kept.ok_or_else(|| Fault::invalid(format!("{before} and {after} cut more than {dim} elements")))?;
        let body = builder.part(&result, axis, cut_lead, kept)?;
        let start = builder.part(&result, axis, dim - lead, lead)?;
        let end = builder.part(&result, axis, 0, trail)?;
        result = builder.concatenated(&[start, body, end], axis)?;
    }
    Ok(result)
}
