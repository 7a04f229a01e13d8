//! Attention over a cache, as the operators of all domains share it: the lengths are data that a run computes, and
//! decide no shape.

use super::{Builder, Fault, View};
use anabranch_kernels::op::{Append, Attention, Length, Op, Rotary};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use std::ops::RangeInclusive;

/// Where the rows of a batch stand in their caches: `i64`, as many as rows.
pub(super) struct Lengths {
    /// The position of each row's first query.
    pub(super) first: View,
    /// The number of its keys.
    pub(super) filled: View,
}

impl Lengths {
    /// Returns known lengths that are equal for all rows of the batch: `past` positions, and `filled` keys with the new
    /// keys.
    pub(super) fn known(builder: &mut Builder, batch: usize, [past, filled]: [usize; 2]) -> Result<Self, Fault> {
        let mut list = |length: usize| builder.made(Tensor::from_i64s(&vec![length as i64; batch]));
        Ok(Self { first: list(past)?, filled: list(filled)? })
    }
}

/// Lengths as `i64` that the run refuses by this name if one is out of range.
pub(super) fn judged(
    builder: &mut Builder,
    lengths: &View,
    name: &str,
    range: RangeInclusive<usize>,
) -> Result<View, Fault> {
    let lengths = builder.cast(lengths, DType::I64)?;
    let (least, most) = (*range.start() as i64, *range.end() as i64);
    let spec = lengths.spec.clone();
    builder.emit_one(Op::Length(Length { name: name.to_owned(), least, most }), &[lengths], spec)
}

/// Whether there is attention over a cache of this type.
pub(super) fn is_cached(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// The values for queries `[b, h, s, d]` over a cache of keys and values `[b, g, c, …]`, as `[b, s, h, e]` of the
/// queries' type. Summands of the scores broadcast over `[b, h, s, t]`; keys from `t` on are left out.
pub(super) fn attended(
    builder: &mut Builder,
    op: Attention,
    [queries, keys, values]: [&View; 3],
    lengths: &Lengths,
    bias: Option<&View>,
) -> Result<View, Fault> {
    let (&[batch, heads, length, _], &[.., width]) = (queries.dims(), values.dims()) else {
        return Err(Fault::missing(0));
    };
    let mut inputs = vec![builder.as_f32(queries)?, keys.clone(), values.clone()];
    inputs.extend([lengths.first.clone(), lengths.filled.clone()]);
    if let Some(bias) = bias {
        let bias = builder.as_f32(bias)?;
        let dims = [&vec![1; 4usize.saturating_sub(bias.rank())][..], bias.dims()].concat();
        inputs.push(bias.reshaped(dims)?);
    }
    let output = TensorSpec::new(DType::F32, Shape::new(vec![batch, length, heads, width])?);
    let made = builder.emit_one(Op::Attention(op), &inputs, output)?;
    builder.cast(&made, queries.dtype())
}

/// A cache `[b, n, c, d]`, if there is one, with new positions `[b, n, s, d]` where each row's `starts` say, in a
/// capacity of at least both.
pub(super) fn appended(
    builder: &mut Builder,
    cache: Option<&View>,
    new: &View,
    starts: &View,
    capacity: usize,
    circular: bool,
) -> Result<View, Fault> {
    let &[batch, lists, length, depth] = new.dims() else { return Err(Fault::missing(1)) };
    let cache = match cache {
        Some(cache) => cache.clone(),
        None => builder.filled(TensorSpec::new(new.dtype(), Shape::new(vec![batch, lists, 0, depth])?), 0.0)?,
    };
    let fits = cache.rank() == 4 && [0, 1, 3].iter().all(|axis| cache.dims()[*axis] == new.dims()[*axis]);
    if !fits || cache.dtype() != new.dtype() {
        return Err(Fault::invalid(format!("{} cannot be appended to a cache of {}", new.spec, cache.spec)));
    }
    if cache.dims()[2] == 0 && capacity == length && !circular {
        // The new positions fill the capacity: they begin at the first position, or are refused with the queries.
        return Ok(new.clone());
    }
    let output = TensorSpec::new(new.dtype(), Shape::new(vec![batch, lists, capacity, depth])?);
    builder.emit_one(Op::Append(Append { circular }), &[cache, new.clone(), starts.clone()], output)
}

/// `x`, as `[b, s, heads · d]` or by head as `[b, heads, s, d]`, with the first features of each head turned by the
/// angles of its position; by head, and in `f32`. The run refuses positions without angles.
pub(super) fn rotated(
    builder: &mut Builder,
    x: &View,
    heads: usize,
    angles: [&View; 2],
    positions: &View,
    interleaved: bool,
) -> Result<View, Fault> {
    let by_head = x.rank() == 4;
    let (dims, made) = match *x.dims() {
        [batch, heads, length, depth] => (x.dims().to_vec(), [batch, heads, length, depth]),
        [batch, length, width] if heads > 0 && width.is_multiple_of(heads) => {
            (vec![batch, length, heads, width / heads], [batch, heads, length, width / heads])
        }
        _ => {
            return Err(Fault::invalid(format!(
                "an input of shape {} cannot be divided into {heads} heads",
                x.shape()
            )));
        }
    };
    let [cosines, sines] = [builder.as_f32(angles[0])?, builder.as_f32(angles[1])?];
    let known = cosines.dims().first().copied().unwrap_or(0);
    // Positions are given, or the first one of each row.
    let following = if positions.elements() == made[0] { made[2] } else { 1 };
    let Some(last) = known.checked_sub(following) else {
        let text = format!("cos_cache has {known} positions, but the queries take {following}");
        return Err(Fault::invalid(format!("{text}; export longer ones, or give a shorter prompt")));
    };
    let name = if following == 1 { "the position of a query" } else { "the position of the first query" };
    let positions = judged(builder, positions, name, 0..=last)?;
    let inputs = [builder.as_f32(x)?.reshaped(dims)?, cosines, sines, positions];
    let output = TensorSpec::new(DType::F32, Shape::new(made)?);
    builder.emit_one(Op::Rotary(Rotary { interleaved, by_head }), &inputs, output)
}
