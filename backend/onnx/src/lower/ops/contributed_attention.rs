//! Attention as operators of the domain `com.microsoft`. Queries, keys and values are given or projected; options are
//! keys and values of earlier calls, padding, and query heads that share key heads.

use super::attention::{by_head, concatenated_past, positions, within};
use super::cached::{Lengths, appended, attended, is_cached, judged, rotated};
use super::matmul::multiplied;
use super::softmax::normalized;
use super::{Builder, Entry, Fault, Operator, View, domain_of};
use anabranch_kernels::op::{Attention, Binary, Domain};
use anabranch_kernels::{DType, Shape};

pub(super) const TABLE: &[Entry] =
    &[("Attention", projected), ("MultiHeadAttention", multi_head), ("GroupQueryAttention", grouped)];

/// Queries, keys and values by head, `[b, h, s, d]`, `[b, g, t, d]` and `[b, g, t, e]`.
type Parts = [View; 3];

/// Lowers attention of an input whose queries, keys and values are products with one matrix.
fn projected(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let shared = operator.flag("past_present_share_buffer", false)? || operator.optional(6).is_some();
    if operator.flag("do_rotary", false)? || shared {
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
    let mut options = ScoreOptions::read(operator)?;
    (options.mask, options.bias) = (operator.optional(3), operator.optional(5));
    if operator.optional(4).is_some() {
        let old = operator.typed(4, x.dtype())?;
        let &[2, batch, own, length, depth] = old.dims() else {
            return Err(Fault::invalid(format!("a past of shape {}", old.shape())));
        };
        options.follow(builder, &queries, length)?;
        let mut half = |at| builder.part(old, 0, at, 1)?.reshaped(vec![batch, own, length, depth]);
        let (old_keys, old_values) = (half(0)?, half(1)?);
        keys = concatenated_past(builder, &old_keys, &keys)?;
        values = concatenated_past(builder, &old_values, &values)?;
    }
    let result = options.attended(builder, [&queries, &keys, &values])?;
    if !operator.wants(1) {
        return Ok(vec![result]);
    }
    let single = |view: &View| view.reshaped([&[1], view.dims()].concat());
    let present = builder.concatenated(&[single(&keys)?, single(&values)?], 0)?;
    Ok(vec![result, present])
}

/// Lowers attention of `[batch, length, heads · depth]` queries, keys and values.
fn multi_head(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    if operator.optional(9).is_some() {
        return Err(Fault::unsupported("an indirection of the cache"));
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
                return Err(Fault::invalid(format!(
                    "a bias of shape {} that does not match the features",
                    bias.shape()
                )));
            }
            let bias = builder.part(bias, 0, from, width)?;
            from += width;
            part = builder.map(domain_of(q.dtype()), [&part, &bias], q.dtype(), |[x, bias]| x + bias)?;
        }
        parts.push(by_head(builder, &part, heads)?);
    }
    let [queries, mut keys, mut values] = Parts::try_from(parts).map_err(|_| Fault::missing(2))?;
    let mut options = ScoreOptions::read(operator)?;
    (options.mask, options.bias) = (operator.optional(4), operator.optional(5));
    if operator.optional(6).is_some() {
        let (old_keys, old_values) = (operator.typed(6, q.dtype())?, operator.typed(7, q.dtype())?);
        let capacity = old_keys.dims().get(2).copied().unwrap_or(0);
        if operator.optional(8).is_some() {
            // The past has a capacity, and its length is data.
            let lengths = given_lengths(operator, builder, queries.dims(), capacity)?;
            let mut kept = |old, new| appended(builder, Some(old), new, &lengths.first, capacity, false);
            [keys, values] = [kept(old_keys, &keys)?, kept(old_values, &values)?];
            options.lengths = Some(lengths);
        } else {
            options.follow(builder, &queries, capacity)?;
            keys = concatenated_past(builder, old_keys, &keys)?;
            values = concatenated_past(builder, old_values, &values)?;
        }
    }
    let result = options.attended(builder, [&queries, &keys, &values])?;
    Ok(vec![result, keys, values])
}

