//! Attention as operators of the domain `com.microsoft`. Queries, keys and values are given or projected; options are
//! keys and values of earlier calls, padding, and query heads that share key heads.

use super::attention::{by_head, continued, positions, within};
use super::matmul::multiplied;
use super::rotary::turned;
use super::softmax::normalized;
use super::{Builder, Entry, Fault, Operator, View, domain_of};
use anabranch_kernels::op::{Binary, Domain, Unary};
use anabranch_kernels::{DType, Shape};

pub(super) const TABLE: &[Entry] =
    &[("Attention", projected), ("MultiHeadAttention", multi_head), ("GroupQueryAttention", grouped)];

/// Queries, keys and values by head, `[b, h, s, d]`, `[b, g, t, d]` and `[b, g, t, e]`.
type Parts = [View; 3];

/// Lowers attention of an input whose queries, keys and values are products with one matrix.
fn projected(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    if operator.flag("do_rotary", false)? || operator.optional(6).is_some() {
        return Err(Fault::unsupported("rotary embedding within, or past and present in one buffer"));
    }
    let x = operator.float_input(0)?;
    let heads = operator.size("num_heads", 1, 0)?;
    let weights = operator.typed(1, x.dtype())?;
    let (&[_, _, features], &[rows, all]) = (x.dims(), weights.dims()) else {
        return Err(Fault::invalid(format!("weights of shape {} for {}", weights.shape(), x.shape())));
    };
    if rows != features {
        return Err(Fault::invalid(format!("{rows} rows of weights for {features} features")));
    }
    let mut product = multiplied(builder, x, weights)?;
    if operator.optional(2).is_some() {
        let bias = operator.typed(2, x.dtype())?;
        bias.shape().broadcast_strides(product.shape())?;
        product = builder.map(domain_of(x.dtype()), [&product, bias], x.dtype(), |[x, bias]| x + bias)?;
    }
    let widths = operator.node.sizes("qkv_hidden_sizes", 3, 1..=i64::MAX)?.unwrap_or_else(|| vec![all / 3; 3]);
    if widths.iter().fold(0usize, |sum, width| sum.saturating_add(*width)) != all {
        return Err(Fault::invalid(format!("{all} columns of weights for {widths:?} features")));
    }
    let mut from = 0;
    let mut parts = Vec::with_capacity(3);
    for width in widths {
        let part = builder.part(&product, 2, from, width)?;
        parts.push(by_head(builder, &part, heads)?);
        from += width;
    }
    let [queries, mut keys, mut values] = Parts::try_from(parts).map_err(|_| Fault::missing(1))?;
    let mut past = 0;
    if operator.optional(4).is_some() {
        let old = operator.typed(4, x.dtype())?;
        let &[2, batch, own, length, depth] = old.dims() else {
            return Err(Fault::invalid(format!("a past of shape {}", old.shape())));
        };
        past = length;
        let mut half = |at| builder.part(old, 0, at, 1)?.reshaped(vec![batch, own, length, depth]);
        let (old_keys, old_values) = (half(0)?, half(1)?);
        keys = continued(builder, &old_keys, &keys)?;
        values = continued(builder, &old_values, &values)?;
    }
    let how = How { mask: operator.optional(3), bias: operator.optional(5), past, ..How::read(operator)? };
    let result = how.attended(builder, [&queries, &keys, &values])?;
    if !operator.wants(1) {
        return Ok(vec![result]);
    }
    let single = |view: &View| view.reshaped([&[1], view.dims()].concat());
    let present = builder.concatenated(&[single(&keys)?, single(&values)?], 0)?;
    Ok(vec![result, present])
}

