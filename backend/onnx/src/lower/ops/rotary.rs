//! Rotary position embedding: pairs of features turned by angles that grow with the position (Su et al. 2021,
//! "RoFormer", section 3.2).

use super::cached::judged;
use super::{Builder, Entry, Fault, Operator, View, domain_of, gather};
use anabranch_kernels::op::{Op, Rotary};
use anabranch_kernels::{DType, Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[("RotaryEmbedding", rotary)];

fn rotary(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let heads = operator.size("num_heads", 0, 0)?;
    let width = operator.size("rotary_embedding_dim", 0, 0)?;
    let angles = [operator.float_input(1)?, operator.float_input(2)?];
    let positions = operator.optional(3).map(|_| operator.typed(3, DType::I64)).transpose()?;
    Ok(vec![turned(builder, x, angles, positions, heads, width, operator.flag("interleaved", false)?)?])
}

/// Turns the first `width` features (0 for all) of each head of `x` by the angles of these cosines and sines.
///
/// `x` is `[batch, heads, length, depth]` or `[batch, length, heads · depth]`. Positions select the angles if they are
/// given.
pub(super) fn turned(
    builder: &mut Builder,
    x: &View,
    angles: [&View; 2],
    positions: Option<&View>,
    heads: usize,
    width: usize,
    interleaved: bool,
) -> Result<View, Fault> {
    let (batch, length, heads, depth) = match *x.dims() {
        [batch, heads, length, depth] => (batch, length, heads, depth),
        [batch, length, width] if heads > 0 && width.is_multiple_of(heads) => (batch, length, heads, width / heads),
        _ => {
            return Err(Fault::invalid(format!(
                "an input of shape {} cannot be divided into {heads} heads",
                x.shape()
            )));
        }
    };
    let width = if width == 0 { depth } else { width };
    if width > depth || !width.is_multiple_of(2) {
        return Err(Fault::attribute("rotary_embedding_dim", width, format!("even, and at most {depth}")));
    }
    // A negative position would count from the last row.
    let positions = positions.filter(|_| angles[0].rank() == 2).map(|positions| {
        let last = angles[0].dims()[0].saturating_sub(1);
        judged(builder, positions, "the position of a query", 0..=last)
    });
    let positions = positions.transpose()?;
    let is_double = x.dtype() == DType::F64 || angles.iter().any(|of| of.dtype() == DType::F64);
    if !is_double && x.elements() > 0 {
        return in_one_node(builder, x, angles, positions.as_ref(), [batch, length, heads, depth], width, interleaved);
    }
    let [cosines, sines] = angles;
    // In both orders of heads and positions, the angles broadcast over the heads.
    let by_head = x.rank() == 4;
    let outer = if by_head { [batch, heads, length] } else { [batch, length, heads] };
    let whole = x.reshaped([&outer[..], &[depth]].concat())?;
    let part = builder.part(&whole, 3, 0, width)?;
    let rest = builder.part(&whole, 3, width, depth - width)?;
    let half = width / 2;
    let angle_dims = if by_head { [batch, 1, length, half] } else { [batch, length, 1, half] };
    let cosine = chosen(builder, cosines, positions.as_ref(), [batch, length, half])?.reshaped(angle_dims)?;
    let sine = chosen(builder, sines, positions.as_ref(), [batch, length, half])?.reshaped(angle_dims)?;

    // Pairs are neighbours, or half the features apart.
    let (axis, pairs) = if interleaved { (4, [half, 2]) } else { (3, [2, half]) };
    let paired = part.reshaped([&outer[..], &pairs].concat())?;
    let single = [&outer[..], &[half]].concat();
    let first = builder.part(&paired, axis, 0, 1)?.reshaped(single.clone())?;
    let second = builder.part(&paired, axis, 1, 1)?.reshaped(single)?;
    let (domain, inputs) = (domain_of(x.dtype()), [&first, &second, &cosine, &sine]);
    let real = builder.map(domain, inputs, x.dtype(), |[a, b, cosine, sine]| {
        let along = a * cosine;
        along - b * sine
    })?;
    let imaginary = builder.map(domain, inputs, x.dtype(), |[a, b, cosine, sine]| {
        let across = a * sine;
        across + b * cosine
    })?;
    let mut member = [&outer[..], &pairs].concat();
    member[axis] = 1;
    let both = [real.reshaped(member.clone())?, imaginary.reshaped(member)?];
    let joined = builder.concatenated(&both, axis)?.reshaped(part.dims())?;
    builder.concatenated(&[joined, rest], 3)?.reshaped(x.dims())
}

/// Returns the cosines or sines for each position of each element of the batch, selected by the positions if they are
/// given.
fn chosen(
    builder: &mut Builder,
    cache: &View,
    positions: Option<&View>,
    [batch, length, half]: [usize; 3],
) -> Result<View, Fault> {
    let chosen = match positions {
        Some(positions) => {
            let dims = [positions.dims(), &cache.dims()[1..]].concat();
            gather::chosen(builder, cache, positions, 0, dims)?
        }
        None => cache.clone(),
    };
    require(chosen.dims(), [batch, length, half])?;
    Ok(chosen)
}

/// Checks the shape of the angles that positions select.
fn require(found: &[usize], [batch, length, half]: [usize; 3]) -> Result<(), Fault> {
    if *found == [batch, length, half] {
        return Ok(());
    }
    let found = Shape::new(found.to_vec())?;
    Err(Fault::invalid(format!("angles of shape {found}, but {batch}×{length}×{half} are needed")))
}

/// Turns by one node, in `f32`.
fn in_one_node(
    builder: &mut Builder,
    x: &View,
    angles: [&View; 2],
    positions: Option<&View>,
    [batch, length, heads, depth]: [usize; 4],
    width: usize,
    interleaved: bool,
) -> Result<View, Fault> {
    let (half, count) = (width / 2, batch.saturating_mul(length));
    for angles in angles {
        match positions {
            Some(positions) => {
                let pairs = angles.dims().get(1..).unwrap_or(&[]);
                require(&[positions.dims(), pairs].concat(), [batch, length, half])?;
            }
            None => require(angles.dims(), [batch, length, half])?,
        }
    }
    let positions = match positions {
        Some(positions) => positions.clone(),
        None => builder.indices(DType::I64, count, 0, 1)?,
    };
    // The axis of the batch comes first, so that a batch can be divided.
    let positions = positions.reshaped(if x.rank() == 4 { vec![batch, length] } else { vec![count] })?;
    let [cosines, sines] = angles;
    let table =
        |builder: &mut Builder, of: &View| builder.as_f32(of)?.reshaped(vec![of.elements() / half.max(1), half]);
    let (cosines, sines) = (table(builder, cosines)?, table(builder, sines)?);
    // Without an axis of heads, each position is an item of the batch: then the order of the features stays.
    let dims = if x.rank() == 4 { vec![batch, heads, length, depth] } else { vec![count, heads, 1, depth] };
    let inputs = [builder.as_f32(x)?.reshaped(dims.clone())?, cosines, sines, positions];
    let output = TensorSpec::new(DType::F32, Shape::new(dims)?);
    let turned = builder.emit_one(Op::Rotary(Rotary { interleaved, by_head: true }), &inputs, output)?;
    builder.cast(&turned, x.dtype())?.reshaped(x.dims())
}