/// The number of past positions that is given for all rows of the batch, and that of the keys with the new ones.
fn given_lengths(
    operator: &Operator<'_>,
    builder: &mut Builder,
    queries: &[usize],
    capacity: usize,
) -> Result<Lengths, Fault> {
    let &[batch, _, length, _] = queries else { return Err(Fault::missing(0)) };
    let Some(most) = capacity.checked_sub(length) else {
        return Err(Fault::invalid(format!("{length} new positions for a cache of {capacity}")));
    };
    let past = operator.typed(8, DType::I32)?.reshaped(vec![1])?;
    let past = judged(builder, &past, "past_sequence_length", 0..=most)?;
    let first = builder.expanded(&past, Shape::new(vec![batch])?)?;
    let filled = builder.map(Domain::I64, [&first], DType::I64, |[first]| first + length as f64)?;
    Ok(Lengths { first, filled })
}

/// Attention, causal by default, of queries whose heads share those of keys and values, with a cache that may be longer
/// than what it holds.
///
/// The number of positions per row of the batch is data. The capacity is the length of the past cache, or the total
/// length if that is larger. The total length must be known; it is known if it is the size of a mask.
fn grouped(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    if operator.optional(11).is_some() || operator.int("smooth_softmax", -1)? == 1 {
        return Err(Fault::unsupported("a sink of attention (head_sink, smooth_softmax)"));
    }
    let has = |names: [usize; 2]| names.into_iter().any(|index| operator.optional(index).is_some());
    let is_real = |name| Ok::<_, Fault>(operator.string(name, "NONE")? == "NONE");
    if has([12, 13]) || !is_real("k_quant_type")? || !is_real("v_quant_type")? {
        return Err(Fault::unsupported("a quantised cache (k_scale, v_scale, k_quant_type, v_quant_type)"));
    }
    if has([14, 15]) {
        return Err(Fault::unsupported("normalised queries and keys (q_norm_weight, k_norm_weight)"));
    }
    if operator.flag("sliding_window_cache", false)? {
        return Err(Fault::unsupported("a cache that holds a window of positions (sliding_window_cache)"));
    }
    operator.only_outputs(3, "of scores")?;
    let (heads, own) = (operator.size("num_heads", 1, 0)?, operator.size("kv_num_heads", 1, 0)?);
    if own == 0 || heads % own != 0 {
        return Err(Fault::invalid(format!("{heads} heads of queries cannot share {own} heads of keys and values")));
    }
    let q = operator.float_input(0)?;
    if !is_cached(q.dtype()) {
        return Err(Fault::of_type(0, q.dtype(), "f32, f16 or bf16"));
    }
    let parts = match operator.optional(1) {
        Some(_) => [q.clone(), operator.typed(1, q.dtype())?.clone(), operator.typed(2, q.dtype())?.clone()],
        None => {
            let (width, all) = (q.dims().last().copied().unwrap_or(0), heads.saturating_add(own.saturating_mul(2)));
            if q.rank() != 3 || !width.is_multiple_of(all) {
                let text =
                    format!("{} cannot be divided into {heads} heads of queries and twice {own} heads", q.shape());
                return Err(Fault::invalid(text));
            }
            let depth = width / all;
            let mut part = |from, heads| builder.part(q, 2, from * depth, heads * depth);
            [part(0, heads)?, part(heads, own)?, part(heads + own, own)?]
        }
    };
    let values = by_head(builder, &parts[2], own)?;
    let &[batch, _, length, _] = values.dims() else { return Err(Fault::missing(0)) };
    let total = operator.known_int(builder, 6, "total_sequence_length")?;
    let total = usize::try_from(total).map_err(|_| Fault::invalid(format!("a total length of {total} positions")))?;
    let past = |index| operator.optional(index).and_then(|cache| cache.dims().get(2).copied()).unwrap_or(0);
    let capacity = past(3).max(past(4)).max(total).max(length);
    let lengths = grouped_lengths(operator, builder, [batch, length, total, capacity])?;
    let [queries, keys] = match operator.flag("do_rotary", false)? {
        true => {
            let interleaved = operator.flag("rotary_interleaved", false)?;
            let angles = [operator.float_input(7)?, operator.float_input(8)?];
            let positions = match operator.optional(9) {
                None => lengths.first.clone(),
                Some(_) if total == length => first_of_all(builder, operator.typed(9, DType::I64)?, batch)?,
                Some(_) => operator.typed(9, DType::I64)?.clone(),
            };
            let mut turn = |x: &View, heads| rotated(builder, x, heads, angles, &positions, interleaved);
            let (queries, keys) = (turn(&parts[0], heads)?, turn(&parts[1], own)?);
            [builder.cast(&queries, q.dtype())?, builder.cast(&keys, q.dtype())?]
        }
        false => [by_head(builder, &parts[0], heads)?, by_head(builder, &parts[1], own)?],
    };
    let mut kept =
        |index, new: &View| appended(builder, operator.optional(index), new, &lengths.first, capacity, false);
    let (keys, values) = (kept(3, &keys)?, kept(4, &values)?);
    let window = match operator.int("local_window_size", -1)? {
        -1 => None,
        size => match usize::try_from(size) {
            Ok(size) if size > 0 => Some(size),
            _ => return Err(Fault::attribute("local_window_size", size, "-1, or at least 1")),
        },
    };
    let causal = operator.flag("causal", true)?;
    if !causal && window.is_some() {
        return Err(Fault::unsupported("a window of attention to both sides (causal, local_window_size)"));
    }
    let depth = queries.dims()[3];
    let op = Attention {
        scale: scale(operator, depth)?,
        // ONNX Runtime takes a negative cap for none.
        cap: operator.float("softcap", 0.0)?.max(0.0),
        // The position itself counts.
        before: window.map(|size| size - 1),
        after: causal.then_some(0),
        bias: operator.optional(10).is_some(),
        expected: capacity,
    };
    let result = attended(builder, op, [&queries, &keys, &values], &lengths, operator.optional(10))?;
    let result = result.reshaped(vec![batch, length, heads.saturating_mul(values.dims()[3])])?;
    Ok(vec![result, keys, values])
}