/// Lowers attention of `[batch, length, heads · depth]` queries, keys and values.
fn multi_head(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    for (index, what) in [(8, "past lengths"), (9, "an indirection of the cache")] {
        if operator.optional(index).is_some() {
            return Err(Fault::unsupported(what));
        }
    }
    operator.only_outputs(3, "of scores")?;
    let heads = operator.size("num_heads", 1, 0)?;
    let q = operator.float_input(0)?;
    if operator.count() < 3 || operator.input(1)?.rank() == 5 {
        return Err(Fault::unsupported("packed keys and values"));
    }
    let mut from = 0;
    let mut parts = Vec::with_capacity(3);
    for index in 0..3 {
        let mut part = operator.typed(index, q.dtype())?.clone();
        let width = part.dims().last().copied().unwrap_or(0);
        // Keys and values by head include their bias already.
        if operator.optional(3).is_some() && part.rank() == 3 {
            let bias = operator.typed(3, q.dtype())?;
            if bias.rank() != 1 || bias.elements() < from + width {
                return Err(Fault::invalid(format!("a bias of shape {} for so many features", bias.shape())));
            }
            let bias = builder.part(bias, 0, from, width)?;
            from += width;
            part = builder.map(domain_of(q.dtype()), [&part, &bias], q.dtype(), |[x, bias]| x + bias)?;
        }
        parts.push(by_head(builder, &part, heads)?);
    }
    let [queries, mut keys, mut values] = Parts::try_from(parts).map_err(|_| Fault::missing(2))?;
    let mut past = 0;
    if operator.optional(6).is_some() {
        let (old_keys, old_values) = (operator.typed(6, q.dtype())?, operator.typed(7, q.dtype())?);
        past = old_keys.dims().get(2).copied().unwrap_or(0);
        keys = continued(builder, old_keys, &keys)?;
        values = continued(builder, old_values, &values)?;
    }
    let how = How { mask: operator.optional(4), bias: operator.optional(5), past, ..How::read(operator)? };
    let result = how.attended(builder, [&queries, &keys, &values])?;
    Ok(vec![result, keys, values])
}

/// Lowers causal attention of queries whose heads share those of keys and values, with a cache that may be longer than
/// its content.
///
/// The number of positions of each row of the batch must be known, and equal for all rows if there is a past: it
/// decides the position of the new keys in the cache.
fn grouped(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    if (11..operator.count()).any(|index| operator.optional(index).is_some())
        || operator.flag("smooth_softmax", false)?
    {
        return Err(Fault::unsupported("a sink of attention, or a cache on a grid"));
    }
    operator.only_outputs(3, "of scores")?;
    let (heads, own) = (operator.size("num_heads", 1, 0)?, operator.size("kv_num_heads", 1, 0)?);
    let q = operator.float_input(0)?;
    let parts = match operator.optional(1) {
        Some(_) => [q.clone(), operator.typed(1, q.dtype())?.clone(), operator.typed(2, q.dtype())?.clone()],
        None => {
            let depth = q.dims().last().copied().unwrap_or(0) / heads.saturating_add(2 * own).max(1);
            let mut part = |from, heads| builder.part(q, 2, from * depth, heads * depth);
            [part(0, heads)?, part(heads, own)?, part(heads + own, own)?]
        }
    };
    let (queries, keys) = (by_head(builder, &parts[0], heads)?, by_head(builder, &parts[1], own)?);
    let values = by_head(builder, &parts[2], own)?;
    let &[batch, _, length, _] = queries.dims() else { return Err(Fault::missing(0)) };
    let past = past_length(operator, builder, batch, length)?;
    let [queries, keys] = match operator.flag("do_rotary", false)? {
        true => {
            let interleaved = operator.flag("rotary_interleaved", false)?;
            let angles = [operator.float_input(7)?, operator.float_input(8)?];
            let steps = builder.indices(DType::I64, length, 1, 2)?;
            let places = builder.map(Domain::I64, [&steps], DType::I64, |[step]| step + past as f64)?;
            let places = builder.expanded(&places, Shape::new(vec![batch, length])?)?;
            let places = operator.optional(9).cloned().unwrap_or(places);
            let width = 2 * angles[0].dims().last().copied().unwrap_or(0);
            let mut turn = |x: &View| turned(builder, x, angles, Some(&places), 0, width, interleaved);
            [turn(&queries)?, turn(&keys)?]
        }
        false => [queries, keys],
    };
    let mut kept = |index: usize, new: View| match operator.optional(index) {
        Some(cache) => cached(builder, cache, &new, past),
        None => Ok((new.clone(), new)),
    };
    let ((keys, kept_keys), (values, kept_values)) = (kept(3, keys)?, kept(4, values)?);
    // The position itself counts.
    let window = Some(operator.int("local_window_size", -1)?).filter(|size| *size > 0).map(|size| size - 1);
    let cap = f64::from(operator.float("softcap", 0.0)?);
    let how = How { bias: operator.optional(10), past, causal: true, window, cap, ..How::read(operator)? };
    let result = how.attended(builder, [&queries, &keys, &values])?;
    Ok(vec![result, kept_keys, kept_values])
}

