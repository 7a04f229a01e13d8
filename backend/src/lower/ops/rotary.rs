//! Rotary position embedding: pairs of features turned by angles that grow with the position (Su et al. 2021, "RoFormer", section 3.2).

use super::{Builder, Entry, Fault, Operator, View, domain_of, gather};
use anabranch_kernels::DType;

pub(super) const TABLE: &[Entry] = &[("RotaryEmbedding", rotary)];

fn rotary(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let heads = operator.size("num_heads", 0, 0)?;
    let (batch, length, heads, depth) = match *x.dims() {
        [batch, heads, length, depth] => (batch, length, heads, depth),
        [batch, length, width] if heads > 0 && width.is_multiple_of(heads) => (batch, length, heads, width / heads),
        _ => return Err(Fault::invalid(format!("an input of shape {} does not divide into {heads} heads", x.shape()))),
    };
    let turned = match operator.size("rotary_embedding_dim", 0, 0)? {
        0 => depth,
        turned => turned,
    };
    if turned > depth || !turned.is_multiple_of(2) {
        return Err(Fault::attribute("rotary_embedding_dim", turned, format!("even, and at most {depth}")));
    }
    // Whichever comes first of heads and positions, the angles broadcast over the heads.
    let by_head = x.rank() == 4;
    let dims = if by_head { vec![batch, heads, length, depth] } else { vec![batch, length, heads, depth] };
    let whole = x.reshaped(dims)?;
    let part = builder.part(&whole, 3, 0, turned)?;
    let rest = builder.part(&whole, 3, turned, depth - turned)?;
    let half = turned / 2;
    let angle_dims = if by_head { vec![batch, 1, length, half] } else { vec![batch, length, 1, half] };
    let cosine = angles(operator, builder, 1, [batch, length, half])?.reshaped(angle_dims.clone())?;
    let sine = angles(operator, builder, 2, [batch, length, half])?.reshaped(angle_dims)?;

    // Pairs are neighbours, or stand half the features apart.
    let interleaved = operator.flag("interleaved", false)?;
    let (axis, pairs) = if interleaved { (4, [half, 2]) } else { (3, [2, half]) };
    let paired = part.reshaped([&whole.dims()[..3], &pairs].concat())?;
    let member = |builder: &mut Builder, index| {
        builder.part(&paired, axis, index, 1)?.reshaped([&whole.dims()[..3], &[half]].concat())
    };
    let (first, second) = (member(builder, 0)?, member(builder, 1)?);
    let (domain, inputs) = (domain_of(x.dtype()), [&first, &second, &cosine, &sine]);
    let real = builder.map(domain, inputs, x.dtype(), |[a, b, cosine, sine]| {
        let along = a * cosine;
        along - b * sine
    })?;
    let imaginary = builder.map(domain, inputs, x.dtype(), |[a, b, cosine, sine]| {
        let across = a * sine;
        across + b * cosine
    })?;
    let mut single = [&whole.dims()[..3], &pairs].concat();
    single[axis] = 1;
    let both = [real.reshaped(single.clone())?, imaginary.reshaped(single)?];
    let joined = builder.concatenated(&both, axis)?.reshaped(part.dims())?;
    Ok(vec![builder.concatenated(&[joined, rest], 3)?.reshaped(x.dims())?])
}

/// The cosines or sines for each position of each element of the batch: input `index`, chosen by the positions if they are given.
fn angles(
    operator: &Operator<'_>,
    builder: &mut Builder,
    index: usize,
    [batch, length, half]: [usize; 3],
) -> Result<View, Fault> {
    let cache = operator.float_input(index)?;
    let chosen = match operator.optional(3) {
        Some(_) if cache.rank() == 2 => {
            let positions = operator.typed(3, DType::I64)?;
            let dims = [positions.dims(), &cache.dims()[1..]].concat();
            gather::chosen(builder, cache, positions, 0, dims)?
        }
        _ => cache.clone(),
    };
    if *chosen.dims() != [batch, length, half] {
        let found = chosen.shape();
        return Err(Fault::invalid(format!("angles of shape {found} where {batch}×{length}×{half} are needed")));
    }
    Ok(chosen)
}