/// The first positions of a prompt, in which all rows count on from one: the first of the given ones, as `[batch]`.
fn first_of_all(builder: &mut Builder, positions: &View, batch: usize) -> Result<View, Fault> {
    if positions.elements() == 0 {
        return Ok(positions.clone());
    }
    let first = builder.part(&positions.reshaped(vec![positions.elements()])?, 0, 0, 1)?;
    builder.expanded(&first, Shape::new(vec![batch])?)
}

/// The factor of scores: 0 stands for the root of the depth.
fn scale(operator: &Operator<'_>, depth: usize) -> Result<f32, Fault> {
    let scale = operator.float("scale", 0.0)?;
    Ok(if scale == 0.0 { (1.0 / (depth as f64).sqrt()) as f32 } else { scale })
}

/// Where the new positions of each row go: behind its past ones. Rows of a first prompt have no past, and the last
/// positions of shorter rows are padding. Other lengths are refused in the run.
fn grouped_lengths(
    operator: &Operator<'_>,
    builder: &mut Builder,
    [batch, length, total, capacity]: [usize; 4],
) -> Result<Lengths, Fault> {
    let last = operator.typed(5, DType::I32)?.reshaped(vec![batch])?;
    let least = if total == length { 0 } else { length.saturating_sub(1) };
    let last = judged(builder, &last, "seqlens_k", least..=capacity.saturating_sub(1))?;
    let first = builder.map(Domain::I64, [&last], DType::I64, |[last]| {
        let first = last + (1.0 - length as f64);
        first.with(Binary::Max, 0.0)
    })?;
    let filled = builder.map(Domain::I64, [&last], DType::I64, |[last]| last + 1.0)?;
    Ok(Lengths { first, filled })
}

/// Modifications of the scores.
struct ScoreOptions<'a> {
    /// Factor of the scores; 0 for the reciprocal root of the depth.
    scale: f32,
    /// Lengths, or truths of keys, as integers.
    mask: Option<&'a View>,
    /// Addend for keys that the mask leaves out.
    mask_value: f64,
    /// Addend of the scores.
    bias: Option<&'a View>,
    causal: bool,
    /// Keys and values that come from earlier calls.
    past: usize,
    /// Where the rows stand among the keys, for attention in one pass over them.
    lengths: Option<Lengths>,
}

impl<'a> ScoreOptions<'a> {
    fn read(operator: &Operator<'_>) -> Result<Self, Fault> {
        Ok(Self {
            scale: operator.float("scale", 0.0)?,
            mask: None,
            mask_value: f64::from(operator.float("mask_filter_value", -10_000.0)?),
            bias: None,
            causal: operator.flag("unidirectional", false)?,
            past: 0,
            lengths: None,
        })
    }