/// Returns the number of positions before the new ones.
fn past_length(operator: &Operator<'_>, builder: &Builder, batch: usize, length: usize) -> Result<usize, Fault> {
    let last = operator.known_ints(builder, 5, "seqlens_k")?;
    let total = operator.known_int(builder, 6, "total_sequence_length")?;
    let past = usize::try_from(total).ok().and_then(|total| total.checked_sub(length));
    let past = past.filter(|_| last.len() == batch);
    let past = past.ok_or_else(|| Fault::invalid(format!("{} rows of at most {total} positions", last.len())))?;
    if past > 0 && last.iter().any(|last| *last != total - 1) {
        return Err(Fault::unsupported("rows with pasts of different length"));
    }
    Ok(past)
}

/// Returns the content of a cache with the new entries after its first `past` positions, and the whole cache with them.
fn cached(builder: &mut Builder, cache: &View, new: &View, past: usize) -> Result<(View, View), Fault> {
    let &[_, _, room, _] = cache.dims() else {
        return Err(Fault::invalid(format!("a cache of shape {}", cache.shape())));
    };
    if past > room {
        return Err(Fault::invalid(format!("{past} positions in a cache of {room}")));
    }
    let old = builder.part(cache, 2, 0, past)?;
    let joined = continued(builder, &old, new)?;
    let end = past + new.dims()[2];
    if end >= room {
        return Ok((joined.clone(), joined));
    }
    let rest = builder.part(cache, 2, end, room - end)?;
    let whole = continued(builder, &joined, &rest)?;
    Ok((joined, whole))
}

/// Modifications of the scores.
struct How<'a> {
    /// Factor of the scores; 0 for the reciprocal root of the depth.
    scale: f32,
    /// Soft cap of the scores, if above 0.
    cap: f64,
    /// Lengths, or bools per key, as integers.
    mask: Option<&'a View>,
    /// Addend for keys that the mask leaves out.
    left_out: f64,
    /// Addend of the scores.
    bias: Option<&'a View>,
    causal: bool,
    /// Number of earlier positions that a query can see.
    window: Option<i64>,
    past: usize,
}

impl<'a> How<'a> {
    fn read(operator: &Operator<'_>) -> Result<Self, Fault> {
        Ok(Self {
            scale: operator.float("scale", 0.0)?,
            cap: 0.0,
            mask: None,
            left_out: f64::from(operator.float("mask_filter_value", -10_000.0)?),
            bias: None,
            causal: operator.flag("unidirectional", false)?,
            window: None,
            past: 0,
        })
    }