    /// Lets the queries follow this many keys of earlier calls.
    fn follow(&mut self, builder: &mut Builder, queries: &View, past: usize) -> Result<(), Fault> {
        let &[batch, _, length, _] = queries.dims() else { return Err(Fault::missing(0)) };
        self.past = past;
        if past > 0 && is_cached(queries.dtype()) {
            self.lengths = Some(Lengths::known(builder, batch, [past, past.saturating_add(length)])?);
        }
        Ok(())
    }

    /// Returns the values weighted by the softmax of the scores, as `[batch, length, heads · depth]`.
    fn attended(&self, builder: &mut Builder, [queries, keys, values]: [&View; 3]) -> Result<View, Fault> {
        let (&[batch, heads, length, depth], &[_, own, total, wide]) = (queries.dims(), values.dims()) else {
            return Err(Fault::missing(0));
        };
        let sharing = heads / own.max(1);
        if *keys.dims() != [batch, own, total, depth] || values.dims()[0] != batch || sharing * own != heads {
            let (q, k, v) = (queries.shape(), keys.shape(), values.shape());
            return Err(Fault::invalid(format!("queries of {q}, keys of {k} and values of {v} do not match")));
        }
        if let Some(lengths) = &self.lengths {
            let result = self.over_cache(builder, [queries, keys, values], lengths)?;
            return result.reshaped(vec![batch, length, heads.saturating_mul(wide)]);
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

    /// [`Self::attended`] of queries that follow others, in one pass over the keys and values.
    fn over_cache(&self, builder: &mut Builder, parts: [&View; 3], lengths: &Lengths) -> Result<View, Fault> {
        let (&[batch, heads, length, depth], total) = (parts[0].dims(), parts[1].dims()[2]) else {
            return Err(Fault::missing(0));
        };
        let scores = [batch, heads, length, total];
        let bias = self.bias.map(|bias| builder.as_f32(bias)).transpose()?;
        let bias = match self.mask {
            None => bias,
            Some(mask) => {
                let seen = seen(builder, mask, &scores)?;
                let bias = bias.map_or_else(|| builder.scalar(DType::F32, 0.0), Ok)?;
                Some(builder.map(Domain::F32, [&bias, &seen], DType::F32, |[bias, seen]| {
                    let lowered = bias + self.mask_value;
                    seen.select(bias, lowered)
                })?)
            }
        };
        let scale = if self.scale == 0.0 { (1.0 / (depth as f64).sqrt()) as f32 } else { self.scale };
        let after = self.causal.then_some(0);
        let op = Attention { scale, cap: 0.0, before: None, after, bias: bias.is_some(), expected: total };
        attended(builder, op, parts, lengths, bias.as_ref())
    }

    /// Scores scaled, and lowered where a query may not look.
    fn changed(&self, builder: &mut Builder, scores: &View, depth: usize) -> Result<View, Fault> {
        let (domain, dtype) = (domain_of(scores.dtype()), scores.dtype());
        let scale = if self.scale == 0.0 { 1.0 / (depth as f64).sqrt() } else { f64::from(self.scale) };
        let mut scores = builder.map(domain, [scores], dtype, |[score]| score * scale)?;
        if let Some(bias) = self.bias {
            bias.shape().broadcast_strides(scores.shape())?;
            scores = builder.map(domain, [&scores, bias], dtype, |[score, bias]| score + bias)?;
        }
        if let Some(mask) = self.mask {
            let seen = seen(builder, mask, scores.dims())?;
            scores = builder.map(domain, [&scores, &seen], dtype, |[score, seen]| {
                let lowered = score + self.mask_value;
                seen.select(score, lowered)
            })?;
        }
        if !self.causal {
            return Ok(scores);
        }
        let keys = builder.indices(DType::F32, scores.dims()[3], 3, 4)?;
        let queries = positions(builder, scores.dims()[2], None, self.past)?;
        within(builder, &scores, [&queries, &keys], None, [None, Some(0.0), None])
    }
}

/// Returns which keys count, for scores of `[b, h, s, t]`: as many as each row's length says, or those that are not 0.
fn seen(builder: &mut Builder, mask: &View, scores: &[usize]) -> Result<View, Fault> {
    let (batch, length, total) = (scores[0], scores[2], scores[3]);
    if mask.dtype() != DType::I32 {
        return Err(Fault::invalid(format!("a mask of {}, but it must be i32", mask.dtype())));
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