    /// Returns the values weighted by the softmax of the scores, as `[batch, length, heads · depth]`.
    fn attended(&self, builder: &mut Builder, [queries, keys, values]: [&View; 3]) -> Result<View, Fault> {
        let (&[batch, heads, length, depth], &[_, own, total, wide]) = (queries.dims(), values.dims()) else {
            return Err(Fault::missing(0));
        };
        let sharing = heads / own.max(1);
        if *keys.dims() != [batch, own, total, depth] || values.dims()[0] != batch || sharing * own != heads {
            let (q, k, v) = (queries.shape(), keys.shape(), values.shape());
            return Err(Fault::invalid(format!("queries of {q}, keys of {k} and values of {v} do not go together")));
        }
        // With an axis for the query heads that share a key head, if several do.
        let shared = |many: usize, matrix: [usize; 2]| match sharing {
            1 => [&[batch, own][..], &matrix].concat(),
            _ => [&[batch, own, many][..], &matrix].concat(),
        };
        let grouped = queries.reshaped(shared(sharing, [length, depth]))?;
        let across = builder.transposed(keys, &[0, 1, 3, 2])?.reshaped(shared(1, [depth, total]))?;
        let scores = multiplied(builder, &grouped, &across)?.reshaped(vec![batch, heads, length, total])?;
        let scores = self.changed(builder, &scores, depth)?;
        let weights = normalized(builder, &scores, 3, false)?.reshaped(shared(sharing, [length, total]))?;
        let values = values.reshaped(shared(1, [total, wide]))?;
        let result = multiplied(builder, &weights, &values)?.reshaped(vec![batch, heads, length, wide])?;
        let moved = builder.transposed(&result, &[0, 2, 1, 3])?;
        moved.reshaped(vec![batch, length, heads.saturating_mul(wide)])
    }

    /// Returns the scores scaled, capped, and lowered for keys that a query must not see.
    fn changed(&self, builder: &mut Builder, scores: &View, depth: usize) -> Result<View, Fault> {
        let (domain, dtype) = (domain_of(scores.dtype()), scores.dtype());
        let scale = if self.scale == 0.0 { 1.0 / (depth as f64).sqrt() } else { f64::from(self.scale) };
        let cap = self.cap;
        let mut scores = builder.map(domain, [scores], dtype, |[score]| match cap > 0.0 {
            true => (score * (scale / cap)).apply(Unary::Tanh) * cap,
            false => score * scale,
        })?;
        if let Some(bias) = self.bias {
            bias.shape().broadcast_strides(scores.shape())?;
            scores = builder.map(domain, [&scores, bias], dtype, |[score, bias]| score + bias)?;
        }
        if let Some(mask) = self.mask {
            let seen = seen(builder, mask, scores.dims())?;
            scores = builder.map(domain, [&scores, &seen], dtype, |[score, seen]| {
                let lowered = score + self.left_out;
                seen.select(score, lowered)
            })?;
        }
        if !self.causal {
            return Ok(scores);
        }
        let keys = builder.indices(DType::F32, scores.dims()[3], 3, 4)?;
        let queries = positions(builder, scores.dims()[2], None, self.past)?;
        let window = self.window.map(|size| size as f64);
        within(builder, &scores, [&queries, &keys], None, [window, Some(0.0), None])
    }
}

/// Returns which keys count, for scores of `[b, h, s, t]`: as many as each row's length says, or those that are not 0.
fn seen(builder: &mut Builder, mask: &View, scores: &[usize]) -> Result<View, Fault> {
    let (batch, length, total) = (scores[0], scores[2], scores[3]);
    if mask.dtype() != DType::I32 {
        return Err(Fault::invalid(format!("a mask of {}; it must be i32", mask.dtype())));
    }
    let truths = |builder: &mut Builder, dims: [usize; 4]| {
        let mask = mask.reshaped(dims.to_vec())?;
        builder.map(Domain::I64, [&mask], DType::Bool, |[mask]| mask.with(Binary::Greater, 0.0))
    };
    match *mask.dims() {
        [rows] if rows == batch => {
            let keys = builder.indices(DType::I64, total, 3, 4)?;
            let lengths = mask.reshaped(vec![batch, 1, 1, 1])?;
            builder.map(Domain::I64, [&keys, &lengths], DType::Bool, |[key, length]| key.with(Binary::Less, length))
        }
        [rows, keys] if rows == batch && keys == total => truths(builder, [batch, 1, 1, total]),
        [rows, queries, keys] if rows == batch && queries == length && keys == total => {
            truths(builder, [batch, 1, length, total])
        }
        _ => Err(Fault::unsupported(format!("a mask of shape {}", mask.shape()))),
    }
}
